# SPDX-License-Identifier: Apache-2.0
"""The monitor: one on each node of a job, as the training user, for the life of the job.

If one rank fails, the job stops on every node, without the controller: a laptop that is closed, or a job started with
job_wait: false, changes nothing.

- Every monitor follows the processes of its own node (node_runner.py) and reports to the head's monitor once a second,
  at once when one ends, which the kernel reports. The head answers; so each side notices when the other is silent.
- The head decides (trainyard/job/run/head_state.py) and sends each node what it has to do.
- A monitor that ends takes the processes of its node with it: they are its children, under systemd in its unit. A node
  that was cut off ends its processes the same way when it has received nothing from the head for `silent_after_s`.

The monitors speak over TCP on the job's network, authenticated with the job's token (connections.py). Times are
seconds; `time` is since the epoch, all waiting is on the monotonic clock.

Files in the job's folder: node_plan.json (input, 0600), exits/*.json, monitor.json (this node), cluster.json (head
only, all nodes), succession.json (seat.py), metrics.jsonl (its progress), attempts.json (with restarts: what runs, and
survives a reboot), attempt/ (what belongs to one attempt of the whole job; emptied before the next), set_aside.json
(checkpoint_aside.py), ranks/ and asked/ (stop_grace.py).
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
from typing import Any

from ....trainyard.job.run.messages import Message
from ...machine import open_folders
from ...machine.json_files import read_object, write_json
from ..record.secrets import forget_secrets
from . import container, processes, units
from .disk_space import gone, make_again
from .execute import redirect
from .head_loop import HeadLoop
from .node_loop import NodeLoop
from .node_runner import NodeRunner
from .seat import Seat

# Longest wait between two inspections: the kernel cannot always report an exit, and never a line of a log.
TICK_S = 0.25
# Events that arrive within this time are considered together.
SETTLE_S = 0.02


class Monitor:
    """The life of one node's monitor: start, signals, end. Its loop is that of the head or of an ordinary node."""

    def __init__(self, job_dir: Path) -> None:
        """Read the node plan."""
        self.job_dir, self.runner = job_dir, NodeRunner(job_dir)
        self.resumed = (job_dir / "attempts.json").exists()
        self.ended = asyncio.Event()
        # Set by whatever is to be inspected at once.
        self.news = asyncio.Event()
        # Somebody ended the monitor; its node goes down; it ends because of that, and the job goes on.
        self.stopped = self.goes_down = self.leaving = False
        node_plan = self.runner.node_plan
        is_first, candidates = node_plan["node_rank"] == 0, dict(node_plan.get("candidates", ()))
        self.seat = Seat(self) if is_first or self.runner.host in candidates else None
        # After a reboot another node may lead.
        leads = self.seat and is_first and not (self.resumed and candidates)
        self.loop: HeadLoop | NodeLoop = HeadLoop(self, self.seat) if self.seat and leads else NodeLoop(self)

    async def run(self) -> int:
        """Run until the job is over. Returns 0: how the job ended is in monitor.json and cluster.json."""
        runner, job_dir = self.runner, self.job_dir
        if read_object(job_dir / "monitor.json").get("end") or not runner.node_plan["token"]:
            # Its node was rebooted in the very moment of the job's end.
            return 0
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self.stop)
        # Before anything is started: the head is nothing without its port.
        if self.seat:
            await self.seat.open()
        try:
            runner.supervisor.start()
            if runner.node_plan.get("max_restarts", 0):
                if not self.resumed:
                    write_json(job_dir / "attempts.json", runner.next.attempts)
                runner.next.check.begin()
            self.inspect()
            runner.save()
            if runner.unsaved and not (job_dir / "monitor.json").exists():
                # Nothing could ever read how the job is.
                raise OSError(f"{job_dir} cannot be written: {runner.unsaved}")
            while (successor := await self.loop.run()) is not None:
                self.loop = successor
        finally:
            runner.textfile.remove()
            if not self.leaving:
                self.leave()
                await self.loop.close()
        return 0

    async def pause(self) -> None:
        """Wait until something has happened that is to be inspected, at most TICK_S."""
        self.runner.follow_exits(self.news.set)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.news.wait(), TICK_S)
            await asyncio.sleep(SETTLE_S)
        self.news.clear()

    def inspect(self) -> bool:
        """Inspect this node's processes; those that end because the node goes down have not failed."""
        changed = self.runner.inspect()
        if changed and self.runner.report["failures"]:
            # A rank may notice it before this monitor does.
            self._leaves_with_node()
        return changed

    def finish(self, state: str, **details: Any) -> None:
        """End this monitor, and with it the node's processes."""
        self.runner.gone = self.runner.gone or gone(self.job_dir, self.runner.host)
        if self.runner.gone and state == "stopped":
            # A watch that finds no folder ends what is left.
            state, details = "failed", {"failure": self.runner.gone}
        self.end({"state": state, "finished": time.time(), **details})

    def end(self, record: Message) -> None:
        """End with this record of the job's end. The first one stays."""
        if not self.runner.end:
            if self.runner.gone:
                make_again(self.job_dir, self.runner.node_plan)
            self.runner.end = self.loop.ended(record)
            # The job does not go on after a reboot.
            self.leaving = False
            self.ended.set()
            self.news.set()

    def ranks_may_save(self) -> bool:
        """Return whether ranks of this node may still save before they end; the first call asks them to end."""
        return self.gives_time and self.runner.terminator.saving(time.monotonic())

    @property
    def gives_time(self) -> bool:
        """Whether ranks get time to save at this end: not where all ended by themselves.

        Nor where this node was cut off from the job: its save could mix with those of the others.
        """
        end = self.runner.end
        cut_off = (end.get("failure") or {}).get("kind") in ("head_silent", "no_majority")
        return not (cut_off or end.get("state") == "succeeded")

    def stop(self) -> None:
        """Stop the job: somebody ended this monitor, or its node goes down."""
        self.stopped = True
        self.loop.hurry()
        if not self._leaves_with_node():
            self.finish("stopped")

    def _leaves_with_node(self) -> bool:
        """End where the node shuts down; return whether it does. With restarts it takes part again once it is back."""
        node_plan = self.runner.node_plan
        if not self.runner.end and not self.goes_down:
            self.goes_down = bool(node_plan.get("unit")) and units.node_goes_down()
            if self.goes_down and node_plan.get("max_restarts", 0):
                self.leaving = self.runner.leaving = True
                self.ended.set()
                self.news.set()
            elif self.goes_down:
                self.finish("failed", failure={"kind": "rebooted", "host": self.runner.host})
        return self.goes_down

    def leave(self) -> None:
        """End what runs here, and remove the secrets, which nothing needs any longer; the folder stays for its logs."""
        runner = self.runner
        if runner.end:
            runner.save()
        # Otherwise the parent of a stopped rank waits for it without end.
        processes.ask_to_end(pid for pid in runner.terminator.left() if processes.stopped(pid))
        runner.supervisor.end()
        container.remove_all(self.job_dir)
        all_ranks = dict.fromkeys(range(runner.node_plan["world_size"]), False)
        runner.tails.read(time.monotonic() - runner.started, all_ranks, over=True)
        try:
            forget_secrets(self.job_dir)
        except OSError as error:
            # Nothing can be removed from a file system that has become read-only.
            runner.unwritten = error.strerror or str(error)
        if runner.unsaved or runner.tails.loss:
            # What has ended may have left room.
            runner.save()


class _Log(io.StringIO):
    """The monitor's log as its standard output: what the log has no room for is left out, and ends nothing."""

    def write(self, text: str) -> int:
        """Write at once."""
        with contextlib.suppress(OSError):
            os.write(1, text.encode("utf-8", "replace"))
        return len(text)


def run(job_dir: str) -> int:
    """Run the monitor of the job in `job_dir`."""
    node_rank = json.loads(Path(job_dir, "node_plan.json").read_text())["node_rank"]
    redirect(f"{job_dir}/logs/monitor_{node_rank}.log")
    # Ranks do not have it: they get their own environment.
    os.environ[processes.OWN_TOOL] = "1"

    async def main() -> int:
        return await Monitor(Path(job_dir)).run()

    with contextlib.redirect_stdout(_Log()), open_folders.kept(Path(job_dir)):
        return asyncio.run(main())
