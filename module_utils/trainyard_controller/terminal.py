# SPDX-License-Identifier: Apache-2.0
"""The one way to the operator's terminal: Ansible's Display, through which tasks, callbacks, warnings and errors print.

What nodes, ranks, schedulers and files say reaches it in a hundred ways; here all of it is made visible.
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
    """Have everything that is displayed from now on, here and in the processes of tasks, shown without controls."""
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
    """Let through the colours that Ansible itself puts into what is displayed meanwhile."""
    global _colours
    _colours = True
    try:
        yield
    finally:
        _colours = False
