# SPDX-License-Identifier: Apache-2.0
"""Choose which pairs of nodes are measured in which round. Documentation: library/pair_schedule.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import OnController
from ansible.module_utils.trainyard_controller.measurements import prepare_pairs

SPEC = {
    "hosts": {"type": "list", "elements": "str", "required": True},
    "rounds": {"type": "str", "default": "2"},
    "schedule": {"type": "list", "elements": "list", "default": []},
    "source": {"type": "path", "required": True},
}


class ActionModule(OnController):
    """All of it in this process: no machine is touched."""

    spec = SPEC

    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return `rounds` and `source`."""
        rounds, source = prepare_pairs(given["hosts"], given["rounds"], given["schedule"], Path(given["source"]))
        return {"changed": bool(source), "rounds": rounds, "source": source}
