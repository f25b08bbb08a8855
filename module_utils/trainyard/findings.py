# SPDX-License-Identifier: Apache-2.0
"""Findings: what stops a job or a cluster, said once for all hosts.

A finding names the host, what was found there, what was expected and what to do next. Checks collect findings and go
on; only the reader of the whole list stops the play.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

# So many different things found are shown for one fault.
MOST_LINES = 6


@dataclass(frozen=True)
class Finding:
    """One fault. `host` is an inventory name, or "" where the fault lies in the input rather than on a host."""

    host: str
    check: str
    found: str
    expected: str
    action: str

    def as_dict(self) -> dict[str, str]:
        """Return the finding as the plain dictionary that modules hand to each other."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, str]) -> Finding:
        """Read a finding that came back from a module. Raises KeyError when a field is missing."""
        return cls(**{name: str(data[name]) for name in ("host", "check", "found", "expected", "action")})


def connection_reason(message: str) -> str:
    """Reduce Ansible's message about a host that it could not reach to ssh's own reason, on one line."""
    _, found, reason = message.partition("Make sure this host can be reached over ssh:")
    # That the shared connection broke is a consequence, said before the reason.
    lines = [line for line in (reason if found else message).splitlines() if not line.startswith("mux_client_")]
    text = " ".join(" ".join(lines).split())
    return text.removeprefix("Task failed: ") or "no answer"


def counted(number: int, one: str, many: str = "") -> str:
    """Write a number of things: `1 node`, `2 nodes`, `0 processes`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def host_list(hosts: Sequence[str], most: int = 6) -> str:
    """Name hosts: `n1, n2` or, past `most`, `n1, n2, ... (998 more)`."""
    if len(hosts) <= most:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:most])}, ... ({len(hosts) - most} more)"


def _found(group: Sequence[Finding]) -> list[str]:
    """What was found, once where it is the same on all hosts, else host by host."""
    by_text: dict[str, list[str]] = {}
    for finding in group:
        by_text.setdefault(finding.found, []).append(finding.host)
    if len(by_text) == 1:
        return list(by_text)
    lines = [f"{host_list(hosts)}: {text}" if any(hosts) else text for text, hosts in by_text.items()]
    return lines if len(lines) <= MOST_LINES else [*lines[:MOST_LINES], f"... ({len(lines) - MOST_LINES} more)"]


def render(findings: Iterable[Finding], headline: str) -> str:
    """Write all findings as one block of text: the headline, then each fault once, with all the hosts that have it."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.check, finding.expected, finding.action), []).append(finding)
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


def _first_marked(texts: Sequence[str]) -> list[tuple[bool, str]]:
    return [(index == 0, text) for index, text in enumerate(texts)]
