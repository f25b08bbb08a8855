# SPDX-License-Identifier: Apache-2.0
"""Remove control characters from all output to the terminal, as texts of nodes and files reach it in many ways.

Tasks, callbacks, warnings and errors all print through Ansible's Display.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from ansible.utils.display import Display

from ..trainyard.findings.visible import visible, visible_but_colours

_colours = False


def guard() -> None:
    """Guard Display from now on, here and in the processes of tasks."""
    raw = Display.display
    if getattr(raw, "is_guarded", False):
        return

    @functools.wraps(raw)
    def display(self: Display, msg: Any, *arguments: Any, **options: Any) -> None:
        text = msg.decode("utf-8", "replace") if isinstance(msg, bytes) else str(msg)
        raw(self, visible_but_colours(text) if _colours else visible(text), *arguments, **options)

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
