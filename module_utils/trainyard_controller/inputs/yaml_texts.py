# SPDX-License-Identifier: Apache-2.0
"""Find texts that YAML reads as other types, 0123 as 83 and 12:30:45 as 45045, and what is no part of an inventory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import yaml

from ...trainyard.job.file.given_environment import as_text

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Variables by their names and the numbers of their lines.
Nodes = dict[tuple[int, str], yaml.Node]


def nodes(text: str) -> Nodes:
    """Return the value of each key of a YAML text, at any depth; nothing if it cannot be read."""
    found: Nodes = {}
    try:
        # libyaml takes no subclass of str, as Ansible's tagged texts are.
        root = yaml.compose(f"{text}", Loader=_Loader)
    except yaml.YAMLError:
        return found
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        # A reference to an anchor is the same node once more.
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[key.start_mark.line + 1, str(key.value)] = value
                todo.append(value)
    return found


_GROUP = "hosts, children or vars in a group, each with a colon"
# What may stand in each part of an inventory.
_PARTS = {
    "children": "groups, each as NAME: {hosts: ...}",
    "group": _GROUP,
    "hosts": "hosts, each as NAME: or NAME: {ansible_host: ADDRESS}",
    "host": "variables, as NAME: {ansible_host: ADDRESS}",
    "vars": "variables, as NAME: VALUE",
}


def inventory_faults(text: str) -> list[tuple[int, str, str]]:
    """Return line, what is found and what is expected, of each part of an inventory in YAML that Ansible leaves out."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError):
        return []
    if not isinstance(root, yaml.MappingNode) or any(key.value == "plugin" for key, _ in root.value):
        return []
    faults = []
    todo, seen = [(root, "children", "the inventory")], set()
    while todo:
        node, part, of = todo.pop()
        # A reference to an anchor is the same node once more.
        if id(node) in seen or node.tag.endswith(":null"):
            continue
        seen.add(id(node))
        if not isinstance(node, yaml.MappingNode):
            is_list = isinstance(node, yaml.SequenceNode)
            # Ansible takes `hosts: n1`.
            if is_list or part not in ("hosts", "children"):
                found = f"a {'list' if is_list else 'text'} as {of}"
                faults.append((node.start_mark.line + 1, found, _PARTS[part]))
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name == "<<":
                continue
            if name in lines:
                faults.append((line, f"{name} in {of} again, after line {lines[name]}", "each name once"))
            lines[name] = line
            if part == "group" and name not in ("hosts", "children", "vars"):
                faults.append((line, f"{name} in {of}", _GROUP))
            elif part == "group":
                todo.append((value, name, f"{name} of {of}"))
            elif part in ("children", "hosts"):
                kind = "group" if part == "children" else "host"
                todo.append((value, kind, f"{kind} {name}"))
    return sorted(faults)


class Changed(NamedTuple):
    """A value that becomes another text: its name, what is written in which line, and the new text."""

    name: str
    written: str
    line: int
    becomes: str


def changed(node: yaml.Node | None) -> Iterator[Changed]:
    """Yield the values of a dictionary or list that become other texts when YAML reads them; a single one is ""."""
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(f"word {number}", value) for number, value in enumerate(node.value, 1)]
    else:
        parts = [("", node)]
    for name, part in parts:
        # Without quotes or a block, YAML chooses the type.
        if isinstance(part, yaml.ScalarNode) and not part.style:
            value = yaml.load(part.value, Loader=_Loader)  # noqa: S506
            if value is not None and not isinstance(value, str):
                text = "a date" if isinstance(value, date) else as_text(value)
                if text != part.value or isinstance(value, date):
                    yield Changed(name, part.value, part.start_mark.line + 1, text)
