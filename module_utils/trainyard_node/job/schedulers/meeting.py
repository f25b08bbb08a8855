# SPDX-License-Identifier: Apache-2.0
"""How the hosts of an allocation meet: each connects to the first one, which asks all of them the agent's questions.

The connections are those of monitors (connections.py) with the token of this run. Only the first host asks; an answer
has the same bounds as over ssh.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ....trainyard.job.record.folder_layout import on_host
from ....trainyard.job.run.wire.answers import checked
from ..run.monitor import connections
from ..run.monitor.connections import Connection, Server
from .answering import LATE_S

Answer = dict[str, Any]
Arguments = Mapping[str, Mapping[str, Any]]
# Answers a question with arguments within a time limit, on this host.
Here = Callable[[str, Mapping[str, Any], float], Awaitable[Answer]]
# How long the hosts of an allocation may take to join, and a host waits between two attempts.
JOIN_S, RETRY_S = 120.0, 0.1


class First:
    """The first host's side. Use it within a running loop; `ask` is called from another thread."""

    def __init__(self, host: str, others: tuple[str, ...], token: str, here: Here) -> None:
        """Take this host, the others, the token of the run, and what answers questions here."""
        self._host, self._others, self._here = host, others, here
        self._loop = asyncio.get_running_loop()
        self._awaited: dict[tuple[str, int], asyncio.Future[Answer]] = {}
        self._number = 0
        self._server = Server(token, others, self._receive, ())

    async def open(self, address: str, port: int) -> None:
        """Accept the others."""
        if self._others:
            await self._server.open(address, port)

    async def meet(self, needed: int = 0, patience_s: float = 0.0) -> None:
        """Wait until all others are there, or JOIN_S; `patience_s` for as many hosts as are `needed`."""
        began, count = time.monotonic(), len(self._others)
        while (there := len(self._server.connections)) < count:
            if time.monotonic() - began > max(JOIN_S, 0.0 if there + 1 >= needed else patience_s):
                break
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
            return checked(question, await self._here(question, arguments, limit_s), host)
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

    def __init__(self, host: str, token: str, here: Here) -> None:
        """Take this host, the token of the run, and what answers questions here."""
        self.host, self._token, self._here = host, token, here
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # When the connection to the first host ended, on the monotonic clock.
        self.lost_s: float | None = None

    async def attend(self, address: str, port: int, patience_s: float = 0.0) -> Answer:
        """Join the first host; return what it says in the end, {} if it was lost before. Raises OSError without it."""
        deadline = time.monotonic() + max(JOIN_S, patience_s)
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
        found = await self._here(str(message["question"]), message["arguments"], float(message["limit_s"]))
        if connection.open:
            connection.send({"asked": message["asked"], "answer": found})
