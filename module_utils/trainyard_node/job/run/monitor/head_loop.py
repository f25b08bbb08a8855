# SPDX-License-Identifier: Apache-2.0
"""The loop of the head's monitor: receive reports, have HeadState decide, carry out its orders. Times are seconds."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from .....trainyard.base.shapes import Message
from .....trainyard.job.record import prometheus
from .....trainyard.job.run.decide.attempt_watch import REPORT_S, Local
from .....trainyard.job.run.decide.head_state import HeadState, cluster_state
from .....trainyard.job.run.decide.orders import Disconnect, End, Now, Order, PollCheckpoints
from .....trainyard.job.run.lead.take_over import Hold, come_back, take_over
from .....trainyard.job.run.wire import messages
from ...record import event_sender
from ..evidence.checkpoint_poll import LAST_POLL_S
from .connections import Connection
from .life import Follow, Life, Loop
from .seat import Seat

# How long ranks may take to exit before the job's end is sent to receivers of events: SIGTERM, then SIGKILL.
END_RANKS_S = 5.0


def now() -> Now:
    """Return the present time."""
    return Now(time.monotonic(), time.time())


class HeadLoop(Loop):
    """The head's work for the whole job, beside that for its own node."""

    def __init__(self, monitor: Life, seat: Seat, silent_s: float | None = None) -> None:
        """Read what an earlier monitor of the head wrote to cluster.json.

        A head that takes over has the copy of the state in its `seat`; the last head was silent for `silent_s`.
        """
        self._monitor, self._runner, self._seat, self.server = monitor, monitor.runner, seat, seat.server
        node_plan = self._node_plan = monitor.runner.node_plan
        previous = seat.copy if silent_s is not None else seat.led()
        self.state = HeadState(node_plan, Now(self._runner.started, self._runner.started_at), previous)
        # The sender of events, and the last state that it has compared.
        self.sender = event_sender.of_job(monitor.job_dir, node_plan, self._runner.supervisor.beside)
        self._compared: Message | None = previous or None
        if silent_s is not None:
            take_over(self.state, seat.copy, seat.calls(), silent_s, now(), monitor.resumed)
            # The last head has told all that was before.
            self._compared = json.loads(json.dumps(cluster_state(self.state, now())))
            print(f"leads the job in place of {seat.copy['head']}, term {self.state.term}", flush=True)
        elif monitor.resumed:
            come_back(self.state, previous, {"kind": "rebooted", "host": self._runner.host}, now())
        self._hold = Hold(self.state, time.monotonic(), heard=silent_s is not None)
        seat.leader = self.receive

    def receive(self, connection: Connection, message: Message) -> None:
        """Take a message of a node and answer. Raises BadMessage."""
        host = connection.host
        messages.check_from_node(message, host, self._node_plan["world_size"], self.state.budget)
        if self.state.receive(host, message, now()):
            self._monitor.news.set()
        if "stacks" not in message and "samples" not in message:
            connection.update(self.state.message_for(host, now()))

    async def run(self) -> Follow | None:
        """Decide and keep cluster.json until another node leads, or the job is over and all nodes have its end."""
        saved = 0.0
        while not self._monitor.ended.is_set():
            changed = self._monitor.inspect()
            if self._monitor.leaving:
                break
            if self._hold.lost(time.monotonic()) and self._has_left_its_place():
                # It leaves it to another node to lead the job, and becomes an ordinary node.
                self._hand_over()
                return Follow(self.state.restarts.replaced.get(self._runner.host, ""))
            self.decide()
            if changed or time.monotonic() - saved >= REPORT_S or self._runner.end:
                saved = time.monotonic()
                state = self.save_cluster()
                self._runner.save()
                self._runner.write_metrics(changed, of_job=lambda state=state: self._samples(state))  # type: ignore[misc]
            await self._monitor.pause()
        if self._monitor.leaving and (self.state.grace_s or self.state.candidates):
            await self._leave_with_node()
        if self._monitor.leaving:
            return None
        self._send_all()
        self.server.close()
        await self._let_ranks_save()
        self._runner.restore_checkpoints(self.state.restarts.rollback.trial)
        # All that its ranks have printed counts.
        self._monitor.inspect()
        self._poll_checkpoints()
        if newest := self.state.nodes.checkpoints():
            self.state.restarts.note_checkpoint(newest["newest"])
        self.save_cluster()
        for connection in list(self.server.connections.values()):
            # Now nodes end what starts ranks: all of it is needed until the last rank of the job has left.
            connection.close()
        return None

    def _has_left_its_place(self) -> bool:
        """End what runs here of a head that a spare has replaced; return whether nothing is left of it."""
        time_s = time.monotonic()
        if self._runner.host not in self.state.restarts.replaced:
            return True
        return not self._runner.terminator.saving(time_s) and self._runner.terminator.terminate(time_s)

    def _hand_over(self) -> None:
        """Tell the nodes that are there to choose another head."""
        self._send_all()
        self.save_cluster()
        self._seat.leader, self._seat.callers = None, {}
        self._seat.keep(self.state.copy())
        for connection in list(self.server.connections.values()):
            connection.send({"resigns": True})
            connection.close()
        if self.sender:
            self.sender.finish_by(time.monotonic())

    async def _leave_with_node(self) -> None:
        """Begin the next attempt, for which all ranks end first and may save: it starts when this node is back."""
        self.state.fail({"kind": "rebooted", "host": self._runner.host})
        begun = time.monotonic()
        while self._monitor.leaving:
            self._monitor.inspect()
            self.decide()
            self.save_cluster()
            saves = self._monitor.ranks_may_save() or self.state.saving(time.monotonic())
            if not saves or time.monotonic() - begun >= self.state.grace_s:
                break
            await self._monitor.pause()
        if self._monitor.leaving and self.state.candidates:
            self._hand_over()

    async def _let_ranks_save(self) -> None:
        """Wait until no rank of any node may save any more."""
        saved = 0.0
        while self._monitor.ranks_may_save() or self._others_save():
            changed = self._monitor.inspect()
            self.state.receive(self._runner.host, {"report": self._runner.report}, now())
            if changed or time.monotonic() - saved >= REPORT_S:
                saved = time.monotonic()
                self.save_cluster()
            await self._monitor.pause()

    def _others_save(self) -> bool:
        return self._monitor.gives_time and self.state.others_save(time.monotonic(), self.server.connections)

    def decide(self) -> None:
        """Decide how the job goes on, and carry out the orders."""
        state, runner = self.state, self._runner
        runner.follows, runner.term = runner.host, state.term
        own = [{"report": runner.report}, runner.slow_ranks(), runner.stacks()]
        for message in filter(None, own):
            state.receive(runner.host, message, now())
        local = Local(self.server.connections, runner.failures.missed(state.rank_failures()))
        orders = state.decide(now(), local)
        if PollCheckpoints() in orders:
            self._poll_checkpoints()
            orders = state.decide(now(), local._replace(polled=True))
        self._carry_out(orders)

    def _carry_out(self, orders: Sequence[Order]) -> None:
        for order in orders:
            if isinstance(order, Disconnect):
                self.server.connections[order.host].abort()
            elif isinstance(order, End):
                self._monitor.end(order.end)
        if orders and not self._runner.end:
            self._send_all()
            self._monitor.news.set()
        self._runner.follow(self.state.message_for(self._runner.host, now()))

    def _send_all(self) -> None:
        """Send each node what it has to do."""
        for host, connection in list(self.server.connections.items()):
            connection.update(self.state.message_for(host, now()))

    def _poll_checkpoints(self) -> None:
        self._runner.poll_checkpoints(LAST_POLL_S)
        self.state.receive(self._runner.host, {"report": self._runner.report}, now())

    def save_cluster(self, all_ended: bool = False) -> Message:
        """Write the state of the whole job and send its events; the event of its end when nothing runs any more."""
        events = self.sender.as_list() if self.sender else []
        state = {**cluster_state(self.state, now()), "events": events}
        self._runner.keep("cluster.json", state)
        if self.sender and (all_ended or not self._runner.end):
            # As it is read after a reboot; and nothing of it changes with the job.
            previous, self._compared = self._compared, json.loads(json.dumps(state))
            self.sender.send_changes(previous, self._compared)
        return state

    def _samples(self, state: Message) -> prometheus.Samples:
        return prometheus.job_samples(state, self._runner.host, self._node_plan["launcher"])

    def ended(self, record: Message) -> Message:
        """Take the job's end; return the one that holds, which is the first."""
        self.state.finish(now=now(), **record)
        return self.state.end

    def hurry(self) -> None:
        """Do not wait long for receivers of events once somebody ends the monitor."""
        if self.sender and self._runner.end:
            self.sender.finish_by(time.monotonic() + event_sender.STOPPED_S)

    async def close(self) -> None:
        """Send the events of the job's end once nothing runs here, for a short time: units end with this monitor."""
        if self.sender is None:
            return
        until = time.monotonic() + END_RANKS_S
        while not self._runner.terminator.terminate(time.monotonic()) and time.monotonic() < until:
            await asyncio.sleep(0.1)
        self.save_cluster(all_ended=True)
        limit_s = event_sender.STOPPED_S if self._monitor.stopped else event_sender.LAST_S
        self.sender.finish_by(time.monotonic() + limit_s)
        while not self.sender.finished():
            await asyncio.sleep(0.05)
        self.save_cluster()
