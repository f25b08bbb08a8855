# SPDX-License-Identifier: Apache-2.0
"""Which nodes answered a question, and what is said of those that did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cluster.unreachable import cause, reason
from ..findings.adhoc import ansible
from ..findings.checks import Check
from ..findings.findings import Finding, host_list

NOBODY = "no node could take part"


def answers(results: Mapping[str, Mapping[str, Any]], key: str) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Split what a task brought, by host: those whose module returned `key`, and why the others did not."""
    good: dict[str, Mapping[str, Any]] = {}
    bad: dict[str, str] = {}
    for host, result in results.items():
        if key in result:
            good[host] = result
        else:
            bad[host] = reason(result) or "it was not asked"
    return good, bad


def judge_answers(silent: Mapping[str, Mapping[str, Any]], hosts: Sequence[str], inventory: str = "") -> list[Check]:
    """Judge who answered the controller at all; `silent` are results of hosts that did not, by host."""
    lost: dict[Finding, list[str]] = {}
    broken: dict[str, str] = {}
    for host, result in silent.items():
        why = cause(result)
        if why:
            lost.setdefault(why, []).append(host)
        else:
            broken[host] = reason(result) or "it was left out by an earlier step"
    checks = []
    for why, group in lost.items():
        does = f"{host_list(group)} {'does' if len(group) == 1 else 'do'}"
        gone = why.check == "reach"
        checks.append(
            Check(
                phase="reach",
                name="answer",
                state="fail",
                hosts=tuple(group),
                found=why.found if gone else f"{why.check}: {why.found}",
                expected="an answer to the controller" if gone else why.expected,
                reason=f"{does} not answer" if gone else f"{does} not let modules work",
                action="see that the node runs, and its address in the inventory" if gone else why.action,
                command=ansible(group, inventory, "ansible.builtin.ping", become=why.check == "become"),
            )
        )
    for words, group in by_reason(broken).items():
        checks.append(
            Check(
                phase="reach",
                name="answer",
                state="unknown",
                hosts=tuple(group),
                found=words,
                expected="facts of the node",
                reason="it answers, but could not be read",
                action="run the command and see what it says",
                command=ansible(group, inventory, "verify_facts", become=True),
            )
        )
    if not checks:
        checks.append(
            Check(
                phase="reach",
                name="answer",
                state="pass",
                found="the only node" if len(hosts) == 1 else f"{len(hosts)} of {len(hosts)} nodes",
            )
        )
    return checks


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Put hosts with one reason together; a message that begins with its host's name is the same without it."""
    groups: dict[str, list[str]] = {}
    for host, words in reasons.items():
        groups.setdefault(words.removeprefix(f"{host}: "), []).append(host)
    return groups


def grouped(pairs: Iterable[tuple[str, tuple[str, str]]]) -> dict[tuple[str, str], list[str]]:
    """Return the hosts of each pair of texts."""
    groups: dict[tuple[str, str], list[str]] = {}
    for host, key in pairs:
        groups.setdefault(key, []).append(host)
    return groups
