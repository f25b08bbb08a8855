# SPDX-License-Identifier: Apache-2.0
"""Check whether slurmd can write cgroups to confine jobs: usually on machines, rarely in containers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import Finding

_ROOT = "/sys/fs/cgroup"
# cgroup v1 has a hierarchy for each controller. In v2, every group can be frozen, and BPF controls devices.
_V1 = ("cpuset", "devices", "freezer", "memory")
_V2 = ("cpuset", "memory")
# Bits of the capabilities that root needs to restrict devices, and to bind tasks of other users to cores.
_CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23}


def missing(text: str) -> str:
    """Return what a node lacks to confine jobs, or "".

    `text` has lines of /proc/self/mounts (at /sys/fs/cgroup), of /proc/self/status (CapEff), and of cgroup.controllers
    of cgroup v2.
    """
    mounts: dict[str, tuple[str, bool]] = {}
    controllers: list[str] = []
    capabilities = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[1].startswith(_ROOT):
            # The last mount hides earlier ones.
            mounts[words[1]] = (words[2], "rw" in words[3].split(","))
        elif re.fullmatch(r"CapEff:\s*[0-9a-f]{1,16}\s*", line):
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
    denied = [name for name, bit in _CAPABILITIES.items() if not capabilities >> bit & 1]
    return f"root without {', '.join(denied)}" if denied else ""


def confinement_findings(nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Find nodes that cannot confine jobs. A node is {host, cgroups (text for missing())}."""
    expected = f"cgroups that slurmd can write, as slurm_confinement is cgroup: v1 with {', '.join(_V1)}, or v2 with "
    expected += f"{', '.join(_V2)}, at {_ROOT}; and {', '.join(_CAPABILITIES)}"
    action = "set slurm_confinement: none if jobs need not be kept apart, or give the container what it lacks"
    found = {node["host"]: missing(str(node.get("cgroups") or "")) for node in nodes}
    return [Finding("slurm_confinement", text, expected, action, host=host) for host, text in found.items() if text]
