# SPDX-License-Identifier: Apache-2.0
"""List the runs of this controller, or compare two of its jobs. Documentation: library/job_list.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.run_list import Inventory, compare_jobs, list_runs


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        runs_dir = Path(given.pop("runs_dir"))
        if compared := given.pop("compare"):
            return {"text": compare_jobs(runs_dir, compared)}
        nodes = self.fan_out()
        ask = nodes.ask if given.pop("ask_nodes") else None
        return list_runs(runs_dir, ask, given, Inventory(inventory_given(), nodes.knows))
