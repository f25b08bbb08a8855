# SPDX-License-Identifier: Apache-2.0
"""The record of a run, runs/<job_id>/summary.json (docs/summary.md), and how later answers may change it.

A final record stays as it was written, whatever the nodes answer later. Only the present state of its nodes is shown
with it.
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
    """Return the content of summary.json, None where it is no record."""
    return data if isinstance(data, dict) and isinstance(data.get("state"), str) else None


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
