# SPDX-License-Identifier: Apache-2.0
"""Start mpirun's daemons on this node, and bring its own mpirun's requests for others to the head.

The messages are those of decide/daemon_requests.py. Files in attempt/daemons, which the script `mpi_agent` makes:
N is a FIFO at which the script waits, N.asked has an address in its first line, then the command of the daemon.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .....trainyard.base.visible import one_line
from .....trainyard.job.run.decide.daemon_requests import MAX_COMMAND, MAX_DAEMONS, MAX_NUMBER, MAX_SAID, unanswered
from .....trainyard.job.run.decide.restarts import WHOLE, Attempts
from ....machine.json_files import end_of, open_regular

# Requests that are taken at once.
MAX_LOOK = 1024
Beside = Callable[[Callable[[], "subprocess.Popen[bytes]"]], "subprocess.Popen[bytes]"]


class Daemons:
    """Those that run here, and those that the mpirun of this node has asked for, in one attempt."""

    def __init__(self, job_dir: Path, node_plan: Mapping[str, Any], beside: Beside, attempts: Attempts) -> None:
        """Take what starts children of the monitor."""
        self._job_dir, self._node_plan, self._beside = job_dir, node_plan, beside
        self._enabled = node_plan.get("launcher") == "mpirun"
        self._folder = job_dir / "attempt" / "daemons"
        self.begin(attempts)

    def begin(self, attempts: Attempts) -> None:
        """Begin an attempt, before which all daemons have ended."""
        self._attempt = attempts.get(WHOLE, 0)
        self._asks: list[dict[str, Any]] = []
        self._agents: dict[int, Path] = {}
        self._asked: Mapping[str, Any] = {}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._known: dict[int, dict[str, Any]] = {}

    def follow(self, message: Mapping[str, Any]) -> None:
        """Take an order of the head, which may be of another attempt."""
        for start in message.get("start", ()):
            mine = start["attempt"] == self._attempt and start["number"] not in self._known
            if self._enabled and mine and len(self._known) < MAX_DAEMONS:
                self._start(start["number"], start["command"])
        self._asked = message.get("asked", self._asked)
        for ended in self._asked.get("ended", ()) if self._asked.get("attempt") == self._attempt else ():
            self._answer(ended)

    def _start(self, number: int, command: str) -> None:
        home = Path(self._node_plan["base_env"].get("HOME", "/"))
        with contextlib.suppress(OSError):
            self._log(number).parent.mkdir(exist_ok=True)
        status, said = None, ""
        try:
            with self._log(number).open("ab") as log:
                self._running[number] = self._beside(
                    lambda: subprocess.Popen(
                        ["/bin/sh", f"{self._job_dir}/mpi_daemon", command],
                        env=dict(self._node_plan["base_env"]),
                        # As a login by ssh.
                        cwd=home if home.is_dir() else "/",
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        except OSError as error:
            status, said = 126, str(error)[:MAX_SAID]
        self._known[number] = {"number": number, "attempt": self._attempt, "status": status, "said": said}

    def _log(self, number: int) -> Path:
        return self._job_dir / "attempt" / f"daemon_{number}.log"

    def _inspect(self) -> None:
        """Look for new requests, and for daemons that have ended."""
        # The ranks may have written anything there.
        for path in itertools.islice(self._folder.glob("*.asked"), MAX_LOOK):
            if len(self._asks) < MAX_NUMBER:
                self._take(path)
        for number, child in list(self._running.items()):
            status = child.poll()
            if status is not None:
                del self._running[number]
                status = 128 - status if status < 0 else status
                printed = end_of(self._log(number), MAX_SAID).strip() if status else ""
                said = one_line(printed.rpartition("\n")[2], MAX_SAID)
                self._known[number] = {**self._known[number], "status": status, "said": said}

    def _take(self, path: Path) -> None:
        try:
            with open_regular(path) as file:
                content = file.read(MAX_COMMAND + 1).decode("utf-8", "replace")
            path.unlink()
        except OSError:
            return
        address, _, command = content.partition("\n")
        if len(content) > MAX_COMMAND:
            _end(path.with_suffix(""), 126, f"trainyard: mpirun's command for {address[:64]} is too long")
            return
        number = len(self._asks) + 1
        self._agents[number] = path.with_suffix("")
        ask = {"number": number, "attempt": self._attempt, "address": address[:64], "command": command}
        self._asks.append(ask)

    def _answer(self, ended: Mapping[str, Any]) -> None:
        agent = self._agents.pop(ended["number"], None)
        if agent is None:
            return
        address, status = self._asks[ended["number"] - 1]["address"], ended["status"]
        # failures.py looks for what was said before this line.
        killed = f"trainyard: the daemon on {address} ended with status {status}" if status > 128 else ""
        _end(agent, status, "\n".join(filter(None, [ended["said"], killed])))

    def report(self) -> dict[str, Any]:
        """Return what the head has to know."""
        if self._enabled:
            self._inspect()
        asks = unanswered(self._asks, self._attempt, self._asked)
        known = list(self._known.values())
        return {**({"asks": asks} if asks else {}), **({"daemons": known} if known else {})}


def _end(agent: Path, status: int, said: str) -> None:
    """Have a script end with a status, after it has printed this."""
    # Without a reader, mpirun has ended the script.
    with contextlib.suppress(OSError):
        fifo = os.open(agent, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            os.write(fifo, (f"{status}\n{said}\n" if said else f"{status}\n").encode())
        finally:
            os.close(fifo)
