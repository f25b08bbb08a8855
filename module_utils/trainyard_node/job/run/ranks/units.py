# SPDX-License-Identifier: Apache-2.0
"""The transient systemd unit of a job on this node: `trainyard-<job_id>.service` in trainyard.slice.

Its main process is the monitor; the ranks are children of the monitor (supervisor.py), in the same cgroup. So no rank
outlives its monitor, whatever it has forked, and stopping the unit ends exactly this job.

When the node shuts down, systemd stops the unit before all that the ranks need: the network, remote file systems. So
the monitor gives the ranks their time to save (monitor.py), and ends.

The unit is a file in /run/systemd/system, and in /etc/systemd/system for a job with restarts: a node that reboots takes
part again. It removes its file when the job ends.

Sources: systemd.service(5), systemd.kill(5), systemd.unit(5). With Type=exec (systemd 240) a failed start is an error.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ....machine.programs import english
from .rank_exits import Exit

SYSTEMD_RUNNING = Path("/run/systemd/system")
# Made by systemd-user-sessions.service as it stops, see pam_nologin(8).
NO_LOGIN = Path("/run/nologin")
# How long a monitor may take to end beside the time that the ranks have to save, in seconds.
MONITOR_LEAVES_S = 10
# Ranks that save need these until they have left: systemd stops them later. Units that a node lacks do no harm.
_NEEDED = "network.target remote-fs.target dbus.service nvidia-fabricmanager.service openibd.service"
# Units in the second folder come back after a reboot.
TRANSIENT, LASTING = Path("/run/systemd/system"), Path("/etc/systemd/system")


def systemd_command(argv: Sequence[str]) -> str:
    """Return a command for a unit file, where backslash, quote, % and $ have a meaning (systemd.service(5))."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
    return " ".join(f'"{word.translate(escapes)}"' for word in argv)


def unit_name(job_id: str) -> str:
    """Return the name of a job's unit, which is also that of its cgroup."""
    return f"trainyard-{job_id}.service"


def _run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=english(), **options)


def _files(job_id: str) -> tuple[Path, Path, Path]:
    """Return where the unit of a job may be: as one that lasts, the link that starts it again, and as another one."""
    name = unit_name(job_id)
    return LASTING / name, LASTING / "multi-user.target.wants" / name, TRANSIENT / name


def unit_text(job_id: str, user: str, runtime: Sequence[str], job_dir: Path, limits: Limits, in_image: bool) -> str:
    """Return the file of a job's unit; `runtime` is the command of our runtime."""
    service = [
        f"User={user}",
        "Slice=trainyard.slice",
        "Type=exec",
        f"ExecStart={systemd_command([*runtime, 'monitor', str(job_dir)])}",
        # SIGTERM goes to the monitor alone; everything that it leaves is killed at once.
        "KillMode=mixed",
        f"TimeoutStopSec={int(limits.grace_s) + MONITOR_LEAVES_S}",
        # The monitor ends the job at its time limit; this one holds where the monitor itself hangs.
        f"RuntimeMaxSec={limits.run_s}",
        # The end of one rank by the OOM killer must not end the others, nor the monitor.
        "OOMPolicy=continue",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        # The ranks of a node may have more threads than systemd grants one service.
        "TasksMax=infinity",
        f"Environment=TRAINYARD_JOB_ID={job_id}",
    ]
    if in_image:
        # Containers of Docker are in no cgroup of ours.
        service.append(f"ExecStopPost={systemd_command([*runtime, 'remove-containers', str(job_dir)])}")
    # As root; not when the node shuts down, as a job with restarts goes on after the reboot.
    keeps = '[ "$$(systemctl is-system-running)" = stopping ]'
    service.append(f"ExecStopPost=+/bin/sh -c '{keeps} || rm -f {' '.join(map(str, _files(job_id)))}'")
    # A failed unit would stay loaded.
    unit = [f"Description=trainyard job {job_id}", f"After={_NEEDED}", "CollectMode=inactive-or-failed"]
    install = ["WantedBy=multi-user.target"] if limits.lasting else []
    return "\n".join(["[Unit]", *unit, "", "[Service]", *service, "", "[Install]", *install, ""])


class Limits(NamedTuple):
    """How long a job runs at most, and its ranks may save, in seconds; whether its unit outlives a reboot."""

    run_s: float
    grace_s: float
    lasting: bool = False


def start(job_id: str, user: str, python: str, job_dir: Path, limits: Limits, in_image: bool = False) -> str:
    """Start the monitor of a job. Returns systemd's error, or ""."""
    name, runtime = unit_name(job_id), [python, "-IS", str(job_dir / "trainyard.pyz")]
    lasting, link, transient = _files(job_id)
    file = lasting if limits.lasting else transient
    file.parent.mkdir(exist_ok=True)
    file.write_text(unit_text(job_id, user, runtime, job_dir, limits, in_image))
    if limits.lasting:
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(lasting)
    done = _run("systemctl", "start", name)
    return (done.stderr.strip() or f"systemctl ended with {done.returncode}") if done.returncode else ""


def active(job_id: str) -> bool:
    """Return whether the unit of a job runs."""
    return _run("systemctl", "is-active", "--quiet", unit_name(job_id)).returncode == 0


def node_goes_down() -> bool:
    """Return whether systemd is shutting the node down.

    Other users than root ask over D-Bus, which stops early, and so does the permission to log in.
    """
    try:
        state = _run("systemctl", "is-system-running", timeout=5).stdout.strip()
    except subprocess.TimeoutExpired:
        state = ""
    return state == "stopping" or (state in ("", "offline", "unknown") and NO_LOGIN.exists())


def _exit(result: str, code: str, status: str) -> Exit:
    """Translate Result, EXIT_CODE and EXIT_STATUS of a main process (systemd.exec(5))."""
    number = int(status)
    if code == "exited":
        return {"exit_code": number, "signal": None, "result": result, "time": time.time()}
    # For systemd, SIGTERM is a clean end.
    result = "signal" if result == "success" else result
    return {"exit_code": None, "signal": number, "result": result, "time": time.time()}


# The journal line about the end of a unit's main process (src/core/service.c), which is in English everywhere.
_ENDED = re.compile(
    r"^(?:\S{1,300}: )?Main process exited, code=(?P<code>exited|killed|dumped), status=(?P<status>\d{1,3})/",
    re.MULTILINE,
)
_RESULT = re.compile(r"^(?:\S{1,300}: )?Failed with result '(?P<result>[a-z-]{1,40})'", re.MULTILINE)


def journal_exit(lines: str) -> Exit | None:
    """Read from a unit's journal how its monitor ended last; None where no line says so."""
    ended, results = list(_ENDED.finditer(lines)), _RESULT.findall(lines)
    return _exit(results[-1] if results else "success", ended[-1]["code"], ended[-1]["status"]) if ended else None


def come_back(job_id: str) -> bool:
    """Return whether the unit of a job comes back when the node starts again."""
    return _files(job_id)[0].exists()


def kill(job_id: str) -> None:
    """Kill all processes of a job whose monitor hangs: systemd would wait for it."""
    _run("systemctl", "kill", "--signal=SIGKILL", unit_name(job_id))


def stop(job_id: str, finished: Callable[[], bool]) -> str:
    """Stop the unit of a job, wait, and remove its file. Returns systemd's error, or "".

    It also returns when all is `finished`, as systemd may notice that late: with cgroup v1 in a container it gets no
    notice of an empty cgroup, and waits for TimeoutStopSec.
    """
    error, name = "", unit_name(job_id)
    stopping = subprocess.Popen(["systemctl", "stop", name], stderr=subprocess.PIPE, text=True, env=english())
    while True:
        try:
            _, error = stopping.communicate(timeout=0.1)
            break
        except subprocess.TimeoutExpired:
            if finished():
                # systemd goes on without systemctl.
                stopping.kill()
                stopping.communicate()
                break
    if come_back(job_id):
        # A unit that failed as the node shut down stays loaded.
        _run("systemctl", "reset-failed", name)
    for path in _files(job_id):
        path.unlink(missing_ok=True)
    # A unit that is not loaded does not run.
    return "" if stopping.returncode == 0 or "not loaded" in error else error.strip()


def journal(job_id: str) -> str:
    """Return the last lines of the journal of a job's unit."""
    return _run("journalctl", "-u", unit_name(job_id), "-n", "20", "--no-pager", "-o", "cat").stdout.strip()
