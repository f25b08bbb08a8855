# SPDX-License-Identifier: Apache-2.0
"""Compare two reports of a verification. Documentation: library/report_compare.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.inventory_options import inventory_named
from ansible.module_utils.trainyard_controller.report_compare import compare_reports


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        before, after, runs = (Path(given[name]) if given[name] else None for name in ("before", "after", "runs"))
        return {"comparison": compare_reports(before, after, runs, given["tolerance"], inventory_named())}
