# SPDX-License-Identifier: Apache-2.0
"""Checks of the phase `compute`: which device computes slowly, moves data slowly, or gives other bits than its equals.

The measurements are lines of training/benchmark/device.py. Rates in TFLOP/s, memory and copies in GB/s. Only devices
that share all that `device` says are compared with one another. docs/compute.md has the method and its limits.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..base.checks import Check
from ..base.findings import counted, grouped, host_list
from ..base.shapes import Each, misfit
from ..base.visible import one_line
from ..hardware.peaks import floor
from .stragglers import SIGMA

Measurement = dict[str, Any]
# A device is doubtful, and slow, from this part below its equals' median on: healthy GPUs of a node differ by 5 %.
DOUBTFUL, SLOW = 0.05, 0.1
# Fewer devices have no standard deviation of their own that means anything, so a usual one stands for it.
FEW, USUAL_DEVIATION = 5, 0.015
# Processors serve other programs, too: fewer than this say nothing, and a slow one lacks half.
LEAST_CPUS, SLOW_CPU = 5, 0.5
# One healthy device in so many clusters may be called slow.
_CLUSTERS = 1e5
_LINE = {
    "device": Each(str),
    "rates": Each([float]),
    "?memory": [float],
    "?to_device": [float],
    "?from_device": [float],
    "bits": [Each(str)],
    "load": Each(str),
    "error": str,
}
_UNITS = {"memory": "memory", "to_device": "copies from the host", "from_device": "copies to the host"}
_MOST_BYTES = 64 * 1024
SAME = "bits of a seeded step"
_ACTION = "look at its clocks, temperature and power (phase devices), and for other programs on it"
check = partial(Check, "compute")


def read(log: str) -> Measurement | None:
    """Return what the process of one device printed, None without a sound line."""
    for line in log.splitlines():
        _, mark, text = line.partition("device {")
        if not mark or len(text) > _MOST_BYTES:
            continue
        try:
            found = json.loads("{" + text, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and not misfit(found, _LINE) and found["device"]:
            return found
    return None


def verify(devices: Sequence[tuple[str, int, Measurement | None]], failure: str, again: str) -> list[Check]:
    """Return the checks of all devices: host, local rank, and measurement of each. `failure` is why the job failed."""
    checks, classes = [], []
    for host, number, found in devices:
        error = found["error"] if found else failure or "its process printed no measurement"
        if found is None or error:
            action = "read the log of its rank, and look at the device (phase devices)"
            reason = one_line(error, 300)
            checks.append(check(f"device {number}", "unknown", (host,), reason=reason, action=action, command=again))
        else:
            classes.append((json.dumps(found["device"], sort_keys=True), (host, number, found)))
    for members in grouped(classes).values():
        *speed, last = _speed(members, again)
        checks += [*speed, replace(last, data=_by_device(members)), *_bits(members, again)]
    return checks


Members = Sequence[tuple[str, int, Measurement]]


def _figures(found: Measurement) -> dict[str, list[float]]:
    rates = {f"{kind} products": values for kind, values in found["rates"].items()}
    return {**rates, **{name: found[key] for key, name in _UNITS.items() if found.get(key)}}


def _by_device(members: Members) -> dict[str, Any]:
    """Return the figures of all devices as soak.py compares them over time."""
    values = grouped(
        (f"{figure} of device {number}", (host, max(measured)))
        for host, number, found in members
        for figure, measured in _figures(found).items()
    )
    cpus = members[0][2]["device"].get("kind") == "cpu"
    figures = {measure: dict(by_host) for measure, by_host in values.items()}
    return {"figures": figures, "fall": SLOW_CPU if cpus else DOUBTFUL}


def _unit(figure: str) -> str:
    return "TFLOP/s" if figure.endswith("products") else "GB/s"


def _name(members: Members) -> str:
    return one_line(members[0][2]["device"].get("name", "device"), 60)


def tolerances(values: Sequence[float]) -> tuple[float, float]:
    """Return which part of the median a device may lack before it is doubtful, and before it is slow.

    The more devices, the further out is the slowest healthy one; the deviation is measured from 5 devices on.
    """
    median, deviation = statistics.median(values), USUAL_DEVIATION
    if len(values) >= FEW and median:
        deviation = SIGMA * statistics.median(abs(value - median) for value in values) / median
        # From few values the deviation is itself a guess, and mostly too small a one.
        deviation *= 1 + 4 / len(values)
    far = statistics.NormalDist().inv_cdf(1 - 1 / (_CLUSTERS * len(values))) * deviation
    return max(DOUBTFUL, far), max(SLOW, 1.5 * far)


def _speed(members: Members, again: str) -> Iterator[Check]:
    """Return a check for each device that is slow in a figure, and one of all others."""
    name, cpus = _name(members), members[0][2]["device"].get("kind") == "cpu"
    comparable = len(members) >= (LEAST_CPUS if cpus else 2)
    # Its owner has lowered the power that it may take, so it cannot reach what its data sheet says.
    lowered = any(found["load"].get("power_limit") != found["load"].get("power_default") for _, _, found in members)
    texts, judged, wrong = [], comparable, set()
    for figure in _figures(members[0][2]):
        # Twice: a device that was slow once was disturbed.
        best = [max(_figures(found).get(figure) or [0.0]) for _, _, found in members]
        median, unit = statistics.median(best), _unit(figure)
        least = None if lowered else floor(name, figure.partition(" ")[0])
        spread = f" ({min(best):.4g} to {max(best):.4g})" if len(best) > 1 else ""
        texts.append(f"{figure} {median:.4g} {unit}{spread}")
        judged = judged or least is not None
        doubtful, slow = (SLOW_CPU, SLOW_CPU) if cpus else tolerances(best)
        limits = [("fail", least)] if least is not None else []
        limits += [("fail", median * (1 - slow)), ("unknown", median * (1 - doubtful))] if comparable else []
        for (host, number, found), value in zip(members, best):
            state, gate = next(((state, gate) for state, gate in limits if value < gate), ("", 0.0))
            if state:
                wrong.add((host, number))
                why = f"{1 - value / median:.0%} below the median of {counted(len(members), 'equal device')}, twice"
                reason = why if gate != least else f"slower than a healthy {name} with other programs on it"
                texts_of = (f"{value:.4g} {unit}{_load(found)}", f"at least {gate:.4g} {unit}", reason, _ACTION, again)
                yield check(f"{figure} of device {number}", state, (host,), *texts_of)
    about, found_text = f"speed of {counted(len(members) - len(wrong), 'device')} {name}", "; ".join(texts)
    if not judged:
        few = f"fewer than {LEAST_CPUS} processors do not tell a slow one from a busy one"
        reason = few if cpus else "one device without a known rate has nothing to be compared with"
        yield check(about, "skipped" if cpus else "unknown", found=found_text, reason=reason, command=again)
    elif len(wrong) < len(members):
        yield check(about, "pass", found=found_text, command=again)


def _load(found: Measurement) -> str:
    """Return clock, power and temperature of a device right after its products, "" where they are not known."""
    units = {"clock_mhz": "MHz", "power_w": "W", "temperature_c": "°C"}
    known = [f"{one_line(found['load'][key], 12)} {unit}" for key, unit in units.items() if found["load"].get(key)]
    return f" at {', '.join(known)}" if known else ""


def _bits(members: Members, again: str) -> Iterator[Check]:
    """Compare the seeded steps of a device with each other, then those of equal devices."""
    action = "leave the node out of jobs, and test the device with its vendor's tools"
    steady = []
    for host, number, found in members:
        other = next((bits for bits in found["bits"] if bits != found["bits"][0]), None)
        if other is not None:
            layer = _first_difference(found["bits"][0], other)
            reason = f"the same step gave other bits on the same device, first in the {layer}"
            yield check(f"{SAME} on device {number}", "fail", (host,), reason=reason, action=action, command=again)
        elif found["bits"]:
            steady.append((host, number, found["bits"][0]))
    votes = Counter(json.dumps(bits, sort_keys=True) for _, _, bits in steady)
    if len(steady) < 2:
        if steady:
            reason = f"no equal device to compare {_name(members)} with"
            yield check(SAME, "skipped", (steady[0][0],), reason=reason, command=again)
        return
    most, number_of = votes.most_common(1)[0]
    usual = next(bits for _, _, bits in steady if json.dumps(bits, sort_keys=True) == most)
    odd = [each for each in steady if each[2] != usual]
    if number_of * 2 <= len(steady):
        hosts = tuple(dict.fromkeys(host for host, _, _ in steady))
        reason = f"equal devices gave {len(votes)} different results, none of them more than half: {host_list(hosts)}"
        action = "compare each with a third device of its kind"
        yield check(SAME, "fail", hosts, reason=reason, action=action, command=again)
        return
    for host, number, bits in odd:
        layer = _first_difference(usual, bits)
        reason = f"other bits than {counted(number_of, 'equal device')}, first in the {layer}"
        yield check(f"{SAME} on device {number}", "fail", (host,), reason=reason, action=action, command=again)
    if not odd:
        same = f"nothing found: {counted(len(steady), 'device')} {_name(members)} gave the same {len(usual)} results"
        yield check(SAME, "pass", found=same, command=again)


def _first_difference(usual: Mapping[str, str], bits: Mapping[str, str]) -> str:
    names: Iterable[str] = [*usual, *(name for name in bits if name not in usual)]
    return one_line(next(name for name in names if usual.get(name) != bits.get(name)), 60)
