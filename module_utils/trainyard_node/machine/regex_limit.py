# SPDX-License-Identifier: Apache-2.0
"""A limit of processor time for what a user's regular expression may do with a line of a log.

Some expressions take for ever on some lines, and Python's own engine knows no limit; but it looks for signals while it
searches (MAYBE_CHECK_SIGNALS of Modules/_sre), and a handler that raises ends the search. The timer counts this
process's own time, so that a busy machine cuts nothing short.
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
    """Let what is done inside use this many seconds of CPU. Raises TooLongError; in other threads there is no limit."""

    def cut(number: int, frame: Any) -> NoReturn:
        del number, frame
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
