# SPDX-License-Identifier: Apache-2.0
"""The monitor: one on each node of a job, as the training user, for the life of the job.

If one rank fails, the job stops on every node, without the controller: a laptop that is closed, or a job started with
job_wait: false, changes nothing.

- Every monitor follows the processes of its own node (node_runner.py) and reports to the head's monitor once a second,
  at once when one ends, which the kernel reports. The head answers; so each side notices when the other is silent.
- The head decides (trainyard/job/run/decide/head_state.py) and sends each node what it has to do.
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
from pathlib import Path

from ....machine import open_folders
from ....machine.json_files import read_object, write_json
from ..ranks import process_table
from ..ranks.execute import redirect
from .head_loop import HeadLoop
from .life import Follow, Lead, Life
from .node_loop import NodeLoop
from .seat import Seat


class Monitor(Life):
    """A monitor whose loop is that of the head or of an ordinary node."""

    def __init__(self, job_dir: Path) -> None:
        """Read the node plan, and choose the first loop."""
        super().__init__(job_dir)
        node_plan = self.runner.node_plan
        is_first, candidates = node_plan["node_rank"] == 0, dict(node_plan.get("candidates", ()))
        self.seat = Seat(self.runner, self.news) if is_first or self.runner.host in candidates else None
        # After a reboot another node may lead.
        leads = self.seat and is_first and not (self.resumed and candidates)
        self.loop = HeadLoop(self, self.seat) if self.seat and leads else NodeLoop(self, self.seat)

    async def run(self) -> int:
        """Run until the job is over. Returns 0: how the job ended is in monitor.json and cluster.json."""
        runner, job_dir = self.runner, self.job_dir
        if read_object(job_dir / "monitor.json").get("end") or not runner.node_plan["token"]:
            # Its node was rebooted in the very moment of the job's end.
            return 0
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, self.stop)
        loop.add_signal_handler(process_table.GOES_DOWN, self.go_down)
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
            while (turn := await self.loop.run()) is not None:
                self._go_on(turn)
        finally:
            runner.textfile.remove()
            if not self.leaving:
                self.leave()
                await self.loop.close()
        return 0

    def _go_on(self, turn: Lead | Follow) -> None:
        """Take the next loop; where this node has lost its place in the job, end."""
        if isinstance(turn, Lead) and self.seat:
            self.loop = HeadLoop(self, self.seat, turn.silent_s)
            return
        self.loop = NodeLoop(self, self.seat, resigned=True)
        if isinstance(turn, Follow) and turn.replaced_by:
            failure = {"kind": "replaced", "host": self.runner.host, "by": turn.replaced_by}
            self.finish("failed", failure=failure)


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
    os.environ[process_table.OWN_TOOL] = "1"

    async def main() -> int:
        return await Monitor(Path(job_dir)).run()

    with contextlib.redirect_stdout(_Log()), open_folders.kept(Path(job_dir)):
        return asyncio.run(main())
