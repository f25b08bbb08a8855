# SPDX-License-Identifier: Apache-2.0
"""The phase software: each role verifies what it installed.

An outcome is {fault, all}: the message of a role whose verification failed, otherwise "", and whether that message is
about all nodes rather than the node that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..base.checks import Check


def check_role(role: str, hosts: Sequence[str], outcomes: Mapping[str, Mapping[str, Any]], again: str) -> list[Check]:
    """Return the checks of one role over its hosts, one for each different message.

    `outcomes` are those of the nodes that answered, `again` is the command that verifies the role once more. A failure
    ends the role's verification on all nodes, so nodes without an outcome are unknown only if no node failed.
    """
    faults: dict[str, list[str]] = {}
    for host in hosts:
        outcome = outcomes.get(host)
        if outcome and outcome["fault"]:
            # A message about all nodes names its nodes itself. Its findings, one below the other, are on one line here.
            fault = " ".join(str(outcome["fault"]).split())
            faults.setdefault(fault, []).extend([] if outcome.get("all") else [host])
    check = partial(Check, "software", role)
    expected = f"what the role {role} has installed, as it was verified then"
    action = f"fix what it names, or run the role again: {again} --tags {role}"
    checks = [
        check("fail", tuple(named), fault, expected, fault.partition(" 1. ")[0], action, again)
        for fault, named in faults.items()
    ]
    silent = tuple(host for host in hosts if host not in outcomes)
    if silent and not faults:
        reason = "its verification did not finish there"
        action = "see why the node does not answer, then verify again"
        checks.append(check("unknown", silent, reason=reason, action=action, command=again))
    return checks or [check("pass", found="it holds on every node", command=again)]
