# SPDX-License-Identifier: Apache-2.0
"""The prefix of what is built on this machine or copied to it, and the room for it. Sizes in MB (10^6 bytes)."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path
from typing import Any

from ...trainyard.findings.shapes import misfit
from ...trainyard.findings.state_format import loads

RECORD = ".trainyard.json"
# The part of a record that is read beside its comparison.
_RECORD = {"?make": [str]}


def os_release() -> dict[str, str]:
    """Return the fields of /etc/os-release."""
    pairs = (line.partition("=") for line in Path("/etc/os-release").read_text().splitlines())
    return {key: value.strip("\"'") for key, _, value in pairs}


def system() -> str:
    """Name the operating system, its release and the hardware; a build serves all nodes that are equal in it."""
    found = os_release()
    return f"{found.get('ID', 'linux')} {found.get('VERSION_ID', '')} {platform.machine()}"


def free_bytes(path: Path) -> int:
    """Return the free bytes where a path is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def read_record(prefix: Path) -> dict[str, Any] | None:
    """Return what the content of the prefix was built from; None where no role of this project built it."""
    try:
        record = loads((prefix / RECORD).read_bytes())
    except (OSError, ValueError):
        return None
    return record if not misfit(record, _RECORD) else None


def read_place(prefix: Path) -> dict[str, Any]:
    """Return platform, cpus, free_mb, record and prefix_kind (none, built, foreign), as the plans take them."""
    record = read_record(prefix)
    return {
        "platform": system(),
        "cpus": len(os.sched_getaffinity(0)),
        "free_mb": free_bytes(prefix) // 10**6,
        "record": record,
        "prefix_kind": "built" if record else "foreign" if os.path.lexists(prefix) else "none",
    }
