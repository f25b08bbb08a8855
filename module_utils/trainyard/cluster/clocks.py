# SPDX-License-Identifier: Apache-2.0
"""Whether the clocks of hosts agree. An offset is known up to its margin, so only what is beyond both is a fault."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

# For a job, in s: failures are put in order by the clocks of their nodes. The proof is stricter.
MOST_APART_S = 5.0


class Apart(NamedTuple):
    """How far each host's clock is from the median of all, in s; who is `odd`, and of whom that cannot be told."""

    apart: dict[str, float]
    odd: list[str]
    vague: list[str]


def apart(clocks: Mapping[str, Mapping[str, float]], limit: float) -> Apart:
    """Compare offsets from one clock, {host: {offset_s, margin_s}}; `limit` is how far from the median is well."""
    middle = median(clock["offset_s"] for clock in clocks.values())
    off = {host: clock["offset_s"] - middle for host, clock in clocks.items()}
    odd = [host for host, clock in clocks.items() if abs(off[host]) - clock["margin_s"] > limit]
    vague = [host for host, clock in clocks.items() if host not in odd and clock["margin_s"] > limit]
    return Apart(off, odd, vague)
