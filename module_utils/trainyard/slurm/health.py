# SPDX-License-Identifier: Apache-2.0
"""Decide whether Slurm should give jobs to a node, by those checks of verify.yml that need one node only.

Only failed checks count, and only for devices that Slurm allocates and for ports that have worked before; an adapter
without a cable is not a fault. An unknown result neither drains a node nor resumes one that was drained for that check.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ..base.shapes import MAYBE_NUMBER, MAYBE_TEXT, misfit
from ..hardware.node_health import PASSING, PORT, of_node

# The reasons of this program start with this. It does not touch nodes that are drained for other reasons.
SIGN = "trainyard:"
HUNG = "tools"
# Transient faults count if two checks in a row find them: a GPU may throttle for a second, a tool may be late once.
_TRANSIENT = (*PASSING, HUNG)
_MAX_REASON = 400  # characters
_PORT = {**dict.fromkeys(PORT, MAYBE_TEXT), **{"device": str, "port": int, "rate_gbps": MAYBE_NUMBER, "active": bool}}


class Node(NamedTuple):
    """The node in Slurm. `ours` means that this program drained it; `devices` counts the allocatable ones by kind."""

    drained: bool
    ours: bool
    devices: Mapping[str, int]


class Memory(TypedDict):
    """The state that a check leaves for the next one. A reboot clears all but the ports.

    `drained_for` has the faults for which this program drained the node, `accepted` those with which somebody resumed
    it, both by the name of the check. `once` names the transient faults of the last check, `ports` the RDMA ports at
    their best.
    """

    boot_id: str | None
    drained_for: dict[str, str]
    accepted: dict[str, str]
    once: list[str]
    ports: list[dict[str, Any]]


class Found(NamedTuple):
    """The faults by the name of their check, and the names of the checks with unknown results."""

    faults: dict[str, str]
    silent: set[str]


class Decision(NamedTuple):
    """The action in Slurm (`drain`, `resume` or ""), its reason, and the memory for the next check."""

    action: str
    reason: str
    memory: Memory


def read_node(record: str) -> Node:
    """Parse a line of `scontrol show node -o`. Raises ValueError for anything else."""
    state = re.search(r"(?:^|\s)State=(\S+)", record)
    if state is None:
        raise ValueError(f"scontrol names no state of the node: {record.strip()[:200]!r}")
    drained = "DRAIN" in state[1]
    gres = re.search(r"(?:^|\s)Gres=(\S*)", record)
    devices: dict[str, int] = {}
    for kind, number in re.findall(r"\b(gpu|npu)(?::[^:,(]+)?:(\d+)", gres[1] if gres else ""):
        devices[kind] = devices.get(kind, 0) + int(number)
    ours = drained and re.search(rf"\sReason={re.escape(SIGN)}", record) is not None
    return Node(drained, ours, devices)


def recall(stored: Any, boot_id: str | None) -> Memory:
    """Return the memory of the previous check from the content of its file, which may be damaged."""
    saved = stored if isinstance(stored, dict) else {}
    same_boot = saved if saved.get("boot_id") == boot_id else {}

    def texts(name: str) -> dict[str, str]:
        value = same_boot.get(name)
        entries = value.items() if isinstance(value, dict) else ()
        return {str(check): text for check, text in entries if isinstance(text, str)}

    def items(source: dict[str, Any], name: str) -> list[Any]:
        value = source.get(name)
        return value if isinstance(value, list) else []

    once = [name for name in items(same_boot, "once") if isinstance(name, str)]
    ports = [port for port in items(saved, "ports") if not misfit(port, _PORT)]
    accepted = texts("accepted")
    return {"boot_id": boot_id, "drained_for": texts("drained_for"), "accepted": accepted, "once": once, "ports": ports}


def check_node(
    reading: Mapping[str, Any],
    devices: Mapping[str, int],
    ports: Sequence[Mapping[str, Any]],
    ignored: Collection[str] = (),
) -> Found:
    """Check the devices of the node; `ports` are its RDMA ports at their best."""
    checks = [check for check in of_node(reading, devices, ports) if check.name not in ignored]
    faults = {check.name: check.found for check in checks if check.state == "fail"}
    return Found(faults, {check.name for check in checks if check.state == "unknown"})


def decide(node: Node, found: Found, memory: Memory) -> Decision:
    """Return whether the node is drained or resumed.

    An operator who resumes a node that this program drained has seen the reason. The same fault does not drain it again
    until it has been absent once, and the present state of the ports becomes their expected state.
    """
    drained_for, accepted, ports = memory["drained_for"], memory["accepted"], memory["ports"]
    if drained_for and not node.drained:
        drained_for, accepted, ports = {}, drained_for, []
    accepted = {name: text for name, text in accepted.items() if found.faults.get(name) == text}
    faults = {name: text for name, text in found.faults.items() if name not in accepted}
    confirmed = {name: text for name, text in faults.items() if name not in _TRANSIENT or name in memory["once"]}
    action = ""
    if confirmed and (not node.drained or (node.ours and confirmed != drained_for)):
        action, drained_for = "drain", confirmed
    elif node.ours and not faults and not found.silent & set(drained_for):
        action, drained_for = "resume", {}
    reason = f"{SIGN} {'; '.join(f'{name}: {text}' for name, text in faults.items())}" if faults else ""
    reason = reason if len(reason) <= _MAX_REASON else f"{reason[: _MAX_REASON - 4]} ..."
    once = [name for name in faults if name in _TRANSIENT]
    left: Memory = {**memory, "drained_for": drained_for, "accepted": accepted, "once": once, "ports": ports}
    return Decision(action, reason, left)
