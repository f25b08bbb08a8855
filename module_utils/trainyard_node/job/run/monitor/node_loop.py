# SPDX-License-Identifier: Apache-2.0
"""The loop of an ordinary node's monitor: report to the head, and do what it says. Times are seconds."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable

from .....trainyard.base.shapes import Message
from .....trainyard.job.run.decide.attempt_watch import JOIN_S, REPORT_S
from .....trainyard.job.run.lead.succession import CALL_S, STAND_S, WAIT_S, Search
from .....trainyard.job.run.wire import messages
from ..ranks.stop_grace import of_plan
from . import connections
from .connections import Connection, NodeConnection
from .life import Lead, Life, Loop
from .seat import Seat

# Between two tries to connect to the head.
RETRY_S = 0.2
# How much longer a node tries to reach the head of a job that may have gone on without it.
LEFT_OUT_S = 3600.0


class NodeLoop(Loop):
    """Reports of this node to the head, until the job ends or the head is silent for too long.

    Where the head can be replaced, a node whose head is silent calls the candidates in turn (succession.py).
    """

    def __init__(self, monitor: Life, seat: Seat | None, resigned: bool = False) -> None:
        """Take the monitor of this node, which may have led until now."""
        self._monitor, self._runner, self._seat = monitor, monitor.runner, seat
        self._node_plan = monitor.runner.node_plan
        # Nobody waits for a witness in a restart, so the job may go on without it, too.
        self._is_witness = self._node_plan.get("witness") == self._runner.host
        self._candidates: dict[str, str] = dict(self._node_plan.get("candidates", ()))
        self._search = Search(self._candidates)
        # Whether this node looks for a head: it has lost one, or may have missed a new one.
        self._searches = bool(self._candidates) and (resigned or monitor.resumed)
        # Whether the candidate that was called waits for a majority.
        self._stands = False
        # When the head sent something last, and how long it may be silent.
        limit_s = float(self._node_plan["silent_after_s"])
        self.last_contact, self._patience_s = time.monotonic(), limit_s if self._searches else JOIN_S
        # Whether it ever had one, or was it.
        self._had_head = self._searches
        if self._searches:
            self._runner.follows = ""
        if resigned:
            self.last_contact -= limit_s

    async def run(self) -> Lead | None:
        """Report to the head until it ends the job, or is silent for too long, or until this node leads."""
        ended = self._monitor.ended
        while not ended.is_set():
            searches = self._searches
            if self._target() == self._runner.host:
                silent_s = time.monotonic() - self.last_contact
                if self._seat and await self._stand(self._seat):
                    return Lead(silent_s)
            else:
                with contextlib.suppress(OSError, asyncio.TimeoutError):
                    await self._report(await self._call(self._target()))
            if searches and self._searches:
                self._search.go_on()
            self._note_silence()
            self.inspect_and_save()
            self._give_up()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(ended.wait(), RETRY_S)
        while self._monitor.ranks_may_save():
            self.inspect_and_save()
            await self._monitor.pause()
        return None

    # ---- whom to call

    def _target(self) -> str:
        return self._search.target if self._searches else self._runner.follows

    def _call(self, host: str) -> Awaitable[NodeConnection]:
        address = self._candidates.get(host) or str(self._node_plan["head_address"])
        where, token = (address, int(self._node_plan["monitor_port"])), self._node_plan["token"]
        calling = connections.connect(token, self._runner.host, where, self.receive, self._closed)
        return asyncio.wait_for(calling, CALL_S) if self._searches else calling

    async def _stand(self, seat: Seat) -> bool:
        """Wait for calls in this node's turn; return whether it leads from now on."""
        begun, seat.stands = time.monotonic(), bool(seat.copy)
        patience_s = random.uniform(*STAND_S)  # noqa: S311 (nothing secret)
        while not self._monitor.ended.is_set() and seat.stands:
            if seat.wins():
                seat.stands = False
                return True
            self.inspect_and_save()
            self._give_up()
            if time.monotonic() - begun > (patience_s if seat.calls() else WAIT_S):
                break
            await self._monitor.pause()
        seat.give_up()
        return False

    def _note_silence(self) -> None:
        """Look for another head where this one is silent for too long."""
        silent = time.monotonic() - self.last_contact > self._patience_s
        if silent and self._candidates and not self._searches:
            self._begin_search()

    def _begin_search(self) -> None:
        self._searches, self._runner.follows = True, ""
        self._search.begin()

    def _closed(self, connection: Connection) -> None:
        del connection
        self._monitor.news.set()

    async def _report(self, connection: Connection) -> None:
        called, searched, self._stands = time.monotonic(), self._searches, False
        if not self._candidates:
            # From now on the head is there, and knows that this node is.
            self.last_contact, self._patience_s = called, float(self._node_plan["silent_after_s"])
        ended, sent = self._monitor.ended, 0.0
        while not ended.is_set() and connection.open:
            changed = self.inspect_and_save()
            if not ended.is_set() and (changed or time.monotonic() - sent >= REPORT_S):
                sent = time.monotonic()
                connection.update({"report": self._runner.report})
            slow_ranks = self._runner.slow_ranks()
            if slow_ranks:
                connection.send(slow_ranks)
            await self._monitor.pause()
            self._give_up()
            self._note_silence()
            searched = searched and self._searches
            patience_s = max(STAND_S) if self._stands else WAIT_S
            if self._searches and (not searched or time.monotonic() - called > patience_s):
                # It leads no more, or not soon.
                connection.abort()
                return
        end = self._runner.end
        if self._monitor.goes_down:
            connection.update({"stopped": True, "goes_down": True})
        elif end.get("state") == "stopped" and "host" not in end:
            connection.update({"stopped": True})
        await self._let_ranks_save(connection)
        connection.close()

    async def _let_ranks_save(self, connection: Connection) -> None:
        """Report until the head ends the connection, as no rank of the job may save any more, or the time is over.

        Until then nothing that starts ranks may end here: mpirun would end all others.
        """
        until = time.monotonic() + of_plan(self._node_plan)[1]
        while self._monitor.gives_time and connection.open and time.monotonic() < until:
            if not self._monitor.ranks_may_save() and self._leaves_alone():
                break
            self.inspect_and_save()
            connection.update({"report": self._runner.report})
            await self._monitor.pause()

    def _leaves_alone(self) -> bool:
        """Return whether this node goes, and the job goes on: the head ends no connection for that.

        As the node goes down the head begins the next attempt; then it says for how long ranks of others may save.
        """
        step, waits = self._runner.next, bool(self._node_plan.get("places"))
        replaced = (self._runner.end.get("failure") or {}).get("kind") == "replaced"
        answered = waits or step.requested != step.attempts
        return replaced or (self._monitor.leaving and answered and not step.saving)

    def receive(self, connection: Connection, message: Message) -> None:
        """Take a message of the head. Raises BadMessage."""
        processes = [process["name"] for process in self._node_plan["processes"]]
        hosts = self._seat.hosts if self._seat else ()
        messages.check_from_head(message, processes, int(self._node_plan.get("max_restarts", 0)), hosts)
        if "stands" in message:
            self._stands = self._searches
            return
        if "resigns" in message:
            if self._candidates:
                self._begin_search()
            return
        self._follow(message)
        if "end" in message:
            self._monitor.end(message["end"])
        if self._runner.follow(message):
            self._monitor.news.set()
        stacks = self._runner.stacks()
        if stacks:
            connection.send(stacks)

    def _follow(self, message: Message) -> None:
        """Have a head from now on: a host that sends orders leads."""
        self.last_contact, self._patience_s = time.monotonic(), float(self._node_plan["silent_after_s"])
        self._had_head = True
        if self._searches:
            self._runner.follows, self._searches = self._search.target, False
        self._runner.term = max(self._runner.term, message.get("term", 0))
        if self._seat and "copy" in message:
            self._seat.keep(message["copy"])

    def inspect_and_save(self) -> bool:
        """Inspect this node and write down what has changed; return whether the head must know it at once."""
        changed = self._monitor.inspect()
        if changed:
            self._runner.save()
        self._runner.write_metrics(changed, time.monotonic() - self.last_contact)
        return changed

    def _give_up(self) -> None:
        now, patience_s = time.monotonic(), self._patience_s
        silent_s = now - self.last_contact
        if silent_s > patience_s and self._node_plan.get("max_restarts", 0):
            # The head has given this node up by now: what still runs here would be in the way of the next attempt.
            self._runner.terminator.terminate(now)
            patience_s += float(self._node_plan.get("rejoin_s", 0))
            patience_s += LEFT_OUT_S if "fewer" in self._node_plan or self._is_witness else 0.0
        if silent_s > patience_s:
            host, seen_by = self._node_plan["head_host"], self._runner.host
            failure = {"kind": "head_silent", "host": host, "seen_by": seen_by, "after_s": round(silent_s)}
            if self._candidates and self._had_head:
                failure = {"kind": "no_majority", "host": seen_by, "after_s": round(silent_s)}
            self._monitor.finish("failed", failure=failure)
