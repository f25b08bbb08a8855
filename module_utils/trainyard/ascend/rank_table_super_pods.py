# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table on super pods, which tables of version 1.2 have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..findings.findings import Finding, Warned, counted
from .rank_table_view import DeviceView, View, field_text, number, shown


def _kind(view: View) -> type[Finding]:
    """Return what a fault of super pods is: only an A3 reads them."""
    return Warned if view.chip in ("910", "910b") else Finding


def _super_pod_list(view: View) -> Iterator[Finding]:
    if view.version != "1.2":
        return
    action = "list each server of server_list in the super pod that it stands in, once"
    kind = _kind(view)
    if not view.pods:
        found = field_text(view.table, "super_pod_list")
        # Without the list there are no super pods, to HCCL; an empty one is refused.
        yield (kind if "super_pod_list" in view.table else Warned)(
            check="super_pod_list",
            host="table",
            found=found,
            expected="a list with an entry for each super pod",
            action=action,
        )
        return
    servers = {server.server_id for server in view.servers}
    seen: dict[str, int] = {}
    for index, _, ids in view.pods:
        where = f"super_pod_list[{index}]"
        if not ids:
            yield kind(
                check="super_pod_list",
                host=where,
                found="no servers",
                expected="the servers of the super pod",
                action=action,
            )
        for server_id in ids:
            if server_id not in servers:
                found = f"server {shown(server_id)}, which is not in server_list"
                yield kind(
                    check="super_pod_list", host=where, found=found, expected="servers of server_list", action=action
                )
            if server_id in seen:
                # The last one counts, to HCCL.
                found = f"server {shown(server_id)}, which super_pod_list[{seen[server_id]}] has"
                yield Warned("super_pod_list", found, "each server in one super pod", action, host=where)
            seen.setdefault(server_id, index)
    for server in view.servers:
        if server.server_id and server.server_id not in seen:
            yield kind(
                check="super_pod_list",
                host=server.where,
                found="in no super pod",
                expected="each server in one super pod",
                action=action,
            )


def _super_pod_id(view: View) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for index, name, _ in view.pods if view.version == "1.2" else ():
        where = f"super_pod_list[{index}]"
        if not name:
            action = "write the id that npu-smi info -t spod-info shows"
            yield _kind(view)(
                check="super_pod_id", host=where, found="no super_pod_id", expected="the super pod's id", action=action
            )
        elif first.setdefault(name, index) != index:
            found = f"super_pod_id {shown(name)}, which super_pod_list[{first[name]}] has"
            yield _kind(view)(
                check="super_pod_id",
                host=where,
                found=found,
                expected="each super_pod_id once",
                action="join the two entries",
            )


def _super_pod_size(view: View) -> Iterator[Finding]:
    pods = view.pods if view.version == "1.2" else []
    counts = Counter(len(servers) for _, _, servers in pods)
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        for index, name, servers in pods:
            if len(servers) != usual:
                yield Warned(
                    "super_pod_size",
                    counted(len(servers), "server"),
                    f"{usual}, as in the other super pods",
                    "use the same number of servers of every super pod",
                    host=f"super_pod_list[{index}], super pod {shown(name)}",
                )


def _super_device_id(view: View) -> Iterator[Finding]:
    for device in view.devices if view.version == "1.2" else ():
        value = number(device.data.get("super_device_id"))
        # HCCL reads 32 bits, all of which set mean "none".
        if value is None or value >= 0xFFFFFFFF:
            found = field_text(device.data, "super_device_id")
            action = "write the id that npu-smi info -t spod-info -i CARD -c CHIP shows"
            read = value is None and "super_device_id" in device.data
            # One that is not there is missed only where there are super pods.
            missed = "super_pod_list" in view.table and _kind(view) is Finding
            yield (Finding if read or missed else Warned)(
                check="super_device_id",
                host=device.where,
                found=found,
                expected="a decimal number, as a string",
                action=action,
            )


def _super_device_id_unique(view: View) -> Iterator[Finding]:
    first: dict[tuple[str, int], DeviceView] = {}
    for device in view.devices if view.version == "1.2" else ():
        value = number(device.data.get("super_device_id"))
        pod = view.pod_of.get(device.server.server_id)
        if value is not None and pod is not None and first.setdefault((pod, value), device) is not device:
            yield _kind(view)(
                check="super_device_id_unique",
                host=device.where,
                found=f"super_device_id {value}, which {first[pod, value].where} has",
                expected="each super_device_id of a super pod once",
                action="write the ids that npu-smi info -t spod-info shows on each of the two servers",
            )


RULES = (_super_pod_list, _super_pod_id, _super_pod_size, _super_device_id, _super_device_id_unique)
