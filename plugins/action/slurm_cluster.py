# SPDX-License-Identifier: Apache-2.0
"""Render the configuration of a Slurm cluster. Documentation: library/slurm_cluster.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, nodes_of
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.slurm_files import slurm_files


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        files, findings = slurm_files(ClusterSettings(**given["settings"]), nodes_of(given["nodes"]))
        if findings:
            raise FindingsError(findings, "{count} {findings}: there is no configuration for Slurm.")
        return {"files": files}
