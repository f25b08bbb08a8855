# SPDX-License-Identifier: Apache-2.0
"""Choose the logs that a host of a job may bring to the run's folder, where those of all hosts come together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ...findings.findings import counted
from ...findings.visible import one_line
from ...slurm.state import nodes_of
from . import spare_places as spares

Data = Mapping[str, Any]
METRICS = "metrics.jsonl"
_LOG = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_NCCL = re.compile(r"nccl_[\w.-]{1,90}\.log", re.ASCII)
_MOST_NAMED = 3


def kept(plan: Data, answers: Mapping[str, dict[str, Any]]) -> tuple[dict[str, dict[str, str]], str]:
    """Take the logs out of what hosts answered to `collect`; returns them by host, and what to say of the others.

    A host brings the logs of its own processes and ranks in the plan. Where the head says that a spare took its place,
    or it says so itself, these stand under its name, as the ranks went on elsewhere under the same names.
    """
    cluster = (answers.get(plan["head"]["host"]) or {}).get("cluster") or {}
    replaced = (cluster.get("restarts") or {}).get("replaced") or {}
    found: dict[str, dict[str, str]] = {}
    others: dict[str, list[str]] = {}
    for host, answer in answers.items():
        failure = ((answer.get("monitor") or {}).get("end") or {}).get("failure") or {}
        aside = f"{host}_" if host in replaced or failure.get("kind") == "replaced" else ""
        logs = answer.pop("logs", {})
        names = {name: _name(plan, host, name, replaced) for name in logs}
        found[host] = {f"{aside}{names[name]}": content for name, content in logs.items() if names[name]}
        others.update({host: [name for name in logs if not names[name]]} if not all(names.values()) else {})
    return found, _text(others)


def kept_of_slurm(plan: Data, state: Data, answers: Mapping[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return what hosts answered to `slurm_logs` with their own `logs` and `exits` only, and the text about the others.

    A host that is asked alone, or that is no node of the job, has the folder of all nodes: it submitted the job.
    """
    hosts = state.get("hosts") or ()
    theirs = {host: answer for host, answer in answers.items() if len(answers) > 1 and host in hosts}
    every = [answer for host, answer in answers.items() if host not in theirs]
    if not theirs:
        return every, ""
    nodes = [{**node, "node_rank": number} for number, node in enumerate(nodes_of(plan, state))]
    nodes[0]["processes"] = [*nodes[0]["processes"], {"log": "slurm.log"}]
    for node in nodes:
        node["processes"] = [*node["processes"], {"log": f"agent_{node['node_rank']}.log"}]
    logs, others = kept({"head": nodes[0], "nodes": nodes, "rank_log": plan["rank_log"]}, theirs)
    for node in nodes:
        answer = theirs.get(node["host"], {})
        exits = [each for each in answer.get("exits", ()) if each.get("host") == node["host"]]
        exits = [each for each in exits if each.get("rank") in (None, *node["ranks"])]
        every.append({"logs": logs.get(node["host"], {}), "exits": exits})
    # A job that Slurm requeued may have had its ranks on other nodes before.
    return every, "" if state.get("requeued") else others


def _name(plan: Data, host: str, name: str, replaced: Mapping[str, str]) -> str:
    """Return under which name a log of a host is kept; "" where it is not the host's."""
    if _NCCL.fullmatch(name):
        # Nodes name it by what they call themselves.
        return f"nccl_{re.sub(r'[^A-Za-z0-9_.-]', '_', host)}.log"
    if not _LOG.fullmatch(name):
        return ""
    for node in _parts(plan, host, replaced):
        if name == METRICS and 0 in node["ranks"]:
            return name
        own = {PurePosixPath(process["log"]).name for process in node["processes"]}
        own |= {f"{kind}_{node['node_rank']}.log" for kind in ("monitor", "stacks")}
        own |= {"events.log", "scheduler.log"} if host == plan["head"]["host"] else set()
        ranks = [plan["rank_log"].replace("{rank}", str(rank)) for rank in node["ranks"]]
        # A start script's own log is collected beside its rank's, as rank_0_train.log.
        if name in own or any(name == log or name.startswith(f"{log[: -len('.log')]}_") for log in ranks):
            return name
    return ""


def _parts(plan: Data, host: str, replaced: Mapping[str, str]) -> Iterator[Data]:
    """Yield what a host has in the plan: its own node, or as a spare itself, and the places that it has taken."""
    yield from (node for node in plan["nodes"] if node["host"] == host)
    for spare in plan.get("spares", ()):
        if spare["host"] != host:
            continue
        yield {"ranks": [], "processes": [], "node_rank": spare["node_rank"]}
        for node in plan["nodes"]:
            if spares.now(node["host"], replaced) == host:
                place = spare["places"][str(node["node_rank"])]
                yield {"ranks": node["ranks"], "processes": place["processes"], "node_rank": node["node_rank"]}


def _text(others: Mapping[str, Iterable[str]]) -> str:
    """Say which logs were left out."""
    told = []
    for host, names in others.items():
        shown = [one_line(name, 60) for name in names]
        more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
        told.append(f"{host} ({', '.join(shown[:_MOST_NAMED])}{more})")
    if not told:
        return ""
    more = f" and {counted(len(told) - _MOST_NAMED, 'more node')}" if len(told) > _MOST_NAMED else ""
    return (
        f"logs that the plan does not have on the node that sent them: {', '.join(told[:_MOST_NAMED])}{more}; expected "
        "those of its own ranks: they were left out, look at what writes there"
    )
