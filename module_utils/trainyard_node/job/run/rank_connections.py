# SPDX-License-Identifier: Apache-2.0
"""Check while a job runs whether its ranks on this node have a connection with the head.

It reads /proc/net/tcp and tcp6 once a second, until it has seen a connection. The sockets of the job's processes show
the owner of a new one. A closed connection stays visible for a minute, without its process (TIME_WAIT).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ....trainyard.job.run import rank_connections as meeting
from . import processes, units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Seconds between two reads of connections, of their owners, and of the running processes.
CHECK_S, OWNERS_S, COMMANDS_S = 1.0, 2.0, 10.0
# Where the ranks of one node may meet, too.
_LOOPBACK = ("127.0.0.1", "::1")


class Meeting:
    """Connections of this node's ranks with the head: was any seen, in how many checks, by which launcher."""

    def __init__(self, node_plan: Mapping[str, Any]) -> None:
        """Take the node plan."""
        self._node_plan, self._slice = node_plan, units.slice_of(node_plan)
        self._alone = node_plan["node_rank"] == 0 and len(node_plan["hosts"]) == 1
        # A rank on the head has no need of a connection with another node: it is the others that come.
        launchers: tuple[str, ...] = meeting.MEETING if self._alone else ()
        if node_plan["node_rank"] > 0:
            launchers = (*meeting.MEETING, "direct")
        self._enabled = node_plan["world_size"] > 1 and node_plan.get("launcher", "") in launchers
        self._met, self._looks, self._launcher = False, 0, ""
        # How many of the node's processes had ended at the last check.
        self._exited = 0
        self._checked_at = self._commands_read = self._owners_read = 0.0
        # Local ports of connections that belong to what only starts ranks, and sockets of other programs.
        self._of_agents: set[int] = set()
        self._others: set[int] = set()

    def state(self) -> dict[str, Any] | None:
        """Return what was seen so far; None where connections are not checked."""
        if not self._enabled:
            return None
        return {"met": self._met, "looks": self._looks, "launcher": self._launcher}

    def follow(self, agent: Mapping[str, Any] | None, running: bool, exited: int) -> None:
        """Check where it is time, or another process of the node has ended; `agent` is the one that starts ranks."""
        self.check([agent["pid"]] if agent else [], running, exited > self._exited)
        self._exited = exited

    def check(self, agents: list[int], running: bool, at_once: bool = False) -> None:
        """Check where it is time. `agents` start ranks and are none; `at_once`: a process has just ended."""
        now = time.monotonic()
        if not self._enabled or self._met or not (at_once or (running and now - self._checked_at >= CHECK_S)):
            return
        self._looks += now - self._checked_at >= CHECK_S
        self._checked_at = now
        # In this order: what an agent opens meanwhile is no rank's.
        found = [each for table in ("tcp", "tcp6") for each in self._connections(table)]
        sockets = {socket for pid in agents for socket in _sockets(pid) or ()}
        self._of_agents |= {each.port for each in found if each.inode in sockets}
        found = [each for each in found if each.port not in self._of_agents]
        self._met = any(self._ended(each) for each in found) or self._of_job(found, now, at_once)
        if (
            self._node_plan.get("launcher") == "direct"
            and now - self._commands_read >= COMMANDS_S
            and not self._launcher
        ):
            self._commands_read = now
            self._launcher = self._started()

    def _connections(self, table: str) -> list[meeting.Connection]:
        addresses = (self._node_plan["head_address"], *(_LOOPBACK if self._alone else ()))
        with contextlib.suppress(OSError, ValueError):
            return meeting.connections(Path(processes.PROC, "net", table).read_text(encoding="ascii"), addresses)
        return []

    def _ended(self, each: meeting.Connection) -> bool:
        """Return whether this may have been one of a rank: on a node by itself other programs have theirs, too."""
        ours = self._node_plan["monitor_port"] in (each.port, each.remote_port)
        return not each.inode and not ours and (not self._alone or self._node_plan.get("port") == each.remote_port)

    def _of_job(self, found: list[meeting.Connection], now: float, at_once: bool) -> bool:
        """Return whether one of these connections is of a process of the job, or that cannot be known."""
        new = {each.inode for each in found if each.inode and each.uid == os.geteuid()} - self._others
        if not new or (now - self._owners_read < OWNERS_S and not at_once):
            return False
        self._owners_read = now
        sockets = [_sockets(pid) for pid in processes.of_job(self._node_plan["job_id"], self._slice)]
        if any(each is None or new.intersection(each) for each in sockets):
            return True
        self._others |= new
        return False

    def _started(self) -> str:
        """Return the name of a launcher among the job's processes here; "" where there is none."""
        from ....trainyard.job.file import launcher_programs

        pids = processes.of_job(self._node_plan["job_id"], self._slice)
        found = filter(None, (launcher_programs.find(processes.arguments(pid)) for pid in pids))
        return next((each.called for each in found), "")


def _sockets(pid: int) -> list[int] | None:
    """Return the sockets that a process has open, by their numbers; None where that is hidden from us."""
    try:
        return [int(link[8:-1]) for link in processes.open_files(pid) if link.startswith("socket:[")]
    except PermissionError:
        return None
    except OSError:
        # It has ended.
        return []
