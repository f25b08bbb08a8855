# SPDX-License-Identifier: Apache-2.0
"""Findings about the inventory of a playbook's call: none is named, it does not exist, or cannot be read whole."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Sequence

from ..base.findings import Finding
from .input_variables import Place
from .job_file import similar

_EXPECTED = "an inventory: a file, a folder, or names of hosts such as n1,n2"
_SECRET = re.compile(r"secret|passw|token|key")
_OPTIONS = ("-i", "--inventory", "--inventory-file")
# What Ansible takes for a truth value.
_TRUTHS = frozenset({"y", "yes", "on", "1", "1.0", "true", "t", "n", "no", "off", "0", "0.0", "false", "f"})
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


def half_read(name: str, line: int, found: str, expected: str) -> Finding:
    """Return the finding about a part of an inventory in YAML that Ansible would drop with a warning."""
    action = "correct it: Ansible would leave it out, and go on with the rest"
    return Finding("inventory", f"{found}: {name}, line {line}", expected, action)


def not_ini(name: str, text: str, line: int, reason: str) -> Finding:
    """Return the finding about an inventory in INI that Ansible could not read past a line."""
    written = dict(enumerate(text.splitlines(), 1)).get(line, "").strip()
    if line == 1 and text.startswith("\ufeff"):
        reason, written = "no byte order mark before the first line", "[...]"
    # A line may hold a password.
    shown = f": {written}" if written.startswith("[") else ""
    action = "correct that line; sections are [GROUP], [GROUP:vars] and [GROUP:children], hosts NAME VARIABLE=VALUE"
    return Finding("inventory", f"{name}, line {line}{shown}", f"an inventory in INI: {reason}", action)


def unreadable(name: str, reason: str) -> Finding:
    """Return the finding about another inventory that no plugin of Ansible could read."""
    action = f"correct it, or move it away; to see more: ansible-inventory -i {shlex.quote(name)} --list"
    return Finding("inventory", f"{name}: {reason}", "an inventory that Ansible reads whole", action)


def connection(name: str, value: object, place_of: Callable[[str], Place], known: Sequence[str] = ()) -> Finding | None:
    """Find that ansible_port is no port, or ansible_become no truth value.

    Another variable names none of the plugins that Ansible has for it: `known`. `place_of` returns where it stands.
    """
    text = str(value)
    if name == "ansible_port":
        right, expected = text.isascii() and text.isdecimal() and 0 < int(text[:9]) < 1 << 16, "a port, 1 to 65535"
    elif name == "ansible_become":
        right, expected = text.lower() in _TRUTHS, "true or false"
    else:
        right, expected = False, f"a plugin of Ansible: {', '.join(known)}"
    if right:
        return None
    near = difflib.get_close_matches(text, known, n=1)
    action = f"did you mean {near[0]}?" if near else f"correct {name}"
    return Finding("connection", f"{name}: {text[:80]} {place_of(name).text}", expected, action)
