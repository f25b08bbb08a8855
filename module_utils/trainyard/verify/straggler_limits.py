# SPDX-License-Identifier: Apache-2.0
"""From where on a node counts as slow: the limits of the result of pairs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The thresholds of the result.

    The gate is `1 - tolerance` of the healthy bandwidth, lower where the measurements scatter: `spread` standard
    deviations below, but never under `1 - most_tolerance`. `confirm` is how many measurements with cleared partners
    must agree before nothing is measured again. `fraction` of an expected bandwidth is what the healthy must reach.
    """

    tolerance: float = 0.07
    spread: float = 3.0
    most_tolerance: float = 0.5
    confirm: int = 3
    fraction: float = 0.8
