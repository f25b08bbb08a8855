# SPDX-License-Identifier: Apache-2.0
"""Read the small files of a job as far as they have the shape that their reader needs."""

from __future__ import annotations

import os
from typing import Any

from ...trainyard.base.shapes import Shape, misfit
from .json_files import MAX_BYTES, read_json


def read_checked(path: str | os.PathLike[str], shape: Shape, most: int = MAX_BYTES) -> dict[str, Any] | None:
    """Return a JSON object of this shape, None where there is none. Any process of the job's user may have written it.

    A file that is damaged counts as none: its job has lost what it says, and other jobs must not fail because of it.
    """
    found = read_json(path, most)
    return found if isinstance(found, dict) and not misfit(found, shape) else None
