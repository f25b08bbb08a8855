# SPDX-License-Identifier: Apache-2.0
"""Join the runs of a drill to its result: what the job survives, what is missing, and what a fault costs.

A run is a record: `run` (settings.RUNS), `job_id`, `summary` (summary.json), `points` (metrics.jsonl), `killed` (host,
ranks and number of processes; None), `elsewhere` (newer checkpoints that only other nodes have, by host), and `why` it
was given up, or "".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...base.checks import EXIT_CODES
from ...base.findings import Finding, counted
from ...base.shapes import Is, Shape
from ...base.spans import named_ranks
from ..run.logs import failures
from ..run.logs.progress import number
from ..run.measure.checkpoints import place_of, written_last
from ..run.measure.goodput import cost_text
from . import answer, series, survival
from .drill_settings import Drill
from .survival import Result, Resumption

Data = Mapping[str, Any]

# The checks, in the order in which they are shown, and the faults.
CHECKS = {
    "signal": "reacts to the signal",
    "saves": "saves",
    "step": "resumes at the right step",
    "loss": "loss continues",
    "data": "data order continues",
}
FAULTS = {"stopped": "stopped and launched again", "rank": "a rank killed", "node": "a node's processes killed"}
# The parts of drill.json that are read again.
SHAPE: Shape = {"state": Is(tuple(EXIT_CODES)), "headline": str, "runs": [{"job_id": str}]}
_WEIGHT = ("skipped", "pass", "unknown", "fail")
_NOT_RUN = Result("unknown", "not run")


def unusable(undisturbed: Data, drill: Drill) -> list[Finding]:
    """Find that the undisturbed run has no steps to compare."""
    points = _steps(undisturbed)
    reached = points[-1].step if points else 0
    failure = undisturbed["summary"].get("failure")
    restarts = undisturbed["summary"].get("restarts")
    pattern = "set job_progress_pattern (docs/job-file.md, Progress), or print `step 3 loss 0.5`"
    if restarts:
        found = f"{undisturbed['job_id']} failed by itself: {restarts[0]['reason']}"
        return [Finding("job", found, "a job that runs without a fault", "see its report, and run it alone first")]
    if not points:
        failed = f"; it failed: {failures.failure_text(failure)}" if failure else ""
        found = f"no step is recognized in what {undisturbed['job_id']} printed{failed}"
        return [Finding("steps", found, "lines with a step and a loss", pattern)]
    if not series.rises(points):
        found = f"steps that begin again, after {undisturbed['job_id']} had printed step {number(reached)}"
        expected = "steps that count through the whole run"
        return [Finding("steps", found, expected, f"{pattern}, or lower drill_steps to less than an epoch")]
    if reached < drill.steps:
        why = undisturbed["why"] or (failures.failure_text(failure) if failure else "it ended")
        found = f"{undisturbed['job_id']} came to step {number(reached)}: {why}"
        action = "lower drill_steps, raise drill_timeout, or let the program make more steps (drill_args)"
        return [Finding("steps", found, f"an undisturbed run to step {drill.steps}", action)]
    return []


def of_runs(drill: Drill, plan: Data, runs: Sequence[Data]) -> dict[str, Any]:
    """Return the result of a drill whose undisturbed run is usable; `plan` is the plan.json of that run."""
    by_run = {run["run"]: run for run in runs}
    reference = _steps(by_run["undisturbed"])
    found = {fault: _resumption(fault, by_run) for fault in FAULTS}
    noise = series.noise(reference, [each.before for each in found.values() if each])

    def by_fault(check: Callable[[Resumption], Result]) -> dict[str, Result]:
        return {fault: check(each) if each else _NOT_RUN for fault, each in found.items()}

    steps = by_fault(lambda each: survival.right_step(reference, each))
    results = {
        "signal": {"stopped": _signal(by_run, plan)},
        "saves": {fault: _saves(fault, by_run, plan, drill, steps[fault]) for fault in FAULTS},
        "step": steps,
        "loss": by_fault(lambda each: survival.loss_continues(reference, each, noise)),
        "data": by_fault(lambda each: survival.data_continues(reference, each, noise)),
    }
    listed = [
        {
            "name": name,
            "title": CHECKS[name],
            "state": _worst(case.state for case in cases.values()),
            "cases": _cases(cases),
        }
        for name, cases in results.items()
    ]
    costs = {fault: _cost(fault, by_run, found[fault]) for fault in FAULTS if found[fault]}
    listed_costs = [{"fault": fault, "title": FAULTS[fault], **cost} for fault, cost in costs.items()]
    state = _state(listed)
    return {
        "state": state,
        "headline": _headline(state, listed, costs),
        "answer": answer.of_failed(listed, listed_costs),
        "checks": listed,
        "costs": listed_costs,
        "noise": noise if noise is not None and math.isfinite(noise) else None,
        "steps": drill.steps,
        "notes": _notes(drill, by_run),
        "runs": [_run(run) for run in runs],
    }


def _steps(run: Data) -> list[series.Point]:
    return series.merged(series.read(run["points"]))


def _resumption(fault: str, by_run: Mapping[str, Data]) -> Resumption | None:
    """Return how the job went on after a fault; None where that was not tried."""
    run = by_run.get(fault)
    if run is None:
        return None
    points = _steps(run)
    if fault == "stopped":
        after = by_run.get("resumed")
        if after is None:
            return None
        state = run["summary"].get("checkpoints") or {}
        saved = (_last_written(state) or state.get("newest") or {}).get("name")
        return Resumption(points, _steps(after), *_named(saved), _failure(after, "the next launch"))
    restarts = run["summary"]["restarts"]
    if not run["killed"]:
        return None
    if not restarts:
        return Resumption(points, [], None, "", _failure(run, "the kill") or "the job was not started again")
    parts = series.attempts(series.read(run["points"]), [restart.get("first_step") for restart in restarts])
    return Resumption(parts[0], parts[1], *_named(restarts[0].get("checkpoint")), _failure(run, "the kill"))


def _last_written(state: Data) -> Data | None:
    """Return a checkpoint that may be complete although nothing shows that; None without one."""
    unfinished: Data | None = state.get("unfinished")
    return unfinished if unfinished and written_last(unfinished["reason"]) else None


def _named(name: str | None) -> tuple[float | None, str]:
    """Return the step in the name of a checkpoint, and the name; "" for none."""
    return (place_of(name)["step"], name) if name else (None, "")


def _failure(run: Data, after: str) -> str:
    failure = run["summary"].get("failure") or {}
    why = ": ".join(filter(None, [failures.failure_text(failure), failure.get("error")])) if failure else run["why"]
    unfinished = (run["summary"].get("checkpoints") or {}).get("unfinished")
    torn = f"; checkpoint {unfinished['name']} is not complete: {unfinished['reason']}" if unfinished else ""
    return f"after {after} the job failed: {why}{torn}" if why else ""


def _signal(by_run: Mapping[str, Data], plan: Data) -> Result:
    run = by_run.get("stopped")
    if run is None:
        return _NOT_RUN
    if ended := _ended_before(run["summary"]):
        return ended
    stop = plan.get("stop") or {}
    return survival.reacts(run["summary"].get("saving"), str(stop.get("signal", "TERM")), float(stop.get("grace_s", 0)))


def _ended_before(summary: Data) -> Result | None:
    if summary["state"] in ("stopped", "running"):
        return None
    return Result("unknown", f"the job had ended before the stop: {summary['state']}")


def _saves(fault: str, by_run: Mapping[str, Data], plan: Data, drill: Drill, step: Result) -> Result:
    run = by_run.get(fault)
    if run is None:
        return _NOT_RUN
    state = run["summary"].get("checkpoints") or {}
    if fault == "stopped":
        return _ended_before(run["summary"]) or _saves_at_signal(run, plan, step)
    if not run["killed"] and run["why"]:
        return Result("unknown", run["why"])
    if not run["killed"] and state.get("newest"):
        return Result("unknown", f"step {drill.steps} came before a checkpoint was seen: raise drill_steps")
    restarts = run["summary"]["restarts"]
    name = restarts[0].get("checkpoint") if restarts else (state.get("newest") or {}).get("name")
    return survival.saves_before_kill(name, drill.steps)


def _saves_at_signal(run: Data, plan: Data, step: Result) -> Result:
    summary, host, loaded = run["summary"], plan["head"]["host"], step.state == "pass"
    signal_at, state = summary.get("finished"), summary.get("checkpoints") or {}
    if signal_at is None:
        return Result("unknown", "it is not known when the job was stopped")
    stopped = survival.Stopped(signal_at, summary.get("saving"), state, _steps(run), host, run["elsewhere"], loaded)
    return survival.saves_at_signal(stopped)


def _worst(states: Iterable[str]) -> str:
    return max(states, key=_WEIGHT.index)


def _cases(cases: Mapping[str, Result]) -> list[dict[str, str]]:
    return [{"fault": fault, "title": FAULTS[fault], **each._asdict()} for fault, each in cases.items()]


def _state(listed: Sequence[Data]) -> str:
    """Return the state of the whole; an order of data that cannot be compared does not keep a job from surviving."""
    needed = [each["state"] for each in listed if each["name"] != "data" or each["state"] == "fail"]
    return _worst(needed)


def _cost(fault: str, by_run: Mapping[str, Data], found: Resumption | None) -> dict[str, Any]:
    if fault == "stopped" or found is None:
        lost = None
        if found and found.before and found.after:
            gap = series.stride(found.before)
            lost = max(0.0, found.before[-1].step - found.after[0].step + gap)
        return {"lost_s": None, "lost_steps": lost, "text": "" if lost is None else _counted(lost, "step") + " lost"}
    restarts = by_run[fault]["summary"]["restarts"]
    if not restarts:
        return {"lost_s": None, "lost_steps": None, "text": ""}
    restart = restarts[0]
    return {"lost_s": restart.get("lost_s"), "lost_steps": restart.get("lost_steps"), "text": cost_text(restart)}


def _counted(value: float, one: str) -> str:
    return f"{number(value)} {one}" if value == 1 else f"{number(value)} {one}s"


def _headline(state: str, listed: Sequence[Data], costs: Mapping[str, Data]) -> str:
    by_state = {name: [each["title"] for each in listed if each["state"] == name] for name in _WEIGHT}
    if state == "fail":
        return f"survives: no, missing: {', '.join(by_state['fail'])}"
    if state == "unknown":
        return f"survives: not known: {', '.join(by_state['unknown'])}"
    cost = costs.get("node") or {}
    parts = [f"{cost['lost_s']:.0f} s"] if cost.get("lost_s") is not None else []
    parts += [_counted(cost["lost_steps"], "step")] if cost.get("lost_steps") is not None else []
    tail = f", a killed node costs {' and '.join(parts)}" if parts else ""
    return f"survives: yes{tail}" + ("; data order not comparable" if by_state["unknown"] else "")


def _notes(drill: Drill, by_run: Mapping[str, Data]) -> list[str]:
    """Return what the reader must know beside the checks."""
    notes = []
    if not drill.restarts:
        notes.append(
            "the job file has no job_max_restarts: outside of this drill the job does not start again by itself"
        )
    for fault in ("rank", "node"):
        run = by_run.get(fault)
        if run and run["killed"] is None and not run["why"]:
            notes.append(f"{FAULTS[fault]}: not tried, as no complete checkpoint came in time")
        if run and run["killed"]:
            killed = run["killed"]
            number_of = counted(killed["processes"], "process", "processes")
            notes.append(f"{FAULTS[fault]}: {number_of} on {killed['host']} ({named_ranks(killed['ranks'])})")
    return notes


def _run(run: Data) -> dict[str, Any]:
    points, summary = _steps(run), run["summary"]
    last = number(points[-1].step) if points else ""
    return {"run": run["run"], "job_id": run["job_id"], "state": summary["state"], "last": last}


def elsewhere(names: Mapping[str, Sequence[str]], head: str) -> dict[str, str]:
    """Return newer checkpoints that the node of rank 0 lacks, by host; `names` are those of each node, newest last."""
    own = names.get(head, ())
    last = _place(own[-1]) if own else (-1, -1)
    newer = {host: found[-1] for host, found in names.items() if host != head and found and found[-1] not in own}
    return {host: name for host, name in newer.items() if _place(name) > last}


def _place(name: str) -> tuple[int, int]:
    place = place_of(name)
    return place["epoch"] or 0, place["step"] or 0
