# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table on super pods. They apply to tables of version 1.2 only."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.findings import Finding, Warned, counted
from ..base.majority import usual
from .rank_table_view import View, field_text, number, repeats, shown


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


RULES = (_super_pod_list, _super_pod_id, _super_pod_size, _super_device_id, _super_device_id_unique)
