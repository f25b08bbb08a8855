# SPDX-License-Identifier: Apache-2.0
"""Compare the clocks of hosts. An offset is known up to its margin, so only an offset beyond both is a problem."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

# Largest offset for a job, in seconds: failures are ordered by the clocks of their nodes. verify.yml is stricter.
MAX_APART_S = 5.0


class Apart(NamedTuple):
    """The offset of each host from the median in seconds, the `odd` hosts, and those whose margin is too `vague`."""

    apart: dict[str, float]
    odd: list[str]
    vague: list[str]


def clocks_apart(clocks: Mapping[str, Mapping[str, float]], limit: float) -> Apart:
    """Compare offsets from one clock, {host: {offset_s, margin_s}}, with the allowed offset from the median."""
    middle = median(clock["offset_s"] for clock in clocks.values())
    off = {host: clock["offset_s"] - middle for host, clock in clocks.items()}
    odd = [host for host, clock in clocks.items() if abs(off[host]) - clock["margin_s"] > limit]
    vague = [host for host, clock in clocks.items() if host not in odd and clock["margin_s"] > limit]
    return Apart(off, odd, vague)
