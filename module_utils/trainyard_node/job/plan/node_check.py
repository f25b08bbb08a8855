# SPDX-License-Identifier: Apache-2.0
"""Check this node for a job: all that the controller asks in one visit before the start."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ...machine import as_user, shared_folders
from ...machine.tree import Tree
from ..run.evidence import health_gate
from .obstacles import BUSY, preflight, programs, witness_findings

Record = dict[str, Any]


def check(node_plan: Record, user: str, sharing: Record | None, read_node: Callable[[], Record]) -> Record:
    """Return what would stop the job here: `findings`, `programs`, and where its facts are no longer true, `node`.

    A node with findings also returns `node`: other ports may be free now. `unhealthy` lists findings of the health
    check; null where only a part of it ran. `clock` is when the node began and ended the checks. With `sharing`,
    `folders` has what this node knows of each (shared_folders.look).
    """
    begun = time.time()
    seen = {"folders": shared_folders.look(**sharing)} if sharing else {}
    if node_plan.get("witness") == node_plan["host"]:
        found = [finding.on(node_plan["host"]) for finding in witness_findings(node_plan, user)]
        return {"findings": [finding.as_dict() for finding in found], "programs": {}, "stale": False, **seen}
    node = read_node()
    found = preflight(node_plan, user)
    gated = node_plan["health_gate"]
    unhealthy = health_gate.check(Tree(), node_plan, node) if gated else health_gate.disk_findings(node_plan)
    # A limit that the node can never meet, or a folder that our user may not write, is no problem of the node.
    limits = health_gate.limit_findings(Tree(), node_plan)
    found += [*limits, *(each for each in unhealthy if each.check == health_gate.OF_USER)]
    not_of_node = {health_gate.OF_USER, *(health_gate.LIMITS[each.check] for each in limits)}
    unhealthy = [each for each in unhealthy if each.check not in not_of_node]
    stale = node["fingerprint"] != node_plan["fingerprint"]
    # The collective runs on the planned devices, if nobody else has them.
    others = {BUSY, "user", health_gate.OF_USER, *health_gate.LIMITS}
    complete = gated and not stale and not others.intersection(each.check for each in found)
    if complete and not unhealthy:
        unhealthy = health_gate.collective_findings(node_plan, None if os.geteuid() else as_user.named(user))
    answer: Record = {
        "findings": [finding.on(node_plan["host"]).as_dict() for finding in (*found, *unhealthy)],
        "programs": programs(node_plan, user),
        "stale": stale,
        "unhealthy": health_gate.texts(unhealthy) if complete or unhealthy else None,
        "clock": {"begun": begun, "ended": time.time()},
        **seen,
    }
    return {**answer, "node": node} if stale or answer["findings"] else answer
