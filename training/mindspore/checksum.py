# SPDX-License-Identifier: Apache-2.0
"""The checksum by which ranks compare their parameters. numpy only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def checksum(arrays: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return the sha256 over names, types, shapes and bytes of `arrays`, in the order of their names."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays, key=lambda item: item[0]):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
