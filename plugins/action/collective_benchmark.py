# SPDX-License-Identifier: Apache-2.0
"""Check a benchmark of collectives, of a run or of a file. Documentation: library/collective_benchmark.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import OnController
from ansible.module_utils.trainyard_controller.measurements import benchmarks

SPEC = {
    "parse": {"type": "path"},
    "run_dir": {"type": "path"},
    "refused": {"type": "list", "elements": "dict", "default": []},
    "facts": {"type": "path"},
    "each_node": {"type": "bool", "default": False},
    "job_id": {"type": "str", "default": ""},
    "collective": {"type": "str", "default": ""},
    "backend": {"type": "str", "default": ""},
    "expected_ranks": {"type": "int"},
    "expected_hosts": {"type": "list", "elements": "str"},
    "nodes": {"type": "list", "elements": "dict", "default": []},
    "expected_busbw": {"type": "float"},
    "fraction": {"type": "float", "default": 0.9},
    "baseline": {"type": "path"},
    "save_baseline": {"type": "bool", "default": False},
    "traffic_before": {"type": "list", "elements": "dict", "default": []},
    "traffic_after": {"type": "list", "elements": "dict", "default": []},
}
RULES = {"mutually_exclusive": [("parse", "run_dir"), ("parse", "each_node")]}


class ActionModule(OnController):
    """All of it in this process: no machine is touched."""

    spec = SPEC
    rules = RULES

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return `benchmarks`, `text`, and with save_baseline what became of the `baseline`; or `findings` alone."""
        return benchmarks(given, check=self._task.check_mode)
