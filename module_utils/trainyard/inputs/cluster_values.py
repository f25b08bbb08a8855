# SPDX-License-Identifier: Apache-2.0
"""Values of the cluster that no cluster can have: folders, the training user's uid, the name of an NVIDIA stack."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..findings.findings import Finding
from ..nvidia.stack import choose
from .variables import Place

# The folders on the nodes that trainyard makes and fills.
FOLDERS = ("trainyard_root", "trainyard_state", "trainyard_records")
# Folders of the system: their owner and mode must stay what they are, and `clean` removes nothing there.
_SYSTEM = frozenset(
    f"/{name}"
    for name in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "proc", "root", "run", "sbin", "sys"),
        *("usr", "usr/bin", "usr/lib", "usr/local", "usr/sbin", "var", "var/lib", "var/log"),
    )
)
# The kernel takes the next number for "no user".
_MOST_UID = 2**32 - 2


def folder(name: str, value: Any, default: str, place: Place) -> list[Finding]:
    """Find a folder on the nodes that is no absolute path, or one of the system's."""
    text = str(value)
    own = f"the absolute path of a folder of its own, such as {default}"
    if not text.startswith("/"):
        home = "; ~ is another folder for each user" if text.startswith("~") else ""
        found, action = f"{text or 'nothing'} {place.text}{home}", f"write {place.how(name, default)}"
    # Two slashes at the beginning are kept by POSIX.
    elif posixpath.normpath(text).replace("//", "/") in _SYSTEM:
        found, action = f"{text} {place.text}, a folder of the system", f"name one below it, or leave {name} out"
    else:
        return []
    return [Finding(name, found, own, action)]


def uid(value: int, manages: bool, place: Place) -> list[Finding]:
    """Find a uid of no ordinary user; where no users are managed it may be root's, who runs everything there."""
    if (1 if manages else 0) <= value <= _MOST_UID:
        return []
    return [
        Finding(
            "trainyard_uid",
            f"{value} {place.text}{', which is root' if not value else ''}",
            f"the number of an ordinary user, from 1 to {_MOST_UID}",
            "choose a number that is free on all nodes, or leave trainyard_uid out",
        )
    ]


def stack(name: Any, catalog: Mapping[str, Any], place: Place) -> list[Finding]:
    """Find the name of an NVIDIA stack that neither the catalog nor nvidia_stack_own has; "" is none."""
    _, findings = choose("", catalog, str(name), {}) if name else ({}, [])
    return [replace(finding, found=f"{finding.found} {place.text}") for finding in findings]
