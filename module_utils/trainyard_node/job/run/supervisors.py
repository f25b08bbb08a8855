# SPDX-License-Identifier: Apache-2.0
"""Supervise the processes of a job on this node: as systemd units, or as children of the monitor.

Both kinds of supervisors have the same methods. `unwritten` is why something could not be written, or "".
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Union

from ....trainyard.job.run.messages import Message
from ....trainyard.job.run.restarts import Attempts
from ...machine.json_files import keep_json, read_object
from . import processes, units
from .rank_exits import Exit, from_status, lost, read_attempts, read_exits, turn
from .stop_grace import StopGrace

# Processes that do not end within this time after SIGTERM get SIGKILL.
END_S = 3.0
# How long a process may take to begin before systemd is queried about it, and how often then, in seconds.
BEGIN_S, QUERY_S = 60.0, 2.0
# A thread holds it while it waits for children of its own, which must not be reaped as adopted ones.
OWN_CHILDREN = threading.Lock()


class Units:
    """Processes as systemd units that are bound to the monitor's unit: they end when the monitor does."""

    def __init__(self, job_dir: Path, node_plan: Message) -> None:
        """Take the job's folder; the units have been started by the agent."""
        self._job_dir, self._node_plan = job_dir, node_plan
        self.unwritten = ""
        # Exits as this monitor saw them, by name: on a full disk they are not written.
        self._ended: dict[str, Exit] = {}
        # When to query systemd about a process that has not begun, by name.
        self._query_at: dict[str, float] = {}

    def start(self) -> None:
        """After a reboot, note that processes without a recorded end were lost with the node."""
        for process in self._node_plan["processes"] if (self._job_dir / "attempts.json").exists() else ():
            name = process["name"]
            main = self.main(name)
            if main and not self._runs(main) and name not in read_exits(self._job_dir):
                self._keep(name, lost(), main["attempt"])

    def main(self, name: str) -> Message | None:
        """Read what the process noted before it started its program (execute.py)."""
        found = read_object(self._job_dir / f"{name}.pid.json")
        main = {"attempt": 0, **found}
        return main if all(type(main.get(key)) is int for key in ("pid", "start_time", "attempt")) else None

    def restart(self, names: Sequence[str], attempts: Attempts) -> None:
        """Do nothing: systemd has started each again, and it waits for its turn in attempts.json (execute.py)."""
        del attempts
        for name in names:
            self._query_at.pop(name, None)

    def exits(self) -> dict[str, Exit]:
        """Read what the units' ExecStopPost wrote; query systemd about units whose main process has ended."""
        exits, attempts = read_exits(self._job_dir), read_attempts(self._job_dir)
        for name in (process["name"] for process in self._node_plan["processes"]):
            attempt = turn(attempts, name)
            if name not in exits and self._ended.get(name, {}).get("attempt") == attempt:
                exits[name] = self._ended[name]
            if name in exits:
                continue
            main = self.main(name)
            begun = main is not None and main["attempt"] == attempt
            if self._runs(main) if begun else not self._late(name):
                continue
            ended = units.main_exit(self._node_plan["job_id"], name, main["pid"] if main and begun else None)
            if ended and ended["result"] == "lost":
                # A process that has just ended left its record before its unit was unloaded.
                ended = read_exits(self._job_dir).get(name, ended)
            if ended:
                exits[name] = self._keep(name, ended, attempt)
        return exits

    def _runs(self, main: Message | None) -> bool:
        return main is not None and processes.start_time(main["pid"]) == main["start_time"]

    def _late(self, name: str) -> bool:
        """Return whether it is time to query systemd about a process that has not begun (again)."""
        now = time.monotonic()
        due = now >= self._query_at.setdefault(name, now + BEGIN_S)
        if due:
            self._query_at[name] = now + QUERY_S
        return due

    def _keep(self, name: str, ended: Exit, attempt: int) -> Exit:
        self._ended[name] = {**ended, "attempt": attempt}
        self.unwritten = keep_json(self._job_dir / "exits" / f"{name}.json", self._ended[name]) or self.unwritten
        return self._ended[name]

    def beside(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a child of the monitor's own."""
        return start()

    def end(self) -> None:
        """End ranks that another node started here, as no unit holds them; BindsTo ends units."""
        if not self._node_plan["processes"]:
            processes.end(self._node_plan["job_id"])


class Children:
    """Processes as children of the monitor, each in a session of its own, where there is no systemd."""

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
        processes.adopt()
        if (self._job_dir / "attempts.json").exists():
            attempts, exits = read_attempts(self._job_dir), read_exits(self._job_dir)
            for process in self._node_plan["processes"]:
                name = process["name"]
                self._ended[name] = exits.get(name) or {**lost(), "attempt": turn(attempts, name)}
            return
        self._start([process["name"] for process in self._node_plan["processes"]])

    def restart(self, names: Sequence[str], attempts: Attempts) -> None:
        """Start processes again."""
        for name in names:
            self._ended.pop(name, None)
        self._attempts = attempts
        self._start(names)

    def _start(self, names: Sequence[str]) -> None:
        """Start processes and write down their process ids and start times."""
        for name in names:
            child = subprocess.Popen(
                [sys.executable, sys.argv[0], "exec", str(self._job_dir), name],
                env={"TRAINYARD_JOB_ID": self._node_plan["job_id"]},
                start_new_session=True,
            )
            self._running[name] = child
            self._pids[name] = {"pid": child.pid, "start_time": processes.start_time(child.pid)}
        self._keep("pids.json", self._pids)

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
                self._ended[name] = {**from_status(status), "attempt": turn(self._attempts, name)}
                self._keep(f"exits/{name}.json", self._ended[name])
        if OWN_CHILDREN.acquire(blocking=False):
            try:
                with self._starts:
                    self._beside = [child for child in self._beside if child.returncode is None]
                    processes.reap_adopted({child.pid for child in (*self._running.values(), *self._beside)})
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
        processes.end(self._node_plan["job_id"])
        for child in self._running.values():
            # A process that gives back its memory has no job id any more, but is not a zombie yet.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
        self.exits()


Supervisor = Union[Units, Children]


class Terminator:
    """Ends what runs of a job on this node: by SIGTERM first, then by SIGKILL."""

    def __init__(self, job_dir: Path, node_plan: Message, supervisor: Supervisor) -> None:
        """Take the job's folder, its node plan, and what knows the processes."""
        self._job_dir, self._job_id, self._slice = job_dir, node_plan["job_id"], units.slice_of(node_plan)
        self.grace = StopGrace(job_dir, node_plan, supervisor.main)
        self._since: float | None = None

    def begin(self) -> None:
        """Begin an attempt: the next termination begins with the time to save."""
        self._since = None
        self.grace.begin()

    def left(self) -> list[int]:
        """Return the running ranks and what starts them."""
        return processes.ranks_of_job(self._job_id, self._job_dir, self._slice)

    def saving(self, now: float, elsewhere: bool = False) -> bool:
        """Return whether ranks may still save: here, or `elsewhere`, which what starts ranks must not end before."""
        return not self.grace.over(now) or (elsewhere and not self.grace.expired(now))

    def terminate(self, now: float) -> bool:
        """End what runs, without waiting; return whether nothing is left."""
        self._since = now if self._since is None else self._since
        left = self.left()
        if now - self._since < END_S:
            processes.ask_to_end(left)
            return not left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        return not left
