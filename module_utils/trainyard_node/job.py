# SPDX-License-Identifier: Apache-2.0
"""A job on this node: start it, end it, tell how it is. One interface over systemd units and the fallback.

The job's folder holds everything: job.json (0600: environment and token), source/, logs/, exits/, monitor.json, and on
the head cluster.json. Whoever wants to know how the job is reads these files; nobody has to be asked.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import procs, units
from .exits import read_exits, read_json
from .procs import monitor_alive
from .runtime import pack
from .tree import size_of

Spec = dict[str, Any]
# How long a monitor may take to start on a node that is busy.
COME_UP_S = 60.0


class JobError(Exception):
    """The job cannot be started or ended here. The text says what was found and what to do."""


def supervision() -> str:
    """Tell who supervises: `systemd` where it is PID 1 and we may make system units, else `children`."""
    return "systemd" if units.SYSTEMD_RUNNING.is_dir() and os.geteuid() == 0 else "children"


def _slice_of(spec: Mapping[str, Any]) -> str:
    return units.slice_name(spec["job_id"]) if spec.get("supervision") == "systemd" else ""


def _write_private(path: Path, content: bytes, owner: pwd.struct_passwd) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as private:
        private.write(content)
    os.chown(path, owner.pw_uid, owner.pw_gid)


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as source:
        if hasattr(tarfile, "data_filter"):
            source.extractall(folder, filter="data")
        else:
            # Python before 3.9.17 knows no filters; the archive is our own and was made on the controller just now.
            source.extractall(folder)  # noqa: S202


def prepare(job_dir: Path, spec: Spec, archive: bytes, user: str, secret_files: Mapping[str, bytes]) -> None:
    """Make the job's folder with everything in it, owned by the training user."""
    try:
        owner = pwd.getpwnam(user)
    except KeyError:
        raise JobError(f"no user {user}: expected the training user; run site.yml") from None
    jobs = job_dir.parent
    if not jobs.is_dir():
        jobs.mkdir(parents=True)
        os.chown(jobs, owner.pw_uid, owner.pw_gid)
    try:
        job_dir.mkdir(mode=0o755)
    except FileExistsError:
        raise JobError(f"{job_dir} is there already: expected a new job id; stop and remove that job first") from None
    for name in ("source", "logs", "exits"):
        (job_dir / name).mkdir()
    _unpack(archive, job_dir / "source")
    for item in spec.get("files", ()):
        path = Path(item["path"])
        path.write_text(item["content"], encoding="utf-8")
        path.chmod(int(item["mode"], 8))
    for name, content in secret_files.items():
        (job_dir / name).parent.mkdir(mode=0o700, exist_ok=True)
        _write_private(job_dir / name, content, owner)
    for folder, _, files in os.walk(job_dir):
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        for name in files:
            os.chown(Path(folder) / name, owner.pw_uid, owner.pw_gid)
    (job_dir / "trainyard.pyz").write_bytes(pack())
    base_env = {"HOME": owner.pw_dir, "USER": user, "LOGNAME": user, "SHELL": owner.pw_shell}
    told = {
        "supervision": supervision(),
        "base_env": base_env,
        "secret_files": list(secret_files),
        # Each process reads job.json, and a file may be as large as the cluster is.
        "files": [{key: item[key] for key in item if key != "content"} for item in spec.get("files", ())],
    }
    _write_private(job_dir / "job.json", json.dumps({**spec, **told}).encode(), owner)


def changed_files(spec: Spec) -> str:
    """Say which of the job's files is not what the plan sent, as this node reads it; "" when all are.

    Ranks that read different hostfiles or rank tables wait for each other, and nobody says why.
    """
    wrong = []
    for item in spec.get("files", ()):
        try:
            found = hashlib.sha256(Path(item["path"]).read_bytes()).hexdigest()
        except OSError as error:
            found = f"none ({error.strerror})"
        if found != item["sha256"]:
            wrong.append(
                f"{item['path']} has sha256 {found}, expected {item['sha256']}, as the plan and all other nodes "
                "have it: see whether its file system is full, or shared by nodes that need one of their own "
                "(trainyard_state)"
            )
    return "; ".join(wrong)


def start(job_dir: Path, spec: Spec, archive: bytes, user: str, secret_files: Mapping[str, bytes]) -> None:
    """Start this node's part of a job. Raises JobError, and leaves nothing behind, when that is not possible."""
    try:
        prepare(job_dir, spec, archive, user, secret_files)
        complaint = changed_files(spec)
        if complaint:
            remove(job_dir, spec["job_id"])
            raise JobError(complaint)
        if supervision() == "systemd":
            launch = units.start_lasting if spec.get("max_restarts") else units.start
            complaint = launch(
                spec["job_id"],
                job_dir,
                user,
                sys.executable,
                [process["name"] for process in spec["processes"]],
                spec["timeout_s"],
            ) or _await_monitor(job_dir, lambda: not units.active(spec["job_id"], "monitor"))
        else:
            complaint = _start_monitor(job_dir, spec["job_id"], user)
    except (OSError, tarfile.TarError, subprocess.SubprocessError) as error:
        complaint = f"{type(error).__name__}: {error}"
    if complaint:
        why = units.journal(spec["job_id"], "monitor") if supervision() == "systemd" else ""
        remove(job_dir, spec["job_id"])
        raise JobError(f"{complaint}{': ' + why if why else ''}")


def _start_monitor(job_dir: Path, job_id: str, user: str) -> str:
    identity: dict[str, Any] = {}
    if os.geteuid() == 0 and user != "root":
        owner = pwd.getpwnam(user)
        identity = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": os.getgrouplist(user, owner.pw_gid)}
    monitor = subprocess.Popen(
        [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "monitor", str(job_dir)],
        env={"TRAINYARD_JOB_ID": job_id},
        cwd="/",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **identity,
    )
    return _await_monitor(job_dir, lambda: monitor.poll() is not None)


def _await_monitor(job_dir: Path, gone: Callable[[], bool]) -> str:
    """Wait until the monitor has reported for the first time: before that nobody could tell it from one that died."""
    # To ask systemd costs more than to look for a file.
    for look in range(round(COME_UP_S / 0.02)):
        if (job_dir / "monitor.json").exists():
            return ""
        if look % 25 == 24 and gone() and not (job_dir / "monitor.json").exists():
            said = "".join(path.read_text()[-500:] for path in (job_dir / "logs").glob("monitor_*.log"))
            return f"the monitor ended before it reported: {said.strip() or 'it said nothing'}"
        time.sleep(0.02)
    return f"the monitor did not come up within {COME_UP_S:.0f} s"


def stop(job_dir: Path, job_id: str, to_remove: bool = False) -> bool:
    """End this node's part of a job; return whether anything ran. Raises JobError when a process stays.

    Where the folder is `to_remove`, systemd must have done all that it has to do in it.
    """
    spec = read_json(job_dir / "job.json") or {"job_id": job_id, "supervision": supervision()}
    slice_name = _slice_of(spec)
    running = procs.of_job(job_id, slice_name)
    complaint = ""
    if slice_name:
        names = {process["name"] for process in spec.get("processes", ())}

        def over() -> bool:
            ended = not to_remove and names <= read_exits(job_dir).keys()
            return ended and not procs.of_job(job_id, slice_name)

        complaint = units.stop(job_id, over)
    elif monitor_alive(job_dir):
        os.kill(read_json(job_dir / "monitor.json")["pid"], signal.SIGTERM)
        deadline = time.monotonic() + units.STOP_TIMEOUT_S + 3
        while monitor_alive(job_dir) and time.monotonic() < deadline:
            time.sleep(0.05)
    left = procs.end(job_id, slice_name) if procs.of_job(job_id, slice_name) else []
    if left:
        named = "; ".join(f"{pid} {procs.command_line(pid)}" for pid in left)
        raise JobError(f"processes of {job_id} do not end: {named}. {complaint}".strip())
    return bool(running)


def remove(job_dir: Path, job_id: str) -> bool:
    """End this node's part of a job and remove its folder. Returns whether there was anything."""
    changed = stop(job_dir, job_id, to_remove=True)
    if job_dir.is_dir():
        shutil.rmtree(job_dir)
        changed = True
    return changed


def status(job_dir: Path, job_id: str) -> dict[str, Any]:
    """Tell how this node's part of the job is, and on the head how the whole job is."""
    spec = read_json(job_dir / "job.json")
    if spec is None:
        return {"known": False, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
    exits = read_exits(job_dir)
    return {
        "known": True,
        "monitor_alive": monitor_alive(job_dir),
        "processes": [
            {"name": process["name"], "ranks": process["ranks"], "exit": exits.get(process["name"])}
            for process in spec["processes"]
        ],
        "monitor": read_json(job_dir / "monitor.json"),
        "cluster": read_json(job_dir / "cluster.json"),
        "left": len(procs.of_job(job_id, _slice_of(spec))),
    }


def list_folders(jobs: Path, of_schedulers: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """Return the folders of all jobs of this node that we may read: id, age in s since the last report, size in MiB.

    `of_schedulers` are folders that jobs of a scheduler may have here, without our monitor's files.
    """
    found = []
    for folder in of_schedulers:
        if not folder.is_dir():
            continue
        written = max(path.stat().st_mtime for path in [folder, *folder.glob("logs/*"), *folder.glob("exits/*")])
        found.append(_record(folder.name, folder, written, bool(procs.of_job(folder.name))))
    for folder in sorted(jobs.iterdir()) if jobs.is_dir() else ():
        spec = read_json(folder / "job.json")
        if not isinstance(spec, dict) or "job_id" not in spec:
            continue
        reports = [folder / name for name in ("job.json", "monitor.json", "cluster.json")]
        written = max(path.stat().st_mtime for path in reports if path.exists())
        running = monitor_alive(folder) or bool(procs.of_job(spec["job_id"], _slice_of(spec)))
        found.append(_record(spec["job_id"], folder, written, running))
    return found


def _record(job_id: str, folder: Path, written: float, running: bool) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "job_dir": str(folder),
        "age_s": max(0.0, time.time() - written),
        "running": running,
        "size_mib": size_of(folder) >> 20,
    }


def wait(job_dir: Path, seconds: float) -> None:
    """Return when the job's monitor on this node has ended, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and monitor_alive(job_dir):
        monitor = read_json(job_dir / "monitor.json")
        end = procs.open_end(monitor["pid"], monitor["start_time"])
        if end is None:
            time.sleep(min(0.1, left))
            continue
        with os.fdopen(end, "rb"):
            poll = select.poll()
            poll.register(end, select.POLLIN)
            poll.poll(left * 1000)


def read_logs(job_dir: Path, limit: int) -> dict[str, str]:
    """Return the logs of this node and the metrics, base64, each cut to its last `limit` bytes."""
    logs = {}
    for path in [*sorted((job_dir / "logs").glob("*.log")), job_dir / "metrics.jsonl"]:
        if not path.is_file() or not path.stat().st_size:
            continue
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - limit))
            content = log.read()
        if size > limit:
            content = f"[the first {size - limit} bytes are in {path} on the node]\n".encode() + content
        logs[path.name] = base64.b64encode(content).decode()
    return logs
