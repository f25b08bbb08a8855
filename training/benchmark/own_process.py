# SPDX-License-Identifier: Apache-2.0
"""A measurement in a process of its own, which may hang or crash without ending the job."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

# A function that takes what is reported, a mapping for JSON.
Report = Any


def in_own_process(run: Callable[[Report], None], deadline: float) -> list[dict[str, Any]]:
    """Run a measurement in a process of its own until the deadline (time.monotonic()); return what it reported.

    An exception is reported as `error`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        # It shall not outlive a parent that is killed.
        signal.alarm(max(1, int(deadline - time.monotonic()) + 5))

        def report(told: Mapping[str, Any]) -> None:
            os.write(writing, json.dumps(told).encode() + b"\n")

        try:
            run(report)
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            report({"error": f"{type(error).__name__}: {first_line}"[:500]})
        os._exit(0)
    os.close(writing)
    text = b""
    left = deadline + 2 - time.monotonic()
    while left > 0 and select.select([reading], [], [], left)[0]:
        part = os.read(reading, 65536)
        if not part:
            break
        text += part
        left = deadline + 2 - time.monotonic()
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return [json.loads(line) for line in text.splitlines()]
