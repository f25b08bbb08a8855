# SPDX-License-Identifier: Apache-2.0
"""Find required files and folders that a node has not, or has otherwise; trainyard_node/machine/files.py reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from ..base.findings import Finding


def differing(wanted: Iterable[Mapping[str, Any]], found: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the paths of what is missing or differs, in the order in which they are wanted.

    Entries of `wanted` are those of the module node_files, with the same defaults: a path and perhaps content, owner,
    group and mode. In place of the content its sha256 may be given; without both it is a folder.
    """
    return [str(entry["path"]) for entry in wanted if not _as_wanted(entry, found.get(str(entry["path"]), {}))]


def taken(path: str, what: str) -> Finding:
    """Return the finding about a file that is there, differs, and must not be overwritten."""
    variable = "rank_table_overwrite" if what == "rank table" else "hostfile_overwrite"
    action = f"name another file, move this one away, or set {variable}: true"
    return Finding("file", f"{path} is there and differs", f"no such file, or the same {what}", action)


def with_folders(texts: Mapping[str, str], root: str) -> list[dict[str, str]]:
    """Return the entries of files below `root`, `texts` by relative path, after those of the folders they lie in."""
    folders = dict.fromkeys(str(PurePosixPath(name).parent) for name in texts)
    files = [{"path": f"{root}/{name}", "content": text} for name, text in texts.items()]
    return [*({"path": f"{root}/{folder}"} for folder in folders), *files]


def _as_wanted(entry: Mapping[str, Any], there: Mapping[str, str]) -> bool:
    digest = entry.get("sha256") or ""
    if entry.get("content") is not None:
        digest = hashlib.sha256(str(entry["content"]).encode("utf-8", "surrogateescape")).hexdigest()
    kind, mode = ("file", "0644") if digest else ("folder", "0755")
    return (
        there.get("kind") == kind
        and there["sha256"] == digest
        and there["mode"] == str(entry.get("mode") or mode).zfill(4)
        and str(entry.get("owner", "root")) in (there["owner"], there["uid"])
        and str(entry.get("group", "root")) in (there["group"], there["gid"])
    )
