# SPDX-License-Identifier: Apache-2.0
"""Action plugin clock_reading: the offset of a node's clock from the controller's, in seconds, with the error margin.

Reports of verify.yml print it as the command that repeats a check. Option: readings (default 3).
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.nodes.clock_offset import CLOCK, READINGS, read_clock
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec({"readings": {"type": "int", "default": READINGS}})

        def read() -> tuple[str, str]:
            answer = self._low_level_execute_command(CLOCK, sudoable=False)
            return str(answer["stdout"]), str(answer.get("stderr", ""))

        return {**result, "changed": False, **read_clock(read, arguments["readings"])}
