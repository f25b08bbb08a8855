# SPDX-License-Identifier: Apache-2.0
"""Separate the nodes that answered from those that did not, and check the latter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..base.adhoc import ansible
from ..base.checks import Check
from ..base.findings import grouped
from ..cluster import unreachable
from ..cluster.unreachable import REPAIR, cause

NOBODY = "no node could take part"


def answers(results: Mapping[str, Mapping[str, Any]], key: str) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Split results by host: those whose module returned `key`, and why the others did not."""
    good = {host: result for host, result in results.items() if key in result}
    bad = {
        host: unreachable.reason(result) or "it was not asked" for host, result in results.items() if host not in good
    }
    return good, bad


def check_answers(silent: Mapping[str, Mapping[str, Any]], hosts: Sequence[str], inventory: str = "") -> list[Check]:
    """Check that all hosts answer the controller; `silent` are results of hosts that did not, by host."""
    check = partial(Check, "reach", "answer")
    causes = {host: cause(result) for host, result in silent.items()}
    checks = []
    for why, group in grouped((why, host) for host, why in causes.items() if why).items():
        if why.check == "reach":
            found, expected, reason = why.found, "an answer to the controller", "no answer"
            action = "see that the node runs, and check its address in the inventory"
            action = action if why.action == REPAIR else why.action
        else:
            found, expected, reason = f"{why.check}: {why.found}", why.expected, "modules do not work there"
            action = why.action
        command = ansible(group, inventory, "ansible.builtin.ping", become=why.check == "become")
        checks.append(check("fail", tuple(group), found, expected, reason, action, command))
    broken = {host: unreachable.reason(silent[host]) for host, why in causes.items() if not why}
    reasons = {host: text or "it was left out by an earlier step" for host, text in broken.items()}
    for found, group in by_reason(reasons).items():
        unread, action = "it answers, but its facts could not be read", "run the command and read its message"
        command = ansible(group, inventory, "verify_facts", become=True)
        checks.append(check("unknown", tuple(group), found, "facts of the node", unread, action, command))
    found = "the only node" if len(hosts) == 1 else f"{len(hosts)} of {len(hosts)} nodes"
    return checks or [check("pass", found=found)]


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Group hosts by reason; a message that begins with its host's name is compared without it."""
    return grouped((text.removeprefix(f"{host}: "), host) for host, text in reasons.items())
