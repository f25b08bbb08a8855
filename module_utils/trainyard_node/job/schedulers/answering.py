# SPDX-License-Identifier: Apache-2.0
"""Answer the agent's questions on a host of an allocation, each in a process of its own, as over ssh.

A question has a time limit, changes its user, and may take memory or crash. So one process that has loaded the modules
of a job's start forks for each question: to load them again would take most of the time of the start.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any

from ...cluster import node_identity  # noqa: F401 (what questions import late is there before the fork)
from ...machine import tree  # noqa: F401
from ..plan import (
    image_inspection,  # noqa: F401
    node_check,  # noqa: F401
)
from ..run import job_life  # noqa: F401
from ..run.monitor.connections import MAX_MESSAGE

Answer = dict[str, Any]
# Answers a question with arguments, in the process that calls it.
Here = Callable[[str, Mapping[str, Any], float], Answer]
# How long an answer may be late, in seconds.
LATE_S = 10.0


class Answering:
    """The process that forks for each question. Make it before any thread and any event loop of this process."""

    def __init__(self, here: Here) -> None:
        """Fork it; each fork answers by `here`."""
        self._requests, requests = socket.socketpair()
        if not os.fork():
            self._requests.close()
            _serve(requests, here)
        requests.close()

    async def answer(self, question: str, arguments: Mapping[str, Any], limit_s: float) -> Answer:
        """Answer a question of the agent here, in a process of its own."""
        ours, its = socket.socketpair()
        with its:
            socket.send_fds(self._requests, [b"?"], [its.fileno()])
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=MAX_MESSAGE)
        try:
            writer.write(json.dumps([question, arguments, limit_s]).encode() + b"\n")
            found = json.loads(await asyncio.wait_for(reader.readline(), limit_s + LATE_S))
        except asyncio.TimeoutError:
            return {"failed": True, "msg": f"no answer within {limit_s:g} s"}
        except (OSError, ValueError):
            return {"failed": True, "msg": "the agent ended without an answer"}
        finally:
            writer.close()
        return found if isinstance(found, dict) else {"failed": True, "msg": "an answer that is none"}

    def close(self) -> None:
        """End the process, which holds memory; questions that it has begun go on."""
        self._requests.close()


def _serve(requests: socket.socket, here: Here) -> None:
    """Fork for each question until the other side is closed, and leave."""
    try:
        # The kernel reaps the forks, and none of them reads what this program reads.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        while True:
            _, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
            if not descriptors:
                break
            if not os.fork():
                requests.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(descriptors[0], here)
                break
            os.close(descriptors[0])
    finally:
        os._exit(0)


def _answer(descriptor: int, here: Here) -> None:
    """Read a question, and write the answer."""
    with os.fdopen(os.dup(descriptor)) as asked, os.fdopen(descriptor, "w") as answered:
        question, arguments, limit_s = json.loads(asked.readline())
        # The agent's own limit raises an error; a call that never comes back to Python ends so.
        faulthandler.dump_traceback_later(limit_s + LATE_S / 2, exit=True)
        answered.write(json.dumps(here(question, arguments, limit_s)) + "\n")
