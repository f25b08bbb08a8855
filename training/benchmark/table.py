# SPDX-License-Identifier: Apache-2.0
"""The text that nccl-tests print, so that one reader serves both. Bandwidth in GB/s of 10^9 bytes, times in us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from values import bus_factor

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Place:
    """Where a rank runs."""

    rank: int
    pid: int
    host: str
    device: str
    bus: str
    name: str


@dataclass(frozen=True)
class Outcome:
    """One way of one size: seconds of one operation, and wrong elements over all ranks, None where not checked."""

    seconds: float
    wrong: int | None


def size(text: str) -> int:
    """Read 8, 4K, 32M or 1G as bytes. Raises ValueError otherwise."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if not match:
        raise ValueError(f"{text!r}, expected a number of bytes such as 8, 4K, 32M or 1G")
    return int(match[1]) * _UNITS[match[2]]


def sizes(least: int, most: int, factor: int) -> list[int]:
    """Return the message sizes in bytes from `least` to at most `most`."""
    found = [least]
    while factor > 1 and least and found[-1] * factor <= most:
        found.append(found[-1] * factor)
    return found


def header(title: str, settings: str, places: Sequence[Place]) -> str:
    """Return the lines above the rows: settings, the ranks, and the names of the columns."""
    lines = [f"# trainyard collectives: {title}", f"# {settings}", "#", "# Using devices"]
    lines += [
        f"#  Rank {place.rank:2d} Group  0 Pid {place.pid:6d} on {place.host:>10} device {place.device:>2} "
        f"[{place.bus}] {place.name}"
        for place in places
    ]
    ways = ("out-of-place", "in-place")
    columns = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    lines += [
        "#",
        f"# {'':>48}" + "".join(f"{way:^33}" for way in ways),
        f"# {'size':>11} {'count':>13} {'type':>9} {'redop':>7} {'root':>7}" + "".join(map(_cell, columns)) * 2,
        f"# {'(B)':>11} {'(elements)':>13} {'':>9} {'':>7} {'':>7}" + "".join(map(_cell, units)) * 2,
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return f" {text:>7}"


def bandwidth(collective: str, nbytes: int, ranks: int, seconds: float) -> tuple[float, float]:
    """Return the bandwidth of the algorithm and that of the bus, in GB/s."""
    algorithm = nbytes / seconds / 1e9 if seconds > 0 else 0.0
    return algorithm, algorithm * bus_factor(collective, ranks)


def row(collective: str, nbytes: int, count: int, ranks: int, ways: Sequence[Outcome]) -> str:
    """Return the row of one size; `ways` are out-of-place and, for collectives that have it, in-place."""
    operation = "sum" if collective in ("all_reduce", "reduce_scatter") else "none"
    root = 0 if collective == "broadcast" else -1
    text = f"  {nbytes:11d} {count:13d} {'float':>9} {operation:>7} {root:7d}"
    for way in ways:
        speed = bandwidth(collective, nbytes, ranks, way.seconds)
        numbers = [f"{way.seconds * 1e6:.2f}", *(f"{number:.2f}" for number in speed)]
        text += "".join(map(_cell, [*numbers, "N/A" if way.wrong is None else str(way.wrong)]))
    return text + (2 - len(ways)) * 4 * _cell("N/A") + "\n"


def footer(wrong: int, busbw: Sequence[float]) -> str:
    """Return the lines below the rows: wrong elements over all sizes, and the average over all of them."""
    average = sum(busbw) / len(busbw) if busbw else 0.0
    outcome = "FAILED" if wrong else "OK"
    return f"# Out of bounds values : {wrong} {outcome}\n# Avg bus bandwidth    : {average:g}\n#\n"
