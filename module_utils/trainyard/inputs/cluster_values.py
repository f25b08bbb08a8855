# SPDX-License-Identifier: Apache-2.0
"""Find invalid values of the cluster: folders, the training user's uid, groups of nodes, an NVIDIA stack."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..base.findings import Finding
from ..nvidia.stack import choose
from .input_variables import Place

# The folders on the nodes that trainyard makes and fills.
FOLDERS = ("trainyard_root", "trainyard_state", "trainyard_records")
# Folders of the system: their owner and mode must not change, and `clean` removes nothing there.
_SYSTEM = frozenset(
    ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin",
     "/sys", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/var", "/var/lib", "/var/log")
)  # fmt: skip
# The next number means "no user" to the kernel.
_MAX_UID = 2**32 - 2


def folder(name: str, value: Any, default: str, place: Place) -> list[Finding]:
    """Find a folder on the nodes that is no absolute path, or one of the system's."""
    text = str(value)
    if not text.startswith("/"):
        home = "; ~ is another folder for each user" if text.startswith("~") else ""
        found, action = f"{text or 'nothing'} {place.text}{home}", f"write {place.how(name, default)}"
    # POSIX preserves two slashes at the beginning.
    elif posixpath.normpath(text).replace("//", "/") in _SYSTEM:
        found, action = f"{text} {place.text}, a folder of the system", f"name one below it, or leave {name} out"
    else:
        return []
    return [Finding(name, found, f"the absolute path of a folder of its own, such as {default}", action)]


def uid(value: int, manages: bool, place: Place) -> list[Finding]:
    """Find a uid that no ordinary user can have. Root's is valid where no users are managed, as root runs all there."""
    if (1 if manages else 0) <= value <= _MAX_UID:
        return []
    found = f"{value} {place.text}{', which is root' if not value else ''}"
    action = "choose a number that is free on all nodes, or leave trainyard_uid out"
    return [Finding("trainyard_uid", found, f"the number of an ordinary user, from 1 to {_MAX_UID}", action)]


def group_by(name: str, values: Mapping[str, Any], place: Place) -> list[Finding]:
    """Find a variable by which nodes cannot be grouped; `values` are those of the first host that has it."""
    host, value = next(iter(values.items()), ("", None))
    if isinstance(value, (str, int, float)):
        return []
    what = f"which is no text or number on {host}" if host else "a variable that no node has"
    expected = "a variable that the inventory sets for nodes, to a text or a number"
    action = f"set {name} for hosts or groups of the inventory, or leave verify_group_by out"
    return [Finding("verify_group_by", f"{name} {place.text}, {what}", expected, action)]


def stack(name: Any, catalog: Mapping[str, Any], place: Place) -> list[Finding]:
    """Find the name of an NVIDIA stack that the catalog does not have; "" means no stack."""
    _, findings = choose("", catalog, str(name), {}) if name else ({}, [])
    return [replace(finding, found=f"{finding.found} {place.text}") for finding in findings]
