# SPDX-License-Identifier: Apache-2.0
"""Findings about the inventory of a playbook's call: none is named, or the named one does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ..findings.findings import Finding
from .job_file import similar

_EXPECTED = "an inventory: a file, a folder, or names of hosts such as n1,n2"
_SECRET = re.compile(r"secret|passw|token|key")
_OPTIONS = ("-i", "--inventory", "--inventory-file")
_EMPTY = tuple(f"{option}=" for option in _OPTIONS[1:])


def not_named(arguments: Sequence[str], localhost: str) -> Finding:
    """Return the finding about a call without an inventory; `localhost` is the path of the one for this machine."""
    found = "an empty -i" if is_empty(arguments) else "none: neither -i nor ANSIBLE_INVENTORY names one"
    options = shlex.join(_without_empty(arguments))
    # Output may be stored in a log.
    command = f"ansible-playbook {'...' if _SECRET.search(options) else options}"
    action = f"to try it on this machine, {command} -i {localhost}; on your cluster, {command} -i INVENTORY"
    return Finding("inventory", found, "the hosts on which the playbook works", action)


def is_empty(arguments: Sequence[str]) -> bool:
    """Tell whether an option -i names nothing, as `-i "$INVENTORY"` does where the shell has no such variable."""
    return len(_without_empty(arguments)) < len(arguments)


def _without_empty(arguments: Sequence[str]) -> list[str]:
    remaining: list[str] = []
    for word in arguments:
        if not word and remaining and remaining[-1] in _OPTIONS:
            remaining.pop()
        elif word not in _EMPTY:
            remaining.append(word)
    return remaining


def missing(path: str, others: Sequence[str], variable: bool) -> Finding:
    """Return the finding about a path that does not exist; `others` are paths that do.

    `variable` tells whether ANSIBLE_INVENTORY or a configuration file names it, and not the option -i.
    """
    near = similar(path, others)
    if near:
        action = f"did you mean {near}?"
    elif variable:
        action = "correct ANSIBLE_INVENTORY, or name one with -i"
    else:
        action = f"correct -i; a single host is -i {path}," if re.fullmatch(r"[\w-]+", path) else "correct -i"
    return Finding("inventory", f"no file or folder {path}", _EXPECTED, action)


def of_project(path: str) -> Finding:
    """Return the finding about the project's own folder as an inventory."""
    return Finding("inventory", f"{path}, the folder of the project", _EXPECTED, "name one, as -i inventories/NAME")
