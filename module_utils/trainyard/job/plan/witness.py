# SPDX-License-Identifier: Apache-2.0
"""Plan a witness (job_witness): a host that only votes when the head of a job is lost (run/succession.py).

It runs a monitor that connects to the hosts that may lead, and nothing else of the job. It gets neither the job's
source nor its secrets, and nothing connects to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...base.findings import Finding
from ..file.job import NODE_OPTIONS, Job
from ..placement.placement import Placement

# Options that the monitor of a witness reads; the others are about ranks.
_READ = ("timeout_s", "max_restarts", "rejoin_s", "stop", "progress_pattern")


def findings(witness: str, hosts: Collection[str], known: Collection[str]) -> list[Finding]:
    """Find a witness that takes part in the job, with these `hosts`, or that is not among the `known` hosts."""
    if witness in hosts:
        found, expected = f"{witness}, which is a node or a spare of the job", "a host without a part in the job"
        action = "choose another host, or leave it out of the job with job_hosts or job_nodes"
    elif witness and witness not in known:
        found, expected = f"{witness}, which is not in the inventory", "the name of a host in the inventory (-i)"
        action = "correct job_witness, or add that host to the inventory, outside of the group of job_hosts"
    else:
        return []
    return [Finding("job_witness", found, expected, action)]


def alone(job: Job, placement: Placement) -> list[Finding]:
    """Find a witness of a job that has only one host, whose place no other one could take."""
    if not job.restarts.witness or len(placement.everyone) > 1:
        return []
    expected = "two nodes, or a node and a spare: a witness never leads the job"
    action = "raise job_nodes, set job_spares, or leave job_witness out"
    return [Finding("job_witness", f"{placement.head.host} alone beside it", expected, action)]


def of_plan(job: Job, placement: Placement) -> dict[str, Any]:
    """Return what plan.json has of the witness; nothing without one."""
    host = job.restarts.witness
    return {"witness": {"host": host, "node_rank": len(placement.everyone)}} if host else {}


def host(plan: Mapping[str, Any]) -> str:
    """Return the witness of plan.json; "" without one."""
    return str((plan.get("witness") or {}).get("host") or "")


def node_plan(plan: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the node plan of the witness by its host, from plan.json and what all node plans share."""
    name = host(plan)
    if not name:
        return {}
    nothing: dict[str, Any] = {
        **{key: type(shared[key])() for key in NODE_OPTIONS if key not in _READ},
        **dict.fromkeys(("venv", "interface"), ""),
        **{key: [] for key in ("hosts", "ranks", "processes", "files", "devices", "events")},
        **{key: {} for key in ("addresses", "ranks_of", "local_collective")},
    }
    # Ranks that get other numbers (job_min_nodes) are not on this host.
    own = {key: value for key, value in shared.items() if key != "fewer"}
    return {name: {**own, **nothing, **plan["witness"], "witness": name}}
