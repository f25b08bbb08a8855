# SPDX-License-Identifier: Apache-2.0
"""The seat of a head: the port at which nodes connect, held by every candidate from the start (succession.py).

While somebody else leads, this monitor keeps a copy of the job's state here, and notes which nodes have called it.
Times are seconds.
"""

from __future__ import annotations

import asyncio
import time
from typing import Callable

from .....trainyard.base.shapes import NOTHING, Each, Message, Shape, misfit
from .....trainyard.job.run.lead.succession import Caller, copy_shape, wins
from .....trainyard.job.run.logs.stacks import STACKS
from .....trainyard.job.run.measure.slow_ranks import SLOW_RANK
from .....trainyard.job.run.wire import messages
from ....machine.json_files import read_object
from .connections import OWN_FILES, Connection, Server, make_room
from .node_runner import NodeRunner

# The copy of the job's state, in the job's folder.
COPY = "succession.json"
_MAYBE = (Each(object), NOTHING)
# The parts of cluster.json that are read again, beside the copy of the state.
_LED = {
    **dict.fromkeys(("elapsed_s", "ranks_running"), float),
    "metrics": Each(object),
    "?checkpoints": ({"?newest": _MAYBE}, NOTHING),
    "?loss_not_a_number": _MAYBE,
    "?slow_ranks": [SLOW_RANK],
    "?stacks": (STACKS, NOTHING),
    "end": _MAYBE,
}


class Seat:
    """The port of a candidate; while its monitor leads, `leader` takes the messages of nodes."""

    def __init__(self, runner: NodeRunner, news: asyncio.Event) -> None:
        """Take the runner of a candidate, or of the head of a job without any, and the event that wakes its loop."""
        self._runner, self._news = runner, news
        node_plan = self._node_plan = runner.node_plan
        self._witness = str(node_plan.get("witness") or "")
        self.hosts = [*node_plan["hosts"], *node_plan.get("spares", ()), *filter(None, [self._witness])]
        candidates = dict(node_plan.get("candidates", ()))
        self._address = str(candidates.get(self._runner.host) or node_plan["head_address"])
        others = [host for host in self.hosts if host != self._runner.host]
        addresses = {**node_plan.get("addresses", {}), **candidates}.values()
        self.server = Server(node_plan["token"], others, self._receive, addresses)
        self.leader: Callable[[Connection, Message], None] | None = None
        self.callers: dict[str, Caller] = {}
        # Whether this candidate waits for a majority of calls.
        self.stands = False
        self.copy = self._copy_before()

    def _copy_before(self) -> Message:
        """Return the state of the job as this node knew it before it was rebooted; empty without any."""
        copy, led = read_object(self._runner.job_dir / COPY), self._own_state(self.led())
        # The folder belongs to the job's user.
        whole = [each for each in (led, copy) if not misfit(each, self._shape())]
        return max(whole, key=lambda each: int(each["term"]), default={})

    def led(self) -> Message:
        """Return the state of the job that this node wrote as its head before a reboot; empty without a whole one."""
        led = read_object(self._runner.job_dir / "cluster.json")
        return {} if misfit(led, _LED) or misfit(self._own_state(led), self._shape()) else led

    def _own_state(self, led: Message) -> Message:
        return {"term": led.get("term", 0), "head": self._runner.host, "restarts": led.get("restarts")}

    def _shape(self) -> Shape:
        return copy_shape(self.hosts, int(self._node_plan.get("max_restarts", 0)))

    async def open(self) -> None:
        """Open the port."""
        make_room(2 * len(self.server.hosts) + OWN_FILES)
        await self.server.open(self._address, self._node_plan["monitor_port"])

    def keep(self, copy: Message) -> None:
        """Keep a newer copy of the job's state, also over a reboot."""
        if copy != self.copy:
            self.copy = copy
            self._runner.keep(COPY, copy)

    def calls(self) -> dict[str, Caller]:
        """Return the nodes that call this one now."""
        self.callers = {host: caller for host, caller in self.callers.items() if host in self.server.connections}
        return self.callers

    def wins(self) -> bool:
        """Return whether this monitor, which has no head, leads from now on."""
        if not self.copy or self.copy["term"] < self._runner.term:
            return False
        patience_s = float(self._node_plan["silent_after_s"])
        return wins(self._runner.host, self.copy, self.calls(), time.monotonic(), patience_s, self._witness)

    def give_up(self) -> None:
        """Leave it to the next candidate, and have all that have called go there, too."""
        self.stands = False
        for connection in list(self.server.connections.values()):
            connection.abort()

    def _receive(self, connection: Connection, message: Message) -> None:
        """Take a message of a node. Raises BadMessage."""
        if self.leader:
            self.leader(connection, message)
            return
        host = connection.host
        budget = int(self._node_plan.get("max_restarts", 0))
        messages.check_from_node(message, host, self._node_plan["world_size"], budget)
        before = self.callers.get(host)
        report = message.get("report") or (before.report if before else None)
        if report:
            self.callers[host] = Caller(report, int(report.get("term", 0)), time.monotonic())
            self._news.set()
        if self.stands:
            connection.send({"stands": True})
