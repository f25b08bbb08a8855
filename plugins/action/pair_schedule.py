# SPDX-License-Identifier: Apache-2.0
"""Choose which pairs of nodes are measured in which round. Documentation: library/pair_schedule.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.measurements import prepare_pairs


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        rounds, source = prepare_pairs(given["hosts"], given["rounds"], given["schedule"], Path(given["source"]))
        return {"changed": bool(source), "rounds": rounds, "source": source}
