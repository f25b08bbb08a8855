# SPDX-License-Identifier: Apache-2.0
"""One node's part of a job: its processes and their logs, which attempt of them runs here, and which one is wanted.

Times are seconds; `time` is since the epoch, all waiting is on the monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ....trainyard.job.record import metrics as prometheus
from ....trainyard.job.record.secrets import forms
from ....trainyard.job.run import progress
from ....trainyard.job.run.messages import Message
from ....trainyard.job.run.restarts import WHOLE, Attempts
from ...hardware.rdma_traffic import read_interface, read_traffic
from ...machine.json_files import keep_json, open_regular, write_json, write_text
from ...machine.tree import Tree
from ..record.metrics_file import Textfile
from . import processes as procs
from . import units
from .checkpoint_poll import Watch
from .disk_space import full
from .exits import ROOM, Exit, read_attempts, turn
from .failures import Ends
from .log_tail import Tail
from .rank_connections import Meeting
from .restart_check import Gate, Verdict
from .slow_ranks import Looker
from .stacks import Taker
from .supervisors import END_S, Children, Supervisor, Units

# Nobody waits longer for a look, where nothing was told: the kernel cannot always tell of an end, and never of a log.
TICK_S = 0.25
# What is told in the same moment is looked at together.
SETTLE_S = 0.02
# What of a report the head must know at once.
NEWS = ("ranks_running", "rankless", "failures", "attempts", "ready_for", "cannot_write", "refused")


class NodePart:
    """The processes of a job on one node, as a monitor follows them."""

    def __init__(self, job_dir: Path) -> None:
        """Read node_plan.json."""
        self.job_dir = job_dir
        self.spec: Message = json.loads((job_dir / "node_plan.json").read_text())
        self.host: str = self.spec["host"]
        self.hidden = forms(self.spec)
        # What a spare will run is not known when root makes units.
        by_units = self.spec["supervision"] == "systemd" and "places" not in self.spec
        supervisor = Units if by_units else Children
        self.supervisor: Supervisor = supervisor(job_dir, self.spec)
        # Whoever has rank 0 sees what it saves.
        ranks = [rank for process in self.spec["processes"] for rank in process["ranks"]]
        self.checkpoints = Watch(job_dir, self.spec.get("checkpoints", "") if 0 in ranks else "")
        self.tail = Tail(
            job_dir,
            self.spec["rank_log"].replace("{rank}", "0"),
            self.spec["progress_pattern"],
            (self.spec.get("hang") or {}).get("pause_pattern", ""),
            self.hidden,
        )
        self.started, self.started_at = time.monotonic(), time.time()
        self.textfile = Textfile(self.spec.get("metrics_folder", ""), self.spec["job_id"])
        self.carried_before = self._carried()
        self.ends = Ends(job_dir, self.spec, self.hidden, self._slice())
        # What of this node stands in the way of a restart.
        self.gate, self.verdict = Gate(self.spec), Verdict()
        self.taker = Taker(job_dir, self.spec)
        self.looker = Looker(job_dir, self.spec)
        self.meeting = Meeting(self.spec, self._slice())
        self.ended = asyncio.Event()
        # Set by whatever is worth a look at once; the processes whose ends set it, by name.
        self.news = asyncio.Event()
        self.followed: set[str] = set()
        self.end_record: Message = {}
        self.report: Message = {}
        # Why the last state could not be written, or ""; the same of any file at any time; what stands in the way of a
        # restart, as a failure.
        self.unsaved = self.unwritten = ""
        self.cannot_write: Message | None = None
        # What this node runs and what the head wants it to run; since when it ends what it runs no longer.
        self.attempts: Attempts = read_attempts(job_dir) or {WHOLE: 0}
        self.wanted, self.go = self.attempts, True
        self.ending_since: float | None = None
        # What this node does as a spare that has taken another's place, and what of it has not run yet.
        self.place: int | None = self.spec.get("place")
        self.fresh: set[str] = set()
        # The addresses of spares that have taken a place, by those of whom they replaced (moved.py).
        self.moved: Mapping[str, str] = {}
        # The attempts for which nothing of an earlier one was left here.
        self.cleared_for: Mapping[str, int] | None = None

    def _carried(self) -> dict[str, dict[str, int | None]]:
        """Return what the RDMA ports and the interface of the job network have carried so far."""
        machine = Tree()
        return {**read_traffic(machine), **read_interface(machine, str(self.spec.get("interface") or ""))}

    def _slice(self) -> str:
        return units.slice_name(self.spec["job_id"]) if self.spec["supervision"] == "systemd" else ""

    def look(self) -> bool:
        """Look at this node's processes and logs; return whether something changed that the head must know now."""
        # In this order: when a process has ended, all that it wrote is there to be read.
        exits = self.ends.corrected(self.supervisor.exits())
        self.tail.read(time.monotonic() - self.started)
        processes = self.spec["processes"]
        before = self.attempts
        ready = self._catch_up(exits)
        if self.attempts != before:
            exits = self.ends.corrected(self.supervisor.exits())
        running = [process for process in processes if process["name"] not in exits]
        self.meeting.follow(self.supervisor.main("agent"), bool(running), len(exits))
        self.checkpoints.running = any(process["ranks"] for process in running)
        new: Message = {
            "host": self.host,
            # A spare that has taken a place has not started its ranks yet.
            "ranks_running": sum(len(each["ranks"]) for each in running if each["name"] not in self.fresh),
            "done": not any(process["ranks"] for process in running),
            # Its ranks are processes of another node (mpirun): it is as much needed as any other.
            "idle": not any(process["ranks"] for process in processes),
            "rankless": len([process for process in running if not process["ranks"]]),
            "failures": [
                self._failure(process, exits[process["name"]])
                for process in processes
                if exits.get(process["name"], {}).get("result", "success") != "success"
            ],
            "well": self.ends.first_well(exits),
            "metrics": progress.strict(self.tail.last),
            "loss_not_a_number": self.tail.lost,
            "checkpoints": self.checkpoints.state(),
            "pace": self.tail.pace,
            "resumed": self.tail.resumed,
            "attempts": self.attempts,
            "ready_for": self.wanted if ready else None,
            "cannot_write": self.cannot_write,
            "held": self.verdict.held,
            "refused": self._refused(),
            "suspect": self.verdict.suspect,
            "time": time.time(),
            "progress": self.tail.report(),
            "place": self.place,
            "full": full(self.job_dir, self.host, self.unsaved),
        }
        changed = any(new[key] != self.report.get(key) for key in NEWS)
        self.report = new
        return changed

    async def pause(self) -> None:
        """Wait until something has happened that is worth a look, at most TICK_S."""
        self._follow()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.news.wait(), TICK_S)
            await asyncio.sleep(SETTLE_S)
        self.news.clear()

    def _follow(self) -> None:
        """Have the kernel wake this monitor when one of the processes ends."""
        loop = asyncio.get_running_loop()
        self.gate.tell = partial(_wake, loop, self.news)

        def tell(name: str, descriptor: int) -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self.followed.discard(name)
            self.news.set()

        for name in {process["name"] for process in self.spec["processes"]} - self.followed:
            main = self.supervisor.main(name)
            descriptor = procs.open_end(main["pid"], main["start_time"]) if main else None
            if descriptor is not None:
                self.followed.add(name)
                loop.add_reader(descriptor, tell, name, descriptor)

    def _catch_up(self, exits: Mapping[str, Exit]) -> bool:
        """Go towards what the head wants to run here; return whether this node is ready for it, or there."""
        if self.wanted == self.attempts:
            return True
        now, names = time.monotonic(), [process["name"] for process in self.spec["processes"]]
        behind = [name for name in names if turn(self.wanted, name) > turn(self.attempts, name)]
        whole = self.wanted.get(WHOLE, 0) > self.attempts.get(WHOLE, 0)
        # Again and again, as a process that was to start late may start only now. But once where only the head starts
        # ranks (mpirun): those of the next attempt may be here before its word to go is.
        if whole and (self.spec["processes"] or self.cleared_for != self.wanted):
            # What the gate runs may look like what is left of a rank, as it ends.
            if not self.gate.looks and not self._ended_all(now):
                self.gate.forget()
                return False
            if self.cleared_for != self.wanted:
                verdict = self.gate.verdict()
                self.verdict = verdict or Verdict()
                if verdict is None or verdict.held or verdict.refused:
                    return False
                # The next restart asks anew.
                self.gate.forget()
            self.cleared_for = self.wanted
        for process in self.spec["processes"]:
            if process["name"] in behind and process["name"] not in self.fresh:
                ended = exits.get(process["name"])
                if not ended or (not whole and time.time() - ended["time"] < (process.get("recover_after_s") or 0)):
                    return False
        if self.go:
            # By attempts.json each process knows its turn.
            if (whole and not self._name_spares()) or not self._written("attempts.json", self.wanted):
                return False
            if whole:
                shutil.rmtree(self.job_dir / "attempt", ignore_errors=True)
                self.tail.pace, self.tail.resumed = None, ""
            self.report = {}
            self.ending_since = None
            self.verdict = Verdict()
            self.attempts = self.wanted
            self.ends.begin()
            self.checkpoints.attempt, self.checkpoints.attempt_began = self.attempts.get(WHOLE, 0), time.time()
            self.fresh.clear()
            self.supervisor.restart(behind, self.attempts)
        return True

    def _name_spares(self) -> bool:
        """Have the addresses of spares stand in what names the nodes here; return whether that could be written."""
        if not self.moved:
            return True
        from ....trainyard.job.run import moved_addresses as moved

        for file in self.spec.get("files", ()):
            if file.get("lists_nodes"):
                try:
                    with open_regular(file["path"]) as there:
                        known = there.read().decode()
                    text = moved.file(file, known, self.moved)
                except (OSError, ValueError) as error:
                    self._cannot_write(f"{file['path']} cannot be read: {getattr(error, 'strerror', '') or error}")
                    return False
                if text != known and not self._written(file["path"], text, int(file["mode"], 8)):
                    return False
        processes = [moved.process(each, self.moved) for each in self.spec["processes"]]
        if processes != self.spec["processes"]:
            if not self._written("node_plan.json", {**self.spec, "processes": processes}, 0o600):
                return False
            self.spec["processes"] = processes
        return True

    def _written(self, name: str, data: Message | str, mode: int = 0o644) -> bool:
        """Write what a restart needs; the head is told where that is not possible."""
        try:
            if isinstance(data, str):
                write_text(self.job_dir / name, data, mode)
            else:
                write_json(self.job_dir / name, data, mode)
        except OSError as error:
            self._cannot_write(error.strerror or str(error))
        return self.cannot_write is None

    def _cannot_write(self, reason: str) -> None:
        folder = str(self.job_dir)
        self.cannot_write = {"kind": "cannot_write", "host": self.host, "folder": folder, "reason": reason[:500]}

    def take_place(self, place: int, attempts: Attempts) -> None:
        """Become, as a spare, the node of this node rank: what it ran is started with the `attempts` of the others."""
        planned = self.spec.get("places", {}).get(str(place))
        if self.place is not None or planned is None:
            return
        told = {**self.spec, "processes": planned["processes"], "place": place, "places": {}}
        files = all(self._written(file["path"], file["content"], int(file["mode"], 8)) for file in planned["files"])
        if files and self._written("node_plan.json", told, 0o600):
            self.spec.update(told)
            self.place, self.fresh = place, {process["name"] for process in planned["processes"]}
            self.attempts = {WHOLE: max(0, attempts[WHOLE] - 1)}
            self.news.set()

    def _ended_all(self, now: float) -> bool:
        """End what runs of the job here, politely first; return whether nothing is left."""
        self.ending_since = self.ending_since or now
        left = self.left()
        if now - self.ending_since < END_S:
            procs.ask_to_end(left)
            return not left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def left(self) -> list[int]:
        """Return the processes of ranks and of what starts them that are here."""
        return procs.ranks_of_job(self.spec["job_id"], self.job_dir, self._slice())

    def _refused(self) -> Message | None:
        """Return what this node does not pass before a restart, None where it does, or that is not known yet."""
        return {"reason": self.verdict.refused, "waits": self.verdict.waits} if self.verdict.refused else None

    def _failure(self, process: Message, ended: Exit) -> Message:
        known: Message = next((old for old in self.report.get("failures", ()) if old["process"] == process["name"]), {})
        if not known:
            # Whether this node's disk is full is seen by writing there.
            self.save()
        return known or self.ends.failure(process, ended, self.unsaved)

    def finish(self, state: str, **details: Any) -> None:
        """End this monitor, and with it the node's processes. The first reason stays."""
        if not self.end_record:
            self.end_record = {"state": state, "finished": time.time(), **details}
            self.ended.set()
            self.news.set()

    def write_metrics(
        self, at_once: bool, head_silent_s: float | None = None, of_job: Callable[[], prometheus.Samples] = dict
    ) -> None:
        """Write the metrics of this node where it is time, and of the whole job where this is its head."""
        if self.textfile.due(at_once):
            ranks = sum(len(process["ranks"]) for process in self.spec["processes"])
            of_node = prometheus.node_samples(self.host, self.report, ranks, head_silent_s)
            self.textfile.write(prometheus.render(self.spec["job_id"], of_node, of_job()))

    def save(self) -> None:
        """Write this node's state for whoever asks (the agent's `state`); a full disk is no reason to watch no more."""
        self.unwritten = self.unwritten or self.supervisor.unwritten or self.tail.unwritten
        self.unsaved = self.keep(
            "monitor.json",
            {
                "job_id": self.spec["job_id"],
                "host": self.host,
                "pid": os.getpid(),
                "start_time": procs.start_time(os.getpid()),
                "started": self.started_at,
                "ranks_running": self.report.get("ranks_running", 0),
                "end": self.end_record or None,
                "carried": {"before": self.carried_before, "now": self._carried()},
                "unwritten": self.unwritten,
                "meeting": self.meeting.state(),
            },
        )

    def keep(self, name: str, state: Message) -> str:
        """Write a state that grows with the end of the job; return why that is not possible, or ""."""
        why = keep_json(self.job_dir / name, state, ROOM)
        self.unwritten = self.unwritten or why
        return why


def _wake(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    """Tell the monitor of news from another thread; it may be over by then."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(news.set)
