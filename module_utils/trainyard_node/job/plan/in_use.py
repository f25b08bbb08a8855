# SPDX-License-Identifier: Apache-2.0
"""Find what uses this node: our jobs, jobs of Slurm, processes that have an NVIDIA GPU open.

A process that uses a GPU has its device file open, which shows even if the driver does not answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from ....trainyard.hardware.device_processes import NAME_BYTES, SERVICES
from ...slurm import set_aside
from ..run import job_life
from ..run.evidence import device_holders
from ..run.ranks import process_table

# k3s and RKE2 include a kubelet.
_KUBELETS = ("kubelet", "k3s-server", "k3s-agent", "rke2")
_MAX_USES = 8


def holders(services: Collection[str], proc: Path = Path(process_table.PROC)) -> dict[int, str]:
    """Return the programs that have an NVIDIA GPU open, by process id; `services` are programs that do not count."""
    ignored = {name[:NAME_BYTES] for name in (*SERVICES, *services)}
    found = {}
    for pid in process_table.pids(proc):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            if device_holders.opened(pid, device_holders.NVIDIA, proc):
                found[pid] = process_table.name(pid, proc)
    return {pid: name for pid, name in found.items() if name and name not in ignored}


def has_kubelet(proc: Path = Path(process_table.PROC)) -> bool:
    """Return whether this node runs a kubelet."""
    return any(process_table.name(pid, proc) in _KUBELETS for pid in process_table.pids(proc))


def read_uses(jobs: Path, services: Collection[str]) -> tuple[list[str], str]:
    """Return the uses of this node as texts, and its name in Slurm. Raises SlurmError if Slurm does not answer."""
    node = set_aside.node_name()
    known: set[int] = set()
    uses = []
    for folder in job_life.list_folders(jobs):
        if folder["running"]:
            uses.append(f"job {folder['job_id']}")
            known.update(job_life.running(Path(folder["job_dir"]), folder["job_id"]))
    uses += [f"job {number} of Slurm" for number in (set_aside.jobs_of(node) if node else ())]
    uses += [f"{name} (process {pid})" for pid, name in sorted(holders(services).items()) if pid not in known]
    return device_holders.few(uses, _MAX_USES), node
