# SPDX-License-Identifier: Apache-2.0
"""The record of a run, runs/<job_id>/summary.json (docs/summary.md), and how later answers may change it.

A final record stays as it was written, whatever the nodes answer later. Only the present state of its nodes is shown
with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.findings import host_list
from ...base.shapes import (  # fmt: skip
    MAYBE_INT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NOTHING,
    TIME,
    ByKind,
    Each,
    Is,
    Shape,
    file_name,
)
from ..run.logs.failure_kinds import FAILURE, RECORDED, STATES
from ..run.logs.stacks import STACKS
from ..run.measure.saving import SAVING
from ..run.measure.slow_ranks import SLOW_RANK
from ..run.wire import monitor_files

Data = Mapping[str, Any]

FINAL = frozenset(STATES)


def _new_kind(value: Any) -> None:
    """a kind of failure"""
    if not isinstance(value, str) or value in RECORDED:
        raise ValueError(value)


# Only the host is read of kinds that newer versions alone know.
_FAILURE = (
    ByKind(FAILURE.all, {name: kind.fields for name, kind in RECORDED.items()}),
    {**FAILURE.all, "kind": _new_kind},
    NOTHING,
)
_MOMENT = (TIME, NOTHING)
_RESTART = {
    **{f"?{name.lstrip('?')}": shape for name, shape in monitor_files.RESTART.items()},
    **dict.fromkeys(("reason", "restarted"), str),
    "elapsed_s": MAYBE_NUMBER,
    "?failure": _FAILURE,
}
_EXIT = {
    **dict.fromkeys(("?exit_code", "?signal"), MAYBE_INT),
    "?result": MAYBE_TEXT,
    "?time": _MOMENT,
    "?by_agent": bool,
}
_PROCESS = {"name": str, "ranks": [int], "log": file_name, **_EXIT, "?ends": [{"rank": int, **_EXIT}]}
_NODE = {
    "host": str,
    "state": Is(("ended", "running", "unreachable")),
    "why": str,
    "ranks": [int],
    "processes": [_PROCESS],
    "?carried": (monitor_files.PORTS, NOTHING),
    **dict.fromkeys(("?unwritten", "?lost_logs", "?role"), str),
}
_NCCL = {"networks": [str], **dict.fromkeys(("channels", "inside"), Each(int)), "devices": Each([str]), "gdrdma": int}
_ENGINE = {"kind": str, **dict.fromkeys(("?id", "?reason", "?submit_host"), str)}
# The content of summary.json as far as anything reads it again; records of all versions fit.
SHAPE: Shape = {
    **dict.fromkeys(("job_id", "job_name", "launcher"), str),
    "rank_log": file_name,
    "state": Is((*STATES, "running", "pending", "lost")),
    **dict.fromkeys(("world_size", "ranks_running", "max_restarts"), int),
    "?world_sizes": [{"elapsed_s": float, **dict.fromkeys(("world_size", "nodes"), int)}],
    **dict.fromkeys(("started", "finished"), _MOMENT),
    **dict.fromkeys(("elapsed_s", "?left_s"), MAYBE_NUMBER),
    "metrics": monitor_files.METRICS,
    "?loss_not_a_number": (monitor_files.NOT_A_NUMBER, NOTHING),
    "?checkpoints": (monitor_files.CHECKPOINTS, NOTHING),
    "?goodput": (monitor_files.GOODPUT, NOTHING),
    "failure": _FAILURE,
    "?kernel": [{"hosts": [str], "time": TIME, "kind": str, "text": str}],
    "restarts": [_RESTART],
    "?takeover": ({"head": str, "planned": str, "count": int}, NOTHING),
    "?moved_rendezvous": ({"host": str, "without": str}, NOTHING),
    "?witness_lost": ({"host": str, "silent_s": float}, NOTHING),
    "?slow_ranks": [SLOW_RANK],
    "?saving": (SAVING, NOTHING),
    "?stacks": (STACKS, NOTHING),
    "?apart": ({"head": str, "hosts": [str], "looks": int, "launchers": [str], "?text": str, "?action": str}, NOTHING),
    "?events": [monitor_files.RECEIVER],
    "?engine": _ENGINE,
    "?nccl": (_NCCL, NOTHING),
    "?stopped_on": MAYBE_TEXT,
    "nodes": [_NODE],
}


def is_final(record: Data | None) -> bool:
    """Return whether the record is final: it says how the job ended, and no node still ran it."""
    return (
        record is not None
        and record["state"] in FINAL
        and not any(node["state"] == "running" for node in record["nodes"])
    )


def settle(record: Data | None, answer: Data) -> dict[str, Any]:
    """Return the record after a new summary, `answer`."""
    if record is None:
        return dict(answer)
    # The record of an older version has fewer fields.
    complete = {**answer, **record}
    if record["state"] in FINAL:
        # Some nodes were still ending their processes: add how these exited.
        now = {node["host"]: node for node in answer["nodes"] if node["state"] == "ended"}
        nodes = [
            _ended(node, now[node["host"]]) if node["state"] == "running" and node["host"] in now else node
            for node in record["nodes"]
        ]
        return {**complete, "nodes": nodes}
    if answer["state"] == "lost":
        # The nodes know nothing that the record does not say.
        return {**complete, "state": "lost", "ranks_running": 0, "nodes": answer["nodes"]}
    return dict(answer)


def _ended(node: Data, now: Data) -> dict[str, Any]:
    exits = {process["name"]: process for process in now["processes"]}
    processes = [{**process, **exits.get(process["name"], {})} for process in node["processes"]]
    return {**node, "state": "ended", "processes": processes, "carried": now.get("carried") or node.get("carried")}


def with_nodes(record: Data, answer: Data) -> dict[str, Any]:
    """Return a record with the present state of its nodes, as far as they answer; ended nodes stay ended."""
    now = {node["host"]: node for node in answer["nodes"]}
    nodes = []
    for node in record["nodes"]:
        seen = now.get(node["host"], node)
        if seen["state"] == "running" or node["state"] != "ended":
            node = {**node, "state": seen["state"], "why": seen["why"]}
        nodes.append(node)
    return {**record, "nodes": nodes}


def removed_text(removed: Mapping[str, float], hosts: Sequence[str]) -> list[str]:
    """Return lines on when clean.yml removed files of the job; `removed` has times by host, `hosts` their order."""
    by_day: dict[str, list[str]] = {}
    for host in sorted(removed, key=lambda name: (hosts.index(name) if name in hosts else len(hosts), name)):
        by_day.setdefault(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(removed[host])), []).append(host)
    return [
        f"what it had left was removed by playbooks/clean.yml on {when}: {host_list(found)}"
        for when, found in sorted(by_day.items())
    ]
