# SPDX-License-Identifier: Apache-2.0
"""Plan spares: hosts of a job that are idle until one of them replaces a lost node (job_spares).

The lost node's ranks run on the spare with the same numbers. A spare has the processes of every node's place from the
start, so that no controller is needed then. In the place of the first node it has the rendezvous, too; another node
leads the job then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...base.findings import Finding, counted
from ..file.job import Job
from ..launchers import Launcher
from ..placement.placement import Node, Placement
from ..placement.process import File, Process
from . import witness


@dataclass(frozen=True)
class Spare:
    """A spare node with the processes and files that it would have, by the node rank whose place it takes."""

    node: Node
    places: Mapping[int, tuple[Sequence[Process], Sequence[File]]]

    def as_dict(self, job_dir: str, numbered: bool = False) -> dict[str, Any]:
        """Return the spare as in plan.json; `numbered`: the job may go on with fewer nodes."""
        node = self.node
        return {
            "host": node.host,
            "node_rank": node.node_rank,
            "address": node.address,
            "interface": node.interface,
            "devices": list(node.devices),
            "places": {
                str(place): {
                    "processes": [each.as_dict(numbered) for each in processes],
                    "files": [file.as_dict(job_dir, numbered) for file in own],
                }
                for place, (processes, own) in self.places.items()
            },
        }


def too_few(job: Job, hosts: int) -> list[Finding]:
    """Find that no host is left to train on."""
    if not job.restarts.spares or hosts > job.restarts.spares:
        return []
    found = f"{counted(job.restarts.spares, 'spare')} of {counted(hosts, 'host')}"
    action = "lower job_spares, or choose a larger group with job_hosts"
    return [Finding("job_spares", found, "at least one host more than spares", action)]


def plan(launcher: Launcher, job: Job, placement: Placement) -> tuple[list[Spare], list[Finding]]:
    """Plan each spare in the place of each node."""
    if placement.spares and len(placement.everyone) + bool(job.restarts.witness) < 3:
        found = f"1 spare for {placement.head.host} alone"
        expected = "three hosts or more: of two, none can tell a lost peer from a network that is cut"
        action = "raise job_nodes or job_spares in a group of three hosts or more (job_hosts), name a job_witness, or "
        action += "leave job_spares out"
        return [], [Finding("job_spares", found, expected, action)]
    uneven = _uneven(job, placement)
    if uneven:
        return [], uneven
    return [Spare(spare, _places(launcher, job, placement, spare)) for spare in placement.spares], []


def _uneven(job: Job, placement: Placement) -> list[Finding]:
    findings, expected = [], "spares that can take any node's place"
    # Without one of them, three have to be left; a number of nodes would be short of one.
    few = bool(job.nodes) or len(placement.everyone) + bool(job.restarts.witness) < 4
    otherwise = "have another host in place of one of the two (job_hosts)" if few else "leave one of the two out"
    for spare in placement.spares:
        node = next((node for node in placement.nodes if node.rank_count != spare.rank_count), None)
        if node:
            found = f"{counted(spare.rank_count, 'process', 'processes')} on a spare, {node.rank_count} on {node.host}"
            action = f"set job_ranks_per_node: {min(spare.rank_count, node.rank_count)}, or {otherwise}"
            findings.append(Finding("job_spares", found, expected, action, host=spare.host))
    return findings


def _places(
    launcher: Launcher, job: Job, placement: Placement, spare: Node
) -> Mapping[int, tuple[Sequence[Process], Sequence[File]]]:
    places = {}
    for node in placement.nodes:
        changed = placement.with_spare(node, spare)
        there = changed.nodes[node.node_rank]
        places[node.node_rank] = launcher.processes(job, changed, there), launcher.files(job, changed, there)
    return places


def fewer(job: Job, excluded: Sequence[str]) -> Job:
    """Return the job with one spare less for each excluded host."""
    return replace(job, restarts=replace(job.restarts, spares=job.restarts.spares - len(excluded)))


def to_leave_out(job: Job, names: Sequence[str], findings: Sequence[Finding]) -> list[str]:
    """Return the hosts with findings if spares can replace all of them, and every finding has a host; else none."""
    faulty = {finding.host for finding in findings}
    enough = len(faulty) <= job.restarts.spares and faulty <= set(names)
    return [name for name in names if name in faulty] if enough else []


def hosts(plan: Mapping[str, Any]) -> list[str]:
    """Return the hosts of plan.json that train or may have to, spares last."""
    return [node["host"] for node in (*plan["nodes"], *plan.get("spares", ()))]


def all_hosts(plan: Mapping[str, Any]) -> list[str]:
    """Return all hosts of plan.json that have a monitor, the witness last."""
    return [*hosts(plan), *filter(None, [witness.host(plan)])]


def devices(plan: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the devices of all hosts of plan.json, spares last."""
    return {node["host"]: node["devices"] for node in (*plan["nodes"], *plan.get("spares", ()))}


def now(host: str, replaced: Mapping[str, str]) -> str:
    """Return the host in the place of another after some were `replaced`, spares among them; ends at a circle."""
    known = {host}
    while replaced.get(host, host) not in known:
        host = replaced[host]
        known.add(host)
    return host
