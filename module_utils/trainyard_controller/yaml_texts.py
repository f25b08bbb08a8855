# SPDX-License-Identifier: Apache-2.0
"""Find texts that YAML reads as other types: 0123 as 83, and 12:30:45 as 45045."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, NamedTuple

import yaml

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
                text = _as_text(value)
                if text != part.value or isinstance(value, date):
                    yield Changed(name, part.value, part.start_mark.line + 1, text)


def _as_text(value: Any) -> str:
    """Return the text that a rank gets for a value."""
    if isinstance(value, date):
        return "a date"
    return str(value).lower() if isinstance(value, bool) else str(value)
