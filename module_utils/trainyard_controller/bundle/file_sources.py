# SPDX-License-Identifier: Apache-2.0
"""Check files and packages that the controller brings to hosts, and pack its pip."""

from __future__ import annotations

import base64
import importlib.util
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import requested
from ...trainyard_node.software import index_queries
from ...trainyard_node.software.dataset_files import sha256_of


def source_findings(sources: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the findings for sources that the controller brings: each has `local_file`, or a `package`."""
    found = (
        requested.file_finding(source, sha256(Path(source["local_file"]).expanduser()))
        if source.get("local_file")
        else _package(source)
        for source in sources
    )
    return [finding for finding in found if finding]


def _package(source: Mapping[str, Any]) -> Finding | None:
    """Query the index for a package, unless its files are cached here."""
    if Path(source["cached"]).expanduser().exists():
        return None
    try:
        pin, options, index = requested.index_query(source)
    except ValueError as error:
        return requested.query_finding(source, error)
    offered = index_queries.query([sys.executable, "-m", "pip"], pin.name, options, index)
    return requested.package_finding(source, offered)


def sha256(path: Path) -> str | None:
    """Return the SHA-256 of a file, None if it cannot be read."""
    try:
        return sha256_of(path)
    except OSError:
        return None


def packed_pip() -> str:
    """Return the controller's own pip as a zip file that Python runs, in base64; "" where it has none."""
    found = importlib.util.find_spec("pip")
    if found is None or not found.origin:
        return ""
    root, packed = Path(found.origin).parent, io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".exe"):
                archive.write(path, f"pip/{path.relative_to(root)}")
    return base64.b64encode(packed.getvalue()).decode()
