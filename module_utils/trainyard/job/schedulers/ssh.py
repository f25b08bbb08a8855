# SPDX-License-Identifier: Apache-2.0
"""Scheduler `ssh`: trainyard places ranks on the hosts of the inventory, in their order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ...base.findings import Finding
from ...hardware.traffic import node_traffic
from .. import launchers
from ..file.job import Job
from ..placement import root_ranks
from ..placement.placement import Member
from ..plan import missing_build_tools, spares, witness
from ..plan.plan import JobPlan, build
from ..run.decide.remaining_nodes import world_sizes
from ..run.lead import leader
from ..run.lead.moved_addresses import pattern
from ..run.lead.node_numbers import present
from ..run.logs import kernel_messages
from ..run.measure import rank_connections, worlds
from .records import Source, Where

Data = Mapping[str, Any]

LAUNCHERS: tuple[str, ...] = tuple(launchers.LAUNCHERS)
# Keys of the JobState that are those of the head's cluster.json.
_OF_CLUSTER = (
    *("elapsed_s", "metrics", "loss_not_a_number", "checkpoints", "goodput", "left_s"),
    *("slow_ranks", "stacks", "saving", "events", "witness_lost"),
)
_OF_HEAD = "it was the monitor of the head node, without which the job neither continues nor restarts"
_OF_LAST_HEAD = "it was the monitor of the head node, and no other monitor runs that could take over"

# Largest packed source in bytes, as it is sent to every node. Scripts have kilobytes; data has its own role.
MAX_SOURCE = 16 << 20


def plan(job: Job, facts: Sequence[Member], source: Source, where: Where) -> tuple[JobPlan | None, list[Finding]]:
    """Return the plan. `facts` are those of the job's hosts in the inventory's order."""
    made, findings = build(job, where.job_id, where.created, where.state_dir, facts, where.all_reduce, where.venvs)
    if made is not None:
        warned = missing_build_tools.warnings(job, facts, source.texts(".py"))
        made = replace(made, warnings=[*made.warnings, *warned, *root_ranks.warnings(where.user, facts)])
    instead = "keep data and checkpoints elsewhere (role dataset, job_data)"
    return made, findings + source.too_large(MAX_SOURCE, " of scripts", instead)


def state(
    plan: Data,
    results: Mapping[str, Data],
    unreachable: Mapping[str, str],
    not_started: Mapping[str, str],
    by_stop: bool = False,
) -> dict[str, Any]:
    """Return the JobState.

    `results` are the answers of hosts when the logs were collected, `unreachable` the reasons of the others,
    `not_started` the reasons of hosts that could not start their processes. `by_stop` is True for stop.yml.
    """
    # Only the head node may report about the complete job.
    head, cluster = leader.find(plan, results)
    end = _end(plan, results, head, cluster, by_stop)
    if not_started:
        host, why = next(iter(not_started.items()))
        end = {"state": "failed", "failure": {"kind": "not_started", "host": host, "text": why}}
    restarts = cluster.get("restarts") or {}
    monitors = [result["monitor"] for result in results.values() if result.get("monitor")]
    return {
        "state": end["state"],
        "started": cluster.get("started") or min((monitor["started"] for monitor in monitors), default=None),
        "finished": end.get("finished"),
        "ranks_running": cluster.get("ranks_running", 0),
        **{name: cluster.get(name) for name in _OF_CLUSTER},
        "apart": _apart(plan, results, end, cluster),
        "failure": _with_names(plan, _killed_or_lost(end.get("failure"), results)),
        "kernel": _kernel(results, end),
        "restarts": restarts.get("history"),
        "world_size": cluster.get("world_size"),
        "world_sizes": world_sizes(plan["world_size"], len(plan["nodes"]), restarts.get("history") or ()),
        "takeover": _takeover(plan, head, cluster),
        "moved_rendezvous": _moved_rendezvous(plan, restarts),
        "stopped_on": end.get("host"),
        "nodes": [
            {**_node(node, results.get(node["host"])), "why": unreachable.get(node["host"], "")}
            for node in _current_nodes(plan, restarts)
        ],
    }


def _node(node: Data, result: Data | None) -> dict[str, Any]:
    """Return a node of the JobState; `result` is its answer, if any."""
    monitor = (result or {}).get("monitor") or {}
    return {
        "host": node["host"],
        "state": "unreachable" if result is None else "running" if result["left"] else "ended",
        "ranks": node["ranks"],
        "processes": _processes(node, result),
        "carried": node_traffic(monitor.get("carried")),
        **{name: monitor.get(name) or "" for name in ("unwritten", "lost_logs")},
        "role": node["role"],
    }


def _kernel(results: Mapping[str, Data], end: Data) -> list[dict[str, Any]]:
    messages = {host: result.get("kernel") or () for host, result in results.items()}
    failure = end.get("failure")
    return kernel_messages.of_failure(messages, failure, end.get("finished")) if failure else []


def _apart(plan: Data, results: Mapping[str, Data], end: Data, cluster: Data) -> dict[str, Any] | None:
    """Return the evidence that nodes train each for itself, or that ranks of a successful job never met, or None."""
    hosts = [node["host"] for node in _current_nodes(plan, cluster.get("restarts") or {}) if not node["role"]]
    if cluster.get("apart") and _kind(end) != "apart":
        return {"head": hosts[0], "looks": 0, "launchers": [], **cluster["apart"]}
    if end["state"] != "succeeded" or any(worlds.asked_for(node) for node in plan["nodes"]):
        return None
    evidence = {host: (result.get("monitor") or {}).get("meeting") for host, result in results.items()}
    trained = "loss" in (cluster.get("metrics") or {})
    return rank_connections.apart(plan["launcher"], plan["world_size"], hosts, evidence, trained)


def _current_nodes(plan: Data, restarts: Data) -> list[dict[str, Any]]:
    """Return the nodes in their order with the hosts that replaced them, then idle hosts, which have a `role`."""
    replaced, left_out = restarts.get("replaced") or {}, restarts.get("left_out") or {}
    nodes = present(plan, left_out.values())
    taken = {spares.now(node["host"], replaced): node for node in nodes}
    taken = {host: node for host, node in taken.items() if host not in left_out}
    idle = [host for host in spares.all_hosts(plan) if host not in taken]
    roles = {host: f"{replaced[host]} took its place" if host in replaced else "spare" for host in idle}
    roles = {**roles, **dict.fromkeys(left_out, "left out"), witness.host(plan): "witness"}
    nodes = [{**node, "host": host, "role": ""} for host, node in taken.items()]
    return [*nodes, *({"host": host, "ranks": [], "processes": [], "role": roles[host]} for host in idle)]


def _processes(node: Data, result: Data | None) -> list[dict[str, Any]]:
    reported = {process["name"]: process for process in (result or {}).get("processes", ())}
    processes = []
    for process in node["processes"]:
        own, name, ranks = reported.get(process["name"], {}), process["name"], process["ranks"]
        # The exits of the ranks that torchrun's agent started.
        exits = own.get("ends") or {}
        ends = [{"rank": rank, **exits[str(rank)]} for rank in ranks if str(rank) in exits]
        entry = {"name": name, "ranks": ranks, "log": PurePosixPath(process["log"]).name, **(own.get("exit") or {})}
        processes.append({**entry, **({"ends": ends} if ends else {})})
    return processes


def _end(plan: Data, results: Mapping[str, Data], head: str, cluster: Data, by_stop: bool) -> dict[str, Any]:
    """Return the end of the job by the head node, or by a node that lost the head; or that it still runs.

    Nodes that cannot be asked may go on, so an end of a part is that of the job only where none of them can.
    """
    elsewhere = leader.phase(plan, results) != leader.OVER
    # A witness can neither lead nor train.
    results = {host: result for host, result in results.items() if host != witness.host(plan)}
    alive, replaceable = any(result.get("monitor_alive") for result in results.values()), bool(plan.get("candidates"))
    goes_on = (replaceable and alive) or elsewhere
    end = leader.end_of_job(plan, cluster.get("end"))
    if end:
        return dict(end)
    lost = (results.get(head) or {}).get("monitor_lost")
    if cluster and lost and not (by_stop or goes_on) and not (lost["restarted"] and plan["max_restarts"]):
        # With restarts, the head may return. The reports of other nodes are consequences.
        reason = _OF_LAST_HEAD if replaceable else _OF_HEAD
        failure = {"kind": "rebooted", "host": head} if lost["restarted"] else _gone(head, lost, reason)
        return {"state": "failed", "finished": cluster["started"] + cluster["elapsed_s"], "failure": failure}
    ends = [result["monitor"]["end"] for result in results.values() if (result.get("monitor") or {}).get("end")]
    of_job = [end for end in ends if leader.ends_for_all(plan, end)]
    # While other nodes go on, a node that ended its own part says nothing about the job.
    ends = of_job if of_job or goes_on else ends
    if ends:
        # A monitor that was stopped knows less than one with a reason, and a replaced node was told none.
        ends.sort(key=lambda end: (end["state"] == "stopped", _kind(end) == "replaced", end["finished"]))
        return dict(ends[0])
    if not alive and by_stop and any(result["known"] for result in results.values()):
        # No monitor was left to record an end; stop.yml has made sure that nothing runs.
        return {"state": "stopped"}
    return {"state": "running" if alive else "lost"}


def _kind(end: Data) -> str:
    return str((end.get("failure") or {}).get("kind") or "")


def _takeover(plan: Data, head: str, cluster: Data) -> dict[str, Any] | None:
    """Return which host led the job last, in the place of the planned head; None where that one led."""
    planned, term = plan["head"]["host"], cluster.get("term") or 0
    return {"head": head, "planned": planned, "count": term} if term and head != planned else None


def _moved_rendezvous(plan: Data, restarts: Data) -> dict[str, Any] | None:
    """Return the host with the rendezvous while the first node is left out; None where that takes part."""
    first = next((host for host, place in (restarts.get("left_out") or {}).items() if place == 0), "")
    return {"host": _current_nodes(plan, restarts)[0]["host"], "without": first} if first else None


def _killed_or_lost(failure: Data | None, results: Mapping[str, Data]) -> Data | None:
    """Distinguish a killed monitor from a lost node: its node answers, and the monitor recorded no end."""
    lost = (results.get(str((failure or {}).get("host"))) or {}).get("monitor_lost")
    if not failure or failure.get("kind") != "silent" or not lost:
        return failure
    if lost["restarted"]:
        return {**failure, "kind": "rebooted"}
    reason = f"it sent nothing for {failure['after_s']} s, and the node answers"
    return {**failure, **_gone(failure["host"], lost, reason)}


def _gone(host: str, lost: Data, reason: str) -> dict[str, Any]:
    """Return the failure of a monitor that ended without a record; `lost` may say how."""
    return {"kind": "gone", "host": host, "reason": f"{lost['how']}; {reason}" if lost["how"] else reason}


def _with_names(plan: Data, failure: Data | None) -> Data | None:
    """Add host names to the addresses in a reason, as ssh and mpirun know addresses only."""
    if not failure or not failure.get("reason"):
        return failure
    reason = str(failure["reason"])
    for node in (*plan["nodes"], *plan.get("spares", ())):
        reason = re.sub(pattern(node["address"]), f"{node['host']} ({node['address']})", reason)
    return {**failure, "reason": reason}
