# SPDX-License-Identifier: Apache-2.0
"""Check what a job survives: five checks, each of them for a stop, a killed rank, and a node's killed processes.

A result is a state (pass, fail, unknown, skipped) and a sentence. The undisturbed run is the reference; docs/drill.md
has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..run.logs.progress import number
from ..run.measure.checkpoints import is_temporary, written_last
from .series import Series, common, difference, stride

# Losses that differ by less are equal: another order of sums differs by less, another batch by more.
EQUAL = 0.002
# Undisturbed runs that differ by more cannot tell whether the order of the data continues.
COMPARABLE = 0.02
# Steps after a restart whose mean is compared, and first steps of a run whose mean is its first level.
LEVEL_STEPS, FIRST_STEPS = 5, 2
NO_STEP = "no step was printed after it"
# Losses of other batches on the same level differ by less, as a fraction.
LEVEL = 0.1


class Result(NamedTuple):
    """The state of a check, and why."""

    state: str
    text: str


@dataclass(frozen=True)
class Resumption:
    """How a job went on after a fault.

    `before` and `after` are the steps printed before it and after it, `saved` is the step of the newest complete
    checkpoint (None: its name has none), `name` its name (empty: there was none), `failed` why nothing follows.
    """

    before: Series
    after: Series
    saved: float | None
    name: str
    failed: str = ""


def reacts(saving: Mapping[str, Any] | None, signal: str, grace_s: float) -> Result:
    """Check that ranks handle the stop signal, and leave in time; `saving` is that of summary.json."""
    if not grace_s:
        return Result("fail", "job_stop_grace is 0, which gives no rank time to save")
    if not saving:
        return Result("fail", f"no rank handles SIG{signal} (job_stop_signal): all ended at once by it")
    stayed = {host: ranks for host, ranks in saving["stayed"].items() if ranks}
    asked = f"{saving['asked']} rank{'s' if saving['asked'] != 1 else ''}"
    if stayed:
        named = "; ".join(f"rank {ranks[0]} on {host}" for host, ranks in stayed.items())
        return Result("fail", f"{named} did not leave within {grace_s:g} s (job_stop_grace)")
    return Result("pass", f"{asked} handled SIG{signal}; the last one left after {saving['last_s']:g} s")


@dataclass(frozen=True)
class Stopped:
    """A stopped job: `saving` and `checkpoints` of its summary.json, the steps that it printed, the node of rank 0.

    `signal_at` is when it was stopped, in seconds since the epoch. `elsewhere` has newer checkpoints by the nodes that
    alone have them. `loaded`: the next launch began behind the newest one.
    """

    signal_at: float
    saving: Mapping[str, Any] | None
    checkpoints: Mapping[str, Any]
    steps: Series
    host: str
    elsewhere: Mapping[str, str]
    loaded: bool


def saves_at_signal(job: Stopped) -> Result:
    """Check that a stopped job has saved: only a checkpoint that was finished after the signal counts."""
    newest, unfinished = job.checkpoints.get("newest"), job.checkpoints.get("unfinished")
    if unfinished and not is_temporary(unfinished["name"]):
        name, reason = unfinished["name"], unfinished["reason"]
        if not written_last(reason):
            return Result("fail", f"{name} is not complete: {reason}")
        if _saved(job, unfinished) and job.loaded:
            return Result("pass", f"{name} was saved at the signal, and loaded")
        if _saved(job, unfinished):
            return Result("unknown", f"{name} may not be complete: {reason}")
    if job.elsewhere:
        other, name = next(iter(job.elsewhere.items()))
        where = f"a rank on {other} saved {name}, which {job.host}, the node of rank 0, does not have"
        return Result("fail", f"{where}: let rank 0 save, or save on a disk that all nodes share")
    if newest is None:
        return Result("fail", f"no checkpoint came into the drill's folder on {job.host}")
    if _saved(job, newest):
        return Result("pass", f"{newest['name']} was saved at the signal")
    reached = f" at step {number(job.steps[-1].step)}" if job.steps else ""
    what = f"ranks handled the signal{reached}, but saved nothing" if job.saving else "nothing was saved at the signal"
    return Result("fail", f"{what}: the newest checkpoint is {newest['name']}")


def _saved(job: Stopped, checkpoint: Mapping[str, Any]) -> bool:
    """Return whether a checkpoint was finished after the signal, and is one of the last step as far as is known."""
    last, step = job.steps[-1].step if job.steps else None, checkpoint["step"]
    late = last is None or step is None or step >= last - stride(job.steps)
    return bool(checkpoint["time"] > job.signal_at and late)


def saves_before_kill(name: str | None, steps: int) -> Result:
    """Check that a complete checkpoint, with this name, was there when the job started again."""
    if not name:
        return Result("fail", f"no complete checkpoint within {steps} steps: let the program save more often")
    return Result("pass", f"{name} was complete")


def right_step(reference: Series, found: Resumption) -> Result:
    """Check that the first step after a fault follows the checkpoint."""
    if not found.after:
        return Result("fail" if found.failed else "unknown", found.failed or NO_STEP)
    first, gap = found.after[0].step, stride(reference)
    last = found.before[-1].step if found.before else reference[0].step
    name = f"step {number(first)}"
    # The name of a checkpoint may count something else.
    saved = found.saved if found.saved is not None and found.saved <= last + gap else None
    if not found.name and first > reference[0].step + gap:
        return Result("fail", f"it began at {name} without a checkpoint")
    if first > last + gap:
        return Result("fail", f"it began at {name}, and left out those after step {number(last)}")
    if saved is not None and first < saved:
        what = "again at" if first <= reference[0].step + gap else "too early, at"
        return Result("fail", f"it began {what} {name}, though {found.name} is of step {number(saved)}")
    if saved is None and first <= reference[0].step and last > first + gap:
        return Result("fail", f"it began again at {name}; the last one before was step {number(last)}")
    follows = (
        f"{found.name} of step {number(saved)}" if saved is not None else f"{found.name}, after step {number(last)}"
    )
    return Result("pass", f"{name} follows {follows}" if found.name else f"it began at {name}, without a checkpoint")


def aligned(reference: Series, found: Resumption) -> tuple[Series, bool]:
    """Return the steps after a fault with the numbers that they should have, and whether these differ."""
    if not found.after or right_step(reference, found).state != "fail":
        return found.after, False
    last = found.before[-1].step if found.before else 0.0
    saved = found.saved if found.saved is not None and found.saved <= last + stride(reference) else last
    shift = saved + stride(reference) - found.after[0].step
    return [point._replace(step=point.step + shift) for point in found.after], True


def loss_continues(reference: Series, found: Resumption, noise: float | None) -> Result:
    """Check that the loss after a fault is that of the undisturbed run at the same steps, or at least on its level."""
    after, _ = aligned(reference, found)
    if not after:
        return Result("unknown", NO_STEP)
    if math.isinf(after[0].loss) or (math.isnan(after[0].loss) and not math.isnan(reference[0].loss)):
        return Result("fail", "the loss after it is not a number")
    pairs = common(reference, after)
    if not pairs:
        return Result("unknown", "the undisturbed run has no loss at the steps after it: raise drill_steps")
    changed = _first_change(pairs, noise)
    span = f"steps {number(pairs[0][0])} to {number(pairs[-1][0])}" if len(pairs) > 1 else f"step {number(pairs[0][0])}"
    if changed is None:
        return Result("pass", f"{span}: the losses of the undisturbed run")
    near = pairs[:LEVEL_STEPS]
    here, new = _mean([each[1] for each in near]), _mean([each[2] for each in near])
    start = _mean([point.loss for point in reference[:FIRST_STEPS] if not math.isnan(point.loss)])
    allowed = max(LEVEL * abs(here), 2 * _step_to_step(reference), 3 * (noise or 0.0) * abs(here))
    values = f"{new:.4g} on average after it, {here:.4g} in the undisturbed run at the same steps"
    if abs(new - here) > allowed:
        back = f", back to the level of the first steps ({start:.4g})" if abs(new - start) < abs(new - here) else ""
        return Result("fail", f"the loss is {values}{back}: the state is not restored")
    if noise is not None and noise <= EQUAL and changed > 0:
        step, one, other = pairs[changed]
        what = f"equal at step {number(pairs[0][0])}, and at step {number(step)} {other:.4g} instead of {one:.4g}"
        return Result("fail", f"{what}: the state of the optimizer, learning rate or random numbers is not restored")
    if abs(start - here) <= allowed:
        return Result("unknown", f"the loss falls too little in these steps to tell: {values}")
    return Result("pass", f"on the level of the undisturbed run: {values}")


def data_continues(reference: Series, found: Resumption, noise: float | None) -> Result:
    """Check that the data goes on behind the checkpoint: the first losses equal those of the undisturbed run.

    Only where undisturbed runs are equal: else losses do not tell.
    """
    after, counted_anew = aligned(reference, found)
    if not after:
        return Result("unknown", NO_STEP)
    if counted_anew:
        return Result("unknown", "not comparable: it did not begin at the right step")
    if noise is None:
        return Result("unknown", "not comparable: no undisturbed runs with losses of equal steps")
    if noise > COMPARABLE:
        differ = f"losses of undisturbed runs differ by up to {_percent(noise)}"
        return Result("unknown", f"not comparable: {differ}, as without a fixed seed")
    if loss_continues(reference, found, noise).text.endswith("the state is not restored"):
        return Result("unknown", "not comparable: the state is not restored")
    pairs = common(reference, after)
    if not pairs:
        return Result("unknown", "not comparable: the undisturbed run has no loss at the steps after it")
    if _first_change(pairs, noise) == 0:
        step, one, other = pairs[0]
        usual = f"undisturbed runs differ by at most {_percent(noise)}" if noise else "undisturbed runs are equal"
        what = f"the loss at step {number(step)} is {other:.4g} instead of {one:.4g}, though {usual}"
        return Result("fail", f"{what}: other data than without the fault, or other random numbers")
    return Result("pass", f"the loss at step {number(pairs[0][0])} is that of the undisturbed run")


def _first_change(pairs: Sequence[tuple[float, float, float]], noise: float | None) -> int | None:
    """Return the place of the first loss that differs from the reference; None where all are equal."""
    limit = max(EQUAL, 3 * (noise or 0.0))
    return next((at for at, (_, one, other) in enumerate(pairs) if difference(one, other) > limit), None)


def _step_to_step(reference: Series) -> float:
    """Return by how much the loss of the reference mostly changes from one printed step to the next."""
    known = [point.loss for point in reference if math.isfinite(point.loss)]
    changes = sorted(abs(later - earlier) for earlier, later in zip(known, known[1:]))
    return changes[len(changes) // 2] if changes else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
