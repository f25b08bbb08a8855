# SPDX-License-Identifier: Apache-2.0
"""Join the repetitions of a soak: how often each check failed, and which figures fell meanwhile. Pure.

A repetition is a list of phases as report.SHAPE has them; the record of a soak has what counts of all so far. Figures
are in the `data` of checks: `figures` has values by measure and host, "" for all hosts together; `fall` is the part
that a measure has to lose before it counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.checks import Check, worst
from ..base.findings import counted, some_of
from .stragglers import SIGMA

Data = Mapping[str, Any]
Values = Sequence[float]

# Fewer values do not tell a fall from one that was disturbed: a third of them are three.
LEAST = 9
# What fell by this many times its `fall` has failed; less is unknown.
SURE = 2
# One figure in so many healthy clusters may seem to fall by its noise.
_CLUSTERS = 1e5
MAX_NAMED = 6
_BAD = ("fail", "unknown")


def _noise(values: Values) -> float:
    """Return the relative standard deviation of one value, by neighbors, between which a slow fall is small."""
    steps = [abs(later - value) for value, later in zip(values, values[1:])]
    deviation = SIGMA * statistics.median(steps) / 2**0.5 / statistics.median(values)
    # From few values the deviation is itself a guess, and mostly too small a one.
    return deviation * (1 + 4 / len(values))


def fallen(series: Mapping[str, Values], fall: float, figures: int) -> dict[str, tuple[float, float]]:
    """Return first and last value of the hosts whose measure fell: medians of the first and of the last third.

    They lie apart by `fall`, and by the noise of one value times a factor that grows with the number of `figures`; and
    the best of the last third, too, is well below the first one. No host has less noise than the usual one.
    """
    noises = {host: _noise(values) for host, values in series.items()}
    usual = statistics.median(noises.values()) if noises else 0.0
    far = statistics.NormalDist().inv_cdf(1 - 1 / (_CLUSTERS * max(1, figures)))
    found = {}
    for host, values in series.items():
        third, limit = len(values) // 3, max(fall, far * max(usual, noises[host]))
        last = values[-third:]
        before, now = statistics.median(values[:third]), statistics.median(last)
        if now <= before * (1 - limit) and max(last) <= before * (1 - limit / 2):
            found[host] = (before, now)
    return found


def add(record: dict[str, Any], number: int, phases: Sequence[Data]) -> None:
    """Add a repetition, its `number` from 1 on, to the record of a soak, which is {} at first.

    A record that lacks earlier repetitions leaves the first phase unknown.
    """
    before, by_name = record.get("repetitions", 0), record.setdefault("phases", {})
    record["repetitions"] = number
    if before != number - 1:
        reason = f"the record of the soak has {before} of {counted(number - 1, 'earlier repetition')}"
        action = "verify again, and leave the folder of the run alone meanwhile"
        lost = Check(phases[0]["name"], "earlier repetitions", "unknown", reason=reason, action=action).as_dict()
        first = {**phases[0], "checks": [*phases[0]["checks"], lost], "state": worst([phases[0]["state"], "unknown"])}
        phases = [first, *phases[1:]]
    for phase in phases:
        new = {"times": 0, "started": phase["started"], "elapsed_s": 0.0, "state": "not_asked", "not_passed": []}
        kept = by_name.setdefault(phase["name"], {**new, "wrong": {}, "series": {}, "falls": {}})
        kept["times"] += 1
        kept["elapsed_s"] = round(kept["elapsed_s"] + (phase["elapsed_s"] or 0), 1)
        kept["state"] = worst([kept["state"], phase["state"]])
        kept["not_passed"] += [number] if phase["state"] in _BAD else []
        for key, check in {str(_key(check)): check for check in phase["checks"] if check["state"] in _BAD}.items():
            kept["wrong"][key] = [check, kept["wrong"].get(key, (check, 0))[1] + 1]
        for data in (check["data"] for check in phase["checks"] if "figures" in check["data"]):
            for measure, by_host in data["figures"].items():
                kept["falls"][measure] = data["fall"]
                for host, value in by_host.items():
                    values = kept["series"].setdefault(measure, {}).setdefault(host, [])
                    values.append(float(f"{value:.5g}"))
        kept["last"] = phase


def _key(check: Data) -> tuple[str, list[str], str]:
    return check["name"], check["hosts"], check["state"]


def merged(record: Data) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the phases of all repetitions of a record as one, and what the report has of the soak."""
    phases, rows = [], []
    for name, kept in record["phases"].items():
        last = dict(kept["last"])
        if kept["times"] > 1:
            last |= {key: kept[key] for key in ("started", "elapsed_s")}
            last["checks"] = [*_joined(kept), *(check.as_dict() for check in _over_time(name, kept))]
            last["state"] = worst([kept["state"], *(check["state"] for check in last["checks"])])
            rows.append({"phase": name, "repetitions": kept["times"], "not_passed": kept["not_passed"]})
        phases.append(last)
    return phases, {"repetitions": record["repetitions"], "phases": rows}


def _joined(kept: Data) -> list[dict[str, Any]]:
    """Return the checks that did not pass in some repetition, with their number, and the others of the last one."""
    checks = []
    for check, times in kept["wrong"].values():
        often = f"in {times} of {counted(kept['times'], 'repetition')}"
        checks.append({**check, "reason": f"{check['reason']}; {often}" if check["reason"] else often})
    # A check that failed once did not pass, though its last repetition may have.
    wrong = [_key(check)[:2] for check in checks]
    rest = [check for check in kept["last"]["checks"] if check["state"] not in _BAD]
    return checks + [check for check in rest if _key(check)[:2] not in wrong]


def _over_time(name: str, kept: Data) -> Iterator[Check]:
    """Check the figures of a phase: one check for each measure that fell, or one of all."""
    series = kept["series"]
    enough = {
        measure: {host: values for host, values in by_host.items() if len(values) >= LEAST and min(values) > 0}
        for measure, by_host in series.items()
    }
    number = sum(map(len, enough.values()))
    over = f"over {counted(kept['times'], 'repetition')}"
    reason = f"it fell {over}, by more than its noise"
    action = "look for heat, a lower clock or power, retries of a link, and other programs that came meanwhile"
    fell = False
    for measure, limit in kept["falls"].items():
        found = fallen(enough[measure], limit, number)
        sure = {host for host, (first, last) in found.items() if last <= first * (1 - SURE * limit)}
        for state, of in (("fail", sure), ("unknown", found.keys() - sure)):
            hosts = tuple(host for host in found if host in of)
            texts = [f"{host or 'all nodes'} from {found[host][0]:.4g} to {found[host][1]:.4g}" for host in hosts]
            if texts:
                text, named = ", ".join(some_of(texts, MAX_NAMED)), tuple(filter(None, hosts))
                yield Check(
                    name, f"{measure} over time", state, named, text, "as fast as at the beginning", reason, action
                )
                fell = True
    if series and not fell:
        few = "" if number else f"fewer than {LEAST} repetitions do not tell a fall from noise"
        text = "" if few else f"none of {counted(number, 'figure')} fell {over}"
        yield Check(name, "figures over time", "skipped" if few else "pass", found=text, reason=few)
