# SPDX-License-Identifier: Apache-2.0
"""The inventory with which a playbook is called: one that nobody names, and one that does not exist."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from ..findings.findings import Finding

_EXPECTED = "an inventory: a file, a folder, or names of hosts such as n1,n2"
_SECRET = re.compile(r"secret|passw|token|key")
_OPTIONS = ("-i", "--inventory", "--inventory-file")
_EMPTY = tuple(f"{option}=" for option in _OPTIONS[1:])


def not_named(arguments: Sequence[str], localhost: str) -> Finding:
    """Return the finding about a call without an inventory; `localhost` is the path of the one for this machine."""
    rest = shlex.join(_without_empty(arguments))
    # Output may be kept in a log.
    command = f"ansible-playbook {rest if not _SECRET.search(rest) else '...'}"
    return Finding(
        "inventory",
        "an empty -i" if is_empty(arguments) else "none: neither -i nor ANSIBLE_INVENTORY names one",
        "the hosts on which the playbook works",
        f"to try it on this machine, {command} -i {localhost}; on your cluster, {command} -i INVENTORY",
    )


def is_empty(arguments: Sequence[str]) -> bool:
    """Tell whether an option -i names nothing, as `-i "$INVENTORY"` does where the shell has no such variable."""
    return len(_without_empty(arguments)) < len(arguments)


def _without_empty(arguments: Sequence[str]) -> list[str]:
    left: list[str] = []
    for word in arguments:
        if not word and left and left[-1] in _OPTIONS:
            left.pop()
        elif word not in _EMPTY:
            left.append(word)
    return left


def missing(path: str, others: Sequence[str], variable: bool) -> Finding:
    """Return the finding about a path that does not exist; `others` are paths that do.

    `variable` tells whether ANSIBLE_INVENTORY names it, or a configuration file, and not the option -i.
    """
    names = {PurePosixPath(other).stem: other for other in others}
    near = difflib.get_close_matches(PurePosixPath(path).stem, names, n=1)
    correct = "correct ANSIBLE_INVENTORY, or name one with -i" if variable else "correct -i"
    alone = f"; a single host is -i {path}," if not variable and re.fullmatch(r"[\w-]+", path) else ""
    return Finding(
        "inventory",
        f"no file or folder {path}",
        _EXPECTED,
        f"did you mean {names[near[0]]}?" if near else f"{correct}{alone}",
    )


def of_project(path: str) -> Finding:
    """Return the finding about the project's own folder as an inventory."""
    return Finding("inventory", f"{path}, the folder of the project", _EXPECTED, "name one, as -i inventories/NAME")
