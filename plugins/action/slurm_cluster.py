# SPDX-License-Identifier: Apache-2.0
"""Render the configuration of a Slurm cluster. Documentation: library/slurm_cluster.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.record.findings import render
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings
from ansible.module_utils.trainyard_controller.slurm_files import slurm_files
from ansible.plugins.action import ActionBase

ARGUMENTS = {
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


class ActionModule(ActionBase):
    """All of it in this process: no machine is touched."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `files`, or fail with all findings."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(ARGUMENTS)
        nodes = given.pop("nodes")
        settings = ClusterSettings(**{FIELDS.get(name, name): value for name, value in given.items()})
        files, findings = slurm_files(settings, nodes)
        if findings:
            said = render(findings, "{count} {findings}: there is no configuration for Slurm.")
            return {**result, "failed": True, "msg": said}
        return {**result, "changed": False, "files": files}
