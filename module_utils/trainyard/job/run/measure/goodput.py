# SPDX-License-Identifier: Apache-2.0
"""Compute goodput: the share of a job's time that went into steps that count, and the cost of each restart.

The source is the steps that a rank prints, with the time at which each was read. Each attempt has a pace:

    {"first", "last"          the first and the last step that it printed
     "first_s", "last_s"      when they were read, in s since the start of the monitor of its node
     "first_epoch", "last_epoch"
     "lines"                  how many steps it printed
     "rising"                 each was later than the one before
     "over"                   steps went on over the end of an epoch, so that they count through the whole run
     "no_number"              how many of these lines had a loss that was not a number}

docs/restarts.md defines each figure. A figure that a pace does not tell for sure is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....base.shapes import DURATION, misfit
from ..logs.progress import number

# Upper bound for steps, as a rank may print anything.
MAX_STEPS = 1e15

Pace = Mapping[str, Any]


def follow(pace: Pace | None, metrics: Mapping[str, float | None], elapsed_s: float) -> Pace | None:
    """Take the metrics of one line into the pace of an attempt, which begins with None."""
    step, epoch = metrics.get("step"), metrics.get("epoch")
    if step is None or not 0 <= step < MAX_STEPS:
        return pace
    last = {"last": step, "last_s": elapsed_s, "last_epoch": epoch}
    lost = "loss" in metrics and metrics["loss"] is None
    if pace is None:
        first = {"first": step, "first_s": elapsed_s, "first_epoch": epoch}
        return {**first, **last, "lines": 1, "rising": True, "over": False, "no_number": int(lost)}
    if step == pace["last"]:
        return pace
    over = epoch is not None and pace["last_epoch"] is not None and epoch > pace["last_epoch"] and step > pace["last"]
    return {
        **pace,
        **last,
        "lines": pace["lines"] + 1,
        "rising": pace["rising"] and step > pace["last"],
        "over": pace["over"] or over,
        "no_number": pace["no_number"] + int(lost),
    }


def _stride(pace: Pace) -> float | None:
    """Return the number of steps between two printed ones."""
    return (pace["last"] - pace["first"]) / (pace["lines"] - 1) if pace["lines"] > 1 and pace["rising"] else None


def step_s(pace: Pace) -> float | None:
    """Return how many seconds a step takes."""
    steps = pace["last"] - pace["first"]
    return max(0.0, pace["last_s"] - pace["first_s"]) / steps if steps > 0 and pace["rising"] else None


def left_s(pace: Pace | None, steps: float | None) -> float | None:
    """Return how many seconds the rest of `steps` takes; None where that is not known.

    Steps of a program that prints epochs, and has not ended one, may begin again with the next.
    """
    one_s = step_s(pace) if pace else None
    if not pace or one_s is None or steps is None or (pace["last_epoch"] is not None and not pace["over"]):
        return None
    left = round((steps - float(pace["last"])) * one_s, 1)
    # After the last step nobody knows. A rank may print any number of steps.
    return None if left <= 0 or misfit(left, DURATION) else left


def _resumed(pace: Pace, others: Sequence[Pace]) -> float:
    """Return the step after which an attempt began: one stride before the first that it printed.

    A stride that is no whole number is the mean of several, as of programs that print their first step at once, and
    then each tenth: they began one step before it.
    """
    strides = [stride for each in (pace, *others) for stride in [_stride(each)] if stride is not None]
    whole = strides and float(strides[0]).is_integer()
    return max(0.0, float(pace["first"]) - (strides[0] if whole else 1.0))


def _comparable(old: Pace, new: Pace) -> bool:
    """Return whether steps of two attempts count from the same start: not where they begin again with each epoch."""
    if not (old["rising"] and new["rising"]) or new["first_s"] < old["last_s"]:
        return False
    return old["last_epoch"] == new["first_epoch"] or bool(old["over"] or new["over"])


def cost(old: Pace, new: Pace) -> dict[str, float | None]:
    """Return the cost of the failure between two attempts that printed steps: steps done twice, and seconds in all.

    The seconds are those from the last step before it to the first one after it, less what the steps between the two
    take: how much later the job is than without it.
    """
    if not _comparable(old, new):
        return {"lost_steps": None, "lost_s": None}
    lost_steps = round(max(0.0, old["last"] - _resumed(new, [old])), 1)
    one_s = step_s(new) if step_s(old) is None else step_s(old)
    if one_s is None:
        return {"lost_steps": lost_steps, "lost_s": None}
    lost_s = new["first_s"] - old["last_s"] - (new["first"] - old["last"]) * one_s
    return {"lost_steps": lost_steps, "lost_s": round(max(0.0, lost_s), 1)}


def with_costs(history: Sequence[Mapping[str, Any]], paces: Sequence[Pace | None]) -> list[dict[str, Any]]:
    """Add its cost to each restart of the whole job; `paces` are those of all attempts, None without a step.

    The failure that ended an attempt loses its progress, however many attempts it takes to go on.
    """
    entries = [dict(restart) for restart in history]
    for attempt, entry in enumerate(entry for entry in entries if "step" in entry):
        old = paces[attempt] if attempt < len(paces) else None
        new = next(filter(None, paces[attempt + 1 :]), None)
        unknown = {"lost_steps": 0 if old is None else None, "lost_s": None}
        entry.update(cost(old, new) if old and new else unknown)
    return entries


def goodput(paces: Sequence[Pace | None], elapsed_s: float) -> dict[str, Any] | None:
    """Return the share of a job's time so far that went into steps that count, with its parts.

    None where steps do not tell: none was printed, or they begin again with each epoch.
    """
    printed = [pace for pace in paces if pace]
    speeds = [speed for speed in map(step_s, printed) if speed is not None]
    comparable = all(map(_comparable, printed, printed[1:])) and all(pace["rising"] for pace in printed)
    if not speeds or not comparable or elapsed_s <= 0:
        return None
    began = [_resumed(pace, [*printed[:at], *printed[at + 1 :]]) for at, pace in enumerate(printed)]
    productive_s = counted = made = 0.0
    for at, pace in enumerate(printed):
        # Later attempts that began before its last step have done the steps from there on again.
        steps = max(0.0, min([pace["last"], *began[at + 1 :]]) - began[at])
        speed = step_s(pace)
        productive_s += steps * (sum(speeds) / len(speeds) if speed is None else speed)
        counted, made = counted + steps, made + pace["last"] - began[at]
    return {
        "share": round(min(1.0, productive_s / elapsed_s), 4),
        "productive_s": round(productive_s, 1),
        "steps": round(counted, 1),
        "lost_steps": round(made - counted, 1),
    }


def _steps(steps: float) -> str:
    return "1 step" if steps == 1 else f"{number(steps)} steps"


def text(found: Mapping[str, Any]) -> str:
    """Return the goodput of a job in words."""
    lost = found["lost_steps"]
    again = f", {_steps(lost)} {'was' if lost == 1 else 'were'} done again" if lost else ""
    counts = "counts" if found["steps"] == 1 else "count"
    share = f"goodput {100 * found['share']:.1f} %: {number(found['productive_s'])} s"
    return f"{share} went into {_steps(found['steps'])} that {counts}{again}"


def cost_text(restart: Mapping[str, Any]) -> str:
    """Return the cost of a restart in words; "" where nothing is known yet."""
    parts = []
    if restart.get("detect_s") is not None:
        parts.append(f"noticed after {number(restart['detect_s'])} s")
    if restart.get("restart_s") is not None:
        parts.append(f"all started again {number(restart['restart_s'])} s later")
    if restart.get("step_s") is not None:
        parts.append(f"next step {number(restart['step_s'])} s after that")
    if restart.get("lost_steps"):
        parts.append(f"{_steps(restart['lost_steps'])} lost")
    if restart.get("lost_s") is not None:
        parts.append(f"{number(restart['lost_s'])} s lost in all")
    return ", ".join(parts)
