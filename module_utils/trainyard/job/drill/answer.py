# SPDX-License-Identifier: Apache-2.0
"""Say in words why a job does not survive a drill: what is missing, what that cost, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...base.findings import counted

Data = Mapping[str, Any]


class Advice(NamedTuple):
    """The defect that a failed check shows, and what to do about it."""

    missing: str
    action: str


# By check.
_ADVICE = {
    "signal": Advice(
        "it does not use the time to save that a stop gives",
        "handle the stop signal: finish the step, save, exit; raise job_stop_grace if that takes longer "
        "(docs/restarts.md, Time to save)",
    ),
    "saves": Advice(
        "it left no complete checkpoint of its last step when it was stopped",
        "save in the handler of the stop signal, to another name that is then renamed; let rank 0 save, or save on a "
        "disk that all nodes share",
    ),
    "step": Advice(
        "it did not go on at the step after its checkpoint", "save the number of the step, and begin after it"
    ),
    "loss": Advice(
        "its loss did not go on where it was",
        "save and load the whole state: weights, optimizer, learning rate, random numbers",
    ),
    "data": Advice(
        "it went on with other data than without the fault",
        "save the position in the data and the random state, or derive both from the step",
    ),
}
_BEFORE_A_KILL = Advice(
    "it had no complete checkpoint when it was killed",
    "save more often; if a checkpoint takes more steps than the drill has, raise drill_steps",
)
_RESUMED = (
    "After every fault the job went on correctly: at the right step, with the losses of the undisturbed run. But "
)


def of_failed(checks: Sequence[Data], costs: Sequence[Data]) -> dict[str, Any] | None:
    """Return `why` the job does not survive, what it `lost` and what to `do`; None where no check has failed."""
    failed = {each["name"]: [case["fault"] for case in each["cases"] if case["state"] == "fail"] for each in checks}
    found = [advice for name, faults in failed.items() for advice in _of_check(name, faults)]
    if not found:
        return None
    states = {each["name"]: {case["state"] for case in each["cases"]} for each in checks}
    resumed = states["step"] == states["loss"] == {"pass"} and not failed["data"]
    why = (_RESUMED if resumed else "") + ", and ".join(advice.missing for advice in found)
    lost = "; ".join(f"{cost['title']}: {_short(cost)}" for cost in costs if cost["text"])
    if lost and "stopped" in failed["saves"]:
        # The number of steps depends on when the drill stopped the job.
        lost += "; a stop at another moment loses all steps since the checkpoint before it"
    return {"why": f"{why[:1].upper()}{why[1:]}.", "lost": lost, "do": [advice.action for advice in found]}


def _of_check(name: str, faults: Sequence[str]) -> list[Advice]:
    if name != "saves":
        return [_ADVICE[name]] if faults else []
    at_stop, at_kill = "stopped" in faults, bool(set(faults) - {"stopped"})
    return [_ADVICE[name]] * at_stop + [_BEFORE_A_KILL] * at_kill


def _short(cost: Data) -> str:
    parts = [] if cost["lost_steps"] is None else [counted(round(cost["lost_steps"]), "step")]
    parts += [] if cost["lost_s"] is None else [f"{cost['lost_s']:.0f} s"]
    return " and ".join(parts) or str(cost["text"])
