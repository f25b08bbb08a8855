# SPDX-License-Identifier: Apache-2.0
"""Find what a job's user has left that began during a job and belongs to no job: processes, and shared memory.

A rank can start processes through others: sshd, the user's own systemd (systemd-run --user), at or cron. They look like
processes of the user, so they are reported and never ended. Files in shared memory are reported alike: no name or
owner says for certain which job has made them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from ....machine import commands
from ..ranks import process_table
from ..ranks.disk_space import SHARED

# Upper bound for the processes that are named.
MAX_NAMED = 20
# Upper bound for the files in shared memory that are examined.
_MAX_FILES = 10_000
# Podman starts it at the first container after a boot, and it keeps the user's namespace for all later ones.
PODMANS_KEEPER = ["catatonit", "-P"]


def began(uid: int, age_s: float, proc: str = process_table.PROC) -> list[int]:
    """Return the processes of a user that began in the last `age_s` seconds and belong to no job.

    The caller's own connection does not count, nor does the user's systemd, which comes and goes with logins, nor what
    root does as the user (as_user.py), such as for somebody who watches another job, nor Podman's keeper.
    """
    found = _began(uid, age_s, proc)
    if found:
        # A process that was about to become another program showed no environment.
        time.sleep(process_table.EXEC_S)
        found &= _began(uid, age_s, proc)
    return sorted(found)


def _began(uid: int, age_s: float, proc: str) -> set[int]:
    since = (time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * os.sysconf("SC_CLK_TCK")
    of_user = process_table.of_user(uid, proc)
    # Read after them: jobs that run start and end processes all the time.
    of_jobs = process_table.of_any_job(proc)
    apart = {*of_jobs, *_above(os.getpid(), proc)}
    new = {pid: above for pid, (above, started) in of_user.items() if started >= since and pid not in apart}
    found = {
        pid
        for pid, above in new.items()
        if process_table.arguments(pid, proc) != PODMANS_KEEPER
        and not _by_root(pid, above, proc)
        and Path(f"{proc}/{pid}").exists()
    }
    if not found:
        return found
    manager = _manager(uid)
    # It starts (sd-pam) before any service.
    first = min((pid for pid, (parent, _) in of_user.items() if parent == manager), default=0)
    return found - {manager, first}


def shared_files(uid: int, age_s: float, folder: str = SHARED) -> dict[str, int]:
    """Return the sizes in bytes of a user's files in shared memory, by name, changed in the last `age_s` seconds.

    A file counts that no process of the user has open or mapped.
    """
    since, found = time.time() - age_s, {}
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, _MAX_FILES):
            with contextlib.suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(state.st_mode) and state.st_uid == uid and state.st_ctime >= since:
                    found[entry.name] = state.st_blocks * 512
    used = set[str]()
    # The kernel names them without links.
    place = os.path.realpath(folder)
    for pid in process_table.of_user(uid) if found else ():
        used |= process_table.files_in_use(pid, f"{place}/")
    return {name: size for name, size in sorted(found.items()) if f"{place}/{name}" not in used}


def _by_root(pid: int, above: int, proc: str) -> bool:
    """Return whether a process is root's own program, which has become the user."""
    return process_table.user(above, proc) == 0 and process_table.arguments(pid, proc) == process_table.arguments(
        above, proc
    )


def _above(pid: int, proc: str) -> Iterable[int]:
    """Return a process and all its ancestors."""
    while pid > 0:
        yield pid
        pid = process_table.parent(pid, proc)


def _manager(uid: int) -> int:
    """Return the process id of a user's systemd; 0 where none runs."""
    command = ["systemctl", "show", "--property=MainPID", "--value", f"user@{uid}.service"]
    output = commands.run(command, 5).output.strip()
    return int(output) if output.isdecimal() else 0
