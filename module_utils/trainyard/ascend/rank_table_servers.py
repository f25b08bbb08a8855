# SPDX-License-Identifier: Apache-2.0
"""Write a rank table as text, and put other servers into it when a job's nodes change.

A replacing server takes the server_id, which is only a name to HCCL, and the ranks of the replaced one: MindSpore
requires ranks that follow the order of the names.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Table = dict[str, Any]


def with_servers(table: Table, others: Mapping[str, Table]) -> Table:
    """Return a table in which other servers replace some: `others` by the server_id of the replaced ones.

    Each of them is a table of that server alone, with as many devices.
    """
    entries, pod_of = [], _pod_of(table)
    for entry in table["server_list"]:
        name = entry["server_id"]
        if name in others:
            (other,) = others[name]["server_list"]
            ranks = [device["rank_id"] for device in entry["device"]]
            devices = [{**device, "rank_id": rank} for device, rank in zip(other["device"], ranks)]
            entry = {**other, "server_id": name, "device": devices}
            pod_of[name] = next(iter(_pod_of(others[name]).values()), "")
        entries.append(entry)
    changed = {**table, "server_list": entries}
    if "super_pod_list" in table:
        changed["super_pod_list"] = super_pods_of((pod_of[each["server_id"]], each["server_id"]) for each in entries)
    return changed


def without_servers(table: Table, places: Collection[int]) -> Table:
    """Return a table without the servers in these places; ranks stay contiguous."""
    pod_of, ranks = _pod_of(table), itertools.count()
    entries = [
        {**entry, "device": [{**device, "rank_id": str(next(ranks))} for device in entry["device"]]}
        for place, entry in enumerate(table["server_list"])
        if place not in places
    ]
    changed = {**table, "server_count": str(len(entries)), "server_list": entries}
    if "super_pod_list" in table:
        changed["super_pod_list"] = super_pods_of((pod_of[each["server_id"]], each["server_id"]) for each in entries)
    return changed


def _pod_of(table: Table) -> dict[str, str]:
    return {
        server["server_id"]: pod["super_pod_id"]
        for pod in table.get("super_pod_list", ())
        for server in pod["server_list"]
    }


def super_pods_of(members: Iterable[tuple[str, str]]) -> list[Table]:
    """Group server ids by their super pods."""
    pods: dict[str, list[dict[str, str]]] = {}
    for pod, server in members:
        pods.setdefault(pod, []).append({"server_id": server})
    return [{"super_pod_id": pod, "server_list": servers} for pod, servers in pods.items()]


def dumps(table: Table) -> str:
    """Return the table as text, with a line for each device so that differences can be read."""
    return _text(table, "") + "\n"


_encode = json.JSONEncoder().encode
_CONTAINERS = frozenset((dict, list))


def _text(value: Any, margin: str) -> str:
    """Return JSON text in which a value that holds objects or lists has a line for each of its parts."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(map(_CONTAINERS.__contains__, map(type, parts))):
        return _encode(value)
    inner = margin + "  "
    if isinstance(value, dict):
        lines = [f"{_encode(str(name))}: {_text(part, inner)}" for name, part in value.items()]
        opened, closed = "{", "}"
    else:
        lines = [_text(part, inner) for part in value]
        opened, closed = "[", "]"
    between = f",\n{inner}"
    return f"{opened}\n{inner}{between.join(lines)}\n{margin}{closed}"
