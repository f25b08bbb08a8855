# SPDX-License-Identifier: Apache-2.0
"""Keep what a cluster's hosts were, were changed to, and are to be. Documentation: library/site_nodes.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.base.findings import FindingsError
from ansible.module_utils.trainyard.nvidia.upgrade import table_text
from ansible.module_utils.trainyard.slurm.configuration import ClusterSettings, nodes_of
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.cluster.removing import keep, take_off
from ansible.module_utils.trainyard_controller.cluster.slurm_files import slurm_files
from ansible.module_utils.trainyard_controller.cluster.upgrade_table import folder_of, note, read_table
from ansible.module_utils.trainyard_controller.runs import topologies


class ActionModule(Steps):
    def record(self, hosts: list[str], state: str) -> dict[str, Any]:
        if not self._task.check_mode:
            keep(self, hosts, begin=state == "open")
        return {}

    def remove(self, hosts: list[str], data: bool = DOCUMENTED) -> dict[str, Any]:
        text, changed = take_off(self, hosts, data=data, check=self._task.check_mode)
        self._display.display(text)
        return {"text": text, "changed": changed}

    def upgrade_table(
        self, runs: str, cluster: str, entries: dict[str, Any] = DOCUMENTED, batches: list[list[str]] = DOCUMENTED
    ) -> dict[str, Any]:
        folder = folder_of(Path(runs), cluster)
        if self._task.check_mode:
            table = {**read_table(folder), **entries}
        else:
            table = note(folder, entries, batches) if entries else read_table(folder)
        return {"table": table, "text": table_text(table, batches, entries or None), "folder": str(folder)}

    def slurm(
        self, settings: dict[str, Any], nodes: list[dict[str, Any]], runs: str, topology: str = DOCUMENTED
    ) -> dict[str, Any]:
        known = nodes_of(nodes)
        sources, hosts = self.task_vars.get("ansible_inventory_sources") or (), [node["host"] for node in known]
        found = topologies.known(topology, Path(runs).expanduser(), sources, hosts)
        if found and found["source"] == "pairs":
            # Measured groups may differ with each verification, and each difference starts Slurm's daemons again.
            found = None
        files, findings = slurm_files(ClusterSettings(**settings), known, found)
        if findings:
            raise FindingsError(findings, "{count} {findings}: there is no configuration for Slurm.")
        return {"files": files}
