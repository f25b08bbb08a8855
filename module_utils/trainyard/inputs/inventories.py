# SPDX-License-Identifier: Apache-2.0
"""Findings about the inventory of a playbook's call: none is named, or the named one does not exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from .job_file import similar

_EXPECTED = "an inventory: a file, a folder, or names of hosts such as n1,n2"
_SECRET = re.compile(r"secret|passw|token|key")
# Upper bounds for groups and findings of one file.
_MAX_GROUPS, _MAX_LISTS = 10_000, 20
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


def lists(path: str, data: Any) -> list[Finding]:
    """Find lists of hosts in an inventory as YAML, where Ansible needs a dictionary; `data` is its content."""
    findings: list[Finding] = []
    groups = list(data.items()) if isinstance(data, Mapping) else []
    # A loop, as an anchor of YAML may name a group above it; more groups than these are not read.
    for name, group in groups:
        if len(groups) > _MAX_GROUPS or len(findings) >= _MAX_LISTS:
            break
        for key in ("hosts", "children", "vars"):
            value = group.get(key) if isinstance(group, Mapping) else None
            if isinstance(value, (list, tuple)):
                names = ", ".join(f"{each}: " for each in value if isinstance(each, str))
                action = f"write {key}: {{{names or 'NAME: '}}}" if key != "vars" else "write vars: {NAME: VALUE}"
                findings.append(Finding("inventory", f"{key} of {name} in {path} is a list", "a dictionary", action))
            elif key == "children" and isinstance(value, Mapping):
                groups += value.items()
    return findings


def of_project(path: str) -> Finding:
    """Return the finding about the project's own folder as an inventory."""
    return Finding("inventory", f"{path}, the folder of the project", _EXPECTED, "name one, as -i inventories/NAME")
