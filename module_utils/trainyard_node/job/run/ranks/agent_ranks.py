# SPDX-License-Identifier: Apache-2.0
"""Read how the ranks under an agent (torchrun's, msrun) ended, as the agent has noted (agent_process.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....trainyard.base.shapes import misfit
from .....trainyard.job.run.logs.failure_kinds import EXIT
from .....trainyard.job.run.logs.failures import first_failure
from .rank_exits import Exit


def noted(process: Mapping[str, Any], exits: Mapping[str, Exit]) -> dict[int, Exit]:
    """Return how the ranks of an agent ended, by rank, from read_exits(), which the ranks may have forged."""
    found = {rank: exits.get(f"rank{rank}") for rank in process["ranks"]} if process["name"] == "agent" else {}
    return {rank: ended for rank, ended in found.items() if ended is not None and not misfit(ended, EXIT)}


def left(ends: Mapping[int, Exit]) -> dict[int, float]:
    """Return when ranks ended with status 0 by themselves."""
    well = {rank: ended for rank, ended in ends.items() if ended["result"] == "success"}
    return {rank: ended["time"] for rank, ended in well.items() if not ended.get("by_agent")}


def cause(ends: Mapping[int, Exit]) -> dict[str, Any] | None:
    """Return the exit of the rank to blame; None where none failed by itself."""
    failed = [
        {"rank": rank, **{key: ended[key] for key in ("exit_code", "signal", "time")}}
        for rank, ended in ends.items()
        if ended["result"] != "success" and not ended.get("by_agent")
    ]
    return first_failure(failed)
