# SPDX-License-Identifier: Apache-2.0
"""Supervise the processes of a job on this node: they are children of the monitor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from .....trainyard.base.shapes import Message
from .....trainyard.job.run.decide.restarts import Attempts
from ....machine.json_files import keep_json
from . import process_table
from .rank_exits import Exit, from_status, lost, read_attempts, read_exits, turn
from .stop_grace import StopGrace

# Processes that do not end within this time after SIGTERM get SIGKILL.
END_S = 3.0
# A thread holds it while it waits for children of its own, which must not be reaped as adopted ones.
OWN_CHILDREN = threading.Lock()


class Supervisor:
    """The processes of a job as children of the monitor, each in a session of its own.

    `unwritten` is why something could not be written, or "".
    """

    def __init__(self, job_dir: Path, node_plan: Message) -> None:
        """Take the job's folder and its node plan."""
        self._job_dir, self._node_plan = job_dir, node_plan
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: dict[str, Exit] = {}
        self._attempts: Attempts = {}
        self.unwritten = ""
        self._pids: dict[str, Message] = {}
        # Children for which another thread waits, and a lock that is held while one starts, as it may end at once.
        self._beside: list[subprocess.Popen[bytes]] = []
        self._starts = threading.Lock()

    def start(self) -> None:
        """Start every process; after a reboot, note that those without a recorded end were lost with the node."""
        process_table.adopt()
        if (self._job_dir / "attempts.json").exists():
            attempts, exits = read_attempts(self._job_dir), read_exits(self._job_dir)
            for process in self._node_plan["processes"]:
                name = process["name"]
                self._ended[name] = exits.get(name) or {**lost(), "attempt": turn(attempts, name)}
            return
        self._start([process["name"] for process in self._node_plan["processes"]])

    def restart(self, names: Sequence[str], attempts: Attempts) -> None:
        """Start processes again, without what the last run of each has left in its session."""
        for name in names:
            self._ended.pop(name, None)
        left = [self._pids[name]["pid"] for name in names if name in self._pids]
        process_table.end_sessions(self._node_plan["job_id"], left)
        self._attempts = attempts
        self._start(names)

    def _start(self, names: Sequence[str]) -> None:
        """Start processes and write down their process ids and start times."""
        for name in names:
            attempt = turn(self._attempts, name)
            argv = [sys.executable, "-IS", sys.argv[0], "exec", str(self._job_dir), name]
            try:
                child = subprocess.Popen(
                    argv, env={"TRAINYARD_JOB_ID": self._node_plan["job_id"]}, start_new_session=True
                )
            except OSError as error:
                print(f"{name} cannot be started: {error}", flush=True)
                self._note_end(name, {**lost(), "result": "resources"})
                continue
            self._running[name] = child
            started = process_table.start_time(child.pid)
            self._pids[name] = {"pid": child.pid, "start_time": started, "attempt": attempt}
        self._keep("pids.json", self._pids)

    def _note_end(self, name: str, ended: Exit) -> None:
        self._ended[name] = {**ended, "attempt": turn(self._attempts, name)}
        self._keep(f"exits/{name}.json", self._ended[name])

    def _keep(self, name: str, data: Message) -> None:
        self.unwritten = keep_json(self._job_dir / name, data) or self.unwritten

    def main(self, name: str) -> Message | None:
        """Return the process that was started last under this name."""
        return self._pids.get(name)

    def exits(self) -> dict[str, Exit]:
        """Reap the children that ended."""
        for name, child in list(self._running.items()):
            status = child.poll()
            if status is not None:
                del self._running[name]
                self._note_end(name, from_status(status))
        if OWN_CHILDREN.acquire(blocking=False):
            try:
                with self._starts:
                    self._beside = [child for child in self._beside if child.returncode is None]
                    process_table.reap_adopted({child.pid for child in (*self._running.values(), *self._beside)})
            finally:
                OWN_CHILDREN.release()
        return self._ended

    def beside(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a child for whose end another thread waits."""
        with self._starts:
            child = start()
            self._beside.append(child)
        return child

    def end(self) -> None:
        """End every process that carries the job's id, then reap."""
        process_table.end(self._node_plan["job_id"])
        for child in self._running.values():
            # A process that gives back its memory has no job id any more, but is not a zombie yet.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
        self.exits()


class Terminator:
    """Ends what runs of a job on this node: by SIGTERM first, then by SIGKILL."""

    def __init__(self, job_dir: Path, node_plan: Message, supervisor: Supervisor) -> None:
        """Take the job's folder, its node plan, and what knows the processes."""
        self._job_dir, self._job_id, self._unit = job_dir, node_plan["job_id"], node_plan.get("unit", "")
        self.grace = StopGrace(job_dir, node_plan, supervisor.main)
        self._since: float | None = None

    def begin(self) -> None:
        """Begin an attempt: the next termination begins with the time to save."""
        self._since = None
        self.grace.begin()

    def left(self) -> list[int]:
        """Return the running ranks and what starts them."""
        return process_table.ranks_of_job(self._job_id, self._job_dir, self._unit)

    def saving(self, now: float, elsewhere: bool = False) -> bool:
        """Return whether ranks may still save: here, or `elsewhere`, which what starts ranks must not end before."""
        return not self.grace.over(now) or (elsewhere and not self.grace.expired(now))

    def terminate(self, now: float) -> bool:
        """End what runs, without waiting; return whether nothing is left."""
        self._since = now if self._since is None else self._since
        left = self.left()
        if now - self._since < END_S:
            process_table.ask_to_end(left)
            return not left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not left
