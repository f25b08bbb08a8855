# SPDX-License-Identifier: Apache-2.0
"""Guard all output: remove control characters, as texts of nodes and files reach the terminal in many ways.

Tasks, callbacks, warnings and errors all print through Ansible's Display, also those of tasks' own processes.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator
from typing import Any

from ansible.utils.display import Display

from ..trainyard.findings.visible import visible, visible_but_colours

_colours = False
_shown_at = time.monotonic()


def guard() -> None:
    """Guard Display from now on, here and in the processes of tasks."""
    raw = Display.display
    if getattr(raw, "is_guarded", False):
        return

    @functools.wraps(raw)
    def display(self: Display, msg: Any, *arguments: Any, **options: Any) -> None:
        text = msg.decode("utf-8", "replace") if isinstance(msg, bytes) else str(msg)
        raw(self, visible_but_colours(text) if _colours else visible(text), *arguments, **options)
        global _shown_at
        _shown_at = time.monotonic()
        # Otherwise a pipe or a file gets the lines of a job's progress minutes later.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()

    display.is_guarded = True  # type: ignore[attr-defined]
    Display.display = display


@contextlib.contextmanager
def colours() -> Iterator[None]:
    """Let Ansible's own colours through meanwhile."""
    global _colours
    _colours = True
    try:
        yield
    finally:
        _colours = False


def shown_at() -> float:
    """Return when anything was printed last, in seconds of the monotonic clock."""
    return _shown_at
