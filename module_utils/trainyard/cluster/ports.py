# SPDX-License-Identifier: Apache-2.0
"""Unused TCP ports of a node, as a text of ranges: `10000-32767,61000-65535`."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from ..base.spans import stretches

# Lower ports belong to well-known services.
FIRST, LAST = 10000, 65535
_MAX_RANGES = 16
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")


def parse_ports(text: str) -> set[int]:
    """Return the ports of `32768 60999` (a range) or `8080,9000-9010` (the kernel's lists)."""
    ports: set[int] = set()
    for part in text.replace("\t", " ").split(","):
        bounds = [int(number) for number in re.findall(r"\d{1,9}", part)]
        if bounds:
            ports.update(range(bounds[0], min(bounds[-1], LAST) + 1))
    return ports


def port_ranges(ports: Iterable[int]) -> str:
    """Return the longest ranges of ports, the lowest first, as `parse_ports` reads them."""
    longest = sorted(stretches(ports), key=lambda run: run[0] - run[1])[:_MAX_RANGES]
    return ",".join(f"{first}-{last}" for first, last in sorted(longest))


def draw_ports(ranges: str, count: int, choose: random.Random) -> list[int]:
    """Return up to count different ports of a node's ranges.

    They are drawn at random, so that launches in the same second hardly ever choose the same port.
    """
    ports = _runs(ranges)
    places = choose.sample(range(sum(map(len, ports))), min(count, sum(map(len, ports))))
    return [_at(ports, place) for place in places]


def is_unused(port: int, ranges: str) -> bool:
    """Return whether a port is among a node's ranges."""
    return any(port in run for run in _runs(ranges))


def _runs(ranges: str) -> list[range]:
    bounds = [tuple(map(int, bound)) for bound in _RANGE.findall(ranges)[:_MAX_RANGES]]
    return [range(max(first, FIRST), min(last, LAST) + 1) for first, last in bounds]


def _at(ports: Sequence[range], place: int) -> int:
    for run in ports:
        if place < len(run):
            return run[place]
        place -= len(run)
    raise IndexError(place)
