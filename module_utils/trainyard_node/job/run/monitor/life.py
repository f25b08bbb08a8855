# SPDX-License-Identifier: Apache-2.0
"""The life of a monitor, which its loops share: its node's processes, its signals, its end. Times are seconds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any, NamedTuple, Union

from .....trainyard.base.shapes import Message
from ...record.secrets import forget_secrets
from ..ranks import container, process_table, units
from ..ranks.disk_space import gone, make_again
from .node_runner import NodeRunner

# Longest wait between two inspections: the kernel cannot always report an exit, and never a line of a log; and where it
# reports all that is to be known soon.
TICK_S, QUIET_S = 0.25, 0.5
# Events that arrive within this time are considered together.
SETTLE_S = 0.02


class Lead(NamedTuple):
    """This node leads from now on, after the last head was silent for so long."""

    silent_s: float


class Follow(NamedTuple):
    """This node leads no more; it ends where a spare has its place."""

    replaced_by: str


class Loop:
    """The work of a monitor until its job is over, or until another loop follows it."""

    async def run(self) -> Union[Lead, Follow, None]:  # noqa: UP007 - Python 3.9
        """Run until the job is over; return what the monitor does from then on."""
        raise NotImplementedError

    def ended(self, record: Message) -> Message:
        """Return the record of the job's end that holds."""
        return record

    def hurry(self) -> None:
        """Do not wait long for anybody once somebody ends the monitor."""

    async def close(self) -> None:
        """Do what is left once nothing runs here."""


class Life:
    """The life of one node's monitor: its processes, signals and end."""

    loop: Loop

    def __init__(self, job_dir: Path) -> None:
        """Read the node plan."""
        self.job_dir, self.runner = job_dir, NodeRunner(job_dir)
        self.resumed = (job_dir / "attempts.json").exists()
        self.ended = asyncio.Event()
        # Set by whatever is to be inspected at once.
        self.news = asyncio.Event()
        # Somebody ended the monitor; its node goes down; it ends because of that, and the job goes on.
        self.stopped = self.goes_down = self.leaving = False
        # The program that started this monitor said that its node goes down.
        self._told_down = False

    async def pause(self) -> None:
        """Wait until something has happened that is to be inspected, at most TICK_S or QUIET_S."""
        self.runner.follow_exits(self.news.set)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.news.wait(), QUIET_S if self.runner.quiet else TICK_S)
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

    def go_down(self) -> None:
        """Leave the job with this node, as a pod does that the cluster ends."""
        self._told_down = True
        self.stop()

    def _leaves_with_node(self) -> bool:
        """End where the node shuts down; return whether it does. With restarts it takes part again once it is back."""
        node_plan = self.runner.node_plan
        if not self.runner.end and not self.goes_down:
            self.goes_down = self._told_down or (bool(node_plan.get("unit")) and units.node_goes_down())
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
        process_table.ask_to_end(pid for pid in runner.terminator.left() if process_table.stopped(pid))
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
