# SPDX-License-Identifier: Apache-2.0
"""Choose the logs that a host of a job may bring to the run's folder, where those of all hosts come together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ...base.findings import counted
from ...base.visible import one_line
from ..run.lead import leader
from ..run.lead.node_numbers import present
from . import spares, witness

Data = Mapping[str, Any]
METRICS, _EVENTS = "metrics.jsonl", "events.log"
# Also msrun on the first node writes it.
_SCHEDULER = "scheduler.log"
_LOG = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_NCCL = re.compile(r"nccl_[\w.-]{1,90}\.log", re.ASCII)
# Upper bound for the hosts, and the logs of each, that a text names.
_MAX_NAMED = 3


def take_logs(plan: Data, answers: Mapping[str, dict[str, Any]]) -> tuple[dict[str, dict[str, str]], str]:
    """Take the logs out of the hosts' answers to `collect`; return them by host, and a text about rejected ones.

    A host may bring the logs of its own processes and ranks in the plan. If a spare replaced it, its logs get its name
    as prefix, as the ranks continued on the spare with the same names.
    """
    head, cluster = leader.find(plan, answers)
    restarts = cluster.get("restarts") or {}
    replaced, now = restarts.get("replaced") or {}, plan
    if restarts.get("left_out"):
        now = {**plan, "nodes": present(plan, restarts["left_out"].values())}
    found: dict[str, dict[str, str]] = {}
    others: dict[str, list[str]] = {}
    for host, answer in answers.items():
        failure = ((answer.get("monitor") or {}).get("end") or {}).get("failure") or {}
        prefix = f"{host}_" if host in replaced or failure.get("kind") == "replaced" else ""
        logs = answer.pop("logs", {})
        names = {name: _name(now, host, name, replaced, cluster.get("progress_rank") or 0) for name in logs}
        if plan.get("min_nodes"):
            # Ranks that the host had with other nodes.
            before = [name for name in logs if not names[name] and _had_before(plan, name)]
            names.update({name: name if prefix else f"{host}_{name}" for name in before})
        # Each host that led has a log of the events that it sent.
        prefixes = {_EVENTS: prefix or ("" if host == (head or plan["head"]["host"]) else f"{host}_")}
        found[host] = {
            f"{prefixes.get(name, prefix)}{names[name]}": content for name, content in logs.items() if names[name]
        }
        # Each node has the progress of its own ranks; that of the leading one is saved.
        others[host] = [name for name in logs if not names[name] and name != METRICS]
    return found, _text(others)


def _name(plan: Data, host: str, name: str, replaced: Mapping[str, str], progress_rank: int = 0) -> str:
    """Return the name under which a log of a host is saved; "" if it is not the host's."""
    if _NCCL.fullmatch(name):
        # Nodes name it by their own host name.
        return f"nccl_{re.sub(r'[^A-Za-z0-9_.-]', '_', host)}.log"
    if not _LOG.fullmatch(name):
        return ""
    first = next((node["node_rank"] for node in plan["nodes"] if node["ranks"]), 0)
    for node in _parts(plan, host, replaced):
        if name == METRICS and progress_rank in node["ranks"]:
            return name
        own = {PurePosixPath(process["log"]).name for process in node["processes"]}
        own |= {f"{kind}_{node['node_rank']}.log" for kind in ("monitor", "stacks")}
        own |= {_EVENTS} if host in leader.hosts(plan) else set()
        own |= {_SCHEDULER} if node["node_rank"] == first else set()
        ranks = [plan["rank_log"].replace("{rank}", str(rank)) for rank in node["ranks"]]
        # A start script's own log is collected beside its rank's, as rank_0_train.log.
        if name in own or any(name == log or name.startswith(f"{log[: -len('.log')]}_") for log in ranks):
            return name
    return ""


def _had_before(plan: Data, name: str) -> bool:
    """Return whether a log is that of any rank or process of a job whose ranks may move to other nodes."""
    nodes = plan["nodes"]
    logs = {plan["rank_log"].replace("{rank}", str(rank)) for node in nodes for rank in node["ranks"]}
    logs |= {PurePosixPath(process["log"]).name for process in nodes[0]["processes"]}
    return name in logs | {f"agent_{place}.log" for place in range(len(nodes))} | {_SCHEDULER}


def _parts(plan: Data, host: str, replaced: Mapping[str, str]) -> Iterator[Data]:
    """Yield the parts of a host in the plan: its own node, or as a spare itself, and the places that it has taken."""
    yield from (node for node in plan["nodes"] if node["host"] == host)
    if witness.host(plan) == host:
        yield {"ranks": [], "processes": [], **plan["witness"]}
    for spare in plan.get("spares", ()):
        if spare["host"] != host:
            continue
        yield {"ranks": [], "processes": [], "node_rank": spare["node_rank"]}
        for node in plan["nodes"]:
            if spares.now(node["host"], replaced) == host:
                yield node


def _text(others: Mapping[str, Sequence[str]]) -> str:
    texts = []
    for host, names in others.items():
        shown = [one_line(name, 60) for name in names]
        more = f" and {len(shown) - _MAX_NAMED} more" if len(shown) > _MAX_NAMED else ""
        texts += [f"{host} ({', '.join(shown[:_MAX_NAMED])}{more})"] if shown else []
    if not texts:
        return ""
    more = f" and {counted(len(texts) - _MAX_NAMED, 'more node')}" if len(texts) > _MAX_NAMED else ""
    return (
        f"logs that the plan does not have on the node that sent them: {', '.join(texts[:_MAX_NAMED])}{more}; expected "
        "those of its own ranks: they were left out, check what writes there"
    )
