# SPDX-License-Identifier: Apache-2.0
"""Say which hosts share the folders of a job, and find those that must, or must not, be shared.

Nodes may share the folder of jobs: each writes below its own name there (record/folder_layout.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ...base.findings import Finding, Warned, host_list
from ...cluster.sharing import MAX_FOLDERS, Sharing, of_folders
from ..file.job import Job
from ..launchers import LAUNCHERS
from ..placement.placement import Placement

STATE, CHECKPOINTS = "trainyard_state", "job_checkpoints"


def folders(job: Job, placement: Placement) -> list[tuple[str, str]]:
    """Return the folders of a job on its nodes, each with its variable; none where only one host takes part.

    A working copy of job_source, and outputs and checkpoints below it, lie in the folder of jobs.
    """
    if len(placement.everyone) < 2:
        return []
    job_dir = PurePosixPath(placement.job_dir)
    environment = [("job_venv", placement.venv)] if placement.venv and not job.image else []
    saved = [(CHECKPOINTS, _folder_of(str(job_dir / job.restarts.checkpoints)))] if job.restarts.checkpoints else []
    outputs = [("job_outputs", _folder_of(each)) for each in job.outputs if each.startswith("/")]
    found = [(STATE, str(job_dir.parent)), *environment, *saved, *outputs, *(("job_data", each) for each in job.data)]
    return [*dict.fromkeys(found)][:MAX_FOLDERS]


def _folder_of(pattern: str) -> str:
    """Return the folder of a pattern, up to its first part with a `*`, `?` or `[`."""
    parts = PurePosixPath(pattern).parts
    plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    return str(PurePosixPath(*parts[:plain]))


def judge(
    job: Job, placement: Placement, asked: Sequence[tuple[str, str]], answers: Mapping[str, Mapping[str, Any]]
) -> tuple[list[dict[str, str]], list[Finding]]:
    """Return what plan.json has of the folders that were `asked` for, and findings and warnings.

    `answers` has those of each host by folder.
    """
    hosts = [node.host for node in placement.everyone]
    found = of_folders(hosts, [path for _, path in asked], answers)
    findings: list[Finding] = []
    for name, path in asked:
        if name == STATE and LAUNCHERS[job.launcher].starts_by_ssh(job, placement) and job.launcher == "mpirun":
            findings += _started_by_ssh(path, found[path])
        elif name == CHECKPOINTS:
            findings += _apart(job, placement, path, found[path])
    return [{"variable": name, "path": path, "hosts": found[path].text()} for name, path in asked], findings


def _started_by_ssh(path: str, sharing: Sharing) -> list[Finding]:
    """Find hosts whose ranks could not know which node's part of a shared folder is theirs (launchers/mpirun.py)."""
    expected = "a folder of each host alone where job_mpi_parameters have mpirun start its daemons by ssh"
    action = "leave plm_rsh_agent and plm_rsh_args out of job_mpi_parameters, or set trainyard_state to a local folder"
    return [Finding(STATE, f"{host_list(group)} share {path}", expected, action) for group in sharing.shared]


def _apart(job: Job, placement: Placement, path: str, sharing: Sharing) -> list[Finding]:
    """Find a spare, or with job_min_nodes another node, that does not see what rank 0 saves."""
    first, others = placement.nodes[0].host, placement.everyone if job.restarts.min_nodes else placement.spares
    blind = [host for host in sharing.apart_from(first) if host in {node.host for node in others}]
    if not blind:
        return []
    found = f"{path} of {first}, where rank 0 saves, is not the one of {host_list(blind)}"
    expected = "a folder that all of them share: a host that takes the place of another resumes from these checkpoints"
    action = "name a folder on a shared disk, or have each rank go on from what others have saved"
    return [Warned(CHECKPOINTS, found, expected, action)]


def lines(records: Sequence[Mapping[str, str]]) -> list[str]:
    """Write the folders of plan.json for reading."""
    return [f"{each['path']} ({each['variable']}): {each['hosts']}" for each in records]
