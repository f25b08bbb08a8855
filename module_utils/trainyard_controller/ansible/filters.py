# SPDX-License-Identifier: Apache-2.0
"""Make filters of rules: they return plain records, and describe wrong arguments in words.

A filter of what hosts answered gets their names and `hostvars`, and reads the answers itself (`reads`), so no playbook
can give it one that is unchecked or in another host's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, get_args, get_origin, get_type_hints

from ...trainyard.base.findings import Finding, render
from ...trainyard.base.received import FINDING, Source, of_hosts

_WORDS = {Sequence: "a list", Mapping: "a dictionary", str: "a text", bool: "true or false"}


def checked(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule that checks the types of its arguments; it raises TypeError and ValueError."""
    hints = get_type_hints(rule)

    @wraps(rule)
    def run(*given: Any, **named: Any) -> Any:
        bound = signature(rule).bind(*given, **named)
        for name, value in bound.arguments.items():
            _expect(name, value, hints[name])
        try:
            return rule(*given, **named)
        except KeyError as error:
            raise ValueError(f"a record has no {error}") from error

    return run


def records_filter(rule: Callable[..., Iterable[Any]]) -> Callable[..., list[dict[str, Any]]]:
    """Return a filter of a rule that returns findings or checks."""

    @wraps(rule)
    def run(*given: Any, **named: Any) -> list[dict[str, Any]]:
        return [record.as_dict() for record in checked(rule)(*given, **named)]

    return run


def plan_filter(rule: Callable[..., tuple[Any, Iterable[Finding]]]) -> Callable[..., dict[str, Any]]:
    """Return a filter of a rule that returns what to do, by node, and findings."""

    @wraps(rule)
    def run(*given: Any, **named: Any) -> dict[str, Any]:
        nodes, findings = checked(rule)(*given, **named)
        return {"nodes": nodes, "findings": [finding.as_dict() for finding in findings]}

    return run


def reads(source: Source, rule: Callable[..., Any], refuse: Callable[[list[Finding]], Any]) -> Callable[..., Any]:
    """Return a filter of hosts' names and hostvars that calls the filter `rule` with what these hosts answered.

    `refuse` takes the findings on answers that cannot be used (as_records, as_plan, as_error).
    """

    def read(hosts: Iterable[str], hostvars: Mapping[str, Any], *given: Any, **named: Any) -> Any:
        answers, findings = answers_of(hosts, hostvars, source)
        return refuse(findings) if findings else rule(answers, *given, **named)

    read.source = source  # type: ignore[attr-defined]
    return read


class _OfHosts(dict[str, Any]):
    """The variables of each host, with `hostvars` for those that are templates of others' (`ansible_host`)."""

    def __init__(self, hostvars: Any) -> None:
        super().__init__()
        self._hostvars = hostvars

    def __missing__(self, host: str) -> Any:
        if not hasattr(self._hostvars, "raw_get"):
            return self._hostvars[host]
        # It makes this process a controller for good, which tests of rules are not.
        from ansible.vars.hostvars import HostVarsVars

        variables = {**self._hostvars.raw_get(host), "hostvars": self._hostvars}
        return HostVarsVars(variables, loader=self._hostvars._loader, host=host)


def vars_of(hosts: Iterable[str], hostvars: Mapping[str, Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """Return for each host its name and those of the inventory's variables that it has."""
    requested, of_host = list(names), _OfHosts(hostvars)
    found = ((host, of_host[host]) for host in hosts)
    return [{"name": host, **{name: each[name] for name in requested if name in each}} for host, each in found]


def as_records(findings: list[Finding]) -> list[dict[str, Any]]:
    """Return findings as a rule that only returns findings does."""
    return [finding.as_dict() for finding in findings]


def as_plan(findings: list[Finding]) -> dict[str, Any]:
    """Return findings as a rule that plans for all nodes does."""
    return {"nodes": {}, "findings": as_records(findings)}


def as_error(findings: list[Finding]) -> None:
    """Raise ValueError for findings where a rule returns none."""
    raise ValueError(render(findings, "{count} {findings}:"))


def answers_of(hosts: Iterable[str], hostvars: Mapping[str, Any], source: Source) -> tuple[list[Any], list[Finding]]:
    """Return what hosts answered, and the findings on answers that cannot be used."""
    return of_hosts(hosts, _OfHosts(hostvars), source)


def findings_of_hosts(hosts: Iterable[str], hostvars: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the findings that hosts reported about themselves in a variable; `path` may go on with keys below it."""
    answers, unusable = answers_of(hosts, hostvars, Source(path, [FINDING], may_lack=True))
    return [*(record for answer in answers for record in answer), *as_records(unusable)]


def _expect(name: str, value: Any, hint: Any) -> None:
    kind = get_origin(hint) or hint
    if kind not in _WORDS:
        return
    if not isinstance(value, kind) or (kind is Sequence and isinstance(value, str)):
        raise TypeError(f"{name} is {str(value)[:60]!r}, expected {_WORDS[kind]}")
    if kind is Sequence:
        for each in value:
            _expect(f"an entry of {name}", each, *get_args(hint))
