# SPDX-License-Identifier: Apache-2.0
"""Measure the offset of a node's clock from the controller's, by special readings or by a visit.

A query takes longer than the offsets that matter, so a bare command over the open connection reads the node's clock,
and the controller's clock is read right before and after.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

CLOCK = "date +%s.%N"
READINGS = 3
_SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)


def read_clock(read: Callable[[], tuple[str, str]], readings: int = READINGS) -> dict[str, Any]:
    """Return offset_s and margin_s, or `failed` with the node's output. `read` runs CLOCK there: output and errors.

    The true offset is within half the round trip, so the reading with the shortest round trip is used, as in NTP.
    """
    best: tuple[float, float] | None = None
    for _ in range(readings):
        before = time.time()
        printed, complaint = read()
        after = time.time()
        if not _SECONDS.fullmatch(printed.strip()):
            return {
                "failed": True,
                "msg": f"`{CLOCK}` printed {(printed + complaint)[:260]!r}, which is no number of seconds",
            }
        clock = float(printed)
        margin = (after - before) / 2
        if best is None or margin < best[1]:
            best = (clock - before - margin, margin)
    if best is None:
        return {"failed": True, "msg": "clock_reading: `readings` must be at least 1"}
    return {"offset_s": round(best[0], 4), "margin_s": round(best[1], 4)}


def of_visit(before: float, after: float, begun: float, ended: float) -> dict[str, float]:
    """Return offset_s and margin_s of a visit: sent and answered by our clock, begun and ended by the node's."""
    least, most = ended - after, begun - before
    return {"offset_s": round((least + most) / 2, 4), "margin_s": round(abs(most - least) / 2, 4)}
