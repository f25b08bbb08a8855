# SPDX-License-Identifier: Apache-2.0
"""Check a benchmark of collectives, of a run or of a file. Documentation: library/collective_benchmark.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.ansible.action_plugin import Documented
from ansible.module_utils.trainyard_controller.verify.measurements import benchmarks

RULES = {"mutually_exclusive": [("parse", "run_dir"), ("parse", "each_node")]}


class ActionModule(Documented):
    rules = RULES

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        return benchmarks(given, check=self._task.check_mode)
