# SPDX-License-Identifier: Apache-2.0
"""The first phase of a proof: what each role says of what it installed.

An outcome is {fault, all}: the role's message where its proof failed, "" where it holds, and whether that message
judges all nodes together rather than the node that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.checks import Check

PHASE = "software"


def check_role(role: str, hosts: Sequence[str], outcomes: Mapping[str, Mapping[str, Any]], again: str) -> list[Check]:
    """Judge one role over its hosts. `outcomes` are those of the nodes that answered, `again` proves it once more.

    One check for each different message, as faults of several nodes are often one. A fault ends the role's proof on all
    nodes, so nodes without an outcome are only then unknown when there is none.
    """
    faults: dict[str, list[str]] = {}
    for host in hosts:
        outcome = outcomes.get(host)
        if outcome and outcome["fault"]:
            # A judgement over all nodes names those that it is about in its own words.
            faults.setdefault(str(outcome["fault"]).strip(), []).extend([] if outcome.get("all") else [host])
    checks = [
        Check(
            phase=PHASE,
            name=role,
            state="fail",
            hosts=tuple(named),
            found=fault,
            expected=f"what the role {role} has installed, as it was verified then",
            reason=fault.splitlines()[0] if fault else "",
            action=f"fix what it names, or run the role again: {again} --tags {role}",
            command=again,
        )
        for fault, named in faults.items()
    ]
    silent = tuple(host for host in hosts if host not in outcomes)
    if silent and not faults:
        checks.append(
            Check(
                phase=PHASE,
                name=role,
                state="unknown",
                hosts=silent,
                reason="its verification did not finish there",
                action="see why the node does not answer, then verify again",
                command=again,
            )
        )
    if not checks:
        checks.append(Check(phase=PHASE, name=role, state="pass", found="it holds on every node", command=again))
    return checks
