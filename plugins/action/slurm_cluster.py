# SPDX-License-Identifier: Apache-2.0
"""Render the configuration of a Slurm cluster. Documentation: library/slurm_cluster.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, nodes_of
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.slurm_files import slurm_files

# Options in seconds.
FIELDS = {name: f"{name}_s" for name in ("node_timeout", "requeue_wait", "health_interval")}


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        settings = {FIELDS.get(name, name): value for name, value in given.items() if name != "nodes"}
        files, findings = slurm_files(ClusterSettings(**settings), nodes_of(given["nodes"]))
        if findings:
            raise FindingsError(findings, "{count} {findings}: there is no configuration for Slurm.")
        return {"files": files}
