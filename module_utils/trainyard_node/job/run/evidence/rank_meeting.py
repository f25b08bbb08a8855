# SPDX-License-Identifier: Apache-2.0
"""Observe while a job runs whether its ranks on this node train with the others.

Once a second, until it has seen one, it looks for a connection of the job's processes with the head, by /proc/net/tcp
and tcp6 and the sockets that these processes have open. Every few seconds it reads the environments of the job's own
processes, for worlds that a rank has started below it (trainyard/job/run/measure/worlds.py).
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

from .....trainyard.job.file import launcher_programs
from .....trainyard.job.run.measure import rank_connections, worlds
from ..ranks import process_table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    Worlds = dict[tuple[int, str, int], tuple[int, str]]

# Seconds between two reads of connections, and of their owners.
CHECK_S, OWNERS_S = 1.0, 2.0
# Seconds between two reads of environments, at first and later: less than worlds.LOSS_S.
FIRST_S, LATER_S = 2.0, 10.0
# Upper bound for the processes whose environments are read.
MAX_PROCESSES = 4096
# Upper bound for what is read of a launcher's file, in characters.
MAX_FILE = 1 << 16
# Where the ranks of one node may meet, too. Debian gives a host's own name the last one.
_LOOPBACK = ("127.0.0.1", "::1", "127.0.1.1")


class Meeting:
    """What this node knows of its ranks: connections with the head, a launcher among them, and worlds below them."""

    def __init__(self, node_plan: Mapping[str, Any]) -> None:
        """Take the node plan."""
        self._node_plan, self._unit = node_plan, node_plan.get("unit", "")
        self._alone = node_plan["node_rank"] == 0 and len(node_plan["hosts"]) == 1
        # A rank on the head has no need of a connection with another node: it is the others that come.
        launchers: tuple[str, ...] = rank_connections.MEETING if self._alone else ()
        if node_plan["node_rank"] > 0:
            launchers = (*rank_connections.MEETING, "direct")
        self._several = node_plan["world_size"] > 1
        self._enabled = self._several and node_plan.get("launcher", "") in launchers
        self._met, self._looks, self._launcher = False, 0, ""
        self._checked_at = self._owners_read = 0.0
        # Sockets of other programs.
        self._others: set[int] = set()
        self._begin({})

    def _begin(self, attempts: Mapping[str, int]) -> None:
        """Begin an attempt, in which ranks may start other worlds."""
        self._attempts = {**attempts}
        self._began = self._sampled = time.monotonic()
        # Whether the job's own ranks have met; what is below them in the last sample, and in the two last ones.
        self._own_met = False
        self._before: Worlds = {}
        self._found: Worlds = {}

    def state(self) -> dict[str, Any] | None:
        """Return what was seen of connections so far; None where they are not checked."""
        if not self._enabled:
            return None
        return {"met": self._met, "looks": self._looks, "launcher": self._launcher}

    def worlds(self) -> dict[str, Any]:
        """Return what the head compares (worlds.SHAPE): a world that was seen once may have ended on other nodes."""
        entries = sorted(self._found.items())[: worlds.MAX_INNER]
        inner = [
            {"holder": holder, "by": by, "size": size, "number": number, "at": at}
            for (holder, by, size), (number, at) in entries
        ]
        return {"met": self._own_met, "inner": inner}

    def follow(self, agent: Mapping[str, Any] | None, running: bool, attempts: Mapping[str, int]) -> None:
        """Observe where it is time; `agent` starts ranks, and its own connections are none of theirs."""
        now = time.monotonic()
        if attempts != self._attempts:
            self._begin(attempts)
        if not running or not self._several:
            return
        if self._enabled and not self._met and now - self._checked_at >= CHECK_S:
            self._looks, self._checked_at = self._looks + 1, now
            self._met = self._of_job(self._sockets_to_head(), [agent["pid"]] if agent else [], now)
        if now - self._sampled >= min(LATER_S, max(FIRST_S, (now - self._began) / 4)):
            self._sampled = now
            self._sample()

    def _sockets_to_head(self) -> set[int]:
        """Return the sockets of this user that are connected with the head, but with no monitor of it."""
        addresses = (self._node_plan["head_address"], *(_LOOPBACK if self._alone else ()))
        found = set()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError, ValueError):
                text = Path(process_table.PROC, "net", table).read_text(encoding="ascii")
                found |= {
                    each.inode
                    for each in rank_connections.connections(text, addresses)
                    if each.uid == os.geteuid() and self._node_plan["monitor_port"] not in (each.port, each.remote_port)
                }
        return found

    def _of_job(self, found: set[int], agents: list[int], now: float) -> bool:
        """Return whether one of these sockets is of a process of the job, or that cannot be known."""
        new = found - self._others
        if not new or now - self._owners_read < OWNERS_S:
            return False
        self._owners_read = now
        pids = set(process_table.of_job(self._node_plan["job_id"], self._unit)) - {*agents}
        if _have(pids, new):
            return True
        # An agent may hand a connection to a rank that it starts.
        self._others |= new - {socket for pid in agents for socket in _sockets(pid) or ()}
        return False

    def _sample(self) -> None:
        """Read the environments of the job's own processes, and compare each with that of the rank above it."""
        uid = os.geteuid()
        pids = process_table.of_job(self._node_plan["job_id"], self._unit, uid)[:MAX_PROCESSES]
        above = {pid: process_table.parent(pid) for pid in pids if process_table.user(pid) == uid}
        places = {pid: found for pid in above if (found := worlds.place(process_table.environment(pid)))}
        commands = {pid: launcher_programs.find(process_table.arguments(pid)) for pid in above}
        launchers = {pid: each for pid, each in commands.items() if each}
        if self._node_plan.get("launcher") == "direct":
            self._launcher = self._launcher or next((each.called for each in launchers.values()), "")
        before, self._before, own = self._before, {}, set()
        for pid in {*places, *launchers}:
            if (holder := _holder(pid, above, places)) is None:
                continue
            rank = next(number for number, _ in places[holder].numbers.values())
            inner = worlds.inner(places[pid], places[holder]) if pid in places else []
            if not inner and pid not in launchers:
                own.add(pid)
            if pid in launchers:
                words = [*launchers[pid].words, *_of_file(pid, launchers[pid])]
                inner += worlds.of_launcher(words, bool(launchers[pid].program.nodes_options))
            for each in inner:
                key, value = (rank, each.by, each.size), (each.number, each.at)
                self._before[key] = min(value, self._before.get(key, value))
        self._found = {key: value for key, value in self._before.items() if before.get(key) == value}
        # The head's own ranks need none with it.
        if self._found and not self._own_met and (self._alone or self._node_plan["node_rank"] > 0):
            self._own_met = _have(own, self._sockets_to_head())


def _holder(pid: int, above: Mapping[int, int], places: Mapping[int, worlds.Place]) -> int | None:
    """Return the rank of the job that a process is or descends from: the topmost one with a number."""
    found, passed = None, set[int]()
    while pid in above and pid not in passed:
        passed.add(pid)
        found, pid = (pid if pid in places else found), above[pid]
    return found


def _of_file(pid: int, launcher: launcher_programs.Found) -> list[str]:
    """Return the options that a launcher has in a file of its own."""
    name = worlds.settings_file(launcher.called, launcher.words, process_table.environment(pid))
    if not name:
        return []
    try:
        # A name below it leads to what the launcher itself reads.
        descriptor = os.open(
            Path(process_table.PROC, str(pid), "cwd", name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        )
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
            return worlds.of_file(file.read(MAX_FILE)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else []
    except (OSError, ValueError):
        return []


def _have(pids: Iterable[int], wanted: set[int]) -> bool:
    """Return whether one of these processes has one of these sockets, or that is hidden from us."""
    sockets = (_sockets(pid) for pid in (pids if wanted else ()))
    return any(each is None or wanted.intersection(each) for each in sockets)


def _sockets(pid: int) -> list[int] | None:
    """Return the sockets that a process has open, by their numbers; None where that is hidden from us."""
    try:
        return [int(link[8:-1]) for link in process_table.open_files(pid) if link.startswith("socket:[")]
    except PermissionError:
        return None
    except OSError:
        # It has ended.
        return []
