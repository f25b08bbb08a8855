# SPDX-License-Identifier: Apache-2.0
"""Devices: whether GPUs, NPUs and network ports are well, now and over the time of the benchmarks.

A reading is what facts.read_machine returns as `devices`, by host. What a device does not say (`N/A`) is unknown.
A check that finds nothing to check on any node is skipped. Counters are judged by their growth between two readings, as
what they count since the machine started may be years old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..record.adhoc import shell as adhoc
from ..record.checks import Check
from ..record.findings import counted, host_list
from .interfaces import natural_order

Reading = Mapping[str, Any]
Gpu = Mapping[str, Any]

# What slows clocks down for a bad reason; sw_power_cap is a GPU at its power limit, gpu_idle one without work.
BAD_THROTTLE = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
# Xids that speak of the device, the link or its firmware rather than of a program, by NVIDIA's catalogue.
HARDWARE_XIDS = (
    46,
    48,
    54,
    61,
    62,
    64,
    74,
    79,
    92,
    94,
    95,
    110,
    119,
    120,
    121,
    136,
    140,
    143,
    144,
    145,
    146,
    147,
    148,
    149,
    150,
    151,
    154,
    155,
    156,
    158,
    160,
    171,
    172,
)
# Performance states in which a GPU works; in deeper ones it lowers the speed of its link to save power.
_AT_WORK = ("P0", "P1", "P2")
# Where counters of the InfiniBand specification stop: 4, 8 and 16 bits wide.
_STOPS = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_xmit_discards": 65535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "VL15_dropped": 65535,
}
_MOST_PARTS = 6


class _Rule(NamedTuple):
    """One check of every GPU: `judge` returns what is wrong, "" where nothing is, None where it cannot be told."""

    name: str
    judge: Callable[[Gpu], str | None]
    expected: str
    reason: str
    action: str
    shown: str


def _ecc(gpu: Gpu) -> str | None:
    if gpu["ecc"] is None or gpu["ecc"].lower() != "enabled" or gpu["uncorrected"] is None:
        return None
    return f"{gpu['uncorrected']} uncorrected" if gpu["uncorrected"] else ""


def _rows(gpu: Gpu) -> str | None:
    if gpu["remap_failed"]:
        return "remapping failed"
    if gpu["remap_pending"]:
        return "remapping pending"
    return None if gpu["remap_pending"] is None else ""


def _throttle(gpu: Gpu) -> str | None:
    if gpu["throttle"] is None:
        return None
    return ", ".join(reason for reason in gpu["throttle"] if reason in BAD_THROTTLE)


def _width(gpu: Gpu) -> str | None:
    if gpu["link_width"] is None or gpu["link_width_max"] is None:
        return None
    return f"x{gpu['link_width']} of x{gpu['link_width_max']}" if gpu["link_width"] < gpu["link_width_max"] else ""


def _generation(gpu: Gpu) -> str | None:
    if gpu["link_gen"] is None or gpu["link_gen_max"] is None:
        return None
    if gpu["pstate"] not in _AT_WORK:
        return ""
    return f"generation {gpu['link_gen']} of {gpu['link_gen_max']}" if gpu["link_gen"] < gpu["link_gen_max"] else ""


def _recovery(gpu: Gpu) -> str | None:
    # Drivers before 565 have no such field, so silence is no answer that is missing.
    action = gpu["recovery"]
    return "" if action in (None, "None") else f"recovery action: {action}"


def _fabric(gpu: Gpu) -> str | None:
    # N/A where there is no NVSwitch.
    return "" if gpu["fabric"] in (None, "Completed") else f"fabric {gpu['fabric']}"


_SEAT = "look at the slot, riser and power of the GPU, and at the BIOS setting of the slot"
_RULES = (
    _Rule(
        "GPU ECC errors",
        _ecc,
        "ECC enabled, no uncorrected error since the driver was loaded",
        "memory of the GPU has lost data",
        "drain the node and reset the GPU (nvidia-smi --gpu-reset); replace it when the errors come back",
        "nvidia-smi -q -d ECC",
    ),
    _Rule(
        "GPU remapped rows",
        _rows,
        "no row that waits for its replacement",
        "a bad row of memory is still in use",
        "reset the GPU or restart the node; where remapping failed, replace the GPU",
        "nvidia-smi -q -d ROW_REMAPPER",
    ),
    _Rule(
        "GPU throttling",
        _throttle,
        "no slowdown by heat or power",
        "the GPU slows itself down",
        "look at cooling, power supplies and power cables of the node",
        "nvidia-smi -q -d PERFORMANCE",
    ),
    _Rule(
        "GPU PCIe width",
        _width,
        "the width that GPU and slot can have",
        "the link has lost lanes",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pcie.link.width.current,pcie.link.width.max --format=csv",
    ),
    _Rule(
        "GPU PCIe generation",
        _generation,
        "the generation that GPU and slot can have, while it works",
        "the link was trained to a lower speed",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pstate,pcie.link.gen.current,pcie.link.gen.max --format=csv",
    ),
    _Rule(
        "GPU recovery action",
        _recovery,
        "none",
        "the driver asks for a recovery of the GPU",
        "do what the driver asks for: reset the GPU, or restart the node",
        "nvidia-smi -q",
    ),
    _Rule(
        "NVSwitch fabric",
        _fabric,
        "Completed",
        "the GPU has not joined the NVSwitch fabric",
        "see the service nvidia-fabricmanager, whose version must be the driver's",
        "nvidia-smi -q",
    ),
)


def _shell(hosts: Sequence[str], inventory: str, shown: str) -> str:
    return adhoc(hosts, inventory, shown, become=True)


def _parts(texts: Mapping[str, Sequence[str]]) -> str:
    """Say what was found: the same thing once, with the hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for host, found in texts.items():
        hosts.setdefault(", ".join(found), []).append(host)
    parts = [f"{host_list(names)}: {text}" for text, names in hosts.items()]
    return "; ".join(parts[:_MOST_PARTS]) + (
        f"; ... ({len(parts) - _MOST_PARTS} more)" if len(parts) > _MOST_PARTS else ""
    )


def _numbered(answers: Iterable[tuple[Any, str]]) -> list[str]:
    """Join devices with one answer: `GPU 0, 3: remapping pending`."""
    devices: dict[str, list[str]] = {}
    for device, text in answers:
        devices.setdefault(text, []).append(str(device))
    return [f"GPU {', '.join(names)}: {text}" for text, names in devices.items()]


def _outcome(
    name: str,
    bad: Mapping[str, Sequence[str]],
    silent: Mapping[str, Sequence[str]],
    well: Sequence[str],
    what: str,
    *,
    expected: str,
    reason: str,
    action: str,
    shown: str,
    inventory: str,
) -> list[Check]:
    """Make the records of one check: those at fault, those that did not say, the others."""
    checks = []
    if bad:
        checks.append(
            Check(
                "devices",
                name,
                "fail",
                tuple(bad),
                _parts(bad),
                expected,
                f"{reason} on {host_list(list(bad))}",
                action,
                _shell(list(bad), inventory, shown),
            )
        )
    if silent:
        checks.append(
            Check(
                "devices",
                name,
                "unknown",
                tuple(silent),
                _parts(silent),
                expected,
                f"{host_list(list(silent))} did not say",
                f"see on the node: {shown}",
                _shell(list(silent), inventory, shown),
            )
        )
    if well and not checks:
        checks.append(
            Check("devices", name, "pass", found=what, expected=expected, command=_shell((), inventory, shown))
        )
    return checks


def _judge_gpus(readings: Mapping[str, Reading], inventory: str, xids: Sequence[int]) -> list[Check]:
    nvidia = {host: reading for host, reading in readings.items() if reading["vendor"] == "nvidia"}
    if not nvidia:
        return [Check("devices", "GPUs", "skipped", reason="no node has an NVIDIA GPU")]
    checks = []
    broken = {host: reading["problems"] for host, reading in nvidia.items() if reading["problems"]}
    count = sum(len(reading["gpus"]) for reading in nvidia.values())
    checks += _outcome(
        "GPUs",
        broken,
        {},
        list(nvidia),
        f"{count} on {counted(len(nvidia), 'node')} answer",
        expected="every GPU answers",
        reason="GPUs or their driver do not answer as they should",
        action="see the kernel log for `NVRM` and `Xid`; restart the node, run the role nvidia_driver",
        shown="nvidia-smi",
        inventory=inventory,
    )
    with_gpus = {host: reading for host, reading in nvidia.items() if reading["gpus"]}
    for rule in _RULES if with_gpus else ():
        bad: dict[str, list[str]] = {}
        silent: dict[str, list[str]] = {}
        for host, reading in with_gpus.items():
            answers = [(gpu["index"], rule.judge(gpu)) for gpu in reading["gpus"]]
            faults = _numbered((index, text) for index, text in answers if text)
            mute = _numbered((index, "no answer") for index, text in answers if text is None)
            if faults:
                bad[host] = faults
            if mute:
                silent[host] = mute
        number = sum(len(reading["gpus"]) for reading in with_gpus.values())
        checks += _outcome(
            rule.name,
            bad,
            silent,
            list(with_gpus),
            f"{number} GPUs",
            expected=rule.expected,
            reason=rule.reason,
            action=rule.action,
            shown=rule.shown,
            inventory=inventory,
        )
    return checks + _judge_xids(nvidia, inventory, xids)


def _judge_xids(nvidia: Mapping[str, Reading], inventory: str, hardware: Sequence[int]) -> list[Check]:
    silent = {
        host: ["neither the journal nor dmesg can be read"]
        for host, reading in nvidia.items()
        if reading["xids"] is None
    }
    bad, others = {}, []
    for host, reading in nvidia.items():
        faults = [xid for xid in reading["xids"] or () if xid["code"] in hardware]
        others += [xid["code"] for xid in reading["xids"] or () if xid["code"] not in hardware]
        if faults:
            bad[host] = [f"Xid {xid['code']} of {xid['pci']} {counted(xid['count'], 'time')}" for xid in faults]
    well = [host for host in nvidia if host not in bad and host not in silent]
    noted = (
        f"Xid {', '.join(map(str, sorted(set(others))))} of programs" if others else "no Xid since the nodes started"
    )
    return _outcome(
        "GPU Xid",
        bad,
        silent,
        well,
        noted,
        expected="no Xid of the hardware since the node started",
        reason="the driver has logged a fault of the device",
        action="look the number up in NVIDIA's Xid catalogue; drain and restart the node",
        shown="journalctl --dmesg --boot --grep Xid",
        inventory=inventory,
    )


def _judge_npus(readings: Mapping[str, Reading], inventory: str) -> list[Check]:
    ascend = {host: reading for host, reading in readings.items() if reading["vendor"] == "ascend"}
    if not ascend:
        return [Check("devices", "NPUs", "skipped", reason="no node has an Ascend NPU")]
    checks = []
    number = sum(len(reading["npus"]) for reading in ascend.values())
    problems = {
        host: [*reading["problems"], *reading["npu_problems"]]
        for host, reading in ascend.items()
        if reading["problems"] or reading["npu_problems"]
    }
    checks += _outcome(
        "NPUs",
        problems,
        {},
        list(ascend),
        f"{number} on {counted(len(ascend), 'node')}",
        expected="every NPU answers, with an address and a link that is up",
        reason="NPUs or their driver are not as they should be",
        action="see npu-smi info and hccn_tool on the node, run the role ascend",
        shown="npu-smi info",
        inventory=inventory,
    )
    for name, key, good in (("NPU health", "health", "OK"), ("NPU links", "link", "up")):
        bad: dict[str, list[str]] = {}
        silent: dict[str, list[str]] = {}
        for host, reading in ascend.items():
            states = [(npu["physical_id"], npu[key]) for npu in reading["npus"]]
            faults = [f"NPU {place}: {state}" for place, state in states if state not in (good, "", "unknown", "N/A")]
            mute = [f"NPU {place}: no answer" for place, state in states if state in ("", "unknown", "N/A")]
            if faults:
                bad[host] = faults
            if mute:
                silent[host] = mute
        checks += _outcome(
            name,
            bad,
            silent,
            list(ascend),
            f"{number} are {good}",
            expected=good,
            reason=f"an NPU is not {good}",
            action="npu-smi info -t health -i 0; for a link hccn_tool -i 0 -link -g",
            shown="npu-smi info",
            inventory=inventory,
        )
    return checks


def _port(port: Mapping[str, Any]) -> str:
    return f"{port['device']}:{port['port']}"


def _judge_ports(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Compare the ports of hosts of one group: a port that most of them use has to carry traffic, at their rate."""
    ports = {host: {_port(port): port for port in reading["rdma"]} for host, reading in readings.items()}
    if not any(ports.values()):
        return [Check("devices", "RDMA ports", "skipped", reason="no node has an RDMA device")]
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
            # As many as not: rather look at a cable too many.
            wanted = bool(active) and len(active) * 2 >= len(hosts)
            for host in hosts:
                port = ports[host].get(name)
                if port is None:
                    if wanted:
                        states.setdefault(host, []).append(f"{name} is not there")
                elif port["state"] is None:
                    silent.setdefault(host, []).append(f"{name} has no readable state")
                elif not port["active"] and wanted:
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
        "action": "look at cable, switch port and subnet manager (ibstat; for RoCE ethtool)",
        "shown": "ibstat",
        "inventory": inventory,
    }
    return _outcome(
        "RDMA ports",
        states,
        silent,
        list(ports),
        f"{total} are ACTIVE",
        expected="ACTIVE, as on the others",
        reason="a port carries no traffic",
        **shared,
    ) + _outcome(
        "RDMA rate",
        rates,
        {},
        list(ports),
        "the rates of the others",
        expected="the rate that the port has on the others",
        reason="a link was trained to a lower rate",
        **shared,
    )


def judge(
    readings: Mapping[str, Reading],
    *,
    groups: Mapping[str, str] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Judge one reading of all hosts; `groups` is the hardware group of each host (ports are compared within it)."""
    if not readings:
        return [Check("devices", "devices", "unknown", reason="no node said anything", action="see the phase reach")]
    return (
        _judge_gpus(readings, inventory, xids)
        + _judge_npus(readings, inventory)
        + _judge_ports(readings, groups or {}, inventory)
    )


def growth(name: str, before: int | None, after: int | None) -> tuple[int | None, str]:
    """Return by how much a counter grew, None where that cannot be told, and why.

    A counter that went back was reset (by a tool, a driver that was loaded again): what it counts since is the least
    that it grew. One that stands at the end of its width counts nothing more.
    """
    if before is None or after is None:
        return None, "not readable"
    if after < before:
        return (after, "was reset") if after else (None, "was reset")
    if after == before == _STOPS.get(name):
        return None, f"stands at its end, {after}"
    return after - before, ""


class _Growth(NamedTuple):
    bad: dict[str, list[str]]
    silent: dict[str, list[str]]
    seen: int


def _grown(
    pairs: Iterable[tuple[str, str, Mapping[str, int | None], Mapping[str, int | None]]], allowed: Mapping[str, int]
) -> _Growth:
    """Judge (host, port, counters before, counters after)."""
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


def judge_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    *,
    allowed: Mapping[str, int] | None = None,
    inventory: str = "",
    xids: Sequence[int] = HARDWARE_XIDS,
) -> list[Check]:
    """Judge what grew between two readings; `allowed` is the growth by counter that is none (others: 0)."""
    hosts = [host for host in before if host in after]
    gone = [host for host in before if host not in after]
    limits = allowed or {}
    checks = []
    if gone:
        checks.append(
            Check(
                "devices",
                "error counters",
                "unknown",
                tuple(gone),
                "no second reading",
                "a reading after the jobs",
                f"{host_list(gone)} did not answer after the benchmarks",
                "see the phase reach",
            )
        )
    restarted = [host for host in hosts if before[host]["boot_id"] != after[host]["boot_id"]]
    if restarted:
        checks.append(
            Check(
                "devices",
                "restart",
                "fail",
                tuple(restarted),
                "another boot id",
                "the nodes stay up",
                f"{host_list(restarted)} restarted during the proof",
                "see the journal of the boot before (journalctl --boot=-1), the BMC's event log",
            )
        )
    stayed = [host for host in hosts if host not in restarted]
    checks += _judge_rdma_counters(before, after, stayed, limits, inventory)
    interfaces = [
        (host, name, counters, after[host]["interfaces"][name])
        for host in stayed
        for name, counters in before[host]["interfaces"].items()
        if name in after[host]["interfaces"]
    ]
    found = _grown(interfaces, limits)
    checks += _outcome(
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
    return checks + _judge_gpu_counters(before, after, stayed, inventory, xids)


def _judge_rdma_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    hosts: Sequence[str],
    limits: Mapping[str, int],
    inventory: str,
) -> list[Check]:
    if not any(before[host]["rdma"] for host in hosts):
        return [Check("devices", "RDMA error counters", "skipped", reason="no node has an RDMA device")]
    pairs: list[tuple[str, str, Mapping[str, int | None], Mapping[str, int | None]]] = []
    lost: dict[str, list[str]] = {}
    for host in hosts:
        later = {_port(port): port for port in after[host]["rdma"]}
        for port in before[host]["rdma"]:
            if _port(port) in later:
                pairs.append((host, _port(port), port["counters"], later[_port(port)]["counters"]))
            else:
                lost.setdefault(host, []).append(f"{_port(port)} is gone")
    found = _grown(pairs, limits)
    for host, texts in lost.items():
        found.bad.setdefault(host, []).extend(texts)
    return _outcome(
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


def _judge_gpu_counters(
    before: Mapping[str, Reading],
    after: Mapping[str, Reading],
    hosts: Sequence[str],
    inventory: str,
    xids: Sequence[int],
) -> list[Check]:
    with_gpus = [host for host in hosts if before[host]["gpus"]]
    if not with_gpus:
        return [Check("devices", "GPU errors under load", "skipped", reason="no node has an NVIDIA GPU that answers")]
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
    return _outcome(
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


def verdict(
    results: Mapping[str, Mapping[str, Any]],
    before: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    groups: Mapping[str, Sequence[str]],
    allowed: Mapping[str, int],
    xids: Sequence[int] = (),
    inventory: str = "",
) -> list[Check]:
    """Judge what all nodes answered, by host; with `before`, an earlier answer, only which counters grew since then.

    `groups` are hosts by kinds of hardware: ports are compared within one.
    """
    now = {host: result["devices"] for host, result in results.items() if "devices" in result}
    numbers = xids or HARDWARE_XIDS
    if before is None:
        kinds = {host: name for name, hosts in groups.items() for host in hosts}
        return judge(now, groups=kinds, inventory=inventory, xids=numbers)
    earlier = {host: result["devices"] for host, result in before.items() if "devices" in result}
    return judge_counters(earlier, now, allowed=allowed, inventory=inventory, xids=numbers)
