# SPDX-License-Identifier: Apache-2.0
"""Check the variables of a run by name and value, and convert texts to their documented types."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.vault import EncryptedString
from ansible.plugins.loader import become_loader, connection_loader, shell_loader
from ansible.template import Templar, trust_as_template

from ...trainyard.base.findings import Finding
from ...trainyard.inputs import input_variables, inventories, job_file
from ...trainyard.inputs.input_variables import COMMAND_LINE, INVENTORY, Place
from . import input_files, value_sources
from .input_run import InputRun, places
from .value_sources import OF_A_PLAY, leaves, place_of

# Variables that name plugins of Ansible, with the loaders of these, and two whose values it converts for each task.
_PLUGINS: dict[str, Any] = {
    "ansible_connection": connection_loader,
    "ansible_become_method": become_loader,
    "ansible_shell_type": shell_loader,
    "ansible_port": None,
    "ansible_become": None,
}


def convert_extra(run: InputRun) -> list[Finding]:
    """Check and convert the variables of the command line and the job file."""
    where = {name: place_of(name) for name in run.extra}
    findings = misspelt(run, where) + run.texts.retyped(run.extra, run.documented)
    left_out, unclear = input_variables.without_value(run.extra, run.documented)
    findings += [input_variables.no_value(name, where[name], run.documented[name].default) for name in unclear]
    run.extra.update(
        {name: trust_as_template(value) if isinstance(value, str) else value for name, value in left_out.items()}
    )
    named = {finding.check for finding in findings}
    changes, wrong = input_variables.converted(run.extra, where.__getitem__, run.documented, run.loader.load)
    run.extra.update({name: value_sources.with_place_of(value, run.extra[name]) for name, value in changes.items()})
    return findings + [finding for finding in wrong if finding.check not in named]


def misspelt(run: InputRun, where: Mapping[str, Place]) -> list[Finding]:
    """Find undocumented names, in the inventory and of extra variables, whose places are `where`."""
    # Each name, with the names and values that know where they were written: few of thousands need to tell.
    named: dict[str, list[tuple[str, Any]]] = {}
    used: set[str] = set()
    inventory = [variables for entity, filed in run.entities for variables in (entity.vars, filed)]
    for variables in inventory:
        for name, value in variables.items():
            if name not in run.documented and not OF_A_PLAY.fullmatch(name):
                named.setdefault(name, []).append((name, value))
    for variables in [run.extra, *inventory]:
        used.update(word for text in leaves(variables) for word in _words(text))
    extra = {name: [place] for name, place in where.items()}
    unknown = input_variables.unknown(extra, run.documented, used.union(named), prefixed=run.is_of_project)
    return unknown + input_variables.unknown({name: _places(marked) for name, marked in named.items()}, run.documented)


def _places(marked: Iterable[tuple[str, Any]]) -> Iterator[Place]:
    """Yield the different places of names or, where these know none, of their values."""
    yield from dict.fromkeys(place_of(name, place_of(value, INVENTORY)) for name, value in marked)


def _words(text: str) -> list[str]:
    """Return the words of templates that may be names of variables; a quoted text of several words holds none."""
    code = " ".join(re.findall(r"(?s)\{[{%].{0,2000}?[%}]\}", text))
    return re.findall(r"\w+", re.sub(r"'[^']*\s[^']*'|\"[^\"]*\s[^\"]*\"", "", code))


def convert_inventory(run: InputRun) -> list[Finding]:
    """Convert texts of the inventory to their documented types; an INI file has only texts."""
    findings = []
    for entity, filed in run.entities:
        for variables in (entity.vars, filed):
            findings += run.texts.retyped(variables, run.documented)
        changes, wrong = input_variables.converted(entity.vars, places(entity.vars), run.documented, run.loader.load)
        entity.vars.update(changes)
        findings += wrong
        changes, wrong = input_variables.converted(filed, places(filed), run.documented, run.loader.load)
        # Ansible reads files of variables again for each task, so converted values are lost; quoted numbers still work.
        quoted = [name for name, value in changes.items() if isinstance(value, (bool, list, dict))]
        findings += wrong + [
            input_variables.unfit(
                run.documented[name], filed[name], places(filed)(name), input_variables.unquoted(run.documented[name])
            )
            for name in quoted
        ]
    return list(dict.fromkeys(findings))


def undefined(run: InputRun) -> list[Finding]:
    """Find undefined names in templates of the inventory, and values with which Ansible reaches no host.

    Variables of roles are left out, as they are set later. The command line and the job file are checked for variables
    of connections alone, which win over those of the inventory.
    """
    families = tuple({each.family for each in run.documented.values()} - {"job_", "trainyard_"})
    unset: dict[str, dict[str, Place]] = {}
    findings: dict[Finding, None] = {}
    encrypted = itertools.count()
    for host, values, otherwise in _sources(run):
        given = {name: value for name, value in values.items() if any(leaves(value))}
        names = [name for name in given if host and (name in run.documented or run.is_connection(name))]
        templar = Templar(loader=run.loader, variables=run.variables(host)) if names else None
        for name in names:
            for text in leaves(given[name]):
                missing, reason = value_sources.fault(text, templar, name)
                if missing and missing not in run.documented and not missing.startswith(families):
                    unset.setdefault(missing, {})[name] = place_of(text, otherwise)
                elif reason and run.is_connection(name):
                    findings[job_file.no_template(name, place_of(text, otherwise), text, reason)] = None
        if host:
            findings.update(dict.fromkeys(_connection(run, host, values, places(values, otherwise), encrypted)))
    return [job_file.undefined(name, users, run.documented, "inventory") for name, users in unset.items()] + [*findings]


def _sources(run: InputRun) -> Iterator[tuple[Any, dict[str, Any], Place]]:
    """Yield a host of each part of the input, its variables that count, and where they are if no file has them."""
    for entity, filed in run.entities:
        values = {**entity.vars, **filed}
        counting = {
            name: value for name, value in values.items() if name not in run.extra or not run.is_connection(name)
        }
        yield next(iter(run.hosts_of(entity)), None), counting, INVENTORY
    own = {name: value for name, value in run.extra.items() if run.is_connection(name)}
    # Tasks on localhost have them, too: a variable that only some hosts have would not do.
    yield next(iter(run.inventory.get_hosts()), None), own, COMMAND_LINE


def _connection(
    run: InputRun, host: Any, values: Mapping[str, Any], place: Callable[[str], Place], encrypted: Iterator[int]
) -> Iterator[Finding]:
    """Yield values with which Ansible reaches no host: no plugin, no port, encrypted without a password."""
    for name in filter(run.is_connection, values):
        value, finding = values[name], None
        if isinstance(value, EncryptedString):
            finding = input_files.locked_value(value, f"{name} {place(name).text}", next(encrypted))
        elif name in _PLUGINS:
            # Undefined names and damaged templates are findings already.
            with contextlib.suppress(AnsibleError, KeyError):
                value = run.value(host, name) if any(leaves(value)) else value
                if not _is_plugin(_PLUGINS[name], value):
                    plugins = _PLUGINS[name].all(class_only=True) if _PLUGINS[name] else ()
                    names = sorted(each._load_name.rpartition(".")[2] for each in plugins)
                    finding = inventories.connection(name, value, place, names)
        if finding:
            yield finding


def _is_plugin(loader: Any, value: object) -> bool:
    return bool(loader and loader.find_plugin_with_context(str(value)).resolved)


def not_allowed(run: InputRun) -> list[Finding]:
    """Find values that a role's argument_specs do not allow for other reasons than their type, such as choices."""
    options = input_variables.options_of_roles(run.specs) if run.is_of_project else {}
    own = input_variables.options_of_playbooks(run.specs[""]) if run.is_of_project else {}
    options.update(own)
    findings = []
    given: list[tuple[Mapping[str, Any], Place, Any]] = [
        (run.extra, COMMAND_LINE, next(iter(run.inventory.get_hosts()), None))
    ]
    for entity, filed in run.entities:
        given.append(({**entity.vars, **filed}, INVENTORY, next(iter(run.hosts_of(entity)), None)))
    for variables, otherwise, host in given:
        for name in [each for each in variables if each in options]:
            value = variables[name]
            if any(leaves(value)):
                try:
                    value = run.value(host, name)
                except (AnsibleError, KeyError):
                    # The value depends on facts: the role itself checks it.
                    continue
            place = place_of(next(key for key in variables if key == name), otherwise)
            if name in own and isinstance(value, (int, float)) and value < 0:
                findings.append(input_variables.negative(name, value, place))
            choices = options[name].get("choices")
            if choices and (wrong := input_variables.not_a_choice(name, value, choices, place)):
                findings.append(wrong)
                continue
            for message in ArgumentSpecValidator({name: options[name]}).validate({name: value}).error_messages:
                findings.append(input_variables.not_allowed(name, str(message), place))
    return list(dict.fromkeys(findings))
