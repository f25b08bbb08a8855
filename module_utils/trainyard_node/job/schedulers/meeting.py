# SPDX-License-Identifier: Apache-2.0
"""How the hosts of an allocation meet: each connects to the first one, which asks all of them the agent's questions.

The connections are those of monitors (connections.py) with the token of this run. Only the first host asks; a question
runs in a process of its own, as over ssh, and its answer has the same bounds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from ....trainyard.job.run.answers import checked
from ....trainyard.slurm.allocation import on_host
from ..run import connections
from ..run.connections import Connection, Server

Answer = dict[str, Any]
Arguments = Mapping[str, Mapping[str, Any]]
# How long the hosts of an allocation may take to join, a host waits between two attempts, and an answer may be late.
JOIN_S, RETRY_S, LATE_S = 120.0, 0.5, 10.0


async def answer(question: str, arguments: Mapping[str, Any], limit_s: float) -> Answer:
    """Answer a question of the agent here, in a process of its own."""
    argv = [sys.executable, "-IS", sys.argv[0], "answer", question, f"{limit_s:g}"]
    asked = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=connections.MAX_MESSAGE
    )
    try:
        printed, _ = await asyncio.wait_for(asked.communicate(json.dumps(arguments).encode()), limit_s + LATE_S)
        found = json.loads(printed)
    except asyncio.TimeoutError:
        asked.kill()
        return {"failed": True, "msg": f"no answer within {limit_s:g} s"}
    except ValueError:
        return {"failed": True, "msg": f"the agent ended with status {asked.returncode}"}
    return found if isinstance(found, dict) else {"failed": True, "msg": "an answer that is none"}


class First:
    """The first host's side. Use it within a running loop; `ask` is called from another thread."""

    def __init__(self, host: str, others: tuple[str, ...], token: str) -> None:
        """Take this host, the others, and the token of the run."""
        self._host, self._others = host, others
        self._loop = asyncio.get_running_loop()
        self._awaited: dict[tuple[str, int], asyncio.Future[Answer]] = {}
        self._number = 0
        self._server = Server(token, others, self._receive, ())

    async def open(self, address: str, port: int) -> None:
        """Accept the others, and wait until all are there, or JOIN_S."""
        if self._others:
            await self._server.open(address, port)
        deadline = time.monotonic() + JOIN_S
        while len(self._server.connections) < len(self._others) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def addresses(self) -> dict[str, str]:
        """Return the address of each other host that is there."""
        return {host: each.peer for host, each in self._server.connections.items()}

    def ask(self, question: str, arguments: Arguments, limit_s: float = 120.0) -> dict[str, Answer]:
        """Ask hosts a question with the arguments of each; return their answers."""
        return asyncio.run_coroutine_threadsafe(self._ask(question, arguments, limit_s), self._loop).result()

    async def _ask(self, question: str, arguments: Arguments, limit_s: float) -> dict[str, Answer]:
        each = (self._ask_one(host, question, own, limit_s) for host, own in arguments.items())
        return dict(zip(arguments, await asyncio.gather(*each)))

    async def _ask_one(self, host: str, question: str, arguments: Mapping[str, Any], limit_s: float) -> Answer:
        arguments = on_host(arguments, host)
        if host == self._host:
            return checked(question, await answer(question, arguments, limit_s), host)
        there = self._server.connections.get(host)
        if there is None:
            return {"unreachable": True, "msg": f"did not join the others within {JOIN_S:.0f} s"}
        self._number += 1
        key = host, self._number
        awaited = self._awaited[key] = self._loop.create_future()
        there.send({"asked": self._number, "question": question, "arguments": arguments, "limit_s": limit_s})
        try:
            return checked(question, await asyncio.wait_for(awaited, limit_s + 2 * LATE_S), host)
        except asyncio.TimeoutError:
            return {"unreachable": True, "msg": f"no answer within {limit_s + 2 * LATE_S:g} s"}
        finally:
            del self._awaited[key]

    def _receive(self, connection: Connection, message: Answer) -> None:
        awaited = self._awaited.get((connection.host, message.get("asked", 0)))
        found = message.get("answer")
        if awaited and not awaited.done() and isinstance(found, dict):
            awaited.set_result(found)

    def tell(self, message: Answer) -> None:
        """Tell the other hosts something."""
        for each in list(self._server.connections.values()):
            each.send(message)

    def close(self) -> None:
        """Accept no more hosts."""
        if self._others:
            self._server.close()


class Other:
    """Another host's side: it answers until it is told how it goes on."""

    def __init__(self, host: str, token: str) -> None:
        """Take this host and the token of the run."""
        self.host, self._token = host, token
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # When the connection to the first host ended, on the monotonic clock.
        self.lost_s: float | None = None

    async def attend(self, address: str, port: int) -> Answer:
        """Join the first host; return what it says in the end, {} if it was lost before. Raises OSError without it."""
        deadline = time.monotonic() + JOIN_S
        while True:
            try:
                made = await connections.connect(self._token, self.host, (address, port), self._receive, self._closed)
                made.keep_alive()
                break
            except (OSError, asyncio.TimeoutError):
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RETRY_S)
        return await self._told

    def _closed(self, _: Connection) -> None:
        self.lost_s = time.monotonic()
        if not self._told.done():
            self._told.set_result({})

    def _receive(self, connection: Connection, message: Answer) -> None:
        if "question" in message:
            task = asyncio.get_running_loop().create_task(self._answer(connection, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif message and not self._told.done():
            self._told.set_result(message)

    async def _answer(self, connection: Connection, message: Answer) -> None:
        found = await answer(str(message["question"]), message["arguments"], float(message["limit_s"]))
        if connection.open:
            connection.send({"asked": message["asked"], "answer": found})
