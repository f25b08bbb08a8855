# SPDX-License-Identifier: Apache-2.0
"""How states, times and sizes are written on pages."""

from __future__ import annotations

from datetime import datetime, timezone

from ..base import checks

_SIGNS = {"pass": "\N{CHECK MARK}", "fail": "\N{BALLOT X}", "unknown": "?", "skipped": "\N{EN DASH}"}
# States of jobs and nodes, by the state of a check that looks like them.
_LIKE = {
    "succeeded": "pass",
    "failed": "fail",
    "timed_out": "fail",
    "lost": "fail",
    "stopped": "skipped",
    "not_asked": "skipped",
    "unreachable": "unknown",
    "running": "skipped",
    "ended": "skipped",
    "other_inventory": "skipped",
}


def shown(state: str) -> dict[str, str]:
    """Return how a state is shown: like which one of checks (its color), its `sign` without colors, its `word`."""
    like = _LIKE.get(state, state)
    word = checks.shown(state).replace("_", " ")
    sign = "\N{BLACK CIRCLE}" if state == "running" else _SIGNS.get(like, "")
    return {"state": state, "like": like, "sign": sign, "word": word}


def utc(seconds: float | None) -> str:
    """Write a time of the epoch as date and time."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def digits(value: float | None) -> str:
    """Write a measured value with four digits; "" for none."""
    return "" if value is None else f"{value:.4g}"
