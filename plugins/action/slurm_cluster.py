# SPDX-License-Identifier: Apache-2.0
"""Render the configuration of a Slurm cluster. Documentation: library/slurm_cluster.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, nodes_of
from ansible.module_utils.trainyard_controller.action_plugin import OnController
from ansible.module_utils.trainyard_controller.slurm_files import slurm_files

SPEC = {
    "name": {"type": "str", "required": True},
    "controller": {"type": "str", "required": True},
    "controller_address": {"type": "str", "required": True},
    "confinement": {"type": "str", "choices": ["cgroup", "none"], "default": "cgroup"},
    "partition": {"type": "str", "default": "train"},
    "node_timeout": {"type": "int", "default": 60},
    "requeue_wait": {"type": "int", "default": 120},
    "health_program": {"type": "str", "default": ""},
    "epilog": {"type": "str", "default": ""},
    "health_interval": {"type": "int", "default": 300},
    "nodes": {"type": "list", "elements": "dict", "required": True},
}
# Those in seconds.
FIELDS = {name: f"{name}_s" for name in ("node_timeout", "requeue_wait", "health_interval")}


class ActionModule(OnController):
    """All of it in this process: no machine is touched."""

    spec = SPEC

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return `files`."""
        settings = {FIELDS.get(name, name): value for name, value in given.items() if name != "nodes"}
        files, findings = slurm_files(ClusterSettings(**settings), nodes_of(given["nodes"]))
        if findings:
            raise FindingsError(findings, "{count} {findings}: there is no configuration for Slurm.")
        return {"files": files}
