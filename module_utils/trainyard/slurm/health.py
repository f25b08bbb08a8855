# SPDX-License-Identifier: Apache-2.0
"""Whether Slurm should give jobs to a node, by the checks of the proof as far as the node can tell alone.

Only a check that fails counts, and only of devices that Slurm hands out, or of ports that have worked: an adapter that
nobody has plugged in is none. What a device does not say neither drains a node nor resumes one that was drained for it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ..hardware.node_health import PASSING, PORT, of_node

# What the reasons of this program begin with. A node that is drained for any other reason is somebody else's.
SIGN = "trainyard:"
HUNG = "tools"
# Faults of a moment count when two checks in a row have found them: a GPU slows down for a second and is well again,
# and on a busy machine a tool may be late once.
_PASSING = (*PASSING, HUNG)
_LONGEST_REASON = 400


class Node(NamedTuple):
    """What Slurm says of the node; `ours`: it is drained by this program. `devices` are those handed out, by kind."""

    drained: bool
    ours: bool
    devices: Mapping[str, int]


class Memory(TypedDict):
    """What a check leaves for the next one. A restart forgets all but the ports.

    `told` is why this program has drained the node, `accepted` what somebody has resumed it with, `once` the faults of
    a moment that the last check found, `ports` the RDMA ports at their best.
    """

    boot_id: str | None
    told: list[str]
    accepted: list[str]
    once: list[str]
    ports: list[dict[str, Any]]


class Found(NamedTuple):
    """What is wrong, by the name of the check, and the checks that got no answer."""

    faults: dict[str, str]
    silent: set[str]


class Decision(NamedTuple):
    """What Slurm is told (`drain`, `resume` or ""), and why; what the next check has to know."""

    action: str
    reason: str
    memory: Memory


def read_node(record: str) -> Node:
    """Read a line of `scontrol show node -o`. Raises ValueError where it is none."""
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


def recall(kept: Any, boot_id: str | None) -> Memory:
    """Return what the check before has left, of whatever its file holds."""
    known = kept if isinstance(kept, dict) else {}
    lists = {name: value if isinstance(value, list) else [] for name, value in known.items()}
    ports = [port for port in lists.get("ports", []) if isinstance(port, dict) and set(PORT) <= set(port)]
    told, accepted, once = (
        [text for text in lists.get(name, []) if isinstance(text, str) and known.get("boot_id") == boot_id]
        for name in ("told", "accepted", "once")
    )
    return {"boot_id": boot_id, "told": told, "accepted": accepted, "once": once, "ports": ports}


def judge_node(
    reading: Mapping[str, Any],
    devices: Mapping[str, int],
    ports: Sequence[Mapping[str, Any]],
    ignored: Collection[str] = (),
) -> Found:
    """Judge the node by its devices; `ports` are its RDMA ports at their best."""
    checks = [check for check in of_node(reading, devices, ports) if check.name not in ignored]
    faults = {check.name: check.found for check in checks if check.state == "fail"}
    return Found(faults, {check.name for check in checks if check.state == "unknown"})


def decide(node: Node, found: Found, memory: Memory) -> Decision:
    """Return whether the node is drained or resumed.

    Somebody who resumes a node that this program has drained has seen the reason: the same fault does not drain it
    again before it was gone once, and the ports that it has now are those that it should have.
    """
    told, accepted, ports = memory["told"], memory["accepted"], memory["ports"]
    if told and not node.drained:
        told, accepted, ports = [], told, []
    texts = {name: f"{name}: {text}" for name, text in found.faults.items()}
    accepted = [text for text in accepted if text in texts.values()]
    faults = {name: text for name, text in texts.items() if text not in accepted}
    counted = [text for name, text in faults.items() if name not in _PASSING or name in memory["once"]]
    once = [name for name in faults if name in _PASSING]
    action = ""
    if counted and (not node.drained or (node.ours and counted != told)):
        action, told = "drain", counted
    elif node.ours and not faults and not any(text.startswith(f"{name}: ") for name in found.silent for text in told):
        action, told = "resume", []
    reason = f"{SIGN} {'; '.join(faults.values())}" if faults else ""
    reason = reason if len(reason) <= _LONGEST_REASON else f"{reason[: _LONGEST_REASON - 4]} ..."
    left: Memory = {**memory, "told": told, "accepted": accepted, "once": once, "ports": ports}
    return Decision(action, reason, left)
