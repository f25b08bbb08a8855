# SPDX-License-Identifier: Apache-2.0
"""Tell where a user wrote a value, and what its templates use, by Ansible's own marks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.parsing.vault import EncryptedString
from ansible.template import Templar

from ...trainyard.base.adhoc import from_here
from ...trainyard.base.findings import Finding
from ...trainyard.inputs import input_variables
from ...trainyard.inputs.input_variables import COMMAND_LINE, Place
from . import yaml_texts

try:
    from ansible._internal._datatag._tags import Origin
except ImportError:  # Without this internal class, findings name no files and lines.
    Origin = None

# Kinds of variables with one value, and the types as which YAML reads what is no text.
_SINGLE, _READ = (*input_variables.TEXT_KINDS, "int", "float"), (bool, int, float, date)
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+")
# Known only once a play runs.
OF_A_PLAY = re.compile(r"ansible_\w+|__\w+|hostvars|vars|item|role_\w+|omit")
# Variables by which Ansible reaches a host and becomes root; each task needs them, before any loop.
CONNECTION = re.compile(
    r"ansible_(?:host|port|user|password|connection|private_key_file|remote_tmp|timeout|pipelining|host_key_checking"
    r"|python_interpreter|(?:become|ssh|scp|sftp|shell)\w*)"
)


def shown(path: str | Path) -> str:
    """Return a path as its user knows it, from where the playbook was called."""
    return from_here(str(path), str(Path.cwd()))


def origin_of(value: Any) -> Any:
    """Return Ansible's own mark of where a value was written, or None."""
    return Origin.get_tag(value) if Origin else None


def place_of(value: Any, otherwise: Place = COMMAND_LINE) -> Place:
    """Return where a name or value was written."""
    origin = origin_of(value)
    if origin is None or not origin.path:
        return otherwise
    line = f", line {origin.line_num}" if origin.line_num else ""
    return Place(f"in {shown(origin.path)}{line}", shown(origin.path))


def with_places(findings: Iterable[Finding], given: Mapping[str, Any]) -> list[Finding]:
    """Add to findings about variables where each was given: on the command line, or in which line of which file."""
    placed = []
    for finding in findings:
        name = finding.check.partition(".")[0]
        origin = origin_of(given[name]) if name in given else None
        # A variable that the user does not set comes from the defaults of a role.
        if origin is None or finding.host or "/roles/" in str(origin.path):
            placed.append(finding)
        else:
            place = place_of(given[name])
            placed.append(replace(finding, action=f"{finding.action} ({name} is given {place.text})"))
    return placed


def with_place_of(value: Any, other: Any) -> Any:
    """Return a value with the place of the value from which it was made, if it can carry one."""
    origin = origin_of(other)
    return origin.try_tag(value) if origin else value


def leaves(value: Any, *, encrypted: bool = False) -> Iterator[Any]:
    """Return all templates within a value, and with `encrypted` all values of Ansible Vault."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item, encrypted=encrypted)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item, encrypted=encrypted)
    elif input_variables.is_template(value) or (encrypted and isinstance(value, EncryptedString)):
        yield value


def reason_of(error: Exception) -> str:
    """Return the reason of one of Ansible's errors on one line, without the prefixes that its own messages have."""
    text = " ".join(str(getattr(error, "message", "") or error).split())
    return re.sub(r"^(?:Error (?:while )?(?:rendering template|resolving value[^:]*): )+", "", text)


def undefined_name(error: AnsibleUndefinedVariable, of: str = "") -> str:
    """Return the undefined variable of a template, that of the variable `of`; "" if only a play sets it."""
    found = re.search(r"'(\w+)' is undefined", str(error))
    if not found or (found[1] == "item" and CONNECTION.fullmatch(of)):
        return found[1] if found else ""
    return "" if OF_A_PLAY.fullmatch(found[1]) else found[1]


def fault(text: str, templar: Templar, of: str = "") -> tuple[str, str]:
    """Return the undefined variable of a template, that of the variable `of`, or another fault of it."""
    try:
        templar.template(text)
    except AnsibleUndefinedVariable as error:
        return undefined_name(error, of), ""
    except AnsibleError as error:
        return "", str(error)
    return "", ""


class Texts:
    """Finds texts for programs, such as the values of job_env, that YAML reads as other types."""

    def __init__(self, read: Callable[[str], str]) -> None:
        """Take the function that reads a user's file; each is read once."""
        self._read = read
        self._files: dict[str, yaml_texts.Nodes] = {}

    def retyped(self, variables: Mapping[str, Any], known: Mapping[str, input_variables.Variable]) -> list[Finding]:
        """Return the findings about these variables: texts that became other values, and numbers like 010."""
        findings = []
        for name in [each for each in variables if each in input_variables.TEXTS or each in known]:
            place, kind = place_of(name), known[name].kind if name in known else ""
            single = name not in input_variables.TEXTS
            if single and (kind not in _SINGLE or not isinstance(variables[name], _READ)):
                continue
            for part in yaml_texts.changed(self._node(name, variables[name], place)):
                if not single and not part.name:
                    # The text of an option -e is a text.
                    continue
                where = Place(f"in {place.file}, line {part.line}", place.file) if place.file else place
                if single and kind not in input_variables.TEXT_KINDS:
                    if isinstance(variables[name], bool) or _DECIMAL.fullmatch(part.written):
                        continue
                    findings.append(input_variables.no_number(name, part.written, part.becomes, where))
                else:
                    findings.append(input_variables.retyped(name, part.name, part.written, part.becomes, where))
        return findings

    def _node(self, name: str, value: Any, place: Place) -> Any:
        """Return the YAML of a variable; None if it has only texts, or its place is unknown."""
        parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        parts = [value] if isinstance(value, _READ) else parts
        origin = origin_of(name)
        if isinstance(value, str):
            return yaml_texts.nodes(f"{name}: {value}").get((1, name))
        if all(isinstance(part, str) for part in parts):
            return None
        if place.file and origin:
            path = str(origin.path)
            if path not in self._files:
                self._files[path] = yaml_texts.nodes(self._read(path))
            return self._files[path].get((origin.line_num, name))
        options = [each for each in context.CLIARGS.get("extra_vars") or () if each.startswith("{")]
        written = [node for each in options for (_, key), node in yaml_texts.nodes(each).items() if key == name]
        return written[-1] if written else None
