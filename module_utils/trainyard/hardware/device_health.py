# SPDX-License-Identifier: Apache-2.0
"""Checks of devices: whether GPUs, NPUs and network ports are healthy now.

A reading is what facts.read_machine returns as `devices`, by host. A value that a device does not report (`N/A`) is
unknown. A check without any device to check is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.checks import Check
from ..base.findings import counted, grouped
from ..base.majority import usual
from .device_checks import Reading, Rule, device_check
from .gpu_links import check_nvlinks
from .gpu_rules import HARDWARE_XIDS, check_gpus
from .interfaces import natural_order, port_name

_NPUS = Rule(
    "NPUs",
    "every NPU answers, with an address and a link that is up",
    "NPUs or their driver have problems",
    "run npu-smi info and hccn_tool on the node, and the role ascend",
    "npu-smi info",
)
_STATE_ACTION = "run npu-smi info -t health -i 0; for a link hccn_tool -i 0 -link -g"
_NPU_STATES = {
    "health": Rule("NPU health", "OK", "an NPU is not OK", _STATE_ACTION, "npu-smi info"),
    "link": Rule("NPU links", "up", "an NPU is not up", _STATE_ACTION, "npu-smi info"),
}
_CABLE = "check cable, switch port and subnet manager (ibstat; for RoCE ethtool)"
_PORTS = Rule("RDMA ports", "ACTIVE, as on the others", "a port carries no traffic", _CABLE, "ibstat")
_RATE = Rule(
    "RDMA rate", "the rate that the port has on the others", "a link was trained to a lower rate", _CABLE, "ibstat"
)


def _check_npus(readings: Mapping[str, Reading], inventory: str) -> list[Check]:
    ascend = {host: reading for host, reading in readings.items() if reading["vendor"] == "ascend"}
    if not ascend:
        return _NPUS.skipped("no node has an Ascend NPU")
    number = sum(len(reading["npus"]) for reading in ascend.values())
    problems = {host: [*reading["problems"], *reading["npu_problems"]] for host, reading in ascend.items()}
    checks = _NPUS.checks(problems, {}, f"{number} on {counted(len(ascend), 'node')}", inventory)
    for key, rule in _NPU_STATES.items():
        faults: dict[str, list[str]] = {}
        unanswered: dict[str, list[str]] = {}
        for host, reading in ascend.items():
            states = [(npu["physical_id"], npu[key]) for npu in reading["npus"]]
            none = ("", "unknown", "N/A")
            faults[host] = [f"NPU {at}: {state}" for at, state in states if state not in (rule.expected, *none)]
            unanswered[host] = [f"NPU {at}: no answer" for at, state in states if state in none]
        checks += rule.checks(faults, unanswered, f"{number} are {rule.expected}", inventory)
    return checks


def _check_ports(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Compare the ports within each group: a port that most hosts use must carry traffic, at the usual rate."""
    ports = {host: {port_name(port): port for port in reading["rdma"]} for host, reading in readings.items()}
    if not any(ports.values()):
        return _PORTS.skipped("no node has an RDMA device")
    states: dict[str, list[str]] = {host: [] for host in ports}
    rates: dict[str, list[str]] = {host: [] for host in ports}
    unanswered: dict[str, list[str]] = {}
    for hosts in grouped((groups.get(host, ""), host) for host in ports).values():
        for name in sorted({name for host in hosts for name in ports[host]}, key=natural_order):
            active = [host for host in hosts if name in ports[host] and ports[host][name]["active"]]
            most = usual(filter(None, (ports[host][name]["rate_gbps"] for host in active)), None)
            # Half of the hosts are enough: checking one cable too many is cheap.
            in_use = bool(active) and len(active) * 2 >= len(hosts)
            for host in hosts:
                port = ports[host].get(name)
                if port is None:
                    if in_use:
                        states[host].append(f"{name} is missing")
                elif port["state"] is None:
                    unanswered.setdefault(host, []).append(f"{name} has no readable state")
                elif not port["active"] and in_use:
                    states[host].append(f"{name} {port['state']} ({port['physical_state']})")
                elif port["active"] and most and port["rate_gbps"] and port["rate_gbps"] < most:
                    rates[host].append(f"{name} {port['rate_gbps']:g} Gb/s of {most:g}")
                elif port["active"] and not port["rate_gbps"]:
                    unanswered.setdefault(host, []).append(f"{name} has no readable rate")
    for host, own in ports.items():
        if own and not any(port["active"] for port in own.values()) and not states[host] and host not in unanswered:
            states[host] = ["no port that carries traffic"]
    total = sum(port["active"] for own in ports.values() for port in own.values())
    checks = _PORTS.checks(states, unanswered, f"{total} are ACTIVE", inventory)
    return checks + _RATE.checks(rates, {}, "the rates of the others", inventory)


def check_devices(
    readings: Mapping[str, Reading],
    *,
    groups: Mapping[str, str] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Check one reading of all hosts; `groups` is the hardware group of each host (ports are compared within it)."""
    if not readings:
        return [device_check("devices", "unknown", reason="no node answered", action="see the phase reach")]
    return (
        check_gpus(readings, inventory, xids)
        + check_nvlinks(readings, groups or {}, inventory)
        + _check_npus(readings, inventory)
        + _check_ports(readings, groups or {}, inventory)
    )
