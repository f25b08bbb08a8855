# SPDX-License-Identifier: Apache-2.0
"""How far a node's clock is from the controller's: by readings that are made for it, or by what a visit shows.

Whatever goes around a question takes longer than the offsets that matter, so the clock is read by a bare command over
the open connection, and the controller's right before and after.
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
    """Return offset_s and margin_s, or `failed` with what the node said. `read` runs CLOCK there: output and errors.

    The true offset lies within plus or minus half the round trip; of several readings the one with the shortest round
    trip is kept (as NTP does).
    """
    best: tuple[float, float] | None = None
    for _ in range(readings):
        before = time.time()
        printed, complaint = read()
        after = time.time()
        if not _SECONDS.fullmatch(printed.strip()):
            said = f"{printed[:60]!r} {complaint[:200]!r}"
            return {"failed": True, "msg": f"`{CLOCK}` answered {said}, expected seconds"}
        clock = float(printed)
        margin = (after - before) / 2
        if best is None or margin < best[1]:
            best = (clock - before - margin, margin)
    if best is None:
        return {"failed": True, "msg": "clock_reading: `readings` must be at least 1"}
    return {"offset_s": round(best[0], 4), "margin_s": round(best[1], 4)}


def of_visit(before: float, after: float, begun: float, ended: float) -> dict[str, float]:
    """Return offset_s and margin_s by one visit: sent and answered by our clock, begun and ended by the node's."""
    least, most = ended - after, begun - before
    return {"offset_s": round((least + most) / 2, 4), "margin_s": round(abs(most - least) / 2, 4)}
