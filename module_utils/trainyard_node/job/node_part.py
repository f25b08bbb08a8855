# SPDX-License-Identifier: Apache-2.0
"""One node's part of a job: its processes and their logs, which attempt of them runs here, and which one is wanted.

Times are seconds; `time` is since the epoch, all waiting is on the monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.job import causes, messages, progress
from ...trainyard.job import failure as failures
from ...trainyard.job.messages import Message
from ...trainyard.job.restarts import WHOLE, Attempts
from ...trainyard.job.shapes import misfit
from ..hardware.rdma_traffic import read_interface, read_traffic
from ..machine.tree import Tree
from . import processes as procs
from . import units
from .exits import Exit, keep_json, read_json, turn, write_json
from .supervisors import END_S, Children, Supervisor, Units
from .tail import Tail

# Nobody waits longer for a look, where nothing was told: the kernel cannot always tell of an end, and never of a log.
TICK_S = 0.25
# What is told in the same moment is looked at together.
SETTLE_S = 0.02
# What of a report the head must know at once.
NEWS = ("ranks_running", "rankless", "failures", "attempts", "ready_for", "cannot_write")


class NodePart:
    """The processes of a job on one node, as a monitor follows them."""

    def __init__(self, job_dir: Path) -> None:
        """Read job.json."""
        self.job_dir = job_dir
        self.spec: Message = json.loads((job_dir / "job.json").read_text())
        self.host: str = self.spec["host"]
        supervisor = Units if self.spec["supervision"] == "systemd" else Children
        self.supervisor: Supervisor = supervisor(job_dir, self.spec)
        self.tail = Tail(job_dir, self.spec["rank_log"].replace("{rank}", "0"), self.spec["progress_pattern"])
        self.started, self.started_at = time.monotonic(), time.time()
        self.carried_before = self._carried()
        self.ended = asyncio.Event()
        # Set by whatever is worth a look at once; the processes whose ends set it, by name.
        self.news = asyncio.Event()
        self.followed: set[str] = set()
        self.end_record: Message = {}
        self.report: Message = {}
        # Why the last state could not be written, or ""; and what stands in the way of a restart, as a failure.
        self.unsaved = ""
        self.cannot_write: Message | None = None
        # What this node runs and what the head wants it to run; since when it ends what it runs no longer.
        self.attempts: Attempts = read_json(job_dir / "attempts.json") or {WHOLE: 0}
        self.wanted, self.go = self.attempts, True
        self.ending_since: float | None = None
        # The attempts for which nothing of an earlier one was left here.
        self.cleared_for: Mapping[str, int] | None = None

    def _carried(self) -> dict[str, dict[str, int | None]]:
        """Return what the RDMA ports and the interface of the job network have carried so far."""
        machine = Tree()
        return {**read_traffic(machine), **read_interface(machine, str(self.spec.get("interface") or ""))}

    def look(self) -> bool:
        """Look at this node's processes and logs; return whether something changed that the head must know now."""
        # In this order: when a process has ended, all that it wrote is there to be read.
        exits = self.supervisor.exits()
        self.tail.read(time.monotonic() - self.started)
        processes = self.spec["processes"]
        before = self.attempts
        ready = self._catch_up(exits)
        if self.attempts != before:
            exits = self.supervisor.exits()
        running = [process for process in processes if process["name"] not in exits]
        new: Message = {
            "host": self.host,
            "ranks_running": sum(len(process["ranks"]) for process in running),
            "done": not any(process["ranks"] for process in running),
            # Its ranks are processes of another node (mpirun): it is as much needed as any other.
            "idle": not any(process["ranks"] for process in processes),
            "rankless": len([process for process in running if not process["ranks"]]),
            "failures": [
                self._failure(process, exits[process["name"]])
                for process in processes
                if exits.get(process["name"], {}).get("result", "success") != "success"
            ],
            "well": self._well(exits),
            "metrics": progress.strict(self.tail.last),
            "loss_not_a_number": self.tail.lost,
            "attempts": self.attempts,
            "ready_for": self.wanted if ready else None,
            "cannot_write": self.cannot_write,
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
            if not self._ended_all(now):
                return False
            self.cleared_for = self.wanted
        for process in self.spec["processes"]:
            if process["name"] in behind:
                ended = exits.get(process["name"])
                if not ended or (not whole and time.time() - ended["time"] < (process.get("recover_after_s") or 0)):
                    return False
        if self.go:
            try:
                write_json(self.job_dir / "attempts.json", self.wanted)
            except OSError as error:
                # By it each process knows its turn.
                folder, reason = str(self.job_dir), error.strerror or str(error)
                self.cannot_write = {"kind": "cannot_write", "host": self.host, "folder": folder, "reason": reason}
                return False
            if whole:
                shutil.rmtree(self.job_dir / "attempt", ignore_errors=True)
            self.report = {}
            self.ending_since = None
            self.attempts = self.wanted
            self.supervisor.restart(behind, self.attempts)
        return True

    def _ended_all(self, now: float) -> bool:
        """End what runs of the job here, politely first; return whether nothing is left."""
        self.ending_since = self.ending_since or now
        slice_name = units.slice_name(self.spec["job_id"]) if self.spec["supervision"] == "systemd" else ""
        left = procs.ranks_of_job(self.spec["job_id"], self.job_dir, slice_name)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM if now - self.ending_since < END_S else signal.SIGKILL)
        return not left

    def _well(self, exits: Mapping[str, Exit]) -> Message | None:
        """Return the first process with ranks that ended well: for the ranks of others that may have been too early."""
        ended = [
            {
                "host": self.host,
                "process": process["name"],
                "ranks": process["ranks"],
                "rank": process["ranks"][0] if len(process["ranks"]) == 1 else None,
                "time": exits[process["name"]].get("time"),
            }
            for process in self.spec["processes"]
            if process["ranks"] and exits.get(process["name"], {}).get("result") == "success"
        ]
        # The file is the ranks', and anything may stand there.
        told = [each for each in ended if isinstance(each["time"], float) and math.isfinite(each["time"])]
        return min(told, key=lambda each: each["time"], default=None)

    def _failure(self, process: Message, ended: Exit) -> Message:
        known: Message = next((old for old in self.report.get("failures", ()) if old["process"] == process["name"]), {})
        if known:
            return known
        record: Message = {
            "kind": "exit",
            "host": self.host,
            "process": process["name"],
            "ranks": process["ranks"],
            "rank": process["ranks"][0] if len(process["ranks"]) == 1 else None,
            "recover_after_s": process.get("recover_after_s"),
            **ended,
        }
        self.save()
        if self.unsaved:
            record["reason"] = f"{self.job_dir} on {self.host} cannot be written: {self.unsaved}"
        # Files and logs are the ranks', and anything may stand there.
        shape = messages.failure_shape(self.host, self.spec["world_size"])
        if misfit(record, shape):
            record = {key: value for key, value in record.items() if key not in ended}
            record.update(exit_code=None, signal=None, result="unreadable", time=time.time())
        if not process["name"].startswith("rank"):
            cause = failures.root_cause(_end_of(Path(process["log"])))
            if cause is not None:
                told = {**record, **{key: value for key, value in cause.items() if value is not None or key != "time"}}
                told["result"] = "signal" if cause["signal"] else "exit-code"
                record = record if misfit(told, shape) else told
        if record["rank"] is not None and record["signal"] != signal.SIGKILL:
            # Ranks that mpirun starts write their logs on other nodes.
            name = self.spec["rank_log"].replace("{rank}", str(record["rank"]))
            lost = causes.lost_peer(_end_of(self.job_dir / "logs" / name, 1 << 16))
            record = {**record, "lost": lost} if lost else record
        return record

    def finish(self, state: str, **details: Any) -> None:
        """End this monitor, and with it the node's processes. The first reason stays."""
        if not self.end_record:
            self.end_record = {"state": state, "finished": time.time(), **details}
            self.ended.set()
            self.news.set()

    def save(self) -> None:
        """Write this node's state for whoever asks (the agent's `state`); a full disk is no reason to watch no more."""
        self.unsaved = keep_json(
            self.job_dir / "monitor.json",
            {
                "job_id": self.spec["job_id"],
                "host": self.host,
                "pid": os.getpid(),
                "start_time": procs.start_time(os.getpid()),
                "started": self.started_at,
                "ranks_running": self.report.get("ranks_running", 0),
                "end": self.end_record or None,
                "carried": {"before": self.carried_before, "now": self._carried()},
            },
        )


def _end_of(path: Path, most: int = 1 << 20) -> str:
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - most))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
