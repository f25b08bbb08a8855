# SPDX-License-Identifier: Apache-2.0
"""Run the processes of a job on one node, and report how they are. Times are seconds; `time` is since the epoch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .....trainyard.base.shapes import Message
from .....trainyard.job.record import prometheus
from .....trainyard.job.record.masking import forms
from .....trainyard.job.run.decide.node_reports import NEWS
from .....trainyard.job.run.decide.restarts import WHOLE
from .....trainyard.job.run.logs import progress
from .....trainyard.job.run.logs.failures import failure_text
from ....hardware.rdma_traffic import read_interface, read_traffic
from ....machine.json_files import keep_json, read_object
from ....machine.tree import Tree
from ...record.metrics_file import Textfile
from ..evidence.checkpoint_poll import LAST_POLL_S, Watch
from ..evidence.log_tail import RankTails
from ..evidence.rank_failures import Failures
from ..evidence.rank_meeting import Meeting
from ..evidence.rank_sampler import Sampler
from ..evidence.stack_samples import Taker
from ..ranks import process_table
from ..ranks.daemons import Daemons
from ..ranks.disk_space import full, gone
from ..ranks.rank_exits import ROOM, Exit, ranks_ended
from ..ranks.supervisor import Supervisor, Terminator
from .next_attempt import NextAttempt, Step

# How long the end of a job waits until checkpoints have their names back, in seconds.
RESTORE_S = 10.0


# How long the exit of a rank may take to be known after it has left, in seconds.
EXIT_S = 2.0


def _carried(node_plan: Message) -> dict[str, dict[str, int | None]]:
    """Return what the RDMA ports and the interface of the job network have carried so far."""
    machine = Tree()
    return {**read_traffic(machine), **read_interface(machine, str(node_plan.get("interface") or ""))}


class NodeRunner:
    """The processes of a job on one node: their ends, their logs, their stacks, and which attempt of them runs."""

    def __init__(self, job_dir: Path) -> None:
        """Read the node plan (node_plan.json)."""
        self.job_dir = job_dir
        self.node_plan: Message = json.loads((job_dir / "node_plan.json").read_text())
        node_plan, self.host = self.node_plan, str(self.node_plan["host"])
        self.supervisor = Supervisor(job_dir, node_plan)
        self.terminator = Terminator(job_dir, node_plan, self.supervisor)
        self.next = NextAttempt(job_dir, node_plan, self.terminator)
        self.checkpoints = Watch(job_dir, self._checkpoints_here())
        hidden = forms(node_plan)
        self.tails = RankTails(job_dir, node_plan, hidden)
        self.started, self.started_at = time.monotonic(), time.time()
        self.textfile = Textfile(node_plan.get("metrics_folder", ""), node_plan["job_id"])
        self._carried_before = _carried(self.node_plan)
        self.failures = Failures(job_dir, node_plan, hidden)
        self.meeting = Meeting(node_plan)
        self.daemons = Daemons(job_dir, node_plan, self.supervisor.beside, self.next.attempts)
        self.taker, self.sampler = Taker(job_dir, node_plan), Sampler(job_dir, node_plan)
        # The number of the head's order to take stacks; 0 where there is none, or it was answered.
        self._stacks_order = 0
        # The processes whose ends the kernel reports, by name.
        self.followed: set[str] = set()
        self.report: Message = {}
        # How the job ended; whether its node goes down, after which it goes on.
        self.end: Message = {}
        self.leaving = False
        # The head that this node follows, "" while it has none, and the highest term that it has followed.
        self.follows, self.term = str(node_plan.get("head_host", "")), self._term_before()
        # Whether it is still unknown how rank 0, which has left, ended.
        self._awaits_exit = False
        # Why the last state could not be written, or ""; the same of any file at any time.
        self.unsaved = self.unwritten = ""
        # The failure of this node if the job's folder is gone. Then nothing starts here any more.
        self.gone: Message | None = None

    def _term_before(self) -> int:
        """Return the highest term that this node had followed before it was rebooted."""
        term = read_object(self.job_dir / "monitor.json").get("term")
        return term if type(term) is int and term > 0 else 0

    def _checkpoints_here(self) -> str:
        """Return where rank 0 saves if it is a process of this node, else ""."""
        return str(self.node_plan.get("checkpoints", "")) if self.next.has_rank_0() else ""

    # ---- what the head wants

    def follow(self, message: Message) -> bool:
        """Take a message of the head; return whether there is something new to do."""
        self._stacks_order = message.get("stacks", self._stacks_order)
        if "attempts" in message:
            self.sampler.sample_stacks = message.get("sample_stacks", False)
        changed = self.next.request(message)
        self.checkpoints.watch(self._checkpoints_here())
        self.checkpoints.set_aside(message.get("aside"))
        self.daemons.follow(message)
        return changed

    def stacks(self) -> Message | None:
        """Return the message with the stacks that the head has ordered, once they are taken. It never waits."""
        number = self._stacks_order
        ranks = self.taker.take(number) if number else None
        if ranks is None:
            return None
        # If it is lost with its connection, the head repeats its order on the next one.
        self._stacks_order = 0
        return {"stacks": {"number": number, "ranks": ranks}}

    def slow_ranks(self) -> Message | None:
        """Return the message with what was found of slow ranks, where it is time for one."""
        found = self.sampler.report()
        return {"samples": found} if found else None

    # ---- its processes

    def inspect(self) -> bool:
        """Inspect this node's processes and logs; return whether something changed that the head must know at once."""
        self.gone = self.gone or gone(self.job_dir, self.host)
        if self.gone and self.report:
            return self._report_gone(self.gone)
        # In this order: when a process has ended, all that it wrote is there to be read.
        exits = self.failures.corrected(self.supervisor.exits())
        ended = ranks_ended(self.node_plan["processes"], exits)
        self.tails.read(time.monotonic() - self.started, ended, over=bool(self.end))
        # Nothing starts any more once the job has ended or the node goes down, while its ranks may still save.
        step = Step(ready=False) if self.end or self.leaving else self.next.advance(exits)
        if step.start is not None:
            self._begin_attempt(step.start, step.whole)
            exits = self.failures.corrected(self.supervisor.exits())
        running = [process for process in self.node_plan["processes"] if process["name"] not in exits]
        self.meeting.follow(self.supervisor.main("agent"), bool(running), self.next.attempts)
        self.checkpoints.running = any(process["ranks"] for process in running)
        self._note_save(exits)
        before, self.report = self.report, self._report(exits, running, step.ready)
        return any(self.report.get(key) != before.get(key) for key in NEWS)

    def _report_gone(self, failure: Message) -> bool:
        """Report no more than that: how ranks end, and which may save, is unknown; no more modules can be loaded."""
        now, before, why = time.monotonic(), self.report, {"reason": failure_text(failure), "temporary": False}
        if self.next.requested != self.next.attempts and not self.terminator.saving(now):
            self.terminator.terminate(now)
        self.report = dict(before, folder_gone=failure, excluded=why, ready_for=None, left=True, time=time.time())
        return "folder_gone" not in before

    def _note_save(self, exits: Mapping[str, Exit]) -> None:
        """Poll the checkpoints when rank 0 has ended by itself: what it has saved is complete now."""
        before, left_s = self.checkpoints.left_well, self.terminator.grace.left_for(0, time.monotonic())
        ended_well = self.failures.rank_0_ended_well(exits)
        # Without an exit, a rank that has left in its time to save has saved.
        self._awaits_exit = ended_well is None and left_s is not None and left_s <= EXIT_S
        self.checkpoints.left_well = left_s is not None and not self._awaits_exit if ended_well is None else ended_well
        if self.checkpoints.left_well and not before:
            self.checkpoints.poll_now(LAST_POLL_S)

    def _begin_attempt(self, names: list[str], whole: bool) -> None:
        attempts = self.next.attempts
        if whole:
            self.tails.begin_attempt(self.next.ranks)
            self.daemons.begin(attempts)
        self.report = {}
        self.terminator.begin()
        self.failures.begin_attempt()
        self.checkpoints.attempt, self.checkpoints.attempt_began = attempts.get(WHOLE, 0), time.time()
        self.supervisor.restart(names, attempts)

    def _report(self, exits: Mapping[str, Exit], running: list[Message], ready: bool) -> Message:
        processes, step, tail = self.node_plan["processes"], self.next, self.tails.shown
        obstacle, ended = step.obstacle, {**self.failures.by_rank(exits), **exits}
        return {
            "host": self.host,
            # A spare that has taken a place has not started its ranks yet.
            "ranks_running": sum(len(each["ranks"]) for each in running if each["name"] not in step.fresh),
            "done": not any(process["ranks"] for process in running),
            # Its ranks are processes of another node (mpirun): it is as much needed as any other.
            "idle": not any(process["ranks"] for process in processes),
            "rankless": len([process for process in running if not process["ranks"]]),
            "failures": [
                self.failure(process, ended[process["name"]])
                for process in processes
                if ended.get(process["name"], {}).get("result", "success") != "success"
            ],
            "well": self.failures.first_well(ended),
            "metrics": progress.strict(tail.last),
            "loss_not_a_number": tail.lost,
            "checkpoints": self.checkpoints.state(),
            "pace": tail.pace,
            "resumed": tail.resumed,
            "attempts": step.attempts,
            "ready_for": step.requested if ready else None,
            "left": self.terminator.grace.left and not self._awaits_exit,
            "asked": self.terminator.grace.record(),
            "cannot_write": step.cannot_write,
            "held": obstacle.held,
            "excluded": {"reason": obstacle.excluded, "temporary": obstacle.temporary} if obstacle.excluded else None,
            "suspect": obstacle.suspect,
            "time": time.time(),
            "progress": self.tails.report(),
            "progress_rank": self.tails.rank,
            "place": step.place,
            "full": full(self.job_dir, self.host, self.unsaved),
            "worlds": self.meeting.worlds(),
            **self.daemons.report(),
            **({"term": self.term} if self.node_plan.get("candidates") else {}),
        }

    def failure(self, process: Message, ended: Exit) -> Message:
        """Return the failure of a process that ended so; what was reported of it stays."""
        name = process["name"]
        known: Message = next((old for old in self.report.get("failures", ()) if old["process"] == name), {})
        if not known:
            # Whether this node's disk is full is seen by writing there.
            self.save()
        return known or self.failures.failure(process, ended, self.unsaved)

    def poll_checkpoints(self, seconds: float) -> None:
        """Poll what the ranks have saved since the last poll, or left half written."""
        self.checkpoints.poll_now(seconds)
        self.report["checkpoints"] = self.checkpoints.state()

    def restore_checkpoints(self, aside: Sequence[Mapping[str, Any]]) -> None:
        """Give checkpoints their names back, as the job ends before an attempt without them made a step."""
        if aside:
            self.checkpoints.restore(aside, RESTORE_S)

    def follow_exits(self, wake: Callable[[], None]) -> None:
        """Have the kernel wake the monitor when one of the processes ends."""
        loop = asyncio.get_running_loop()

        def from_thread() -> None:
            # The monitor may have ended by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

        def ended(name: str, descriptor: int) -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self.followed.discard(name)
            wake()

        self.next.check.notify = from_thread
        for name in {process["name"] for process in self.node_plan["processes"]} - self.followed:
            main = self.supervisor.main(name)
            descriptor = process_table.open_end(main["pid"], main["start_time"]) if main else None
            if descriptor is not None:
                self.followed.add(name)
                loop.add_reader(descriptor, ended, name, descriptor)

    @property
    def quiet(self) -> bool:
        """Whether all processes run, the kernel reports their ends, and nothing else is about to happen."""
        names, going_on = {process["name"] for process in self.node_plan["processes"]}, self.follows and not self.end
        return bool(names and going_on and names == self.followed and self.next.requested == self.next.attempts)

    # ---- its record

    def write_metrics(
        self, at_once: bool, head_silent_s: float | None = None, of_job: Callable[[], prometheus.Samples] = dict
    ) -> None:
        """Write the metrics of this node where it is time, and of the whole job where this is its head."""
        if self.textfile.due(at_once):
            ranks = sum(len(process["ranks"]) for process in self.node_plan["processes"])
            of_node = prometheus.node_samples(self.host, self.report, ranks, head_silent_s)
            self.textfile.write(prometheus.render(self.node_plan["job_id"], of_node, of_job()))

    def save(self) -> None:
        """Write this node's state for the agent's `state`; a full disk is no reason to end the monitor."""
        self.unwritten = self.unwritten or self.supervisor.unwritten or self.tails.unwritten
        self.unsaved = self.keep(
            "monitor.json",
            {
                "job_id": self.node_plan["job_id"],
                "host": self.host,
                "pid": os.getpid(),
                "start_time": process_table.start_time(os.getpid()),
                "started": self.started_at,
                "ranks_running": self.report.get("ranks_running", 0),
                "end": self.end or None,
                "carried": {"before": self._carried_before, "now": _carried(self.node_plan)},
                "unwritten": self.unwritten,
                "lost_logs": self.tails.loss,
                "meeting": self.meeting.state(),
                "follows": self.follows,
                "term": self.term,
            },
        )

    def keep(self, name: str, state: Message) -> str:
        """Write a state that grows with the end of the job; return why that is not possible, or ""."""
        why = keep_json(self.job_dir / name, state, ROOM)
        self.unwritten = self.unwritten or why
        return why
