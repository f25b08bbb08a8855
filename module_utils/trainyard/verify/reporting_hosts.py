# SPDX-License-Identifier: Apache-2.0
"""Separate the nodes that answered from those that did not, and check the latter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..cluster.unreachable import cause, reason
from ..findings.adhoc import ansible
from ..findings.checks import Check
from ..findings.findings import Finding, host_list

NOBODY = "no node could take part"


def answers(results: Mapping[str, Mapping[str, Any]], key: str) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Split results by host: those whose module returned `key`, and why the others did not."""
    good = {host: result for host, result in results.items() if key in result}
    bad = {host: reason(result) or "it was not asked" for host, result in results.items() if host not in good}
    return good, bad


def check_answers(silent: Mapping[str, Mapping[str, Any]], hosts: Sequence[str], inventory: str = "") -> list[Check]:
    """Check that all hosts answer the controller; `silent` are results of hosts that did not, by host."""
    check = partial(Check, "reach", "answer")
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
        unreachable = why.check == "reach"
        checks.append(
            check(
                "fail",
                tuple(group),
                why.found if unreachable else f"{why.check}: {why.found}",
                "an answer to the controller" if unreachable else why.expected,
                f"{does} not answer" if unreachable else f"{does} not let modules work",
                "see that the node runs, and check its address in the inventory" if unreachable else why.action,
                ansible(group, inventory, "ansible.builtin.ping", become=why.check == "become"),
            )
        )
    for words, group in by_reason(broken).items():
        reads, action = "it answers, but its facts could not be read", "run the command and read its message"
        command = ansible(group, inventory, "verify_facts", become=True)
        checks.append(check("unknown", tuple(group), words, "facts of the node", reads, action, command))
    found = "the only node" if len(hosts) == 1 else f"{len(hosts)} of {len(hosts)} nodes"
    return checks or [check("pass", found=found)]


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Group hosts by reason; a message that begins with its host's name is compared without it."""
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
