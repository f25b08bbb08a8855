# SPDX-License-Identifier: Apache-2.0
"""Whether Slurm can confine jobs on a node: whether slurmd may write there what it confines them by.

On most containers it may not, on machines it may; but what counts is the mounts, not what the node is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import Finding

_ROOT = "/sys/fs/cgroup"
# cgroup v1 has a hierarchy for each; in v2 every group can be frozen, and devices are a matter of BPF.
_V1 = ("cpuset", "devices", "freezer", "memory")
_V2 = ("cpuset", "memory")
# Bits of what root must be allowed: to say which devices a job may open, and to bind a task of somebody else to cores.
_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}


def missing(text: str) -> str:
    """Say what a node lacks to confine jobs; "" for nothing.

    `text` are lines of /proc/self/mounts (those at /sys/fs/cgroup) and /proc/self/status (CapEff), and what
    cgroup.controllers of cgroup v2 has.
    """
    mounts: dict[str, tuple[str, bool]] = {}
    controllers: list[str] = []
    capabilities = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[1].startswith(_ROOT):
            # What was mounted last lies on top.
            mounts[words[1]] = (words[2], "rw" in words[3].split(","))
        elif line.startswith("CapEff:"):
            capabilities = int(words[1], 16)
        else:
            controllers = words
    if not mounts:
        return f"no cgroups at {_ROOT}"
    kind, writable = mounts.get(_ROOT, ("", False))
    if kind == "cgroup2":
        absent = [name for name in _V2 if not writable or name not in controllers]
    else:
        absent = [name for name in _V1 if mounts.get(f"{_ROOT}/{name}") != ("cgroup", True)]
    if absent:
        return f"cgroup v{2 if kind == 'cgroup2' else 1}, where {', '.join(absent)} cannot be written"
    refused = [name for name, bit in _CAPABILITIES.items() if not capabilities >> bit & 1]
    return f"root without {', '.join(refused)}" if refused else ""


def judge_confinement(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the nodes that cannot confine jobs. A node is {host, cgroups (text that missing() reads)}."""
    return [
        Finding(
            "slurm_confinement",
            found,
            f"cgroups that slurmd may write, as slurm_confinement is cgroup: v1 with {', '.join(_V1)}, or v2 with "
            f"{', '.join(_V2)}, at {_ROOT}; and {', '.join(_CAPABILITIES)}",
            "set slurm_confinement: none where jobs need not be kept apart, or give the container what it lacks",
            host=node["host"],
        )
        for node in nodes
        for found in [missing(str(node.get("cgroups") or ""))]
        if found
    ]  # fmt: skip
