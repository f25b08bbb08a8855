# SPDX-License-Identifier: Apache-2.0
"""Find out when a rank has failed whose exit its launcher does not know yet (trainyard/job/launchers/held_exit.py).

Times are seconds since the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .....trainyard.job.run.logs import failures
from ....machine.json_files import end_of

# Bytes of a launcher's log that are read.
_READ = 1 << 20


class HeldExits:
    """The launcher's log of this node, which names ranks that hold their exits back; read when it has grown."""

    def __init__(self, node_plan: Mapping[str, Any]) -> None:
        """Take the node plan, whose processes may change."""
        self._node_plan = node_plan
        # The size of the log when the attempt began, and when it was last read.
        self._before = self._size = 0
        self._failed_at: float | None = None

    def begin_attempt(self) -> None:
        """Begin another attempt: what is in the log by now is of earlier ones."""
        self._before = self._size = _size_of(self._log())
        self._failed_at = None

    def _log(self) -> str:
        starter = "agent" if self._node_plan.get("launcher") == "oneflow" else "mpirun"
        return next((each["log"] for each in self._node_plan["processes"] if each["name"] == starter), "")

    def failed_at(self, process: Mapping[str, Any]) -> float | None:
        """Return when a rank of this process was first seen to hold its exit back; None where none does."""
        if process["log"] != self._log():
            return None
        size = _size_of(process["log"])
        if self._failed_at is None and size != self._size:
            self._size = size
            if failures.holds_exit(end_of(process["log"], max(0, min(size - self._before, _READ)))):
                self._failed_at = time.time()
        return self._failed_at


def _size_of(log: str) -> int:
    try:
        return Path(log).stat().st_size
    except OSError:
        return 0
