# SPDX-License-Identifier: Apache-2.0
"""How the processes of a job ended: one small JSON file for each, `exits/<name>.json` in the job's folder.

    {"exit_code": 1 | null, "signal": null | 9, "result": "exit-code", "time": 1790000000.0}

`result` is systemd's word (success, exit-code, signal, oom-kill, timeout, ...); the fallback uses the same ones. One is
our own, `lost`: the process went down with its node, or nobody could note its end. In a job with restarts there is
`attempt`, too: which run ended. torchrun's agent, which starts several ranks, adds a file for each of them
(execute.py); `by_agent` is true where the agent ended the rank. Before a process ends, its file holds `{}`: on a disk
that is full by then, the end is written over that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import time

# Each rank starts through this module: neither typing nor pathlib, whose import costs as much as all else it does.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO

    Exit = dict[str, Any]
    AnyPath = str | os.PathLike[str]
else:
    Exit = dict

# No file of ours is larger, in bytes: job.json, which holds a part of the plan, and grows with its nodes; any other,
# the state of the whole job among them; and how one process ended, or what it is.
MOST_BYTES, MOST_STATE, MOST_EXIT = 256 << 20, 8 << 20, 64 << 10
# Bytes by which the state of a job may grow when the job ends on a full disk: spaces at the end of its file.
ROOM = 8 << 10


def write_json(path: AnyPath, data: Any, mode: int = 0o644) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never a half."""
    write_text(path, json.dumps(data) + "\n", mode)


def write_text(path: AnyPath, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new one, never a half."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(text)
        os.replace(temporary, path)
    except OSError:
        # Half a file would only take up the room that was lacking.
        os.unlink(temporary)
        raise


def keep_json(path: AnyPath, data: Any, room: int = 0) -> str:
    """Write a JSON file as far as the disk allows: as write_json does, else over the old one; say why not, or "".

    The old one is written over only where its own blocks have room for the new one: else it stays as it is. With `room`
    the file has so many bytes more, for its successor.
    """
    try:
        write_text(path, json.dumps(data) + " " * room + "\n")
    except OSError as error:
        with contextlib.suppress(OSError):
            _overwrite(path, json.dumps(data) + "\n")
        return error.strerror or str(error)
    return ""


def _overwrite(path: AnyPath, text: str) -> None:
    """Write over a file in place, which needs no room. Raises OSError where it is too small."""
    content = text.encode()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as there:
        if len(content) > os.fstat(there.fileno()).st_blocks * 512:
            raise OSError(errno.ENOSPC, "no room in its blocks")
        if there.write(content) != len(content):
            raise OSError(errno.ENOSPC, "half written")
        there.truncate(len(content))


def open_regular(path: AnyPath) -> BinaryIO:
    """Open a regular file to read. Raises OSError for a link, a device, or a pipe, on which a reader would wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{os.fspath(path)} is no regular file")
    return os.fdopen(descriptor, "rb")


def end_of(path: AnyPath, most: int = 1 << 20) -> str:
    """Return the end of a log; "" where there is none."""
    try:
        with open_regular(path) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - most))
            return log.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def read_json(path: AnyPath, most: int = MOST_BYTES) -> Any:
    """Read a JSON file; None when it is not there (yet), cannot be read, or has more than `most` bytes."""
    try:
        with open_regular(path) as there:
            content = there.read(most + 1)
        return json.loads(content) if len(content) <= most else None
    except (OSError, ValueError, RecursionError):
        return None


def read_object(path: AnyPath, most: int = MOST_STATE) -> dict[str, Any]:
    """Read a JSON object; an empty one where there is none. Any process of the job's user may have written the file."""
    found = read_json(path, most)
    return found if isinstance(found, dict) else {}


def read_attempts(job_dir: AnyPath) -> dict[str, int]:
    """Read how often what was started again on this node; empty where nothing can be read."""
    found = read_object(f"{job_dir}/attempts.json")
    return {name: count for name, count in found.items() if type(count) is int}


def forget_secrets(job_dir: AnyPath) -> None:
    """Take out of job.json what is secret, and remove the secret files; also on a file system that is full.

    Where ranks have printed it, it is masked in their logs before. The metrics of a job that is over go with them.
    """
    path = f"{job_dir}/job.json"
    spec = read_json(path)
    if not isinstance(spec, dict):
        return
    if spec.get("token") or spec.get("secret_env"):
        _mask_logs(str(job_dir), spec)
        rest = {**spec, "token": "", "secret_env": {}}
        try:
            write_json(path, rest, mode=0o600)
        except OSError:
            try:
                _overwrite(path, json.dumps(rest) + "\n")
            except OSError:
                # What nobody can make harmless may not stay.
                os.unlink(path)
    for name in spec.get("secret_files", ()):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{job_dir}/{name}")
    if spec.get("metrics_folder"):
        # Its monitor removes it, unless it was killed.
        with contextlib.suppress(OSError):
            os.unlink(metrics_file(spec["metrics_folder"], spec["job_id"]))


def _mask_logs(job_dir: str, spec: dict[str, Any]) -> None:
    # Late: ranks start through this module, and none of them needs that.
    from pathlib import Path

    from ...trainyard.job.known_secrets import forms
    from .log_secrets import mask_logs

    mask_logs(Path(job_dir), forms(spec))


def metrics_file(folder: str, job_id: str) -> str:
    """Return the path of a job's metrics on this node, as node_exporter reads them."""
    return f"{folder}/trainyard_{job_id}.prom"


def from_status(status: int) -> Exit:
    """Translate subprocess's return code (negative: a signal)."""
    if status < 0:
        return {"exit_code": None, "signal": -status, "result": "signal", "time": time.time()}
    return {"exit_code": status, "signal": None, "result": "exit-code" if status else "success", "time": time.time()}


def from_unit(result: str, code: str, status: str) -> Exit:
    """Translate what systemd says of a main process: SERVICE_RESULT, EXIT_CODE and EXIT_STATUS (systemd.exec(5))."""
    number, by_signal = None, None
    if code == "exited":
        number = int(status) if status.isdigit() else 1
        # What the process left behind did not end in time: that is not how the process itself ended.
        if result == "timeout":
            result = "exit-code" if number else "success"
    elif code in ("killed", "dumped"):
        name = status if status.startswith("SIG") else f"SIG{status}"
        by_signal = int(status) if status.isdigit() else int(getattr(signal, name, signal.SIGKILL))
        # For systemd, SIGTERM and the like are a clean end. A rank that got one has not done its work.
        result = "signal" if result == "success" else result
    return {"exit_code": number, "signal": by_signal, "result": result, "time": time.time()}


def lost() -> Exit:
    """Return the end of a process of which nobody knows how it ended."""
    return {"exit_code": None, "signal": None, "result": "lost", "time": time.time()}


def record_unit(job_dir: AnyPath, name: str) -> None:
    """Write down the end of the unit that runs this as its ExecStopPost."""
    ended = from_unit(*(os.environ.get(key, "") for key in ("SERVICE_RESULT", "EXIT_CODE", "EXIT_STATUS")))
    # systemd starts the unit again only after this, so it is still the run that ended.
    ended["attempt"] = read_object(f"{job_dir}/{name}.pid.json").get("attempt", 0)
    path = f"{job_dir}/exits/{name}.json"
    known = read_object(path)
    # Where nothing can be written, the monitor has seen it.
    if known.get("attempt") != ended["attempt"]:
        keep_json(path, {**ended, "recorded": True})
    elif not known.get("recorded"):
        # The monitor has seen the main process end before; here also what it left behind has ended.
        keep_json(path, {**ended, "recorded": True, "time": known["time"]})
    # Else what ended now had only waited for its turn to start again.


def read_exits(job_dir: AnyPath) -> dict[str, Exit]:
    """Read how the processes of a job ended, by name; processes that still run, or run again, are not in it."""
    attempts, exits = read_attempts(job_dir), {}
    try:
        files = sorted(os.listdir(f"{job_dir}/exits"))
    except OSError:
        return {}
    for file in files:
        name, kind = os.path.splitext(file)
        path = f"{job_dir}/exits/{file}"
        ended = read_object(path, MOST_EXIT) if kind == ".json" and not name.startswith(".") else {}
        # The folder is the job's user's, and nothing is known of the end of what has none yet.
        if not isinstance(ended.get("result"), str) or not _is_time(ended.get("time")):
            continue
        if not attempts or ended.get("attempt", 0) == turn(attempts, name):
            exits[name] = ended
    return exits


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1 << 53


def turn(attempts: Mapping[str, int], name: str) -> int:
    """How often a process was started again: with the whole job (the name is "") and alone."""
    return attempts.get("", 0) + attempts.get(name, 0)
