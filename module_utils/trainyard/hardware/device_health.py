# SPDX-License-Identifier: Apache-2.0
"""Checks of devices: whether GPUs, NPUs and network ports are healthy now.

A reading is what facts.read_machine returns as `devices`, by host. A value that a device does not report (`N/A`) is
unknown. A check without any device to check is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.checks import Check
from ..findings.findings import counted
from .device_checks import Reading, outcome
from .gpu_links import check_nvlinks
from .gpu_rules import HARDWARE_XIDS, check_gpus
from .interfaces import natural_order


def _check_npus(readings: Mapping[str, Reading], inventory: str) -> list[Check]:
    ascend = {host: reading for host, reading in readings.items() if reading["vendor"] == "ascend"}
    if not ascend:
        return [Check(phase="devices", name="NPUs", state="skipped", reason="no node has an Ascend NPU")]
    checks = []
    number = sum(len(reading["npus"]) for reading in ascend.values())
    problems = {
        host: [*reading["problems"], *reading["npu_problems"]]
        for host, reading in ascend.items()
        if reading["problems"] or reading["npu_problems"]
    }
    checks += outcome(
        "NPUs",
        problems,
        {},
        list(ascend),
        f"{number} on {counted(len(ascend), 'node')}",
        expected="every NPU answers, with an address and a link that is up",
        reason="NPUs or their driver have problems",
        action="run npu-smi info and hccn_tool on the node, and the role ascend",
        shown="npu-smi info",
        inventory=inventory,
    )
    for name, key, good in (("NPU health", "health", "OK"), ("NPU links", "link", "up")):
        bad: dict[str, list[str]] = {}
        silent: dict[str, list[str]] = {}
        for host, reading in ascend.items():
            states = [(npu["physical_id"], npu[key]) for npu in reading["npus"]]
            faults = [f"NPU {place}: {state}" for place, state in states if state not in (good, "", "unknown", "N/A")]
            unanswered = [f"NPU {place}: no answer" for place, state in states if state in ("", "unknown", "N/A")]
            if faults:
                bad[host] = faults
            if unanswered:
                silent[host] = unanswered
        checks += outcome(
            name,
            bad,
            silent,
            list(ascend),
            f"{number} are {good}",
            expected=good,
            reason=f"an NPU is not {good}",
            action="run npu-smi info -t health -i 0; for a link hccn_tool -i 0 -link -g",
            shown="npu-smi info",
            inventory=inventory,
        )
    return checks


def port_name(port: Mapping[str, Any]) -> str:
    """Return `mlx5_0:1`."""
    return f"{port['device']}:{port['port']}"


def _check_ports(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Compare the ports within each group: a port that most hosts use must carry traffic, at the usual rate."""
    ports = {host: {port_name(port): port for port in reading["rdma"]} for host, reading in readings.items()}
    if not any(ports.values()):
        return [Check(phase="devices", name="RDMA ports", state="skipped", reason="no node has an RDMA device")]
    members: dict[str, list[str]] = {}
    for host in ports:
        members.setdefault(groups.get(host, ""), []).append(host)
    states: dict[str, list[str]] = {}
    rates: dict[str, list[str]] = {}
    silent: dict[str, list[str]] = {}
    for hosts in members.values():
        for name in sorted({name for host in hosts for name in ports[host]}, key=natural_order):
            active = [host for host in hosts if name in ports[host] and ports[host][name]["active"]]
            rate_votes = Counter(ports[host][name]["rate_gbps"] for host in active if ports[host][name]["rate_gbps"])
            usual = rate_votes.most_common(1)[0][0] if rate_votes else None
            # Half of the hosts are enough: checking one cable too many is cheap.
            in_use = bool(active) and len(active) * 2 >= len(hosts)
            for host in hosts:
                port = ports[host].get(name)
                if port is None:
                    if in_use:
                        states.setdefault(host, []).append(f"{name} is missing")
                elif port["state"] is None:
                    silent.setdefault(host, []).append(f"{name} has no readable state")
                elif not port["active"] and in_use:
                    states.setdefault(host, []).append(f"{name} {port['state']} ({port['physical_state']})")
                elif port["active"] and usual and port["rate_gbps"] and port["rate_gbps"] < usual:
                    rates.setdefault(host, []).append(f"{name} {port['rate_gbps']:g} Gb/s of {usual:g}")
                elif port["active"] and not port["rate_gbps"]:
                    silent.setdefault(host, []).append(f"{name} has no readable rate")
    ports = {host: own for host, own in ports.items() if own}
    for host, own in ports.items():
        if not any(port["active"] for port in own.values()) and host not in states and host not in silent:
            states[host] = ["no port that carries traffic"]
    total = sum(port["active"] for own in ports.values() for port in own.values())
    shared = {
        "action": "check cable, switch port and subnet manager (ibstat; for RoCE ethtool)",
        "shown": "ibstat",
        "inventory": inventory,
    }
    return outcome(
        "RDMA ports",
        states,
        silent,
        list(ports),
        f"{total} are ACTIVE",
        expected="ACTIVE, as on the others",
        reason="a port carries no traffic",
        **shared,
    ) + outcome(
        "RDMA rate",
        rates,
        {},
        list(ports),
        "the rates of the others",
        expected="the rate that the port has on the others",
        reason="a link was trained to a lower rate",
        **shared,
    )


def check_devices(
    readings: Mapping[str, Reading],
    *,
    groups: Mapping[str, str] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Check one reading of all hosts; `groups` is the hardware group of each host (ports are compared within it)."""
    if not readings:
        return [
            Check(
                phase="devices",
                name="devices",
                state="unknown",
                reason="no node answered",
                action="see the phase reach",
            )
        ]
    return (
        check_gpus(readings, inventory, xids)
        + check_nvlinks(readings, groups or {}, inventory)
        + _check_npus(readings, inventory)
        + _check_ports(readings, groups or {}, inventory)
    )
