# SPDX-License-Identifier: Apache-2.0
"""Findings: what stops a job or a cluster, said once for all hosts.

A finding names the host, what was found there, what was expected and what to do next. Checks collect findings and go
on; only the reader of the whole list stops the play.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from .visible import one_line

Key = TypeVar("Key")
Value = TypeVar("Value")

# At most this many different things found are shown for one fault.
MOST_LINES = 6
# From this many hosts numbered one after the other they are named as a span.
_LEAST_SPAN = 4


class UnusableError(Exception):
    """The input cannot be used; the text says what was found and what is expected."""


class FindingsError(UnusableError):
    """Findings stop a task; `failure` is its result."""

    def __init__(self, findings: Iterable[Finding], headline: str) -> None:
        """Render the findings for the message, and keep them as records."""
        self.failure = failure(findings, headline)
        super().__init__(self.failure["msg"])


@dataclass(frozen=True)
class Finding:
    """One problem: `check` names it in a word, then what was found, what was expected, and the action to take.

    `host` is an inventory name, the place in a rank table, or "" where the fault lies in the input.
    """

    check: str
    found: str
    expected: str
    action: str
    host: str = ""

    def on(self, host: str) -> Finding:
        """Return the same fault of a host."""
        return replace(self, host=host)

    def as_dict(self) -> dict[str, str]:
        """Return the finding as the plain dictionary that modules hand to each other."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, str]) -> Finding:
        """Read a finding that came back from a module. Raises KeyError when a field is missing."""
        return cls(**{name: str(data[name]) for name in ("host", "check", "found", "expected", "action")})


class Warned(Finding):
    """A warning: no fault, but what is hardly meant, or may fail later. Nothing stops for it."""


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that are no warnings."""
    return [finding for finding in findings if not isinstance(finding, Warned)]


def connection_reason(message: str) -> str:
    """Reduce Ansible's message about a host that it could not reach to ssh's own reason, on one line."""
    for words in ("Make sure this host can be reached over ssh:", "Failed to connect to the host via ssh:"):
        _, found, why = message.partition(words)
        message = why if found else message
    # That the shared connection broke is a consequence, said before the reason.
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


def host_list(hosts: Sequence[str], most: int = 6) -> str:
    """Name hosts: `n1, n2`, those numbered one after the other `gpu01 to gpu16`, past `most` names `... (998 more)`."""
    spans: list[list[str]] = []
    for span in _spans(hosts):
        spans += [span] if len(span) >= _LEAST_SPAN else [[host] for host in span]
    names = [f"{span[0]} to {span[-1]}" if len(span) > 1 else span[0] for span in spans[:most]]
    left = sum(map(len, spans[most:]))
    return ", ".join([*names, *([f"... ({left} more)"] if left else [])])


def _spans(hosts: Sequence[str]) -> list[list[str]]:
    """Split hosts where one does not follow on the one before: n9, n10 or gpu09.a, gpu10.a, in the same number."""
    spans: list[list[str]] = []
    counted = None
    for host in hosts:
        place = _next_in(spans[-1][-1], host) if spans else None
        if place is None or (len(spans[-1]) > 1 and place != counted):
            spans.append([host])
            counted = None
        else:
            spans[-1].append(host)
            counted = place
    return spans


def _next_in(one: str, other: str) -> int | None:
    """Return which number of a name is one more in the other name, where nothing else differs."""
    first, second = re.split(r"(\d+)", one), re.split(r"(\d+)", other)
    if len(first) != len(second):
        return None
    differ = [place for place, (a, b) in enumerate(zip(first, second)) if a != b]
    if len(differ) != 1 or differ[0] % 2 == 0:
        return None
    before, after = first[differ[0]], second[differ[0]]
    # gpu9 and gpu10, but not gpu09 and gpu010.
    width = len(before) == len(after) or not (before.startswith("0") or after.startswith("0"))
    return differ[0] if width and int(after) == int(before) + 1 else None


def _found(group: Sequence[Finding]) -> list[str]:
    """Return the lines of a group: one where all hosts have the same, otherwise one for each text with its hosts."""
    by_text = grouped((finding.found, finding.host) for finding in group)
    if len(by_text) == 1:
        return list(by_text)
    lines = [f"{host_list(hosts)}: {text}" if any(hosts) else text for text, hosts in by_text.items()]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"... ({len(lines) - MOST_LINES} more)"]


def render(findings: Iterable[Finding], headline: str) -> str:
    """Write all findings as one block of text: the headline, then each fault once, with all the hosts that have it.

    Each text stands on one line, as what was found may be a machine's own words.
    """
    lines_of = map(_on_lines, findings)
    groups = grouped(((finding.check, finding.expected, finding.action), finding) for finding in lines_of)
    lines = [headline.format(count=len(groups), findings="finding" if len(groups) == 1 else "findings")]
    for number, ((check, expected, action), group) in enumerate(groups.items(), start=1):
        hosts = list(dict.fromkeys(finding.host for finding in group if finding.host))
        lines += [
            "",
            f"  {number}. {check}{' on ' + host_list(hosts) if hosts else ''}",
            *(f"     {'found' if first else '     '}     {text}" for first, text in _first_marked(_found(group))),
            f"     expected  {expected}",
            f"     do        {action}",
        ]
    return "\n".join(lines)


def failure(findings: Iterable[Finding], headline: str) -> dict[str, Any]:
    """Return the result of a task that findings stop: the text in `msg`, the records in `findings`.

    The records tell the callback that `msg` explains everything.
    """
    findings = list(findings)
    return {"failed": True, "msg": render(findings, headline), "findings": [each.as_dict() for each in findings]}


def _on_lines(finding: Finding) -> Finding:
    return Finding(**{name: one_line(text) for name, text in finding.as_dict().items()})


def _first_marked(texts: Sequence[str]) -> list[tuple[bool, str]]:
    return [(index == 0, text) for index, text in enumerate(texts)]
