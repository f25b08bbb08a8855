# SPDX-License-Identifier: Apache-2.0
"""Processes of a job as transient systemd units.

    trainyard-<job_id>-monitor.service     the monitor
    trainyard-<job_id>-<process>.service   one for each process, bound to the monitor: no monitor, no process
    trainyard-<job_id with _>.slice        all of them: one cgroup, so stopping it ends exactly this job

Those of a job with restarts are not transient but files in /etc/systemd/system, since a node that was lost and starts
again shall take part again.

Sources: systemd-run(1), systemd.service(5), systemd.kill(5). With Type=exec (systemd 240) a start that fails says so.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .exits import Exit, from_unit, lost

SYSTEMD_RUNNING = Path("/run/systemd/system")
# Made by systemd-user-sessions.service as it stops, see pam_nologin(8).
NO_LOGIN = Path("/run/nologin")
STOP_TIMEOUT_S = 5


def slice_name(job_id: str) -> str:
    """Name the slice of a job. A hyphen in a slice's name would nest it, hence the underscores."""
    return f"trainyard-{job_id.replace('-', '_')}.slice"


def unit_name(job_id: str, name: str) -> str:
    """Name the unit of one process of a job."""
    return f"trainyard-{job_id}-{name}.service"


# Where units stand that come back after a reboot, see systemd.unit(5).
LASTING = Path("/etc/systemd/system")
_OF_UNIT = ("Description", "After", "BindsTo", "Wants", "StartLimitIntervalSec", "CollectMode")


def _properties(job_id: str, name: str, user: str, own: Sequence[str]) -> list[str]:
    return [
        f"Description=trainyard job {job_id}, {name}",
        f"User={user}",
        f"Slice={slice_name(job_id)}",
        "Type=exec",
        # SIGTERM is for the main process; what it leaves behind is killed at once.
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_TIMEOUT_S}",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        f"Environment=TRAINYARD_JOB_ID={job_id}",
        *own,
    ]


def _process_properties(job_id: str, runtime: Sequence[str], job_dir: Path, name: str, timeout_s: int) -> list[str]:
    watched = unit_name(job_id, "monitor")
    return [
        f"BindsTo={watched}",
        f"After={watched}",
        # The monitor ends the job at its time-out; this holds where the monitor itself hangs.
        f"RuntimeMaxSec={timeout_s + 60}",
        f"ExecStopPost={' '.join([*runtime, 'record', str(job_dir), name])}",
    ]


def _stop_slice(job_id: str) -> str:
    """Return the command that stops the slice of a job, and with it what is bound to the monitor that has ended.

    systemd keeps a slice that is empty. Nothing waits for it here: the unit that calls this is one of the slice's own.
    """
    return f"systemctl --no-block stop {slice_name(job_id)}"


def _systemd_run(job_id: str, name: str, properties: Sequence[str], argv: Sequence[str]) -> list[str]:
    command = ["systemd-run", "--quiet", "--collect", f"--unit={unit_name(job_id, name)}"]
    for item in properties:
        command += ["-p", item]
    return [*command, "--", *argv]


def start(job_id: str, job_dir: Path, user: str, python: str, names: Sequence[str], timeout_s: int) -> str:
    """Start the monitor, then all processes side by side. Returns systemd's complaint, or "" when all have started."""
    runtime = [python, "-IS", str(job_dir / "trainyard.pyz")]
    properties = _properties(job_id, "monitor", user, [f"ExecStopPost=+/bin/sh -c '{_stop_slice(job_id)}'"])
    monitor = _systemd_run(job_id, "monitor", properties, [*runtime, "monitor", str(job_dir)])
    done = subprocess.run(monitor, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip() or f"systemd-run ended with {done.returncode}"
    running = []
    for name in names:
        properties = _properties(job_id, name, user, _process_properties(job_id, runtime, job_dir, name, timeout_s))
        running.append(
            subprocess.Popen(
                _systemd_run(job_id, name, properties, [*runtime, "exec", str(job_dir), name]),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    complaints = []
    for process in running:
        _, stderr = process.communicate()
        if process.returncode:
            complaints.append(stderr.strip() or f"systemd-run ended with {process.returncode}")
    return "; ".join(complaints)


def _quoted(argv: Sequence[str]) -> str:
    """Write a command for a unit file, where backslash, quote, % and $ have a meaning (systemd.service(5))."""
    meant = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
    return " ".join(f'"{word.translate(meant)}"' for word in argv)


def _unit_file(properties: Sequence[str], argv: Sequence[str], wanted: bool) -> str:
    ours = [item for item in properties if item.startswith(tuple(f"{key}=" for key in _OF_UNIT))]
    service = [item for item in properties if item not in ours]
    install = ["", "[Install]", "WantedBy=multi-user.target"] if wanted else []
    return "\n".join(["[Unit]", *ours, "", "[Service]", *service, f"ExecStart={_quoted(argv)}", *install, ""])


def start_lasting(job_id: str, job_dir: Path, user: str, python: str, names: Sequence[str], timeout_s: int) -> str:
    """Start the same units so that they come back when the node starts again in the middle of a job with restarts.

    Returns systemd's complaint, or "". The units' files go with the job: the monitor's unit removes them at its end.
    """
    runtime = [python, "-IS", str(job_dir / "trainyard.pyz")]
    monitor = unit_name(job_id, "monitor")
    link = LASTING / "multi-user.target.wants" / monitor
    processes = {name: LASTING / unit_name(job_id, name) for name in names}
    everything = " ".join(str(path) for path in (link, LASTING / monitor, *processes.values()))
    # A unit that failed would stay loaded, and keep the others and the slice.
    forgotten = "CollectMode=inactive-or-failed"
    own = [
        forgotten,
        *(f"Wants={path.name}" for path in processes.values()),
        # As root: not when the node goes down, since then the job is to go on at the next start.
        'ExecStopPost=+/bin/sh -c \'[ "$$(systemctl is-system-running)" = stopping ] || '
        f"{{ rm -f {everything}; {_stop_slice(job_id)}; }}'",
    ]
    text = _unit_file(_properties(job_id, "monitor", user, own), [*runtime, "monitor", str(job_dir)], True)
    (LASTING / monitor).write_text(text)
    for name, path in processes.items():
        own = [
            forgotten,
            *_process_properties(job_id, runtime, job_dir, name, timeout_s),
            # Started again at once, it waits until the monitor lets it run (execute.py).
            "Restart=always",
            "RestartSec=100ms",
            "StartLimitIntervalSec=0",
        ]
        properties = _properties(job_id, name, user, own)
        path.write_text(_unit_file(properties, [*runtime, "exec", str(job_dir), name], False))
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(LASTING / monitor)
    done = subprocess.run(
        ["systemctl", "start", monitor, *(path.name for path in processes.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stderr.strip() or f"systemctl ended with {done.returncode}") if done.returncode else ""


def active(job_id: str, name: str) -> bool:
    """Tell whether a unit of a job runs."""
    done = subprocess.run(["systemctl", "is-active", "--quiet", unit_name(job_id, name)], check=False)
    return done.returncode == 0


def node_goes_down() -> bool:
    """Tell whether systemd is shutting the node down.

    Only root can ask it until the end: the others ask over D-Bus, which ends early, as does the permission to log in.
    """
    asked = ["systemctl", "is-system-running"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=5).stdout.strip()
    except subprocess.TimeoutExpired:
        said = ""
    return said == "stopping" or (said in ("", "offline", "unknown") and NO_LOGIN.exists())


def main_exit(job_id: str, name: str, pid: int | None) -> Exit | None:
    """Return how a unit's main process ended that had this id, or None where it had not even noted that.

    The result is `lost` where the unit knows nothing of that process: it is gone, or runs another one. None: systemd
    does not say, or takes the process for one that runs.

    systemd runs ExecStopPost only when nothing of the unit is left, which it may notice late: with cgroup v1 in a
    container it is not told that a cgroup is empty, and waits for TimeoutStopSec.
    """
    asked = ["systemctl", "show", "--property=Result,ExecMainPID,ExecMainCode,ExecMainStatus", unit_name(job_id, name)]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    shown = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    main, number = shown.get("ExecMainPID", ""), shown.get("ExecMainCode", "")
    if not main:
        return None
    if main == "0" or (pid is not None and main != str(pid)):
        return lost()
    # CLD_EXITED, CLD_KILLED and CLD_DUMPED of waitid(2).
    code = {"1": "exited", "2": "killed", "3": "dumped"}.get(number)
    return from_unit(shown["Result"], code, shown["ExecMainStatus"]) if code else None


# What systemd writes of the end of a unit's main process (manager/service.c of systemd), in English everywhere.
_ENDED = re.compile(
    r"^(?:\S{1,300}: )?Main process exited, code=(?P<code>exited|killed|dumped), status=(?P<status>\d{1,3})/",
    re.MULTILINE,
)
_RESULT = re.compile(r"^(?:\S{1,300}: )?Failed with result '(?P<result>[a-z-]{1,40})'", re.MULTILINE)


def journal_exit(said: str) -> Exit | None:
    """Read from a unit's journal how its main process ended last; None where it does not say."""
    ended, results = list(_ENDED.finditer(said)), _RESULT.findall(said)
    return from_unit(results[-1] if results else "success", ended[-1]["code"], ended[-1]["status"]) if ended else None


def _files(job_id: str) -> list[Path]:
    """Return the unit files of a job, and none of one whose id begins with this one: each names its slice."""
    ours, found = f"Slice={slice_name(job_id)}", []
    for path in LASTING.glob(unit_name(job_id, "*")):
        # The monitor's unit removes them at its end, and so does whoever else stops the job.
        with contextlib.suppress(FileNotFoundError):
            if ours in path.read_text().splitlines():
                found.append(path)
    return found


def come_back(job_id: str) -> bool:
    """Tell whether the units of a job come back when the node starts again."""
    return bool(_files(job_id))


def stop(job_id: str, over: Callable[[], bool]) -> str:
    """Stop all units of a job and wait for it, and remove their files. Returns systemd's complaint, or "".

    It also returns when all is `over`, as systemd may notice that late, see main_exit.
    """
    complaint = ""
    stopping = subprocess.Popen(["systemctl", "stop", slice_name(job_id)], stderr=subprocess.PIPE, text=True)
    while True:
        try:
            _, complaint = stopping.communicate(timeout=0.1)
            break
        except subprocess.TimeoutExpired:
            if over():
                # What it asked for goes on without it.
                stopping.kill()
                stopping.communicate()
                break
    for path in (*_files(job_id), *LASTING.glob(f"*.wants/{unit_name(job_id, 'monitor')}")):
        path.unlink(missing_ok=True)
    # A slice that is not loaded is one without a unit: nothing runs.
    return "" if stopping.returncode == 0 or "not loaded" in complaint else complaint.strip()


def journal(job_id: str, name: str, lines: int = 20) -> str:
    """Return the last lines that systemd has of a unit: why it could not be started."""
    done = subprocess.run(
        ["journalctl", "-u", unit_name(job_id, name), "-n", str(lines), "--no-pager", "-o", "cat"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
