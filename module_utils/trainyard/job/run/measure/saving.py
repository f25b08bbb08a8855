# SPDX-License-Identifier: Apache-2.0
"""Tell who saved before the end: the time between the stop signal and the end of the ranks. Times are seconds.

Each node reports of its programs that handle the signal (asked_shape); the head joins the reports (SAVING).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....base.shapes import (
    DURATION,
    MAYBE_DURATION,
    MAYBE_INT,
    MAYBE_TEXT,
    NOTHING,
    Each,
    Exact,
    Few,
    Shape,
    Text,
    Whole,
)
from ....base.spans import named_ranks

# Upper bounds of a node's report: ranks that are named, programs that are counted.
MAX_NAMED, _MAX_ASKED = 64, 1 << 20
SAVING = {
    "signal": Text(16),
    "grace_s": DURATION,
    "asked": int,
    **dict.fromkeys(("host", "before", "after"), MAYBE_TEXT),
    "rank": MAYBE_INT,
    "last_s": MAYBE_DURATION,
    "stayed": Each([int]),
}


def grace_s(plan: Mapping[str, Any]) -> float:
    """Return how long the ranks of a job may take to save; 0 by a plan of a version that gave them no time."""
    return float((plan.get("stop") or {}).get("grace_s", 0))


def asked_shape(world_size: int) -> Shape:
    """Return the shape of a node's report: programs that were asked, the rank that left last, ranks that stayed."""
    rank = Whole(world_size - 1)
    stayed = Few(rank, MAX_NAMED)
    return Exact({"asked": Whole(_MAX_ASKED), "last": (rank, NOTHING), "last_s": MAYBE_DURATION, "stayed": stayed})


def joined(
    stop: Mapping[str, Any], asked: Mapping[str, Mapping[str, Any]], before: str | None, after: str | None
) -> dict[str, Any] | None:
    """Join the reports of nodes by host; None where no rank handles the signal, or none gets time.

    `stop` is that of the plan; `before` and `after` are the newest checkpoints at the signal and at the end.
    """
    if not asked or not stop:
        return None
    left = {host: each for host, each in asked.items() if each["last_s"] is not None}
    last = max(left, key=lambda host: float(left[host]["last_s"]), default=None)
    return {
        "signal": stop["signal"],
        "grace_s": float(stop["grace_s"]),
        "asked": sum(each["asked"] for each in asked.values()),
        "host": last,
        "rank": left[last]["last"] if last else None,
        "last_s": left[last]["last_s"] if last else None,
        "stayed": {host: list(each["stayed"]) for host, each in asked.items() if each["stayed"]},
        "before": before,
        "after": after,
    }


def lines(saving: Mapping[str, Any] | None, watched: bool) -> list[str]:
    """Return in words who left in time, and whether a checkpoint was saved, if these are `watched`."""
    if not saving:
        return []
    asked, signal = saving["asked"], f"SIG{saving['signal']}" if saving["signal"] else "the signal"
    one = f"{asked} rank{'s' if asked > 1 else ''}"
    text = f"time to save: {one} handled {signal}"
    if saving["last_s"] is not None:
        text += f"; the last to leave was rank {saving['rank']} on {saving['host']}, after {saving['last_s']:g} s"
    if watched:
        new = saving["after"] is not None and saving["after"] != saving["before"]
        text += f"; new checkpoint: {saving['after']}" if new else "; no new checkpoint"
    limit = f"did not leave within {saving['grace_s']:g} s (job_stop_grace), and had to be ended"
    stayed = [f"{named_ranks(ranks)} on {host} {limit}" for host, ranks in saving["stayed"].items()]
    return [text, *stayed]
