# SPDX-License-Identifier: Apache-2.0
"""Decide what happens next in a run of the drill, from the state that the job's head reports (cluster.json)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .drill_settings import Drill

WAIT, KILL, DONE = "wait", "kill", "done"


class Goal(NamedTuple):
    """Until which step a run is watched, and what is killed in it: nothing, a `rank` or the processes of a `node`."""

    until: int
    kill: str = ""
    # No kill before this step, so that there are steps to compare before it.
    kill_from: int = 0


def of_run(run: str, drill: Drill) -> Goal:
    """Return the goal of a run."""
    if run in ("rank", "node"):
        return Goal(drill.steps, run, drill.steps // 4)
    return Goal(drill.half if run == "stopped" else drill.steps)


def decide(goal: Goal, cluster: Mapping[str, Any], killed: bool) -> str:
    """Return what to do: wait, kill, or be done.

    A kill needs a complete checkpoint, and after it a step of the next attempt.
    """
    metrics = cluster.get("metrics") or {}
    step = metrics.get("step")
    if cluster.get("end"):
        return DONE
    if step is None:
        return WAIT
    if killed:
        restarts = cluster.get("restarts") or {}
        again = any(each.get("first_step") is not None for each in restarts.get("history") or ())
        return DONE if again and step >= goal.until else WAIT
    if step >= goal.until:
        return DONE
    saved = (cluster.get("checkpoints") or {}).get("newest")
    return KILL if goal.kill and saved and step >= goal.kill_from else WAIT


def unread(cluster: Mapping[str, Any]) -> bool:
    """Return whether the program prints lines of which no progress is read."""
    step = (cluster.get("metrics") or {}).get("step")
    return step is None and bool((cluster.get("printing") or {}).get("unread"))
