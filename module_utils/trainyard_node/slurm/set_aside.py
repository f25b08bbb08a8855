# SPDX-License-Identifier: Apache-2.0
"""Take this node out of Slurm's use, and give it back; by root of the node, whom Slurm obeys (SlurmUser, or root).

All functions raise SlurmError where Slurm does not answer, or refuses.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from ...trainyard.slurm.state import fields
from . import commands

# Running, completing, suspended, being configured, staging out, being signalled: all that have processes here, or will.
_STATES = "R,CG,S,CF,SO,SI"


def node_name(proc: Path = Path("/proc")) -> str:
    """Return what Slurm calls this node, "" where no slurmd runs."""
    for entry in proc.iterdir():
        # A process may be gone between two looks.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text(errors="replace").strip() == "slurmd":
                host = socket.gethostname().partition(".")[0]
                return (commands.call(["scontrol", "show", "aliases", host]).split() or [host])[0]
    return ""


def jobs_of(node: str) -> list[str]:
    """Return the numbers of the jobs on a node."""
    return commands.call(["squeue", "-h", "-w", node, "-t", _STATES, "-o", "%i"]).split()


def _record(node: str) -> Mapping[str, str]:
    return fields(" ".join(commands.show("node", node)))


def set_aside(node: str, reason: str, *, check: bool = False) -> bool:
    """Have Slurm give a node no more jobs. One that is drained already stays as it is. Returns whether it was done."""
    if "DRAIN" in _record(node).get("State", ""):
        return False
    if not check:
        commands.call(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])
    return True


def give_back(node: str, reason: str, *, check: bool = False) -> bool:
    """Have Slurm use a node again, if it was drained for this reason. Returns whether it was done."""
    record = _record(node)
    # Slurm puts who and when behind the reason.
    if "DRAIN" not in record.get("State", "") or record.get("Reason", "").partition(" [")[0] != reason:
        return False
    if not check:
        commands.call(["scontrol", "update", f"nodename={node}", "state=resume"])
    return True
