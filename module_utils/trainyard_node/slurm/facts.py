# SPDX-License-Identifier: Apache-2.0
"""Read the facts of a Slurm cluster that decide whether and how a job can run, on a login host."""

from __future__ import annotations

import socket
from typing import Any

from ...trainyard.findings.findings import Finding
from ...trainyard.slurm.state import fields
from .commands import SlurmError, call, show

# Tests whether a folder can be created or written, by its nearest existing parent.
_WRITABLE = 'at=$1; until [ -e "$at" ]; do at=$(dirname "$at"); done; [ -d "$at" ] && [ -w "$at" ]'

_CONFIG = (
    "AccountingStorageType",
    "ClusterName",
    "JobRequeue",
    "KillOnBadExit",
    "MaxJobCount",
    "MinJobAge",
    "MpiDefault",
    "ProctrackType",
    "SchedulerParameters",
    "SelectType",
    "SelectTypeParameters",
    "SlurmdTimeout",
    "TaskPlugin",
)
_PARTITION = (
    "PartitionName",
    "State",
    "Default",
    "MaxTime",
    "MaxNodes",
    "MinNodes",
    "TotalNodes",
    "Nodes",
    "AllowAccounts",
)
_NODE = ("NodeName", "State", "CPUTot", "RealMemory", "Gres", "Partitions", "Reason")


def _config(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() in _CONFIG}


def probe(user: str, folder: str, shared: bool) -> dict[str, Any]:
    """Return `facts`, or {} with `findings`.

    Facts are version, config, partitions and nodes as scontrol shows them, srun's mpi plugins, and folder_writable.
    `folder` holds all jobs; if it is `shared` by all nodes, it may be created later.
    """
    try:
        facts: dict[str, Any] = {
            "version": call(["sinfo", "--version"]).split()[-1],
            "config": _config(call(["scontrol", "show", "config"])),
            "partitions": [{name: one.get(name, "") for name in _PARTITION} for one in map(fields, show("partition"))],
            "nodes": [{name: one.get(name, "") for name in _NODE} for one in map(fields, show("node"))],
        }
    except SlurmError as error:
        expected = "Slurm's commands, and a controller (slurmctld) that answers"
        action = "repair it, or set job_login_host to a host from which jobs are submitted"
        finding = Finding("slurm", str(error), expected, action, host=socket.gethostname())
        return {"facts": {}, "findings": [finding.as_dict()]}
    try:
        facts["mpi"] = call(["srun", "--mpi=list"]).split()
    except SlurmError as error:
        facts["mpi"] = str(error).split()
    # The folder itself may belong to root.
    jobs = f"{folder}/jobs"
    try:
        if shared:
            call(["sh", "-c", _WRITABLE, "sh", jobs], user)
        else:
            call(["test", "-w", jobs, "-o", "!", "-e", jobs], user)
        facts["folder_writable"] = True
    except SlurmError:
        facts["folder_writable"] = False
    return {"facts": facts, "findings": []}
