# SPDX-License-Identifier: Apache-2.0
"""Which parameters every rank holds whole, and so must have in common. numpy only.

In auto parallel a rank has its slice of some parameters, and others whole; under data parallel all are whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    # Python 3.8 could not run this line.
    Arrays = list[tuple[str, np.ndarray]]


def parted(arrays: Iterable[tuple[str, np.ndarray]], shapes: Mapping[str, tuple[int, ...]]) -> tuple[Arrays, Arrays]:
    """Return the parameters that have the shape which the network was made with, and those of which this is a slice."""
    whole: Arrays = []
    slices: Arrays = []
    for name, array in arrays:
        (whole if tuple(array.shape) == tuple(shapes[name]) else slices).append((name, array))
    return whole, slices


def not_finite(arrays: Iterable[tuple[str, np.ndarray]]) -> list[str]:
    """Return the names of parameters that hold an infinity or no number."""
    return [name for name, array in arrays if not np.isfinite(array).all()]
