# SPDX-License-Identifier: Apache-2.0
"""Check devices before and after the benchmarks: which error counters grew, which nodes restarted.

Only growth between two readings counts, as errors since the machine started may be years old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..findings.checks import Check
from ..findings.findings import host_list
from ..hardware.device_checks import Reading, outcome
from ..hardware.device_health import check_devices, port_name
from ..hardware.gpu_rules import HARDWARE_XIDS
from ..hardware.port_counters import growth
from .topology import check_topology


class _Growth(NamedTuple):
    bad: dict[str, list[str]]
    silent: dict[str, list[str]]
    seen: int


def _grown(
    pairs: Iterable[tuple[str, str, Mapping[str, int | None], Mapping[str, int | None]]], allowed: Mapping[str, int]
) -> _Growth:
    """Check (host, port, counters before, counters after)."""
    found = _Growth({}, {}, 0)
    seen = 0
    for host, port, before, after in pairs:
        for name in sorted({*before, *after}):
            seen += 1
            more, why = growth(name, before.get(name), after.get(name))
            if more is not None and more > allowed.get(name, 0):
                text = f"{port} {name} +{more}" + (f" since it {why}" if why else "")
                found.bad.setdefault(host, []).append(text)
            elif why:
                found.silent.setdefault(host, []).append(f"{port} {name} {why}")
    return found._replace(seen=seen)


def check_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    *,
    allowed: Mapping[str, int] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Check what grew between two readings; `allowed` is the growth by counter that is none (others: 0)."""
    hosts = [host for host in before if host in after]
    gone = [host for host in before if host not in after]
    limits = allowed or {}
    checks = []
    if gone:
        checks.append(
            Check(
                phase="devices",
                name="error counters",
                state="unknown",
                hosts=tuple(gone),
                found="no second reading",
                expected="a reading after the jobs",
                reason=f"{host_list(gone)} did not answer after the benchmarks",
                action="see the phase reach",
            )
        )
    restarted = [host for host in hosts if before[host]["boot_id"] != after[host]["boot_id"]]
    if restarted:
        checks.append(
            Check(
                phase="devices",
                name="restart",
                state="fail",
                hosts=tuple(restarted),
                found="another boot id",
                expected="the nodes stay up",
                reason=f"{host_list(restarted)} restarted during the verification",
                action="see the journal of the boot before (journalctl --boot=-1), the BMC's event log",
            )
        )
    stayed = [host for host in hosts if host not in restarted]
    checks += _check_rdma_counters(before, after, stayed, limits, inventory)
    interfaces = [
        (host, name, counters, after[host]["interfaces"][name])
        for host in stayed
        for name, counters in before[host]["interfaces"].items()
        if name in after[host]["interfaces"]
    ]
    found = _grown(interfaces, limits)
    checks += outcome(
        "NIC error counters",
        found.bad,
        found.silent,
        [host for host, *_ in interfaces],
        f"none of {found.seen} grew",
        expected="no growth while the benchmarks ran",
        reason="an interface lost packets or its link",
        action="look at cable, optical module and switch port (ethtool -S, ip -statistics link)",
        shown="ip -statistics -statistics link",
        inventory=inventory,
    )
    return checks + _check_gpu_counters(before, after, stayed, inventory, xids)


def _check_rdma_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    hosts: Sequence[str],
    limits: Mapping[str, int],
    inventory: str,
) -> list[Check]:
    if not any(before[host]["rdma"] for host in hosts):
        return [
            Check(phase="devices", name="RDMA error counters", state="skipped", reason="no node has an RDMA device")
        ]
    pairs: list[tuple[str, str, Mapping[str, int | None], Mapping[str, int | None]]] = []
    lost: dict[str, list[str]] = {}
    for host in hosts:
        later = {port_name(port): port for port in after[host]["rdma"]}
        for port in before[host]["rdma"]:
            if port_name(port) in later:
                pairs.append((host, port_name(port), port["counters"], later[port_name(port)]["counters"]))
            else:
                lost.setdefault(host, []).append(f"{port_name(port)} is gone")
    found = _grown(pairs, limits)
    for host, texts in lost.items():
        found.bad.setdefault(host, []).extend(texts)
    return outcome(
        "RDMA error counters",
        found.bad,
        found.silent,
        hosts,
        f"none of {found.seen} grew",
        expected="no growth while the benchmarks ran",
        reason="a link had errors under load",
        action="look at cable and switch port of that link; clean or replace it (perfquery -x, mlxlink)",
        shown="grep -r . /sys/class/infiniband/ --include=symbol_error --include=link_downed",
        inventory=inventory,
    )


def _check_gpu_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    hosts: Sequence[str],
    inventory: str,
    xids: Sequence[int],
) -> list[Check]:
    with_gpus = [host for host in hosts if before[host]["gpus"]]
    if not with_gpus:
        return [
            Check(
                phase="devices",
                name="GPU errors under load",
                state="skipped",
                reason="no node has an NVIDIA GPU that answers",
            )
        ]
    bad: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for host in with_gpus:
        later = {gpu["pci"]: gpu for gpu in after[host]["gpus"]}
        faults, mute = [], []
        for gpu in before[host]["gpus"]:
            now = later.get(gpu["pci"])
            if now is None:
                faults.append(f"GPU {gpu['index']} is gone")
                continue
            for key, what in (("uncorrected", "uncorrected ECC errors"), ("replays", "PCIe replays")):
                more, why = growth(key, gpu[key], now[key])
                if more:
                    faults.append(f"GPU {gpu['index']} {what} +{more}")
                elif why:
                    mute.append(f"GPU {gpu['index']} {what} {why}")
        known = Counter({(xid["pci"], xid["code"]): xid["count"] for xid in before[host]["xids"] or ()})
        if after[host]["xids"] is None:
            mute.append("neither the journal nor dmesg can be read")
        for xid in after[host]["xids"] or ():
            if xid["code"] in xids and xid["count"] > known[xid["pci"], xid["code"]]:
                faults.append(f"Xid {xid['code']} of {xid['pci']}")
        if faults:
            bad[host] = faults
        if mute:
            silent[host] = mute
    return outcome(
        "GPU errors under load",
        bad,
        silent,
        with_gpus,
        "none",
        expected="no error while the benchmarks ran",
        reason="a GPU had errors under load",
        action="drain the node, reset the GPU and run it again; replace the GPU when they come back",
        shown="nvidia-smi -q -d ECC,PERFORMANCE",
        inventory=inventory,
    )


def verify(
    results: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    groups: Mapping[str, Sequence[str]],
    allowed: Mapping[str, int],
    xids: Sequence[int] = (),
    inventory: str = "",
) -> list[Check]:
    """Check what all nodes answered, by host; with `before`, an earlier answer, only which counters grew since then.

    `groups` are hosts by kinds of hardware: ports are compared within one.
    """
    now = {host: result["devices"] for host, result in results.items() if "devices" in result}
    numbers = xids or HARDWARE_XIDS
    if before is None:
        kinds = {host: name for name, hosts in groups.items() for host in hosts}
        found = check_devices(now, groups=kinds, inventory=inventory, xids=numbers)
        return found + check_topology(now, kinds, inventory)
    earlier = {host: result["devices"] for host, result in before.items() if "devices" in result}
    return check_counters(earlier, now, allowed=allowed, inventory=inventory, xids=numbers)
