# SPDX-License-Identifier: Apache-2.0
"""Limit the processor time of a user's regular expression on a line of a log.

Some expressions search some lines practically without end, and Python's engine has no limit. But it handles signals
while it searches (MAYBE_CHECK_SIGNALS of Modules/_sre), and a handler that raises ends the search. The timer counts
this process's own time, so that a busy machine does not matter.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, NoReturn


class TooLongError(Exception):
    """The time is used up."""


@contextlib.contextmanager
def cpu_at_most(seconds: float) -> Iterator[None]:
    """Limit the CPU time of the block, except in threads beside the main one. Raises TooLongError."""

    def cut(_number: int, _frame: Any) -> NoReturn:
        raise TooLongError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, cut)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
