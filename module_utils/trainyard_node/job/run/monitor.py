# SPDX-License-Identifier: Apache-2.0
"""The monitor: one on each node of a job, as the training user, for the life of the job.

It makes a set of processes on many nodes live and die as one, without the controller: a laptop that is closed, or a
job started with job_wait: false, changes nothing.

- Every monitor follows the processes of its own node and reports to the head's monitor once a second, at once when
  one ends, which the kernel tells. The head answers; so each side notices when the other has gone silent.
- The head decides: all ranks ended well (succeeded), one did not (failed), a node is silent or never came
  (failed), the time is up (timed_out), somebody stopped a node (stopped). It tells all others, and each ends.
  A process without ranks, such as a scheduler, keeps no job alive and spoils none whose ranks have ended well.
- With a budget of restarts a failure is answered by a restart (../trainyard/job/restarts.py) as long as it lasts: all
  nodes end their part, say so, and start again together. A node that was lost has `rejoin_s` to come back for that.
- A monitor that ends takes the processes of its node with it: systemd units are bound to the monitor's unit; without
  systemd the processes are its children. A node that was cut off ends its processes the same way when it has not
  heard from the head for `silent_after_s`.

The monitors speak over TCP on the job's network, after each has proved that it knows the job's token (wire.py). Times
are seconds; `time` is since the epoch, all waiting is on the monotonic clock.

Files in the job's folder: node_plan.json (input, 0600), exits/*.json, monitor.json (this node), cluster.json (head
only, all nodes), metrics.jsonl (the node of rank 0), attempts.json (with restarts: what runs, and survives a reboot),
attempt/ (what belongs to one attempt of the whole job; emptied before the next).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import time
from pathlib import Path

from ....trainyard.job.run import messages
from ....trainyard.job.run.messages import Message
from ...machine.json_files import read_object, write_json
from ..record import event_sender as sender
from ..record.secrets import forget_secrets
from . import connections as wire
from . import processes, units
from .connections import Line
from .execute import redirect
from .head import JOIN_S, REPORT_S, HeadPart

RETRY_S = 0.2
# How long ranks may take to end before the job's end is told: until they are killed, and gone.
END_RANKS_S = 5.0


class Monitor(HeadPart):
    """The monitor of one node; on the head node also the one of the whole job."""

    def __init__(self, job_dir: Path) -> None:
        """Read node_plan.json."""
        super().__init__(job_dir)
        # When the head was heard last, and how long it may be silent.
        self.heard, self.patience = self.started, JOIN_S
        # The number of the head's order to take stacks; 0 where there is none, or it was answered.
        self.order = 0
        self.resumed = (job_dir / "attempts.json").exists()
        # Somebody ended it; and its node goes down.
        self.told_to_end = self.goes_down = False

    # ---- any other node

    async def run_node(self) -> None:
        """Report to the head until it says that the job is over, or is no longer heard."""
        self.heard = time.monotonic()
        where = self.spec["head_address"], self.spec["monitor_port"]
        while not self.ended.is_set():
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                calling = wire.call(self.spec["token"], self.host, where, self.hear_head, lambda _: self.news.set())
                await self._report(await calling)
            await self._wait_without_head()

    async def _wait_without_head(self) -> None:
        self._look_and_save()
        self._give_up()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.ended.wait(), RETRY_S)

    async def _report(self, line: Line) -> None:
        # From now on the head is there, and knows that this node is.
        self.heard, self.patience = time.monotonic(), self.silent_after_s
        sent = 0.0
        while not self.ended.is_set() and line.open:
            changed = self._look_and_save()
            if not self.ended.is_set() and (changed or time.monotonic() - sent >= REPORT_S):
                sent = time.monotonic()
                line.tell({"report": self.report})
            waits = self.looker.told()
            if waits:
                line.send({"waits": waits})
            await self.pause()
            self._give_up()
        if self.goes_down and not self.leaving:
            line.tell({"stopped": True, "goes_down": True})
        elif self.end_record.get("state") == "stopped" and "host" not in self.end_record:
            line.tell({"stopped": True})
        line.close()

    def hear_head(self, line: Line, message: Message) -> None:
        """Take what the head says. Raises BadMessage."""
        messages.check_from_head(message, [process["name"] for process in self.spec["processes"]], self.budget)
        self.heard = time.monotonic()
        if "end" in message:
            self.finish(**message["end"])
        self.order = message.get("stacks", self.order)
        taken = self.taker.take(self.order) if self.order else None
        if taken is not None:
            line.send({"stacks": {"number": self.order, "ranks": taken}})
            # Where that is lost with its connection, the head says so again on the next one.
            self.order = 0
        if "attempts" in message:
            self.looker.closer = message.get("closer", False)
        self.moved = message.get("moved", self.moved)
        if "place" in message:
            self.take_place(message["place"], message["attempts"])
        orders = message.get("attempts", self.wanted), message.get("go", self.go)
        if orders != (self.wanted, self.go):
            self.wanted, self.go = orders
            self.news.set()

    def _look_and_save(self) -> bool:
        changed = self.look()
        if changed:
            self.save()
        self.write_metrics(changed, time.monotonic() - self.heard)
        return changed

    def _give_up(self) -> None:
        now, patience = time.monotonic(), self.patience
        silence = now - self.heard
        if silence > patience and self.budget:
            # The head has given this node up by now: what still runs here would be in the way of the next attempt.
            self._ended_all(now)
            patience += self.rejoin_s
        if silence > patience and not self.end_record:
            self.finish(
                "failed",
                failure={
                    "kind": "head_silent",
                    "host": self.spec["head_host"],
                    "seen_by": self.host,
                    "after_s": round(silence),
                },
            )

    # ---- both

    async def run(self) -> int:
        """Run until the job is over. Returns 0: how the job ended is in monitor.json and cluster.json."""
        if read_object(self.job_dir / "monitor.json").get("end") or not self.spec["token"]:
            # A process that systemd starts again in the very moment of the job's end brings up its monitor, too.
            return 0
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self._told_to_end)
        # Before anything is started: without its port a head is none.
        door = self.door = await self._open() if self.is_head else None
        try:
            self.supervisor.start()
            if self.budget:
                if not self.resumed:
                    write_json(self.job_dir / "attempts.json", self.attempts)
                self.gate.begin()
            if self.resumed and self.is_head:
                self.fail({"kind": "rebooted", "host": self.host})
            self.look()
            self.save()
            if self.unsaved and not (self.job_dir / "monitor.json").exists():
                # Nobody could ever tell how the job is.
                raise OSError(f"{self.job_dir} cannot be written: {self.unsaved}")
            await (self.run_head(door) if door else self.run_node())
        finally:
            self.textfile.remove()
            if not self.leaving:
                self._leave()
                await self._tell_last()
        return 0

    def _leave(self) -> None:
        """End what runs here, and forget what was secret: it is of no use any more; the folder stays for its logs."""
        if self.end_record:
            self.save()
        # Else who started a stopped rank waits in vain for it to end.
        processes.ask_to_end(pid for pid in self.left() if processes.stopped(pid))
        self.supervisor.end()
        try:
            forget_secrets(self.job_dir)
        except OSError as error:
            # Nothing can be removed from a file system that has become read-only.
            self.unwritten = error.strerror or str(error)
        if self.unsaved:
            # What has ended may have left room.
            self.save()

    async def _tell_last(self) -> None:
        """Tell of the job's end once nothing of it runs here, for a short time: units end with this monitor."""
        if self.sender is None:
            return
        until = time.monotonic() + END_RANKS_S
        while not self._ended_all(time.monotonic()) and time.monotonic() < until:
            await asyncio.sleep(0.1)
        self.save_cluster(all_ended=True)
        self.sender.last_until(time.monotonic() + (sender.TOLD_S if self.told_to_end else sender.LAST_S))
        while not self.sender.over():
            await asyncio.sleep(0.05)
        self.save_cluster()

    def _told_to_end(self) -> None:
        self.told_to_end = True
        if self.sender and self.end_record:
            self.sender.last_until(time.monotonic() + sender.TOLD_S)
        if not self._leaves_with_node():
            self.finish("stopped")

    def look(self) -> bool:
        """Look at this node's processes; those that end because the node goes down have not failed."""
        changed = super().look()
        if changed and self.report["failures"]:
            # Units that are bound to the monitor are stopped before it.
            self._leaves_with_node()
        return changed

    def _leaves_with_node(self) -> bool:
        """End where the node shuts down; return whether it does. With restarts it takes part again once it is back."""
        if not self.end_record and not self.goes_down:
            self.goes_down = self.spec["supervision"] == "systemd" and units.node_goes_down()
            if self.goes_down and self.budget:
                self.leaving = True
                self.ended.set()
                self.news.set()
            elif self.goes_down:
                self.finish("failed", failure={"kind": "rebooted", "host": self.host})
        return self.goes_down


class _Log(io.StringIO):
    """The monitor's log as its standard output: what the log has no room for is left out, and ends nothing."""

    def write(self, text: str) -> int:
        """Write at once."""
        with contextlib.suppress(OSError):
            os.write(1, text.encode("utf-8", "replace"))
        return len(text)


def run(job_dir: Path) -> int:
    """Run the monitor of the job in `job_dir`."""
    node_rank = json.loads((job_dir / "node_plan.json").read_text())["node_rank"]
    redirect(str(job_dir / "logs" / f"monitor_{node_rank}.log"))
    # Ranks do not have it: they get their own environment.
    os.environ[processes.LOOK] = "1"

    async def main() -> int:
        return await Monitor(job_dir).run()

    with contextlib.redirect_stdout(_Log()):
        return asyncio.run(main())
