# SPDX-License-Identifier: Apache-2.0
"""Processes of a job as transient systemd units.

    trainyard-<job_id>-monitor.service     the monitor
    trainyard-<job_id>-<process>.service   one for each process, bound to the monitor: no monitor, no process
    trainyard-<job_id with _>.slice        all of them: one cgroup, so stopping it ends exactly this job

When the node shuts down, systemd stops the monitor before all that the ranks need: the other units, the network, remote
file systems. So the monitor gives the ranks their time to save (monitor.py), and ends.

Units of a job with restarts are files in /etc/systemd/system instead: a node that reboots takes part again.

Sources: systemd-run(1), systemd.service(5), systemd.kill(5). With Type=exec (systemd 240) a failed start is an error.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...machine.programs import english
from .rank_exits import Exit, from_unit, lost

SYSTEMD_RUNNING = Path("/run/systemd/system")
# Made by systemd-user-sessions.service as it stops, see pam_nologin(8).
NO_LOGIN = Path("/run/nologin")
STOP_TIMEOUT_S = 5
# How long a monitor may take to end beside the time that the ranks have to save, in seconds.
MONITOR_LEAVES_S = 10
# Ranks that save need these until they have left: systemd stops them later. Units that a node lacks do no harm.
_NEEDED = "network.target remote-fs.target dbus.service nvidia-fabricmanager.service openibd.service"


def slice_name(job_id: str) -> str:
    """Return the name of a job's slice. A hyphen would nest it, hence the underscores."""
    return f"trainyard-{job_id.replace('-', '_')}.slice"


def slice_of(node_plan: Mapping[str, Any]) -> str:
    """Return the name of a job's slice; "" where its processes are no units."""
    return slice_name(node_plan["job_id"]) if node_plan.get("supervision") == "systemd" else ""


def unit_name(job_id: str, name: str) -> str:
    """Return the name of the unit of a job's process."""
    return f"trainyard-{job_id}-{name}.service"


def _run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=english(), **options)


def _error(argv: Sequence[str], status: int, message: str) -> str:
    """Return why a command failed; "" if it has not."""
    return (message.strip() or f"{argv[0]} ended with {status}") if status else ""


# Units in this folder come back after a reboot, see systemd.unit(5).
LASTING = Path("/etc/systemd/system")
_OF_UNIT = (
    *("Description", "After", "Before", "BindsTo", "Wants", "ConditionPathExists", "StartLimitIntervalSec"),
    "CollectMode",
)


def _properties(job_id: str, name: str, user: str, own: Sequence[str], stop_s: int = STOP_TIMEOUT_S) -> list[str]:
    return [
        f"Description=trainyard job {job_id}, {name}",
        f"After={_NEEDED}",
        f"User={user}",
        f"Slice={slice_name(job_id)}",
        "Type=exec",
        # SIGTERM goes to the main process alone; everything that it leaves is killed at once.
        "KillMode=mixed",
        f"TimeoutStopSec={stop_s}",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        f"Environment=TRAINYARD_JOB_ID={job_id}",
        *own,
    ]


def _process_properties(job_id: str, runtime: Sequence[str], job_dir: Path, name: str, timeout_s: float) -> list[str]:
    watched = unit_name(job_id, "monitor")
    return [
        f"BindsTo={watched}",
        # systemd stops units in the reverse order: the monitor first.
        f"Before={watched}",
        f"RuntimeMaxSec={timeout_s}",
        f"ExecStopPost={' '.join([*runtime, 'record', str(job_dir), name])}",
    ]


def _monitor_properties(job_id: str, user: str, own: Sequence[str], grace_s: float) -> list[str]:
    stop_s = int(grace_s) + MONITOR_LEAVES_S if grace_s else STOP_TIMEOUT_S
    return _properties(job_id, "monitor", user, own, stop_s)


def _stop_slice(job_id: str) -> str:
    """Return the command that stops the slice of a job once its monitor has ended: systemd keeps an empty slice.

    It does not wait, as the unit that runs it belongs to the slice.
    """
    return f"systemctl --no-block stop {slice_name(job_id)}"


def _systemd_run(job_id: str, name: str, properties: Sequence[str], argv: Sequence[str]) -> list[str]:
    command = ["systemd-run", "--quiet", "--collect", f"--unit={unit_name(job_id, name)}"]
    for item in properties:
        command += ["-p", item]
    return [*command, "--", *argv]


def start(
    job_id: str, job_dir: Path, user: str, python: str, names: Sequence[str], timeout_s: float, grace_s: float
) -> str:
    """Start the monitor, then all processes at the same time, for at most `timeout_s`.

    Ranks have `grace_s` to save when the node shuts down. Returns systemd's error, or "".
    """
    runtime = [python, "-IS", str(job_dir / "trainyard.pyz")]
    own = [f"ExecStopPost=+/bin/sh -c '{_stop_slice(job_id)}'"]
    properties = _monitor_properties(job_id, user, own, grace_s)
    monitor = _systemd_run(job_id, "monitor", properties, [*runtime, "monitor", str(job_dir)])
    done = _run(*monitor)
    if done.returncode:
        return _error(monitor, done.returncode, done.stderr)
    running = []
    for name in names:
        properties = _properties(job_id, name, user, _process_properties(job_id, runtime, job_dir, name, timeout_s))
        argv = _systemd_run(job_id, name, properties, [*runtime, "exec", str(job_dir), name])
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": english()}
        running.append(subprocess.Popen(argv, text=True, **pipes))
    messages = [process.communicate()[1] for process in running]
    errors = [_error(monitor, each.returncode, message) for each, message in zip(running, messages)]
    return "; ".join(filter(None, errors))


def _quoted(argv: Sequence[str]) -> str:
    """Return a command for a unit file, where backslash, quote, % and $ have a meaning (systemd.service(5))."""
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
    return " ".join(f'"{word.translate(escapes)}"' for word in argv)


def _unit_file(properties: Sequence[str], argv: Sequence[str], at_boot: bool) -> str:
    ours = [item for item in properties if item.startswith(tuple(f"{key}=" for key in _OF_UNIT))]
    service = [item for item in properties if item not in ours]
    install = ["", "[Install]", "WantedBy=multi-user.target"] if at_boot else []
    return "\n".join(["[Unit]", *ours, "", "[Service]", *service, f"ExecStart={_quoted(argv)}", *install, ""])


def start_lasting(
    job_id: str, job_dir: Path, user: str, python: str, names: Sequence[str], timeout_s: float, grace_s: float
) -> str:
    """Start the units of a job with restarts, as `start` does: they come back when the node reboots.

    Returns systemd's error, or "". The monitor's unit removes the files when the job ends.
    """
    runtime = [python, "-IS", str(job_dir / "trainyard.pyz")]
    monitor = unit_name(job_id, "monitor")
    link = LASTING / "multi-user.target.wants" / monitor
    processes = {name: LASTING / unit_name(job_id, name) for name in names}
    everything = " ".join(str(path) for path in (link, LASTING / monitor, *processes.values()))
    # A failed unit would stay loaded, and keep the others and the slice.
    unload = "CollectMode=inactive-or-failed"
    own = [
        unload,
        *(f"Wants={path.name}" for path in processes.values()),
        # As root; not when the node shuts down, as the job goes on after the reboot.
        'ExecStopPost=+/bin/sh -c \'[ "$$(systemctl is-system-running)" = stopping ] || '
        f"{{ rm -f {everything}; {_stop_slice(job_id)}; }}'",
    ]
    if not names:
        # Ranks that are the monitor's children: the end of one by the OOM killer must not end the others.
        own.append("OOMPolicy=continue")
    text = _unit_file(_monitor_properties(job_id, user, own, grace_s), [*runtime, "monitor", str(job_dir)], True)
    (LASTING / monitor).write_text(text)
    for name, path in processes.items():
        own = [
            unload,
            *_process_properties(job_id, runtime, job_dir, name, timeout_s),
            # It starts again at once and waits for its turn (execute.py).
            "Restart=always",
            "RestartSec=100ms",
            "StartLimitIntervalSec=0",
            # Without the job's folder nothing could start, again and again.
            f"ConditionPathExists={runtime[-1]}",
        ]
        properties = _properties(job_id, name, user, own)
        path.write_text(_unit_file(properties, [*runtime, "exec", str(job_dir), name], False))
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(LASTING / monitor)
    command = ["systemctl", "start", monitor, *(path.name for path in processes.values())]
    done = _run(*command)
    return _error(command, done.returncode, done.stderr)


def active(job_id: str, name: str) -> bool:
    """Return whether a unit of a job runs."""
    return _run("systemctl", "is-active", "--quiet", unit_name(job_id, name)).returncode == 0


def node_goes_down() -> bool:
    """Return whether systemd is shutting the node down.

    Other users than root ask over D-Bus, which stops early, and so does the permission to log in.
    """
    try:
        state = _run("systemctl", "is-system-running", timeout=5).stdout.strip()
    except subprocess.TimeoutExpired:
        state = ""
    return state == "stopping" or (state in ("", "offline", "unknown") and NO_LOGIN.exists())


def main_exit(job_id: str, name: str, pid: int | None) -> Exit | None:
    """Return how the unit's main process with this id ended; `pid` is None where the process did not note its id.

    The result is `lost` where the unit has ended or runs another process. None where systemd does not know, or the
    process still runs.

    systemd runs ExecStopPost only when nothing of the unit is left, which it may notice late: with cgroup v1 in a
    container it gets no notice of an empty cgroup, and waits for TimeoutStopSec.
    """
    properties = "--property=Result,ExecMainPID,ExecMainCode,ExecMainStatus"
    try:
        done = _run("systemctl", "show", properties, unit_name(job_id, name), timeout=5)
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


# The journal line about the end of a unit's main process (src/core/service.c), which is in English everywhere.
_ENDED = re.compile(
    r"^(?:\S{1,300}: )?Main process exited, code=(?P<code>exited|killed|dumped), status=(?P<status>\d{1,3})/",
    re.MULTILINE,
)
_RESULT = re.compile(r"^(?:\S{1,300}: )?Failed with result '(?P<result>[a-z-]{1,40})'", re.MULTILINE)


def journal_exit(lines: str) -> Exit | None:
    """Read from a unit's journal how its main process ended last; None where no line says so."""
    ended, results = list(_ENDED.finditer(lines)), _RESULT.findall(lines)
    return from_unit(results[-1] if results else "success", ended[-1]["code"], ended[-1]["status"]) if ended else None


def _files(job_id: str) -> list[Path]:
    """Return the unit files of a job: each names its slice, which a job with a longer id does not."""
    ours, found = f"Slice={slice_name(job_id)}", []
    for path in LASTING.glob(unit_name(job_id, "*")):
        # Several callers may stop a job at once, and each removes its files.
        with contextlib.suppress(FileNotFoundError):
            if ours in path.read_text().splitlines():
                found.append(path)
    return found


def come_back(job_id: str) -> bool:
    """Return whether the units of a job come back when the node starts again."""
    return bool(_files(job_id))


def kill_monitor(job_id: str) -> None:
    """Kill a monitor that hangs: systemd would wait for it before it stops the ranks."""
    _run("systemctl", "kill", "--signal=SIGKILL", unit_name(job_id, "monitor"))


def stop(job_id: str, finished: Callable[[], bool]) -> str:
    """Stop all units of a job, wait, and remove their files. Returns systemd's error, or "".

    It also returns when all is `finished`, as systemd may notice that late, see main_exit.
    """
    error = ""
    argv = ["systemctl", "stop", slice_name(job_id)]
    stopping = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=english())
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
    files = _files(job_id)
    for path in (*files, *LASTING.glob(f"*.wants/{unit_name(job_id, 'monitor')}")):
        path.unlink(missing_ok=True)
    if files:
        # A unit that failed as the node shut down stays loaded.
        _run("systemctl", "reset-failed", *(path.name for path in files))
    # A slice that is not loaded has no unit: nothing runs.
    return "" if stopping.returncode == 0 or "not loaded" in error else error.strip()


def journal(job_id: str, name: str) -> str:
    """Return the last lines of a unit's journal."""
    return _run("journalctl", "-u", unit_name(job_id, name), "-n", "20", "--no-pager", "-o", "cat").stdout.strip()
