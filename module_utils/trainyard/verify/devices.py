# SPDX-License-Identifier: Apache-2.0
"""Check devices before and after the benchmarks: which error counters grew, which nodes restarted.

Only growth between two readings counts, as errors since the machine started may be years old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import Check
from ..hardware.device_checks import Reading, Rule, device_check
from ..hardware.device_health import check_devices
from ..hardware.gpu_rules import HARDWARE_XIDS, NO_LOG
from ..hardware.interfaces import port_name
from ..hardware.port_counters import Counters, growth
from ..hardware.port_health import check_ports
from .topology import check_topology

_NICS = Rule(
    "NIC error counters",
    "no growth while the benchmarks ran",
    "an interface lost packets or its link",
    "look at cable, optical module and switch port (ethtool -S, ip -statistics link)",
    "ip -statistics -statistics link",
)
_RDMA = Rule(
    "RDMA error counters",
    "no growth while the benchmarks ran",
    "a link had errors under load",
    "look at cable and switch port of that link; clean or replace it (perfquery -x, mlxlink)",
    "grep -r . /sys/class/infiniband/ --include=symbol_error --include=link_downed",
)
_GPUS = Rule(
    "GPU errors under load",
    "no error while the benchmarks ran",
    "a GPU had errors under load",
    "drain the node, reset the GPU and run it again; replace the GPU when they come back",
    "nvidia-smi -q -d ECC,PERFORMANCE",
)


class _Growth:
    """The counters that were compared: their number, those that grew, and those that cannot be compared, by host."""

    def __init__(self, allowed: Mapping[str, int]) -> None:
        self._allowed = allowed
        self.grown: dict[str, list[str]] = {}
        self.unread: dict[str, list[str]] = {}
        self._compared = 0

    def compare(self, host: str, port: str, before: Counters, after: Counters) -> None:
        faults, unread = self.grown.setdefault(host, []), self.unread.setdefault(host, [])
        for name in sorted({*before, *after}):
            self._compared += 1
            more, why = growth(name, before.get(name), after.get(name))
            if more is not None and more > self._allowed.get(name, 0):
                faults.append(f"{port} {name} +{more}" + (f" since it {why}" if why else ""))
            elif why:
                unread.append(f"{port} {name} {why}")

    def checks(self, rule: Rule, inventory: str) -> list[Check]:
        return rule.checks(self.grown, self.unread, f"none of {self._compared} grew", inventory)


def check_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    *,
    allowed: Mapping[str, int] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Check what grew between two readings; `allowed` is the growth by counter that is none (others: 0)."""
    lost = tuple(host for host in before if host not in after)
    both = [(host, before[host], after[host]) for host in before if host in after]
    restarted = tuple(host for host, first, second in both if first["boot_id"] != second["boot_id"])
    checks = []
    if lost:
        expected, reason = "a reading after the jobs", "no answer after the benchmarks"
        action = "see the phase reach"
        checks.append(device_check("error counters", "unknown", lost, "no second reading", expected, reason, action))
    if restarted:
        reason = "restarted during the verification"
        action = "see the journal of the boot before (journalctl --boot=-1), the BMC's event log"
        checks.append(
            device_check("restart", "fail", restarted, "another boot id", "the nodes stay up", reason, action)
        )
    stayed = [pair for pair in both if pair[0] not in restarted]
    interfaces = _Growth(allowed or {})
    for host, first, second in stayed:
        for name in first["interfaces"]:
            if name in second["interfaces"]:
                interfaces.compare(host, name, first["interfaces"][name], second["interfaces"][name])
    return [
        *checks,
        *_check_rdma_counters(stayed, allowed or {}, inventory),
        *interfaces.checks(_NICS, inventory),
        *_check_gpu_counters(stayed, inventory, xids),
    ]


_Pairs = Sequence[tuple[str, Reading, Reading]]


def _check_rdma_counters(pairs: _Pairs, allowed: Mapping[str, int], inventory: str) -> list[Check]:
    if not any(first["rdma"] for _, first, _ in pairs):
        return _RDMA.skipped("no node has an RDMA device")
    found = _Growth(allowed)
    for host, first, second in pairs:
        ports = {port_name(port): port for port in second["rdma"]}
        names = [port_name(port) for port in first["rdma"]]
        for port in first["rdma"]:
            name = port_name(port)
            if name in ports:
                found.compare(host, name, port["counters"], ports[name]["counters"])
        found.grown.setdefault(host, []).extend(f"{name} is gone" for name in names if name not in ports)
    return found.checks(_RDMA, inventory)


def _check_gpu_counters(pairs: _Pairs, inventory: str, xids: Sequence[int]) -> list[Check]:
    pairs = [pair for pair in pairs if pair[1]["gpus"]]
    if not pairs:
        return _GPUS.skipped("no node has an NVIDIA GPU that answers")
    faults: dict[str, list[str]] = {host: [] for host, _, _ in pairs}
    unread: dict[str, list[str]] = {host: [] for host, _, _ in pairs}
    for host, first, second in pairs:
        later = {gpu["pci"]: gpu for gpu in second["gpus"]}
        for gpu in first["gpus"]:
            now = later.get(gpu["pci"])
            if now is None:
                faults[host].append(f"GPU {gpu['index']} is gone")
                continue
            for key, what in (("uncorrected", "uncorrected ECC errors"), ("replays", "PCIe replays")):
                more, why = growth(key, gpu[key], now[key])
                if more:
                    faults[host].append(f"GPU {gpu['index']} {what} +{more}")
                elif why:
                    unread[host].append(f"GPU {gpu['index']} {what} {why}")
        if second["xids"] is None:
            unread[host].append(NO_LOG)
        faults[host] += _new_xids(first["xids"] or (), second["xids"] or (), xids)
    return _GPUS.checks(faults, unread, "none", inventory)


def _new_xids(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]], hardware: Sequence[int]
) -> list[str]:
    earlier = Counter({(xid["pci"], xid["code"]): xid["count"] for xid in before})
    new = [xid for xid in after if xid["code"] in hardware and xid["count"] > earlier[xid["pci"], xid["code"]]]
    return [f"Xid {xid['code']} of {xid['pci']}" for xid in new]


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
        checks = check_devices(now, groups=kinds, inventory=inventory, xids=numbers)
        return checks + check_topology(now, kinds, inventory) + check_ports(now, kinds, inventory)
    earlier = {host: result["devices"] for host, result in before.items() if "devices" in result}
    return check_counters(earlier, now, allowed=allowed, inventory=inventory, xids=numbers)
