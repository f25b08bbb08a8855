#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what a Slurm cluster is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_info
short_description: Read what a Slurm cluster is, from a host that submits
description:
  - Returns the version, the parts of the configuration that decide about a job, partitions and nodes.
  - Never fails; where Slurm does not answer, that is a finding.
version_added: "0.1.0"
options:
  user:
    description: The training user.
    type: str
    default: ""
  folder:
    description: Folder below which jobs have theirs.
    type: path
    default: ""
  shared:
    description: >-
      Whether the nodes share O(folder) with this host, so that it says also what can be made there. Otherwise a folder
      that this host lacks is no fault: the nodes have their own.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Ask Slurm what it is
  slurm_info:
  register: slurm
"""

RETURN = r"""
facts:
  description: C(version), C(config), C(partitions) and C(nodes) as scontrol shows them, C(mpi) plugins of srun.
  returned: always
  type: dict
findings:
  description: Why there are no facts, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
"""

import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.findings import Finding
from ansible.module_utils.trainyard.slurm_state import fields
from ansible.module_utils.trainyard_node.slurm import SlurmError, call, show

# Whether a folder can be made or written: the nearest one above it that exists decides.
_WRITABLE = 'at=$1; until [ -e "$at" ]; do at=$(dirname "$at"); done; [ -d "$at" ] && [ -w "$at" ]'

# Of some hundred values, those that decide whether and how a job runs.
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


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "default": ""},
            "folder": {"type": "path", "default": ""},
            "shared": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    user = module.params["user"]
    try:
        version = call(["sinfo", "--version"]).split()[-1]
        config = dict(
            (part.strip() for part in line.split("=", 1))
            for line in call(["scontrol", "show", "config"]).splitlines()
            if line.count("=") and line.split("=", 1)[0].strip() in _CONFIG
        )
        facts = {
            "version": version,
            "config": config,
            "partitions": [{name: one.get(name, "") for name in _PARTITION} for one in map(fields, show("partition"))],
            "nodes": [{name: one.get(name, "") for name in _NODE} for one in map(fields, show("node"))],
        }
    except SlurmError as error:
        finding = Finding(
            socket.gethostname(),
            "slurm",
            str(error),
            "Slurm's commands, and a controller (slurmctld) that answers",
            "repair it, or name a host with job_login_host from which jobs are submitted",
        )
        module.exit_json(changed=False, facts={}, findings=[finding.as_dict()])
    try:
        facts["mpi"] = call(["srun", "--mpi=list"]).split()
    except SlurmError as error:
        facts["mpi"] = str(error).split()
    folder = module.params["folder"]
    try:
        if module.params["shared"]:
            call(["sh", "-c", _WRITABLE, "sh", f"{folder}/jobs"], user)
        else:
            call(["test", "-w", folder, "-o", "!", "-e", folder], user)
        facts["folder_writable"] = True
    except SlurmError:
        facts["folder_writable"] = False
    module.exit_json(changed=False, facts=facts, findings=[])


if __name__ == "__main__":
    main()
