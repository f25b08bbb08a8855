# SPDX-License-Identifier: Apache-2.0
"""What a YAML file writes for a text that YAML takes for something else: 0123 is 83 to it, and 12:30:45 is 45045."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from typing import Any, NamedTuple

import yaml
from ansible import context

from ..trainyard.findings.findings import Finding
from ..trainyard.inputs import variables as inputs
from ..trainyard.inputs.variables import Place
from .given_values import origin_of, place_of

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Variables by their names and the numbers of their lines.
Nodes = dict[tuple[int, str], yaml.Node]


def nodes(text: str) -> Nodes:
    """Return what stands for each key of a YAML text, at any depth; nothing where it cannot be read."""
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
    """A value that is another text once YAML has read it: its name, what is written in which line, what it becomes."""

    name: str
    written: str
    line: int
    becomes: str


def changed(node: yaml.Node | None) -> Iterator[Changed]:
    """Return the values of a dictionary or list that are another text once YAML has read them."""
    if isinstance(node, yaml.MappingNode):
        parts = [(str(key.value), value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        parts = [(f"word {number}", value) for number, value in enumerate(node.value, 1)]
    else:
        parts = []
    for name, part in parts:
        # Neither quotes nor a block: what is written is for YAML to understand.
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


class Texts:
    """Finds texts for programs, such as the values of job_env, that YAML takes for something else."""

    def __init__(self, read: Callable[[str], str]) -> None:
        """Take what reads a file that a user gives; each is read once."""
        self._read = read
        self._files: dict[str, Nodes] = {}

    def retyped(self, variables: Mapping[str, Any]) -> list[Finding]:
        """Return the findings about these variables."""
        findings = []
        for name in [each for each in variables if each in inputs.TEXTS]:
            place = place_of(name)
            for part in changed(self._node(name, variables[name], place)):
                where = Place(f"in {place.file}, line {part.line}", place.file) if place.file else place
                findings.append(inputs.retyped(name, part.name, part.written, part.becomes, where))
        return findings

    def _node(self, name: str, value: Any, place: Place) -> yaml.Node | None:
        """Return what is written for a variable; None where it is nothing but texts, or nobody knows any more."""
        parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        origin = origin_of(name)
        if isinstance(value, str):
            return nodes(f"{name}: {value}").get((1, name))
        if all(isinstance(part, str) for part in parts):
            return None
        if place.file and origin:
            path = str(origin.path)
            if path not in self._files:
                self._files[path] = nodes(self._read(path))
            return self._files[path].get((origin.line_num, name))
        options = [each for each in context.CLIARGS.get("extra_vars") or () if each.startswith("{")]
        written = [node for each in options for (_, key), node in nodes(each).items() if key == name]
        return written[-1] if written else None
