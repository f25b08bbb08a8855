# SPDX-License-Identifier: Apache-2.0
"""Findings: problems of a job or a cluster, collected first, then reported together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from .visible import one_line

Key = TypeVar("Key")
Value = TypeVar("Value")

# Upper bound for the different texts shown under `found`.
MAX_LINES = 6
# From this many hosts numbered one after the other they are named as a span.
_MIN_SPAN = 4


class UnusableError(Exception):
    """The input cannot be used; the text has what was found and what is expected."""


class FindingsError(UnusableError):
    """Findings stop a task; `failure` is its result."""

    def __init__(self, findings: Iterable[Finding], headline: str) -> None:
        """Render the findings for the message, and keep them as records."""
        self.failure = failure(findings, headline)
        super().__init__(self.failure["msg"])


@dataclass(frozen=True)
class Finding:
    """One problem: `check` names it in a word, then what was found, what was expected, and the action to take.

    `host` is an inventory name, the place in a rank table, or "" for a problem of the input.
    """

    check: str
    found: str
    expected: str
    action: str
    host: str = ""

    def on(self, host: str) -> Finding:
        """Return the same problem of a host."""
        return replace(self, host=host)

    def as_dict(self) -> dict[str, str]:
        """Return the finding as a plain dictionary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, str]) -> Finding:
        """Read a finding that came back from a module. Raises KeyError when a field is missing."""
        return cls(**{name: str(data[name]) for name in ("host", "check", "found", "expected", "action")})


class Warned(Finding):
    """A warning: probably a mistake, or it may fail later. Nothing stops for it."""


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are no warnings."""
    return [finding for finding in findings if not isinstance(finding, Warned)]


def refusal_text(findings: Sequence[Finding]) -> str:
    """Say that a job could not run, with the first finding."""
    first = findings[0]
    where = f" on {first.host}" if first.host else ""
    return f"the job could not run: {first.check}{where}: found {first.found}, expected {first.expected}"


def connection_reason(message: str) -> str:
    """Reduce Ansible's message about a host that it could not reach to ssh's own reason, on one line."""
    for words in ("Make sure this host can be reached over ssh:", "Failed to connect to the host via ssh:"):
        _, found, why = message.partition(words)
        message = why if found else message
    # ssh reports the broken shared connection, a consequence, before the reason.
    lines = [line for line in message.splitlines() if not line.startswith("mux_client_")]
    text = " ".join(" ".join(lines).split())
    return text.removeprefix("Task failed: ") or "no answer"


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number of things: `1 node`, `2 nodes`, `0 processes`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def some_of(texts: Sequence[str], most: int) -> list[str]:
    """Return the first texts, and `... (3 more)` for the others."""
    more = len(texts) - most
    return [*texts[:most], f"... ({more} more)"] if more > 0 else list(texts)


def host_list(hosts: Sequence[str], most: int = 6) -> str:
    """Name hosts: `n1, n2`, those numbered one after the other `gpu01 to gpu16`, past `most` names `... (998 more)`."""
    spans: list[list[str]] = []
    for span in _spans(hosts):
        spans += [span] if len(span) >= _MIN_SPAN else [[host] for host in span]
    names = [f"{span[0]} to {span[-1]}" if len(span) > 1 else span[0] for span in spans[:most]]
    left = sum(map(len, spans[most:]))
    return ", ".join([*names, *([f"... ({left} more)"] if left else [])])


def _spans(hosts: Sequence[str]) -> list[list[str]]:
    """Split hosts where one does not follow on the one before: n9, n10 or gpu09.a, gpu10.a, in the same number."""
    spans: list[list[str]] = []
    place = None
    for host in hosts:
        before, place = place, _next_in(spans[-1][-1], host) if spans else None
        if place is None or (len(spans[-1]) > 1 and place != before):
            spans.append([host])
            place = None
        else:
            spans[-1].append(host)
    return spans


def _next_in(one: str, other: str) -> int | None:
    """Return which number of a name is one more in the other name, where nothing else differs."""
    first, second = re.split(r"(\d+)", one), re.split(r"(\d+)", other)
    if len(first) != len(second):
        return None
    changed = [place for place, (a, b) in enumerate(zip(first, second)) if a != b]
    if len(changed) != 1 or changed[0] % 2 == 0:
        return None
    before, after = first[changed[0]], second[changed[0]]
    # gpu9 and gpu10, but not gpu09 and gpu010.
    same_form = len(before) == len(after) or not (before.startswith("0") or after.startswith("0"))
    return changed[0] if same_form and int(after) == int(before) + 1 else None


def _found(group: Sequence[Finding]) -> str:
    """Return the text of a group: one line if all hosts have the same, otherwise one for each text with its hosts."""
    by_text = grouped((finding.found, finding.host) for finding in group)
    if len(by_text) == 1:
        return next(iter(by_text))
    lines = [f"{host_list(hosts)}: {text}" if any(hosts) else text for text, hosts in by_text.items()]
    return f"\n{' ' * 15}".join(some_of(lines, MAX_LINES))


def render(findings: Iterable[Finding], headline: str) -> str:
    """Write all findings as one text: each problem once, with all hosts that have it, and each text on one line."""
    lines_of = (Finding(**{name: one_line(text) for name, text in each.as_dict().items()}) for each in findings)
    groups = grouped(((finding.check, finding.expected, finding.action), finding) for finding in lines_of)
    lines = [headline.format(count=len(groups), findings="finding" if len(groups) == 1 else "findings")]
    for number, ((check, expected, action), group) in enumerate(groups.items(), start=1):
        hosts = list(dict.fromkeys(finding.host for finding in group if finding.host))
        lines += [
            "",
            f"  {number}. {check}{' on ' + host_list(hosts) if hosts else ''}",
            f"     found     {_found(group)}",
            f"     expected  {expected}",
            f"     do        {action}",
        ]
    return "\n".join(lines)


def failure(findings: Iterable[Finding], headline: str) -> dict[str, Any]:
    """Return the failed result of a task; by `findings` the callback knows that `msg` explains everything."""
    findings = list(findings)
    return {"failed": True, "msg": render(findings, headline), "findings": [each.as_dict() for each in findings]}
