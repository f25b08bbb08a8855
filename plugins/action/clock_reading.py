# SPDX-License-Identifier: Apache-2.0
"""Action plugin clock_reading: how far a node's clock is from the controller's, in seconds, with the error margin.

Ansible's own work around a module takes longer than the offsets that matter, so the clock is read by a bare command
over the open connection and the controller's clock is taken right before and after. The true offset lies within plus
or minus half the round trip; of several readings the one with the shortest round trip is kept (as NTP does).
"""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Read the clock a few times. Arguments: readings (default 3)."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return offset_s and margin_s, or fail with what the node answered."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec({"readings": {"type": "int", "default": 3}})
        best: tuple[float, float] | None = None
        for _ in range(arguments["readings"]):
            before = time.time()
            answer = self._low_level_execute_command("date +%s.%N", sudoable=False)
            after = time.time()
            try:
                clock = float(answer["stdout"].strip())
            except ValueError:
                said = f"{answer['stdout']!r} {answer.get('stderr', '')!r}"
                result.update(failed=True, msg=f"`date +%s.%N` answered {said}, expected seconds")
                return result
            margin = (after - before) / 2
            if best is None or margin < best[1]:
                best = (clock - before - margin, margin)
        if best is None:
            result.update(failed=True, msg="clock_reading: `readings` must be at least 1")
            return result
        result.update(changed=False, offset_s=round(best[0], 4), margin_s=round(best[1], 4))
        return result
