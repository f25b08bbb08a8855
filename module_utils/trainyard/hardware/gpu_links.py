# SPDX-License-Identifier: Apache-2.0
"""NVLinks of GPUs: what `nvidia-smi nvlink --status` says, and which GPUs have fewer than others of their model.

How many links a GPU should use depends on the machine (six of a V100 in a DGX, four of twelve of two A100 under one
bridge), so GPUs are compared with those of their model, on all hosts of one group of hardware. Speeds are GB/s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..base.checks import Check
from ..base.findings import grouped
from ..base.majority import usual
from .device_checks import Reading, Rule
from .tool_text import lines_of

_GPU = re.compile(r"\s*GPU (?P<index>\d+): (?P<model>.+?)(?: \(UUID: .*)?")
_LINK = re.compile(r"\s*Link (?P<link>\d+): (?P<state>.+)")
_SPEED = re.compile(r"(\d+(?:\.\d+)?) GB/s")
_ALL_DOWN = re.compile(r"all links are inactive", re.IGNORECASE)
# Models with built-in NVLink; others have it only with a bridge.
_JOINED = re.compile(r"SXM|HBM3\b|\bH200$|\bG?B[23]00\b")


class NvLinks(TypedDict):
    """The NVLinks of one GPU: how many it lists (None: only that none is active) and how many of them work."""

    index: int
    model: str
    links: int | None
    active: int


def parse_nvlinks(output: str) -> list[NvLinks]:
    """Parse `nvidia-smi nvlink --status`; GPUs without NVLink are listed with no links."""
    found: list[NvLinks] = []
    for line in lines_of(output):
        gpu, link = _GPU.fullmatch(line), _LINK.fullmatch(line)
        if gpu:
            found.append({"index": int(gpu["index"]), "model": gpu["model"], "links": 0, "active": 0})
        elif found and link and found[-1]["links"] is not None:
            found[-1]["links"] += 1
            found[-1]["active"] += bool(_SPEED.fullmatch(link["state"]))
        elif found and _ALL_DOWN.search(line):
            found[-1]["links"] = None
    return found


def _usual(nodes: Sequence[Sequence[NvLinks]]) -> dict[str, int]:
    """Return how many links most GPUs of a model use; in a tie, the higher number."""
    numbers = grouped((gpu["model"], gpu["active"]) for node in nodes for gpu in node)
    return {model: usual(active, 0, ties=int) for model, active in numbers.items()}


_RULE = Rule(
    "GPU NVLink",
    "as many active links as on most GPUs of the model, and some where it is made for NVLink",
    "NVLinks are down: NCCL goes around them, much slower",
    "check Xid 74 and 149, nvidia-fabricmanager (with NVSwitches) and bridges; restart the node",
    "nvidia-smi nvlink --status",
)


def check_nvlinks(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Check the NVLinks of all hosts; `groups` is the hardware group of each host."""
    if not any(reading["gpus"] for reading in readings.values()):
        return []
    # A single GPU has no partner, even if its model has NVLink.
    hosts = {host: reading for host, reading in readings.items() if len(reading["gpus"]) > 1}
    unanswered = {
        host: [f"nvidia-smi nvlink shows nothing for {_unlisted(reading)}"]
        for host, reading in hosts.items()
        if _unlisted(reading) and any(map(_is_joined, reading["gpus"]))
    }
    linked = {host: [gpu for gpu in reading["nvlinks"] or () if gpu["links"] != 0] for host, reading in hosts.items()}
    linked = {host: gpus for host, gpus in linked.items() if gpus}
    if not linked and not unanswered:
        return _RULE.skipped("no node has GPUs joined by NVLink")
    faults: dict[str, list[str]] = {}
    for group in sorted({groups.get(host, "") for host in linked}):
        members = {host: gpus for host, gpus in linked.items() if groups.get(host, "") == group}
        most = _usual(list(members.values()))
        for host, gpus in members.items():
            faults[host] = [text for gpu in gpus if (text := _problem(gpu, most[gpu["model"]]))]
    active = sum(gpu["active"] for gpus in linked.values() for gpu in gpus)
    return _RULE.checks(faults, unanswered, f"{active} links are active", inventory)


def _unlisted(reading: Reading) -> str:
    """Name the GPUs of the driver's other list that this output does not show; empty without any."""
    listed = [gpu for gpu in reading["nvlinks"] or () if gpu["links"] != 0 or not _is_joined(gpu)]
    missing = len(reading["gpus"]) - len(listed)
    return "them" if not listed else f"{missing} of {len(reading['gpus'])} GPUs" if missing > 0 else ""


def _is_joined(gpu: Mapping[str, Any]) -> bool:
    return _JOINED.search(gpu["model"]) is not None


def _problem(gpu: NvLinks, most: int) -> str:
    of = f" of {gpu['links']}" if gpu["links"] else ""
    if gpu["active"] < most:
        return f"GPU {gpu['index']}: {gpu['active']}{of} links active, most have {most}"
    if gpu["active"] == 0 and _is_joined(gpu):
        return f"GPU {gpu['index']}: no link{of} active"
    return ""
