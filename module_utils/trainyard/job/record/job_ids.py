# SPDX-License-Identifier: Apache-2.0
"""The format of a job's id: NAME-YYYYMMDD-HHMMSS-XXXX, the last part four random hexadecimal digits.

Two controllers may launch a job of the same name in the same second; the random digits tell their ids apart.
"""

from __future__ import annotations

import re

# Any id that an earlier release or a scheduler may have made: the name of a folder, and no path.
_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,118}[a-z0-9])?")


def make(name: str, moment: str, digits: str) -> str:
    """Return the id of a job: `moment` is YYYYMMDD-HHMMSS, `digits` are four hexadecimal digits. Ids sort by time."""
    return f"{name}-{moment}-{digits}"


def is_valid(name: str) -> bool:
    """Return whether a text may be a job's id."""
    return bool(_PATTERN.fullmatch(name))
