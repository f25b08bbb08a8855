# SPDX-License-Identifier: Apache-2.0
"""Find what holds a TCP port of this node. Sources: proc_net_tcp of the kernel's documentation, proc(5)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from ....machine.users import user_name
from ..ranks import process_table

_PROC = Path(process_table.PROC)
# What C, Python and libuv say of a port that is taken.
_IN_USE = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_LISTENS, _TIME_WAIT = "0A", "06"


def named(port: int, proc: Path = _PROC) -> str:
    """Name what holds a TCP port: ` by sshd (pid 12)`, with its job if it has one; "" where nothing does.

    A process may be hidden from us: then only its user is known. A process that listens there comes before connections
    that have this port.
    """
    rows = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows += [line.split() for line in (proc / "net" / table).read_text().splitlines()[1:]]
    # Nobody has to give back a port in TIME_WAIT.
    rows = [row for row in rows if row[1].endswith(f":{port:04X}") and row[3] != _TIME_WAIT]
    rows = [row for row in rows if row[3] == _LISTENS] or rows
    sockets = {f"socket:[{row[9]}]" for row in rows}
    for pid in process_table.pids(proc) if sockets else ():
        with contextlib.suppress(OSError):
            if not sockets.isdisjoint(process_table.open_files(pid, proc)):
                job_id = process_table.job_of(pid, proc)
                of_job = f" of job {job_id}" if job_id else ""
                return f" by {process_table.command_line(pid, proc).split(' ')[0]} (pid {pid}){of_job}"
    uid = int(rows[0][7]) if rows else None
    return "" if uid is None else f" by a process of user {user_name(uid) or uid}"


def in_use(log: str, port: int, proc: Path = _PROC) -> str:
    """Return that a port of the job is taken, and by whom, where a rank's log says so; else ""."""
    if not _IN_USE.search(log) or not re.search(rf"(?<!\d){port}(?!\d)", log):
        return ""
    holder = named(port, proc)
    return f"port {port} is in use{holder}" if holder else f"port {port} was in use, and is free again"
