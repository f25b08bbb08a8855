# SPDX-License-Identifier: Apache-2.0
"""Drain this node in Slurm and resume it, as root of the node. All functions may raise SlurmError."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from ...trainyard.slurm.slurm_state import fields
from . import slurm_commands

# States of jobs with processes: running, completing, suspended, configuring, staging out, being signalled.
_STATES = "R,CG,S,CF,SO,SI"


def node_name(proc: Path = Path("/proc")) -> str:
    """Return the name of this node in Slurm, "" where no slurmd runs."""
    for entry in proc.iterdir():
        # The process may have ended meanwhile.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "comm").read_text(errors="replace").strip() == "slurmd":
                host = socket.gethostname().partition(".")[0]
                return (slurm_commands.call(["scontrol", "show", "aliases", host]).split() or [host])[0]
    return ""


def jobs_of(node: str) -> list[str]:
    """Return the numbers of the jobs on a node."""
    return slurm_commands.call(["squeue", "-h", "-w", node, "-t", _STATES, "-o", "%i"]).split()


def _record(node: str) -> Mapping[str, str]:
    return fields(" ".join(slurm_commands.show("node", node)))


def set_aside(node: str, reason: str, *, check: bool = False) -> bool:
    """Drain a node, unless it is drained already. Returns whether it changed."""
    if "DRAIN" in _record(node).get("State", ""):
        return False
    if not check:
        slurm_commands.call(["scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}"])
    return True


def give_back(node: str, reason: str, *, check: bool = False) -> bool:
    """Resume a node if it was drained for this reason. Returns whether it changed."""
    record = _record(node)
    # Slurm appends user and time to the reason.
    if "DRAIN" not in record.get("State", "") or record.get("Reason", "").partition(" [")[0] != reason:
        return False
    if not check:
        slurm_commands.call(["scontrol", "update", f"nodename={node}", "state=resume"])
    return True
