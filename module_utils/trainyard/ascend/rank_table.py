# SPDX-License-Identifier: Apache-2.0
"""Build, merge, check, repair and write rank tables of HCCL (Ascend NPUs): docs/rank-table.md.

Version 1.0 is for Atlas A2 and older (chips 910 and 910b), version 1.2 for super pods (a3). The rules are those of
HCCL's own parser, of the 910's wiring, and MindSpore's on the order of ranks.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..base.findings import Finding, faults
from .rank_table_rules import VERSIONS, device_set_problems, validate
from .rank_table_servers import Table, dumps, super_pods_of
from .rank_table_view import CHIPS, View, as_error, number, shown, version_of

__all__ = [
    "CHIPS", "VERSIONS", "Device", "Server", "Table", "as_error", "build", "device_set_problems", "dumps",
    "file_name", "file_text", "merge", "path_problems", "repair", "validate",
]  # fmt: skip


@dataclass(frozen=True)
class Device:
    """An NPU by its physical id. The address is "" where it is not needed or missing."""

    device_id: int
    device_ip: str = ""
    super_device_id: str = ""


@dataclass(frozen=True)
class Server:
    """A server and its devices in the order of their ranks. Only version 1.2 has `host_ip` and `super_pod_id`."""

    server_id: str
    devices: tuple[Device, ...]
    host_ip: str = ""
    super_pod_id: str = "0"


def build(servers: Sequence[Server], chip: str, version: str = "auto") -> Table:
    """Return the table of these servers, in the dictionary order of server_id, with ranks from 0.

    The keys have the order in which Ascend's own generator writes them, so that both files can be compared.
    validate() checks what the servers are. Raises ValueError for an unknown chip or version.
    """
    chosen = version_of(chip) if version == "auto" else version
    if chosen not in VERSIONS:
        raise ValueError(f"version {version!r}: expected auto or one of {', '.join(VERSIONS)}")
    super_pods = chosen == "1.2"
    ordered = sorted(servers, key=lambda server: server.server_id)
    ranks = itertools.count()
    entries = []
    for server in ordered:
        entry: Table = {"server_id": server.server_id}
        if super_pods and server.host_ip:
            entry["host_ip"] = server.host_ip
        entry["device"] = [_device_entry(device, super_pods, next(ranks)) for device in server.devices]
        if not super_pods:
            entry["host_nic_ip"] = "reserve"
        entries.append(entry)
    table: Table = {"version": chosen, "server_count": str(len(entries)), "server_list": entries}
    if super_pods:
        table["super_pod_list"] = super_pods_of((server.super_pod_id, server.server_id) for server in ordered)
    return {**table, "status": "completed"}


def _device_entry(device: Device, super_pods: bool, rank: int) -> dict[str, str]:
    entry = {"device_id": str(device.device_id)}
    if device.device_ip:
        entry["device_ip"] = device.device_ip
    if super_pods:
        entry["super_device_id"] = device.super_device_id
    return {**entry, "rank_id": str(rank)}


def file_text(table: Table) -> str:
    """Return the text of a table's file in the layout of Ascend's own generator."""
    return json.dumps(table, indent=4) + "\n"


def path_problems(path: str) -> list[Finding]:
    """Return the problem of the name of a table's file."""
    # HCCL searches the first `.json` in the whole path.
    if 0 <= path.find(".json") == len(path) - len(".json"):
        return []
    found = "a second .json before the end" if path.endswith(".json") else "a name that does not end in .json"
    expected = "a name that ends in .json, and .json nowhere before in the path"
    return [Finding("file_name", found, expected, "rename the file; HCCL takes no other name", host=path)]


def merge(tables: Sequence[object], chip: str = "", names: Sequence[str] = ()) -> tuple[Table, list[Finding]]:
    """Return one table of the servers of all these, with new ranks, and the problems of all tables.

    Devices stay in the order that their ranks had on their server. Problems of a table that the merged one does not
    have begin their place with the table's name, or `tables[N]`. Raises ValueError for an unknown chip.
    """
    problems: list[Finding] = []
    parts: list[Table] = []
    for index, table in enumerate(tables):
        part, own = repair(table)
        if View(part).servers:
            parts.append(part)
            own += [problem for problem in validate(part) if problem.check == "server_count"]
            own += _other_version(part, parts[0])
        else:
            own = [problem for problem in validate(table) if problem.check == "structure"]
        name = names[index] if names else f"tables[{index}]"
        problems += [replace(problem, host=f"{name}, {problem.host}") for problem in own]
    if not parts:
        return {}, problems or validate({}, chip)
    entries = [entry for part in parts for entry in part["server_list"]]
    # A table that is still being written makes the merged one unfinished.
    statuses = [part.get("status", "") for part in parts]
    status = next((status for status in statuses if status != "completed"), "completed")
    merged: Table = {**parts[0], "server_count": str(len(entries)), "server_list": entries, "status": status}
    if any("super_pod_list" in part for part in parts):
        pods = [(pod, server) for part in parts for _, pod, servers in View(part).pods for server in servers]
        merged["super_pod_list"] = super_pods_of(sorted(pods, key=lambda pod_and_server: pod_and_server[1]))
    if _order_is_certain(merged):
        merged = _renumbered(merged)
    return merged, problems + validate(merged, chip)


def _other_version(part: Table, first: Table) -> list[Finding]:
    if part.get("version") == first.get("version"):
        return []
    found, expected = f"version {shown(part.get('version'))}", f"{shown(first.get('version'))}, as in the first table"
    return [Finding("version", found, expected, "merge tables of one version, for one kind of chip", host="table")]


def repair(table: object) -> tuple[Table, list[Finding]]:
    """Return a copy with the repairs that have only one meaning, and the repaired problems.

    Numbers become strings, a missing server_count is counted, ranks are numbered in the order that the framework
    requires, and `status` is set when nothing else is wrong. Anything but a table becomes an empty one.
    """
    if not isinstance(table, dict):
        return {}, []
    before = validate(table)
    if not before:
        return table, []
    fixed = _with_strings(_with_strings(table, "server_list", "device"), "super_pod_list", "server_list")
    if "server_count" not in fixed and View(fixed).entries:
        fixed["server_count"] = str(len(View(fixed).entries))
    problems = validate(fixed)
    left = frozenset(problems)
    cured = [problem for problem in before if problem not in left]
    ranks = [problem for problem in problems if problem.check.startswith("rank_")]
    if ranks and _order_is_certain(fixed):
        fixed = _renumbered(fixed)
        cured += ranks
        problems = validate(fixed)
    if [problem.check for problem in faults(problems)] == ["status"] and isinstance(fixed.get("status", ""), str):
        fixed["status"] = "completed"
        cured += faults(problems)
    return fixed, cured


def _with_strings(data: Table, *inner: str) -> Table:
    """Return a copy in which numbers that have one decimal notation are strings, also in the lists of these names."""
    fixed: Table = {}
    for name, value in data.items():
        is_plain = number(value) is not None or (name == "version" and isinstance(value, float))
        fixed[name] = str(value) if is_plain else value
    for name in inner[:1]:
        if isinstance(fixed.get(name), list):
            fixed[name] = [_with_strings(part, *inner[1:]) if isinstance(part, dict) else part for part in fixed[name]]
    return fixed


def _order_is_certain(table: Table) -> bool:
    """Tell whether every server has a name and the devices of each have ranks that differ."""
    view = View(table)
    return len(view.servers) == len(view.entries) and all(
        server.server_id and 0 < len(set(server.ranks)) == len(server.entries) for server in view.servers
    )


def _renumbered(table: Table) -> Table:
    ranks = itertools.count()
    entries = []
    for server in sorted(View(table).servers, key=lambda server: server.server_id):
        ordered = sorted(server.devices, key=lambda device: device.rank or 0)
        devices = [{**device.data, "rank_id": str(next(ranks))} for device in ordered]
        entries.append({**server.data, "device": devices})
    return {**table, "server_list": entries}


def file_name(table: Table) -> str:
    """Return the conventional name: `hccl_4p_4567_10.0.0.1.json`, for several servers `hccl_2s_16p.json`."""
    view = View(table)
    devices = len(view.devices)
    if len(view.servers) != 1:
        return f"hccl_{len(view.servers)}s_{devices}p.json"
    ids = "".join("" if device.device_id is None else str(device.device_id) for device in view.devices)
    # A server's name may be anything; a slash would lead elsewhere.
    server = re.sub(r"[^A-Za-z0-9._:-]", "_", view.servers[0].server_id)
    return f"hccl_{devices}p_{ids}_{server}.json"
