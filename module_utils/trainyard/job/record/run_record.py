# SPDX-License-Identifier: Apache-2.0
"""The record of a run, runs/<job_id>/summary.json (docs/summary.md): what a question may change in it, and what not.

A final state is final: whatever the nodes say later, that they know nothing of the job or nothing at all, the record
stays as it was written. Only how its nodes are now is told with it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...findings.findings import host_list
from ..run.messages import STATES

Data = Mapping[str, Any]

FINAL = frozenset(STATES)


def read(data: object) -> dict[str, Any] | None:
    """Return what stands in summary.json as summarize() makes it, None for what is no record."""
    return data if isinstance(data, dict) and isinstance(data.get("state"), str) else None


def is_final(record: Data | None) -> bool:
    """Whether nothing may change this record any more: how the job ended stands there, and it ran nowhere then."""
    return (
        record is not None
        and record["state"] in FINAL
        and not any(node["state"] == "running" for node in record["nodes"])
    )


def settle(record: Data | None, answer: Data) -> dict[str, Any]:
    """Return what the record says after a question whose `answer` is a new summary."""
    if record is None:
        return dict(answer)
    # Of an older release, which had fewer fields.
    known = {**answer, **record}
    if record["state"] in FINAL:
        # It was asked while some nodes were still ending their part: how that went is added.
        now = {node["host"]: node for node in answer["nodes"] if node["state"] == "ended"}
        nodes = [
            _ended(node, now[node["host"]]) if node["state"] == "running" and node["host"] in now else node
            for node in record["nodes"]
        ]
        return {**known, "nodes": nodes}
    if answer["state"] == "lost":
        # Nobody knows more than was known before.
        return {**known, "state": "lost", "ranks_running": 0, "nodes": answer["nodes"]}
    return dict(answer)


def _ended(node: Data, now: Data) -> dict[str, Any]:
    exits = {process["name"]: process for process in now["processes"]}
    processes = [{**process, **exits.get(process["name"], {})} for process in node["processes"]]
    return {**node, "state": "ended", "processes": processes, "carried": now.get("carried") or node.get("carried")}


def with_nodes(record: Data, answer: Data) -> dict[str, Any]:
    """Return a record with its nodes as they are now, as far as they answer; what had ended there stays so."""
    now = {node["host"]: node for node in answer["nodes"]}
    nodes = []
    for node in record["nodes"]:
        seen = now.get(node["host"], node)
        if seen["state"] == "running" or node["state"] != "ended":
            node = {**node, "state": seen["state"], "why": seen["why"]}
        nodes.append(node)
    return {**record, "nodes": nodes}


def removed_text(removed: Mapping[str, float], hosts: Sequence[str]) -> list[str]:
    """Say when clean.yml removed what the job had left, and where; `removed` are times by host, `hosts` their order."""
    by_day: dict[str, list[str]] = {}
    for host in sorted(removed, key=lambda name: (hosts.index(name) if name in hosts else len(hosts), name)):
        by_day.setdefault(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(removed[host])), []).append(host)
    return [
        f"what it had left was removed by playbooks/clean.yml on {when}: {host_list(found)}"
        for when, found in sorted(by_day.items())
    ]
