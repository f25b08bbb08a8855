# SPDX-License-Identifier: Apache-2.0
"""Check the health of NVIDIA GPUs from one reading of all hosts: a table of rules for each GPU, and Xids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..findings.checks import Check
from ..findings.findings import counted
from .device_checks import Reading, outcome
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
# Performance states of a busy GPU; in lower states it slows its link down to save power.
_AT_WORK = ("P0", "P1", "P2")


class _Rule(NamedTuple):
    """One check of every GPU: `check` returns the problem, "" without one, None where it is unknown."""

    name: str
    check: Callable[[Gpu], str | None]
    expected: str
    reason: str
    action: str
    shown: str
    # The feature (gpu_health) that the check needs, and the reason for skipping it without one.
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
    if gpu["link_width"] is None or gpu["link_width_max"] is None:
        return None
    return f"x{gpu['link_width']} of x{gpu['link_width_max']}" if gpu["link_width"] < gpu["link_width_max"] else ""


def _generation(gpu: Gpu) -> str | None:
    if gpu["link_gen"] is None or gpu["link_gen_max"] is None:
        return None
    if gpu["pstate"] not in _AT_WORK:
        return "" if gpu["pstate"] or gpu["link_gen"] >= gpu["link_gen_max"] else None
    return f"generation {gpu['link_gen']} of {gpu['link_gen_max']}" if gpu["link_gen"] < gpu["link_gen_max"] else ""


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
    _Rule(
        "GPU ECC errors",
        _ecc,
        "ECC enabled, no uncorrected error since the driver was loaded",
        "GPU memory has lost data",
        "drain the node and reset the GPU (nvidia-smi --gpu-reset); replace it if the errors return",
        "nvidia-smi -q -d ECC",
        "ecc",
        "no GPU has memory with ECC",
    ),
    _Rule(
        "GPU remapped rows",
        _rows,
        "no row with a pending replacement",
        "a bad row of memory is still in use",
        "reset the GPU or restart the node; if remapping failed, replace the GPU",
        "nvidia-smi -q -d ROW_REMAPPER",
        "rows",
        "no GPU replaces bad rows of its memory",
    ),
    _Rule(
        "GPU throttling",
        _throttle,
        "no slowdown due to heat or power",
        "the GPU slows itself down",
        "check cooling, power supplies and power cables of the node",
        "nvidia-smi -q -d PERFORMANCE",
    ),
    _Rule(
        "GPU PCIe width",
        _width,
        "the width that GPU and slot support",
        "the link has lost lanes",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pcie.link.width.current,pcie.link.width.max --format=csv",
    ),
    _Rule(
        "GPU PCIe generation",
        _generation,
        "the generation that GPU and slot support, while it works",
        "the link was trained to a lower speed",
        _SEAT,
        "nvidia-smi --query-gpu=pci.bus_id,pstate,pcie.link.gen.current,pcie.link.gen.max --format=csv",
    ),
    _Rule(
        "GPU recovery action",
        _recovery,
        "none",
        "the driver requests a recovery of the GPU",
        "reset the GPU or restart the node, as the driver requests",
        "nvidia-smi -q",
    ),
    _Rule(
        PERSISTENCE,
        _persistence,
        "Enabled",
        "the driver unloads an idle GPU: each start waits for it, and its error counts start again",
        "run the role nvidia_driver, or: systemctl enable --now nvidia-persistenced (nvidia-smi -pm 1 until a restart)",
        "nvidia-smi --query-gpu=pci.bus_id,persistence_mode --format=csv",
    ),
    _Rule(
        "NVSwitch fabric",
        _fabric,
        "Completed",
        "the GPU has not joined the NVSwitch fabric",
        "check the service nvidia-fabricmanager, whose version must equal the driver's",
        "nvidia-smi -q",
    ),
)


def _numbered(answers: Iterable[tuple[Any, str]]) -> list[str]:
    """Join devices with one answer: `GPU 0, 3: remapping pending`."""
    devices: dict[str, list[str]] = {}
    for device, text in answers:
        devices.setdefault(text, []).append(str(device))
    return [f"GPU {', '.join(names)}: {text}" for text, names in devices.items()]


def check_gpus(readings: Mapping[str, Reading], inventory: str, xids: Sequence[int]) -> list[Check]:
    """Check the GPUs of all hosts; `xids` are those about the hardware."""
    nvidia = {host: reading for host, reading in readings.items() if reading["vendor"] == "nvidia"}
    if not nvidia:
        return [Check(phase="devices", name="GPUs", state="skipped", reason="no node has an NVIDIA GPU")]
    checks = []
    broken = {host: reading["problems"] for host, reading in nvidia.items() if reading["problems"]}
    count = sum(len(reading["gpus"]) for reading in nvidia.values())
    checks += outcome(
        "GPUs",
        broken,
        {},
        list(nvidia),
        f"{count} on {counted(len(nvidia), 'node')} answer",
        expected="every GPU answers",
        reason="GPUs or their driver have problems",
        action="check the kernel log for `NVRM` and `Xid`; restart the node, run the role nvidia_driver",
        shown="nvidia-smi",
        inventory=inventory,
    )
    with_gpus = {host: reading for host, reading in nvidia.items() if reading["gpus"]}
    for rule in _RULES if with_gpus else ():
        able = _able(with_gpus, rule.feature)
        if not able:
            checks.append(Check(phase="devices", name=rule.name, state="skipped", reason=rule.without))
            continue
        bad: dict[str, list[str]] = {}
        silent: dict[str, list[str]] = {}
        for host, gpus in able.items():
            answers = [(gpu["index"], rule.check(gpu)) for gpu in gpus]
            faults = _numbered((index, text) for index, text in answers if text)
            unanswered = _numbered((index, "no answer") for index, text in answers if text is None)
            if faults:
                bad[host] = faults
            if unanswered:
                silent[host] = unanswered
        number = sum(map(len, able.values()))
        checks += outcome(
            rule.name,
            bad,
            silent,
            list(able),
            f"{number} GPUs",
            expected=rule.expected,
            reason=rule.reason,
            action=rule.action,
            shown=rule.shown,
            inventory=inventory,
        )
    return checks + _check_xids(nvidia, inventory, xids)


def _able(readings: Mapping[str, Reading], feature: str) -> dict[str, list[Gpu]]:
    """Return by host the GPUs of models with a feature: one GPU with it speaks for its model."""
    having = {
        gpu["model"] for reading in readings.values() for gpu in reading["gpus"] if feature not in gpu.get("lacks", ())
    }
    able = {host: [gpu for gpu in reading["gpus"] if gpu["model"] in having] for host, reading in readings.items()}
    return {host: gpus for host, gpus in able.items() if gpus}


def _check_xids(nvidia: Mapping[str, Reading], inventory: str, hardware: Sequence[int]) -> list[Check]:
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
    return outcome(
        "GPU Xid",
        bad,
        silent,
        well,
        noted,
        expected="no Xid of the hardware since the node started",
        reason="the driver logged an error of the device",
        action="look up the number in NVIDIA's Xid catalog; drain and restart the node",
        shown="journalctl --dmesg --boot --grep Xid",
        inventory=inventory,
    )
