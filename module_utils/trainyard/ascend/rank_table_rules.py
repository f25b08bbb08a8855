# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table, one function each; docs/rank-table.md lists them.

A rule checks what it can read and leaves the rest to the rule whose subject it is: an integer rank_id is a problem of
`string` only, and a rank for all other rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding, Warned, counted
from ..base.majority import usual
from . import rank_table_addresses
from .rank_table_view import (
    MAX_SERVER_ID,
    WRITE_ANEW,
    View,
    field_text,
    number,
    objects,
    plain,
    repeats,
    shown,
    version_of,
)

VERSIONS = ("1.0", "1.2")
_MAX_DEVICE_ID = {"910": 7, "910b": 15, "a3": 15}
# A 910 server has two rings of four devices; four devices in use are a whole ring.
_RINGS = (frozenset(range(4)), frozenset(range(4, 8)))
# The fields that HCCL reads. It ignores what generators write beside them.
_READ = frozenset(
    {"version", "status", "server_count", "server_id", "host_ip", "rank_id", "device_id", "device_ip", "device_port",
     "device_vnic_port", "host_port", "super_device_id", "super_pod_id"}
)  # fmt: skip
# Tables of other programs and generations, by the list that they have instead of server_list; what to do with each.
_OTHER_FORMS = {
    "rank_list": (
        "a rank table of version 2.0, for the generation after A3 (rank_list, level_list)",
        "give it to programs of that generation only; for 910, 910B and A3 write one with library/rank_table",
    ),
    "server_group_list": (
        "the table of a service of MindIE, with its groups of servers (server_group_list)",
        "give it to MindIE; for a job write one with library/rank_table, or the server_list of one group",
    ),
    "group_list": ("a rank table of the form before 1.0 (group_list, instance_list)", WRITE_ANEW),
}
_RENUMBER = "number the devices of all servers through, from 0"


def _structure(view: View) -> Iterator[Finding]:
    if not view.entries:
        found = field_text(view.table, "server_list")
        yield Finding("structure", found, "server_list, a list with an entry for each server", WRITE_ANEW, host="table")
    yield from _not_objects(view.entries, "server_list")
    for server in view.servers:
        if not server.entries:
            found, expected = field_text(server.data, "device"), "device, a list with an entry for each device"
            yield Finding("structure", found, expected, WRITE_ANEW, host=server.where)
        yield from _not_objects(server.entries, f"{server.where}, device")


def _not_objects(entries: Sequence[object], place: str) -> Iterator[Finding]:
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            yield Finding("structure", shown(entry), "an object", WRITE_ANEW, host=f"{place}[{index}]")


def _string(view: View) -> Iterator[Finding]:
    yield from _not_strings(view.table, "table")
    for server in view.servers:
        yield from _not_strings(server.data, server.where)
    for device in view.devices:
        # The usual case, without the place that only a message needs.
        if not all(type(value) is str for value in device.data.values()):
            yield from _not_strings(device.data, device.where)
    for at, pod in objects(view.table, "super_pod_list"):
        yield from _not_strings(pod, f"super_pod_list[{at}]")
        for inner, server_of_pod in objects(pod, "server_list"):
            yield from _not_strings(server_of_pod, f"super_pod_list[{at}], server_list[{inner}]")


def _not_strings(data: Mapping[str, Any], where: str) -> Iterator[Finding]:
    for name, value in data.items():
        if name in _READ and not isinstance(value, (str, list, dict)):
            kind = "no value" if value is None else "true or false" if isinstance(value, bool) else "a number"
            found = f"{plain(name)} is {shown(value)}, {kind}"
            action = "write it in quotes: HCCL's parser takes strings only"
            yield Finding("string", found, "a string in quotes", action, host=where)


def _version(view: View) -> Iterator[Finding]:
    versions = (version_of(view.chip),) if view.chip else VERSIONS
    if view.version not in versions:
        kind = Warned if view.version in VERSIONS else Finding
        found = f"version {plain(view.version)}" if view.version else field_text(view.table, "version")
        expected = f"{' or '.join(versions)}{f' for chip {view.chip}' if view.chip else ''}"
        action = "write the table for this chip: HCCL stops at an unknown version (EI0014); 1.0 has no super pods"
        yield kind("version", found, expected, action, host="table")


def _status(view: View) -> Iterator[Finding]:
    if view.table.get("status") != "completed":
        action = (
            "wait for the program that writes the table, or set it if the table is complete; until then HCCL reads the "
            "file again and again, for 30 minutes"
        )
        yield Finding("status", field_text(view.table, "status"), "completed", action, host="table")


def _server_count(view: View) -> Iterator[Finding]:
    servers = len(view.entries)
    if number(view.table.get("server_count")) != servers:
        # HCCL counts the servers itself where the field is missing.
        yield (Finding if "server_count" in view.table else Warned)(
            "server_count",
            field_text(view.table, "server_count"),
            f"{servers}, the length of server_list",
            "set it to the number of servers, after making sure that none is missing from server_list",
            host="table",
        )


def _server_id(view: View) -> Iterator[Finding]:
    action = "give the server the address that the job's other nodes know it by"
    for server in view.servers:
        if not server.server_id:
            found = field_text(server.data, "server_id")
            yield Finding("server_id", found, "a name or an address", action, host=server.where)


def _server_id_length(view: View) -> Iterator[Finding]:
    expected, action = f"at most {MAX_SERVER_ID} characters", "use the server's address, or a shorter name"
    for server in view.servers:
        if len(server.server_id) > MAX_SERVER_ID:
            found = f"server_id {shown(server.server_id)} of {len(server.server_id)} characters"
            yield Finding("server_id_length", found, expected, action, host=server.where)


def _server_id_unique(view: View) -> Iterator[Finding]:
    action = "put all devices of a server into one entry, or give each server its own address"
    for name, server, first in repeats((server.server_id, server) for server in view.servers):
        found = f"server_id {shown(name)}, which server_list[{first.index}] has"
        yield Finding("server_id_unique", found, "each server_id once", action, host=f"server_list[{server.index}]")


def _rank_id(view: View) -> Iterator[Finding]:
    for device in view.devices:
        if device.rank is None:
            found = field_text(device.data, "rank_id")
            yield Finding("rank_id", found, "a number from 0, as a string", _RENUMBER, host=device.where)


def _rank_id_unique(view: View) -> Iterator[Finding]:
    for rank, device, first in repeats((device.rank, device) for device in view.devices):
        # The first device is named by its place, as its rank is in doubt.
        found = f"rank_id {rank}, which {first.server.where}, {first.name} has"
        yield Finding("rank_id_unique", found, "each rank_id once", _RENUMBER, host=device.where)


def _rank_id_contiguous(view: View) -> Iterator[Finding]:
    size = len(view.devices)
    for device in view.devices:
        if device.rank is not None and device.rank >= size:
            found = f"rank_id {device.rank} in a table of {counted(size, 'device')}"
            expected = f"the rank_ids 0 to {size - 1}, without a gap"
            yield Finding("rank_id_contiguous", found, expected, _RENUMBER, host=device.where)


def _rank_order(view: View) -> Iterator[Finding]:
    """Check the order that MindSpore requires; HCCL takes any order."""
    ranked = [server for server in view.servers if server.server_id and server.ranks]
    by_rank = {id(server): at for at, server in enumerate(sorted(ranked, key=lambda server: min(server.ranks)))}
    highest = -1
    for at, server in enumerate(sorted(ranked, key=lambda server: server.server_id)):
        lowest, place, found = min(server.ranks), by_rank[id(server)], ""
        if place != at:
            ranks = f"number {place + 1} of {len(ranked)} by its ranks, from {lowest}"
            found = f"{ranks}, but number {at + 1} by its server_id"
        elif lowest < highest:
            found = f"rank {lowest} here, rank {highest} on a server before it"
        if found:
            expected = "ranks that follow the dictionary order of server_id (10.0.0.10 before 10.0.0.2)"
            action = "renumber the ranks (repair: true does), and start the ranks by the new table"
            yield Warned("rank_order", found, expected, action, host=server.where)
        highest = max(highest, *server.ranks)


def _device_id(view: View) -> Iterator[Finding]:
    most = _MAX_DEVICE_ID.get(view.chip, max(_MAX_DEVICE_ID.values()))
    expected = f"0 to {most}{f' on {view.chip}' if view.chip else ''}, as a string"
    action = "use the device's physical id, which npu-smi shows (not that of ASCEND_RT_VISIBLE_DEVICES)"
    for device in view.devices:
        if device.device_id is None or device.device_id > most:
            yield Finding("device_id", field_text(device.data, "device_id"), expected, action, host=device.where)


def _device_id_unique(view: View) -> Iterator[Finding]:
    expected, action = "each device of a server once", "list each physical device of the server once"
    for server in view.servers:
        for device_id, device, first in repeats((device.device_id, device) for device in server.devices):
            found = f"device_id {device_id} in device[{first.index}] and device[{device.index}]"
            yield Finding("device_id_unique", found, expected, action, host=device.where)


def _device_count(view: View) -> Iterator[Finding]:
    most_have = usual((len(server.entries) for server in view.servers), 0)
    # Only a 910 rejects the table.
    kind = Finding if view.chip == "910" else Warned
    for server in view.servers:
        if len(server.entries) != most_have:
            found, expected = counted(len(server.entries), "device"), f"{most_have}, as on the other servers"
            yield kind("device_count", found, expected, "use the same number of devices on every server", server.where)


def _device_set(view: View) -> Iterator[Finding]:
    if view.chip == "910":
        for server in view.servers:
            yield from _links([each.device_id for each in server.devices], len(view.entries), server.where)


def _links(devices: Sequence[int | None], servers: int, where: str) -> Iterator[Finding]:
    """Check that the links of a 910 join these devices."""
    used = frozenset(device for device in devices if device is not None)
    count, ring = len(devices), any(used <= ring for ring in _RINGS)
    # HCCL rejects other numbers, and four devices that are no ring. It takes any two, and several servers with fewer
    # than 8 each, which are slower.
    kind = Finding if count not in (1, 2, 4, 8) or (count == 4 and not ring) else Warned
    if servers > 1 and count != 8:
        expected = "8 devices {0-7} on each server, since there are several servers"
    elif count not in (1, 2, 4, 8):
        expected = "1, 2, 4 or 8 devices"
    elif count == 2 and not ring:
        expected = "2 devices that are both in {0,1,2,3} or both in {4,5,6,7}"
    elif count == 4 and not ring:
        expected = "{0,1,2,3} or {4,5,6,7} for 4 devices"
    else:
        return
    found = f"{counted(count, 'device')}: {', '.join(map(str, sorted(used)))}"
    yield kind("device_set", found, expected, "use a set of devices that the 910's links join", host=where)


def device_set_problems(devices: Sequence[int], chip: str, servers: int, where: str = "") -> list[Finding]:
    """Return what keeps a chip from using these devices (physical ids) on each of this many servers.

    Raises ValueError for an unknown chip.
    """
    version_of(chip)
    most = _MAX_DEVICE_ID[chip]
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
    # Links of an invalid set of devices are not checked.
    if chip == "910" and not problems:
        problems += _links(devices, servers, where)
    return problems


def _kind(view: View) -> type[Finding]:
    """Return the class of a problem of super pods: only an A3 reads them."""
    return Warned if view.chip in ("910", "910b") else Finding


def _super_pod_list(view: View) -> Iterator[Finding]:
    action = "list each server of server_list in the super pod that it stands in, once"
    each_once = "each server in one super pod"
    kind = _kind(view)
    if not view.pods:
        # Without the list HCCL sees no super pods; it rejects an empty one.
        missing = kind if "super_pod_list" in view.table else Warned
        found, expected = field_text(view.table, "super_pod_list"), "a list with an entry for each super pod"
        yield missing("super_pod_list", found, expected, action, host="table")
        return
    servers = {server.server_id for server in view.servers}
    seen: dict[str, int] = {}
    for index, _, ids in view.pods:
        where = f"super_pod_list[{index}]"
        if not ids:
            yield kind("super_pod_list", "no servers", "the servers of the super pod", action, host=where)
        for server_id in ids:
            if server_id not in servers:
                found = f"server {shown(server_id)}, which is not in server_list"
                yield kind("super_pod_list", found, "servers of server_list", action, host=where)
            if server_id in seen:
                # HCCL takes the last one.
                found = f"server {shown(server_id)}, which super_pod_list[{seen[server_id]}] has"
                yield Warned("super_pod_list", found, each_once, action, host=where)
            seen.setdefault(server_id, index)
    for server in view.servers:
        if server.server_id and server.server_id not in seen:
            yield kind("super_pod_list", "in no super pod", each_once, action, host=server.where)


def _super_pod_id(view: View) -> Iterator[Finding]:
    kind = _kind(view)
    for index, name, _ in view.pods:
        if not name:
            expected, action = "the super pod's id", "write the id that npu-smi info -t spod-info shows"
            yield kind("super_pod_id", "no super_pod_id", expected, action, host=f"super_pod_list[{index}]")
    for name, index, first in repeats((name, index) for index, name, _ in view.pods):
        found = f"super_pod_id {shown(name)}, which super_pod_list[{first}] has"
        expected, action = "each super_pod_id once", "join the two entries"
        yield kind("super_pod_id", found, expected, action, host=f"super_pod_list[{index}]")


def _super_pod_size(view: View) -> Iterator[Finding]:
    most_have = usual((len(servers) for _, _, servers in view.pods), 0)
    action = "use the same number of servers of every super pod"
    for index, name, servers in view.pods:
        if len(servers) != most_have:
            found, where = counted(len(servers), "server"), f"super_pod_list[{index}], super pod {shown(name)}"
            yield Warned("super_pod_size", found, f"{most_have}, as in the other super pods", action, host=where)


def _super_device_id(view: View) -> Iterator[Finding]:
    # A missing id is an error only where there are super pods.
    missing = Finding if "super_pod_list" in view.table and _kind(view) is Finding else Warned
    action = "write the id that npu-smi info -t spod-info -i CARD -c CHIP shows"
    for device in view.devices:
        value = number(device.data.get("super_device_id"))
        # HCCL reads 32 bits, all of which set mean "none".
        if value is None or value >= 0xFFFFFFFF:
            kind = Finding if value is None and "super_device_id" in device.data else missing
            found = field_text(device.data, "super_device_id")
            yield kind("super_device_id", found, "a decimal number, as a string", action, host=device.where)


def _super_device_id_unique(view: View) -> Iterator[Finding]:
    kind = _kind(view)
    expected = "each super_device_id of a super pod once"
    action = "write the ids that npu-smi info -t spod-info shows on each of the two servers"
    ids = ((view.pod_of.get(each.server.server_id), number(each.data.get("super_device_id"))) for each in view.devices)
    keyed = ((None if None in key else key, device) for key, device in zip(ids, view.devices))
    for key, device, first in repeats(keyed):
        found = f"super_device_id {key[1]}, which {first.where} has"
        yield kind("super_device_id_unique", found, expected, action, host=device.where)


# The rules on super pods, which apply to tables of version 1.2 only.
_OF_SUPER_PODS = (_super_pod_list, _super_pod_id, _super_pod_size, _super_device_id, _super_device_id_unique)
RULES = (
    _structure, _string, _version, _status, _server_count, _server_id, _server_id_length, _server_id_unique,
    _rank_id, _rank_id_unique, _rank_id_contiguous, _rank_order,
    _device_id, _device_id_unique, _device_count, _device_set,
    *rank_table_addresses.RULES, *_OF_SUPER_PODS,
)  # fmt: skip


def validate(table: object, chip: str = "") -> list[Finding]:
    """Return all problems of a table, as json.loads returns it. Without the chip, its own limits are not checked.

    A problem that HCCL accepts is Warned; `faults` leaves these out. Raises ValueError for an unknown chip.
    """
    if chip:
        version_of(chip)
    if not isinstance(table, dict):
        return [Finding("structure", shown(table), "a JSON object", WRITE_ANEW, host="table")]
    if "server_list" not in table:
        for name in _OTHER_FORMS.keys() & table.keys():
            found, action = _OTHER_FORMS[name]
            return [
                Finding("structure", found, "a table of version 1.0 or 1.2, with server_list", action, host="table")
            ]
    view = View(table, chip)
    skipped = () if view.version == "1.2" else _OF_SUPER_PODS
    return [problem for rule in RULES if rule not in skipped for problem in rule(view)]
