# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table, one function each; docs/rank-table.md lists them.

A table may come from anywhere, so a rule takes what it can read and leaves the rest to the rule whose subject it is: an
integer rank_id is a fault of `string` only, and is a rank for all the other rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, Warned, counted
from . import rank_table_addresses, rank_table_super_pods
from .rank_table_view import MOST_SERVER_ID, DeviceView, View, field_text, number, objects, plain, shown, version_of

VERSIONS = ("1.0", "1.2")
MOST_DEVICE_ID = {"910": 7, "910b": 15, "a3": 15}
# A 910 server has two rings of four devices; four devices in use are a whole ring.
_RINGS = (frozenset(range(4)), frozenset(range(4, 8)))
# What HCCL reads; whatever else generators write beside it is nothing to HCCL.
_READ = frozenset(
    {"version", "status", "server_count", "server_id", "host_ip", "rank_id", "device_id", "device_ip", "device_port",
     "device_vnic_port", "host_port", "super_device_id", "super_pod_id"}
)  # fmt: skip
_RENUMBER = "number the devices of all servers through, from 0"


def _structure(view: View) -> Iterator[Finding]:
    action = "write the table with library/rank_table"
    if not view.entries:
        found = field_text(view.table, "server_list")
        yield Finding("structure", found, "server_list, a list with an entry for each server", action, host="table")
    for index, entry in enumerate(view.entries):
        if not isinstance(entry, dict):
            yield Finding("structure", shown(entry), "an object", action, host=f"server_list[{index}]")
    for server in view.servers:
        if not server.entries:
            found = field_text(server.data, "device")
            yield Finding("structure", found, "device, a list with an entry for each device", action, host=server.where)
        for index, entry in enumerate(server.entries):
            if not isinstance(entry, dict):
                yield Finding("structure", shown(entry), "an object", action, host=f"{server.where}, device[{index}]")


def _string(view: View) -> Iterator[Finding]:
    def check(data: Mapping[str, Any], where: str) -> Iterator[Finding]:
        for name, value in data.items():
            if name in _READ and not isinstance(value, (str, list, dict)):
                kind = "no value" if value is None else "true or false" if isinstance(value, bool) else "a number"
                yield Finding(
                    "string",
                    f"{plain(name)} is {shown(value)}, {kind}",
                    "a string in quotes",
                    "write it in quotes: HCCL's parser takes strings only",
                    host=where,
                )

    yield from check(view.table, "table")
    for server in view.servers:
        yield from check(server.data, server.where)
    for device in view.devices:
        # The usual case, without the name that only a message needs.
        if not all(type(value) is str for value in device.data.values()):
            yield from check(device.data, device.where)
    for at, pod in objects(view.table, "super_pod_list"):
        yield from check(pod, f"super_pod_list[{at}]")
        for inner, server_of_pod in objects(pod, "server_list"):
            yield from check(server_of_pod, f"super_pod_list[{at}], server_list[{inner}]")


def _version(view: View) -> Iterator[Finding]:
    wanted = (version_of(view.chip),) if view.chip else VERSIONS
    if view.version not in wanted:
        found = f"version {plain(view.version)}" if view.version else field_text(view.table, "version")
        yield (Warned if view.version in VERSIONS else Finding)(
            check="version",
            host="table",
            found=found,
            expected=f"{' or '.join(wanted)}{f' for chip {view.chip}' if view.chip else ''}",
            action=(
                "write the table for the chip that the servers have: HCCL stops with EI0014 at one that it does not "
                "know, and has no super pods with 1.0"
            ),
        )


def _status(view: View) -> Iterator[Finding]:
    if view.table.get("status") != "completed":
        found = field_text(view.table, "status")
        yield Finding(
            "status",
            found,
            "completed",
            (
                "wait for the program that writes the table, or set it if the table is whole; until then HCCL reads "
                "the file again and again, for 30 minutes"
            ),
            host="table",
        )


def _server_count(view: View) -> Iterator[Finding]:
    servers = len(view.entries)
    if number(view.table.get("server_count")) != servers:
        # HCCL counts them itself where nobody says.
        yield (Finding if "server_count" in view.table else Warned)(
            check="server_count",
            host="table",
            found=field_text(view.table, "server_count"),
            expected=f"{servers}, the length of server_list",
            action="set it to the number of servers, after making sure that none is missing from server_list",
        )


def _server_id(view: View) -> Iterator[Finding]:
    for server in view.servers:
        if not server.server_id:
            yield Finding(
                "server_id",
                field_text(server.data, "server_id"),
                "a name or an address",
                "give the server the address that the job's other nodes know it by",
                host=server.where,
            )


def _server_id_length(view: View) -> Iterator[Finding]:
    for server in view.servers:
        if len(server.server_id) > MOST_SERVER_ID:
            yield Finding(
                "server_id_length",
                f"server_id {shown(server.server_id)} of {len(server.server_id)} characters",
                f"at most {MOST_SERVER_ID} characters",
                "use the server's address, or a shorter name",
                host=f"server_list[{server.index}]",
            )


def _server_id_unique(view: View) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for server in view.servers:
        index = first.setdefault(server.server_id, server.index)
        if server.server_id and index != server.index:
            yield Finding(
                "server_id_unique",
                f"server_id {shown(server.server_id)}, which server_list[{index}] has",
                "each server_id once",
                "put all devices of a server into one entry, or give each server its own address",
                host=f"server_list[{server.index}]",
            )


def _rank_id(view: View) -> Iterator[Finding]:
    for device in view.devices:
        if device.rank is None:
            found = field_text(device.data, "rank_id")
            yield Finding("rank_id", found, "a number from 0, as a string", _RENUMBER, host=device.where)


def _rank_id_unique(view: View) -> Iterator[Finding]:
    first: dict[int, DeviceView] = {}
    for device in view.devices:
        if device.rank is not None and first.setdefault(device.rank, device) is not device:
            yield Finding(
                "rank_id_unique",
                f"rank_id {device.rank}, which {_device(first[device.rank])} has",
                "each rank_id once",
                _RENUMBER,
                host=device.where,
            )


def _device(device: DeviceView) -> str:
    """Name a device by its place, since its rank is what is in doubt."""
    return device.where.rpartition(", rank ")[0] if device.rank is not None else device.where


def _rank_id_contiguous(view: View) -> Iterator[Finding]:
    size = len(view.devices)
    for device in view.devices:
        if device.rank is not None and device.rank >= size:
            yield Finding(
                "rank_id_contiguous",
                f"rank_id {device.rank} in a table of {counted(size, 'device')}",
                f"the rank_ids 0 to {size - 1}, without a gap",
                _RENUMBER,
                host=device.where,
            )


def _rank_order(view: View) -> Iterator[Finding]:
    """MindSpore's demand; HCCL takes any order."""
    known = [server for server in view.servers if server.server_id and server.ranks]
    by_id = sorted(known, key=lambda server: server.server_id)
    by_rank = {id(server): at for at, server in enumerate(sorted(known, key=lambda server: min(server.ranks)))}
    expected = "ranks that follow the dictionary order of server_id (10.0.0.10 before 10.0.0.2)"
    action = "renumber the ranks (repair: true does), and start the ranks by the new table"
    last = -1
    for at, server in enumerate(by_id):
        lowest = min(server.ranks)
        if by_rank[id(server)] != at:
            place = f"number {by_rank[id(server)] + 1} of {len(known)}"
            found = f"{place} by its ranks, from {lowest}, but number {at + 1} by its server_id"
            yield Warned("rank_order", found, expected, action, host=server.where)
        elif lowest < last:
            found = f"rank {lowest} here, rank {last} on a server before it"
            yield Warned("rank_order", found, expected, action, host=server.where)
        last = max(last, *server.ranks)


def _device_id(view: View) -> Iterator[Finding]:
    most = MOST_DEVICE_ID.get(view.chip, max(MOST_DEVICE_ID.values()))
    for device in view.devices:
        if device.device_id is None or device.device_id > most:
            yield Finding(
                "device_id",
                field_text(device.data, "device_id"),
                f"0 to {most}{f' on {view.chip}' if view.chip else ''}, as a string",
                (
                    "use the device's physical id, which npu-smi shows (not the one that ASCEND_RT_VISIBLE_DEVICES "
                    "makes)"
                ),
                host=device.where,
            )


def _device_id_unique(view: View) -> Iterator[Finding]:
    for server in view.servers:
        first: dict[int, int] = {}
        for device in server.devices:
            if device.device_id is not None and first.setdefault(device.device_id, device.index) != device.index:
                places = f"device[{first[device.device_id]}] and device[{device.index}]"
                yield Finding(
                    "device_id_unique",
                    f"device_id {device.device_id} in {places}",
                    "each device of a server once",
                    "list each physical device of the server once",
                    host=device.where,
                )


def _device_count(view: View) -> Iterator[Finding]:
    counts = Counter(len(server.entries) for server in view.servers)
    if len(counts) > 1:
        # The first of the most common ones.
        usual = counts.most_common(1)[0][0]
        for server in view.servers:
            if len(server.entries) != usual:
                # Only a 910 refuses it.
                yield (Finding if view.chip == "910" else Warned)(
                    check="device_count",
                    host=server.where,
                    found=counted(len(server.entries), "device"),
                    expected=f"{usual}, as on the other servers",
                    action="use the same number of devices on every server",
                )


def _device_set(view: View) -> Iterator[Finding]:
    if view.chip == "910":
        for server in view.servers:
            yield from _grouping([each.device_id for each in server.devices], len(view.entries), server.where)


def _grouping(devices: Sequence[int | None], servers: int, where: str) -> Iterator[Finding]:
    """The 910's wiring."""
    used = frozenset(device for device in devices if device is not None)
    found = f"{counted(len(devices), 'device')}: {', '.join(map(str, sorted(used)))}"
    ring = any(used <= ring for ring in _RINGS)
    # HCCL refuses numbers that are none of these, and four that are no ring; of two it says nothing, and several
    # servers with less than 8 each are slower.
    kind = Finding if len(devices) not in (1, 2, 4, 8) or (len(devices) == 4 and not ring) else Warned
    if servers > 1 and len(devices) != 8:
        expected = "8 devices {0-7} on each server, since there are several servers"
    elif len(devices) not in (1, 2, 4, 8):
        expected = "1, 2, 4 or 8 devices"
    elif len(devices) == 2 and not ring:
        expected = "2 devices that are both in {0,1,2,3} or both in {4,5,6,7}"
    elif len(devices) == 4 and not ring:
        expected = "{0,1,2,3} or {4,5,6,7} for 4 devices"
    else:
        return
    yield kind(
        check="device_set",
        host=where,
        found=found,
        expected=expected,
        action="use a set of devices that the 910's links join",
    )


def set_problems(devices: Sequence[int], chip: str, servers: int, where: str) -> list[Finding]:
    """Return what keeps a chip from working with these devices on each of this many servers."""
    version_of(chip)
    most = MOST_DEVICE_ID[chip]
    problems = []
    if not devices:
        problems.append(Finding("device_set", "no device", "1 device or more", "name the devices to use", host=where))
    for device in devices:
        if not 0 <= device <= most:
            found, action = f"device {device}", "use physical ids, which npu-smi shows"
            problems.append(Finding("device_id", found, f"0 to {most} on {chip}", action, host=where))
    for device, count in Counter(devices).items():
        if count > 1:
            found = f"device {device} {count} times"
            problems.append(Finding("device_id_unique", found, "each device once", "name each device once", host=where))
    # An invalid set of devices has no grouping.
    if chip == "910" and not problems:
        problems += _grouping(devices, servers, where)
    return problems


RULES = (
    _structure, _string, _version, _status, _server_count, _server_id, _server_id_length, _server_id_unique,
    _rank_id, _rank_id_unique, _rank_id_contiguous, _rank_order,
    _device_id, _device_id_unique, _device_count, _device_set,
    *rank_table_addresses.RULES, *rank_table_super_pods.RULES,
)  # fmt: skip


def problems_of(table: object, chip: str) -> Iterable[Finding]:
    """Yield what is wrong with a table. Raises ValueError for an unknown chip."""
    if chip:
        version_of(chip)
    if not isinstance(table, dict):
        action = "write the table with library/rank_table"
        return iter([Finding("structure", shown(table), "a JSON object", action, host="table")])
    view = View(table, chip)
    return (problem for rule in RULES for problem in rule(view))
