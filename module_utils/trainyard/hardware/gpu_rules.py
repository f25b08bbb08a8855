# SPDX-License-Identifier: Apache-2.0
"""Check the health of NVIDIA GPUs from one reading of all hosts: a table of rules for each GPU, and Xids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.checks import Check
from ..base.findings import counted, grouped
from .device_checks import Reading, Rule
from .gpu_health import UNREAD

Gpu = Mapping[str, Any]

# Slowdowns with a bad cause. sw_power_cap (at its power limit) and gpu_idle are normal.
BAD_THROTTLE = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
# Xids about the device, the link or its firmware, not about a program, by NVIDIA's catalog.
HARDWARE_XIDS = (
    46, 48, 54, 61, 62, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 136, 140, 143,
    144, 145, 146, 147, 148, 149, 150, 151, 154, 155, 156, 158, 160, 171, 172,
)  # fmt: skip
# This check never excludes a node: slow starts are no fault.
PERSISTENCE = "GPU persistence mode"
# Why the Xids of a node are unknown.
NO_LOG = "neither the journal nor dmesg can be read"
# Performance states of a busy GPU; in lower states it slows its link down to save power.
_AT_WORK = ("P0", "P1", "P2")


@dataclass(frozen=True)
class _GpuRule(Rule):
    """A check of every GPU: `check` returns the problem, "" without one, None where it is unknown.

    `feature` is the one that the check needs (gpu_health); `without` is the reason for skipping it without any GPU
    that has it.
    """

    check: Callable[[Gpu], str | None]
    feature: str = ""
    without: str = ""


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
    width, maximum = gpu["link_width"], gpu["link_width_max"]
    if width is None or maximum is None:
        return None
    return f"x{width} of x{maximum}" if width < maximum else ""


def _generation(gpu: Gpu) -> str | None:
    generation, maximum = gpu["link_gen"], gpu["link_gen_max"]
    if generation is None or maximum is None:
        return None
    if generation >= maximum:
        return ""
    if gpu["pstate"] not in _AT_WORK:
        return "" if gpu["pstate"] else None
    return f"generation {generation} of {maximum}"


def _recovery(gpu: Gpu) -> str | None:
    # Drivers before 565 have no such field, so a missing value is fine.
    action = gpu["recovery"]
    if action == UNREAD:
        return None
    return "" if action in (None, "None") else f"recovery action: {action}"


def _fabric(gpu: Gpu) -> str | None:
    if gpu["fabric"] == UNREAD:
        return None
    # N/A without NVSwitches.
    return "" if gpu["fabric"] in (None, "Completed") else f"fabric {gpu['fabric']}"


def _persistence(gpu: Gpu) -> str | None:
    if gpu["persistence"] is None:
        return None
    return "" if gpu["persistence"] == "Enabled" else f"persistence mode {gpu['persistence'].lower()}"


_SEAT = "check the slot, riser and power of the GPU, and the BIOS setting of the slot"
_RULES = (
    _GpuRule(
        "GPU ECC errors",
        "ECC enabled, no uncorrected error since the driver was loaded",
        "GPU memory has lost data",
        "drain the node and reset the GPU (nvidia-smi --gpu-reset); replace it if the errors return",
        "nvidia-smi -q -d ECC",
        _ecc,
        "ecc",
        "no GPU has memory with ECC",
    ),
    _GpuRule(
        "GPU remapped rows",
        "no row with a pending replacement",
        "a bad row of memory is still in use",
        "reset the GPU or restart the node; if remapping failed, replace the GPU",
        "nvidia-smi -q -d ROW_REMAPPER",
        _rows,
        "rows",
        "no GPU replaces bad rows of its memory",
    ),
    _GpuRule(
        "GPU throttling",
        "no slowdown due to heat or power",
        "the GPU slows itself down",
        "check cooling, power supplies and power cables of the node",
        "nvidia-smi -q -d PERFORMANCE",
        _throttle,
    ),
    _GpuRule(
        "GPU PCIe width",
        "the width that GPU and slot support",
        "the link has lost lanes",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pcie.link.width.current,pcie.link.width.max --format=csv",
        _width,
    ),
    _GpuRule(
        "GPU PCIe generation",
        "the generation that GPU and slot support, while it works",
        "the link was trained to a lower speed",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pstate,pcie.link.gen.current,pcie.link.gen.max --format=csv",
        _generation,
    ),
    _GpuRule(
        "GPU recovery action",
        "none",
        "the driver requests a recovery of the GPU",
        "reset the GPU or restart the node, as the driver requests",
        "nvidia-smi -q",
        _recovery,
    ),
    _GpuRule(
        PERSISTENCE,
        "Enabled",
        "the driver unloads an idle GPU: each start waits for it, and its error counts start again",
        "run the role nvidia_driver, or: systemctl enable --now nvidia-persistenced (nvidia-smi -pm 1 until a restart)",
        "nvidia-smi --query-gpu=pci.bus_id,persistence_mode --format=csv",
        _persistence,
    ),
    _GpuRule(
        "NVSwitch fabric",
        "Completed",
        "the GPU has not joined the NVSwitch fabric",
        "check the service nvidia-fabricmanager, whose version must equal the driver's",
        "nvidia-smi -q",
        _fabric,
    ),
)
_GPUS = Rule(
    "GPUs",
    "every GPU answers",
    "GPUs or their driver have problems",
    "check the kernel log for `NVRM` and `Xid`; restart the node, run the role nvidia_driver",
    "nvidia-smi",
)
_XIDS = Rule(
    "GPU Xid",
    "no Xid of the hardware since the node started",
    "the driver logged an error of the device",
    "look up the number in NVIDIA's Xid catalog; drain and restart the node",
    "journalctl --dmesg --boot --grep Xid",
)


def check_gpus(readings: Mapping[str, Reading], inventory: str, xids: Sequence[int]) -> list[Check]:
    """Check the GPUs of all hosts; `xids` are those about the hardware."""
    nvidia = {host: reading for host, reading in readings.items() if reading["vendor"] == "nvidia"}
    if not nvidia:
        return _GPUS.skipped("no node has an NVIDIA GPU")
    problems = {host: reading["problems"] for host, reading in nvidia.items()}
    count = sum(len(reading["gpus"]) for reading in nvidia.values())
    checks = _GPUS.checks(problems, {}, f"{count} on {counted(len(nvidia), 'node')} answer", inventory)
    if count:
        for rule in _RULES:
            checks += _check_rule(rule, nvidia, inventory)
    return checks + _check_xids(nvidia, inventory, xids)


def _check_rule(rule: _GpuRule, readings: Mapping[str, Reading], inventory: str) -> list[Check]:
    """Check the GPUs of models that have the rule's feature: one GPU with it is enough for its model."""
    everything = [gpu for reading in readings.values() for gpu in reading["gpus"]]
    able = {gpu["model"] for gpu in everything if rule.feature not in gpu.get("lacks", ())}
    if not able:
        return rule.skipped(rule.without)
    faults: dict[str, list[str]] = {}
    unanswered: dict[str, list[str]] = {}
    for host, reading in readings.items():
        problems = [(gpu["index"], rule.check(gpu)) for gpu in reading["gpus"] if gpu["model"] in able]
        faults[host] = _numbered((index, text) for index, text in problems if text)
        unanswered[host] = _numbered((index, "no answer") for index, text in problems if text is None)
    return rule.checks(faults, unanswered, f"{sum(gpu['model'] in able for gpu in everything)} GPUs", inventory)


def _numbered(problems: Iterable[tuple[int, str]]) -> list[str]:
    """Join GPUs with the same problem: `GPU 0, 3: remapping pending`."""
    indexes = grouped((text, str(index)) for index, text in problems)
    return [f"GPU {', '.join(names)}: {text}" for text, names in indexes.items()]


def _check_xids(nvidia: Mapping[str, Reading], inventory: str, hardware: Sequence[int]) -> list[Check]:
    unread = {host: [NO_LOG] for host, reading in nvidia.items() if reading["xids"] is None}
    by_host = {host: reading["xids"] or () for host, reading in nvidia.items()}
    faults = {
        host: [
            f"Xid {xid['code']} of {xid['pci']} {counted(xid['count'], 'time')}"
            for xid in xids
            if xid["code"] in hardware
        ]
        for host, xids in by_host.items()
    }
    others = sorted({xid["code"] for xids in by_host.values() for xid in xids} - set(hardware))
    found = f"Xid {', '.join(map(str, others))} of programs" if others else "no Xid since the nodes started"
    return _XIDS.checks(faults, unread, found, inventory)
