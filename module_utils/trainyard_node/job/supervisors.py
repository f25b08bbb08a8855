# SPDX-License-Identifier: Apache-2.0
"""Who holds the processes of a job on this node, for its monitor: systemd by units, or the monitor as their parent."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ...trainyard.job.messages import Message
from ...trainyard.job.restarts import Attempts
from . import processes, units
from .exits import Exit, from_status, keep_json, read_exits, read_json, turn

# Before a restart, what does not end within this time after SIGTERM gets SIGKILL.
END_S = 3.0
# Held by a thread that waits for children of its own: how they ended would be lost to who reaps the adopted ones.
LOOKING = threading.Lock()


class Supervisor(Protocol):
    """What follows the processes of this node."""

    def start(self) -> None:
        """Start them, where the monitor is the one to do it."""

    def exits(self) -> dict[str, Exit]:
        """Return how processes ended, by name."""

    def main(self, name: str) -> Message | None:
        """Return `pid` and `start_time` of a process; None where it has not begun."""

    def restart(self, names: Sequence[str], attempts: Attempts) -> None:
        """Start processes again that have ended."""

    def beside(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start a child of the monitor's own, from any thread; who starts it waits for it."""

    def end(self) -> None:
        """End what still runs."""


class Units:
    """Processes are systemd units, bound to the monitor's unit: they end when the monitor does."""

    def __init__(self, job_dir: Path, spec: Message) -> None:
        """Take the job's folder; the units have been started by the agent."""
        self._job_dir, self._spec = job_dir, spec

    def start(self) -> None:
        """Nothing to do, but after a reboot: what was not seen to end was lost with the node."""
        for process in self._spec["processes"] if (self._job_dir / "attempts.json").exists() else ():
            name = process["name"]
            main = self.main(name)
            if (
                main
                and processes.start_time(main["pid"]) != main["start_time"]
                and name not in read_exits(self._job_dir)
            ):
                lost = {"exit_code": None, "signal": None, "result": "lost", "time": time.time()}
                lost["attempt"] = main.get("attempt", 0)
                keep_json(self._job_dir / "exits" / f"{name}.json", lost)

    def main(self, name: str) -> Message | None:
        """Read what the process wrote before it became what it is (execute.py)."""
        main: Message | None = read_json(self._job_dir / f"{name}.pid.json")
        return main

    def restart(self, names: Sequence[str], attempts: Attempts) -> None:
        """Nothing to do: systemd has started each again, and it waits for its number in attempts.json (execute.py)."""

    def exits(self) -> dict[str, Exit]:
        """Read what the units' ExecStopPost wrote, and ask for those whose main process is gone already."""
        exits, attempts = read_exits(self._job_dir), read_json(self._job_dir / "attempts.json") or {}
        for process in self._spec["processes"]:
            name = process["name"]
            main = None if name in exits else self.main(name)
            if main and main.get("attempt", 0) != turn(attempts, name):
                continue  # its unit is about to start it again
            if main and processes.start_time(main["pid"]) != main["start_time"]:
                ended = units.main_exit(self._spec["job_id"], name)
                if ended:
                    exits[name] = ended
                    ended["attempt"] = main.get("attempt", 0)
                    keep_json(self._job_dir / "exits" / f"{name}.json", ended)
        return exits

    def beside(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start it."""
        return start()

    def end(self) -> None:
        """End what no unit of this node holds: ranks that another node started here. For units, see BindsTo."""
        if not self._spec["processes"]:
            processes.end(self._spec["job_id"])


class Children:
    """Processes are children of the monitor, each in a session of its own: the fallback where there is no systemd."""

    def __init__(self, job_dir: Path, spec: Message) -> None:
        """Take the job's folder and its job.json."""
        self._job_dir, self._spec = job_dir, spec
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: dict[str, Exit] = {}
        self._attempts: Attempts = {}
        self._pids: dict[str, Message] = {}
        # Children for whose end another thread waits; held while one starts, as it may end at once.
        self._beside: list[subprocess.Popen[bytes]] = []
        self._starts = threading.Lock()

    def start(self) -> None:
        """Start every process."""
        processes.adopt()
        self._start([process["name"] for process in self._spec["processes"]])

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
                env={"TRAINYARD_JOB_ID": self._spec["job_id"]},
                start_new_session=True,
            )
            self._running[name] = child
            self._pids[name] = {"pid": child.pid, "start_time": processes.start_time(child.pid)}
        keep_json(self._job_dir / "pids.json", self._pids)

    def main(self, name: str) -> Message | None:
        """Return what was started last by this name."""
        return self._pids.get(name)

    def exits(self) -> dict[str, Exit]:
        """Reap the children that ended."""
        for name, child in list(self._running.items()):
            status = child.poll()
            if status is not None:
                del self._running[name]
                self._ended[name] = {**from_status(status), "attempt": turn(self._attempts, name)}
                keep_json(self._job_dir / "exits" / f"{name}.json", self._ended[name])
        if LOOKING.acquire(blocking=False):
            try:
                with self._starts:
                    self._beside = [child for child in self._beside if child.returncode is None]
                    processes.reap_adopted({child.pid for child in (*self._running.values(), *self._beside)})
            finally:
                LOOKING.release()
        return self._ended

    def beside(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Start it, and leave the news of its end to who waits for it."""
        with self._starts:
            child = start()
            self._beside.append(child)
        return child

    def end(self) -> None:
        """End every process that carries the job's id, then reap."""
        processes.end(self._spec["job_id"])
        for child in self._running.values():
            # Without its memory a process carries no id any more, and yet the kernel may not have its end to tell.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
        self.exits()
