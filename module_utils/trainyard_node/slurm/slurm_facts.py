# SPDX-License-Identifier: Apache-2.0
"""Read the facts of a Slurm cluster that decide whether and how a job can run, on a login host."""

from __future__ import annotations

import socket
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.slurm.slurm_state import fields
from .slurm_commands import SlurmError, call, show

# Tests whether a folder can be created or written, by its nearest existing parent.
_WRITABLE = 'at=$1; until [ -e "$at" ]; do at=$(dirname "$at"); done; [ -d "$at" ] && [ -w "$at" ]'

_FIELDS = {
    "partition": ("PartitionName", "State", "Default", "MaxTime", "MaxNodes", "TotalNodes"),
    "node": ("NodeName", "State", "CPUTot", "Gres", "Partitions", "Reason"),
}


def _records(kind: str) -> list[dict[str, str]]:
    return [{name: record.get(name, "") for name in _FIELDS[kind]} for record in map(fields, show(kind))]


def probe(user: str, folder: str, shared: bool) -> dict[str, Any]:
    """Return `facts`, or {} with `findings`.

    Facts are version, partitions and nodes as scontrol shows them, and folder_writable.
    `folder` holds all jobs; if it is `shared` by all nodes, it may be created later.
    """
    try:
        version = call(["sinfo", "--version"]).split()[-1]
        facts: dict[str, Any] = {"version": version, "partitions": _records("partition"), "nodes": _records("node")}
    except SlurmError as error:
        expected = "Slurm's commands, and a controller (slurmctld) that answers"
        action = "repair it, or set job_login_host to a host from which jobs are submitted"
        finding = Finding("slurm", str(error), expected, action, host=socket.gethostname())
        return {"facts": {}, "findings": [finding.as_dict()]}
    # The folder itself may belong to root. In a shared one, each host of a job has a folder of its own.
    jobs = f"{folder}/hosts" if shared else f"{folder}/jobs"
    try:
        call(["sh", "-c", _WRITABLE, "sh", jobs] if shared else ["test", "-w", jobs, "-o", "!", "-e", jobs], user)
    except SlurmError:
        return {"facts": {**facts, "folder_writable": False}, "findings": []}
    return {"facts": {**facts, "folder_writable": True}, "findings": []}
