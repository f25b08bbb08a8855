# SPDX-License-Identifier: Apache-2.0
"""Find slow nodes by measurements of pairs. Documentation: library/pair_stragglers.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.measurements import verify_pairs


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        return verify_pairs(
            given["hosts"],
            Path(given["run_dir"]) if given["run_dir"] else None,
            given["schedule"],
            given["measured"],
            refused=given["refused"],
            expected=given["expected"],
            tolerance=given["tolerance"],
            inventory=given["inventory"],
        )
