# SPDX-License-Identifier: Apache-2.0
"""The order of nodes, and so of ranks (job_rank_order): that of the inventory, or with nodes of a switch together."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.findings import Finding, Warned, host_list
from ...cluster import switches
from ..file.job import Job
from .placement import Member

TOPOLOGY = "topology"


def ordered(job: Job, members: Sequence[Member], own: bool) -> tuple[list[Member], list[Finding]]:
    """Return the members in the order that the job requests; spares stay last, whatever nodes they may replace.

    `own` means that the launcher demands an order of its own.
    """
    if job.rank_order != TOPOLOGY:
        return list(members), []
    count = max(0, len(members) - job.restarts.spares)
    by_host = {member.host: member for member in members[:count]}
    known = {host for switch in (job.topology or {}).get("switches", ()) for host in switch["hosts"]}
    if own or job.topology is None or (job.topology["switches"] and not known & {*by_host}):
        found = f"launcher {job.launcher}, which orders ranks itself" if own else "no switches of these nodes are known"
        action = "set trainyard_topology, or measure the pairs: playbooks/verify.yml with verify_rounds: full"
        action = "set job_rank_order: inventory" if own else action
        return list(members), [Warned("job_rank_order", found, "nodes in the order of their switches", action)]
    unknown = [host for host in by_host if job.topology["switches"] and host not in known]
    action = "verify all of them: playbooks/verify.yml; or set trainyard_topology"
    found = f"the switches of {host_list(unknown)} are not known"
    warned: list[Finding] = [Warned("job_rank_order", found, "the switch of each node", action)] if unknown else []
    return [by_host[host] for host in switches.ordered([*by_host], job.topology)] + list(members[count:]), warned
