# SPDX-License-Identifier: Apache-2.0
"""Patterns that are compiled when they are first used: a process on a node lives briefly, and uses few of all."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Late:
    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        """Return a method of the compiled pattern, and keep it."""
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def late_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern whose methods are those of `re.compile(text, flags)`, and which no function of `re` takes."""
    return _Late(text, flags)  # type: ignore[return-value]
