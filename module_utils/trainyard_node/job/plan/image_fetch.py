# SPDX-License-Identifier: Apache-2.0
"""Bring a job's image to this node: from its registry, an archive, or another node of the job.

A process of its own does it, which outlives the visit that began it, and a second launch that needs the same image
waits for it. Its state lies in the user's folder: the log of the container program, and how it ended. All of it runs
with the rights of the job's user. Times are seconds.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ....trainyard.base.visible import one_line
from ....trainyard.cluster.ssh_options import UNATTENDED
from ....trainyard.job.run import container_command
from ....trainyard.software.installed import share_text
from ...machine.files import files_below
from ...machine.json_files import end_of, read_object
from ...software.podman import being_pulled
from . import image_inspection

Request = Mapping[str, Any]
# Upper bound of a transfer, and of the end of its process after its result; pauses between two looks; bytes of a log
# that are read, and characters of a line.
LIMIT_S, _END_S, _LOOK_S, _TAIL, _LINE = 6 * 3600, 60, 0.2, 4096, 120
# An archive needs its size so many times: packed while it is read, and unpacked.
_ROOM = 2


def bring(request: Request, fact: Mapping[str, Any], wait_s: float) -> dict[str, Any]:
    """Begin to bring the image, or go on waiting for it, for at most `wait_s`, and longer while an older one ends.

    Returns `done`, a `problem` as text, a `line` of the present state, and the `id` of the image once it is here.
    `request` is that of plan/images.py with `auth` (username, password; or None), `source` and `identity`: the address
    of a node that has the image, and its id there; "" where it comes from elsewhere. `begin` is false for a visit that
    only waits.
    """
    place = image_inspection.note_of(request)
    place.parent.mkdir(parents=True, exist_ok=True)
    log, result = place.with_suffix(".log"), place.with_suffix(".json")
    lock = place.with_suffix(".lock").open("ab")
    until = time.monotonic() + wait_s
    with lock:
        if request["begin"] and _take_over(lock, result):
            for left in (result, *place.parent.glob("*.part*")):
                left.unlink(missing_ok=True)
            _begin(request, fact, lock, place)
    while not result.exists() and time.monotonic() < until and _runs(place.with_suffix(".lock")):
        time.sleep(_LOOK_S)
    runs, ended, last = _runs(place.with_suffix(".lock")), read_object(result), _last_line(log)
    if ended:
        problem = "" if ended.get("status") == 0 else str(ended.get("problem"))
    else:
        problem = "" if runs else f"it was interrupted: {last or 'no reason is known'}"
    done = bool(ended) or not runs
    identity = image_inspection.identify(request, fact)[0] if done and not problem else ""
    line = last if done else _with_size(last, request, place)
    return {"done": done, "problem": problem, "line": line, "id": identity}


def _take(lock: BinaryIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _take_over(lock: BinaryIO, result: Path) -> bool:
    """Return whether no transfer runs. One that has written its result is about to end: it is an older one.

    Its result is never that of the transfer that is asked for.
    """
    until = time.monotonic() + _END_S
    while not _take(lock):
        if time.monotonic() > until:
            result.unlink(missing_ok=True)
        if not result.exists():
            return False
        time.sleep(_LOOK_S / 10)
    return True


def _runs(path: Path) -> bool:
    with path.open("ab") as lock:
        return not _take(lock)


def _last_line(log: Path) -> str:
    """Return the last line of the log: what a container program shows of its progress, or its error.

    A long error is cut at its begin, as the first cause is at its end.
    """
    line = re.split(r"[\r\n]+", end_of(log, _TAIL).strip())[-1]
    return one_line(line if len(line) <= _LINE else f"... {line[-_LINE:]}", _TAIL)


def _with_size(line: str, request: Request, place: Path) -> str:
    """Add how much is there, and of how much: without a terminal a container program tells it only at the end."""
    with contextlib.suppress(OSError):
        folder = being_pulled()
        layers = [state for _, state in files_below(folder)] if folder else []
        parts = [part.stat() for part in place.parent.glob("*.part*")]
        done = sum(state.st_size for state in parts or layers)
        archive = Path(request["reference"].partition(":")[2])
        total = archive.stat().st_size if request["kind"] == "archive" and archive.is_file() else 0
        return ": ".join(filter(None, [line, share_text(done, total, 0) if done else ""]))
    return line


def _begin(request: Request, fact: Mapping[str, Any], lock: BinaryIO, place: Path) -> None:
    """Start the process that brings the image, and holds the lock for as long as it runs."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    # What happens from here on is told by the files alone.
    with contextlib.suppress(BaseException):
        os.setsid()
        if os.fork():
            os._exit(0)
        log, result = place.with_suffix(".log"), place.with_suffix(".json")
        with log.open("wb") as output:
            null = os.open(os.devnull, os.O_RDWR)
            for number, descriptor in ((0, null), (1, output.fileno()), (2, output.fileno())):
                os.dup2(descriptor, number)
            keep = {0, 1, 2, lock.fileno(), output.fileno()}
            for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (numbers, not files)
                if int(name) not in keep:
                    with contextlib.suppress(OSError):
                        os.close(int(name))
            status, problem = _transfer(request, fact, log)
            if status == 0 and request["identity"]:
                place.write_text(request["identity"])
        new = result.with_suffix(".new")
        new.write_text(json.dumps({"status": status, "problem": problem}))
        new.rename(result)
    os._exit(0)


def _transfer(request: Request, fact: Mapping[str, Any], log: Path) -> tuple[int, str]:
    room = _no_room(request, fact)
    if room:
        return 1, room
    try:
        status = _run(request, fact) or _start_once(request, fact)
    except subprocess.TimeoutExpired:
        return 1, f"no end within {LIMIT_S // 3600} h"
    except OSError as error:
        return 1, str(error)
    return status, _last_line(log) or f"{fact['runtime']} ended with {status}"


def _start_once(request: Request, fact: Mapping[str, Any]) -> int:
    """Start the image for the first time, which takes long where all its files get another owner."""
    identity, name, _ = image_inspection.identify({**request, "copied": True}, fact)
    identity = identity or request["identity"]
    if fact["runtime"] != "podman" or image_inspection.has_started(identity, "podman"):
        return 0
    os.write(1, b"the image starts for the first time\n")
    outcome = image_inspection.inside({**fact, "image": name or identity}, ["true"], LIMIT_S)
    if outcome.status:
        os.write(1, f"{outcome.output.strip()}\n".encode())
    else:
        image_inspection.file_of(identity, "started").touch()
    return outcome.status


def _no_room(request: Request, fact: Mapping[str, Any]) -> str:
    """Return that the disk has no room for an archive; what a registry sends is not known before."""
    archive = Path(request["reference"].partition(":")[2])
    if request["kind"] != "archive" or request["source"] or fact["present"] or not archive.is_file():
        return ""
    folder = _store(fact)
    state, needed = os.statvfs(folder), _ROOM * archive.stat().st_size
    free = state.f_bavail * state.f_frsize
    return "" if free >= needed else f"{free >> 20} MiB free in {folder}, and {needed >> 20} MiB are needed"


def _store(fact: Mapping[str, Any]) -> str:
    if fact["runtime"] == "podman":
        argv = [_program(fact), "info", "--format", "{{.Store.GraphRoot}}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **image_inspection.settings())
        if Path(done.stdout.strip()).is_dir():
            return str(done.stdout.strip())
    return str(Path.home())


def _program(fact: Mapping[str, Any]) -> str:
    return str(fact["runtimes"][fact["runtime"]]["program"])


def _run(request: Request, fact: Mapping[str, Any]) -> int:
    runtime, source = fact["runtime"], request["source"]
    if fact["present"] and request["pull"] != "always":
        return 0
    if source and runtime in container_command.NAMED:
        return _copy(request, fact, source)
    reference = request["reference"]
    if runtime in container_command.NAMED:
        return _pull(request, fact)
    file = image_inspection.file_of(_identity(request), runtime)
    part = file.with_suffix(f".part{os.getpid()}")
    if source:
        argv = ["scp", *UNATTENDED.split(), f"[{source}]:{file}", str(part)]
    else:
        argv = [_program(fact), "build" if request["kind"] == "archive" else "pull", str(part), reference]
    settings = image_inspection.settings()
    auth = request["auth"] or {}
    if auth and runtime == "apptainer":
        login = {"APPTAINER_DOCKER_USERNAME": auth["username"], "APPTAINER_DOCKER_PASSWORD": auth["password"]}
        settings["env"] = {**settings["env"], **login}
    status = subprocess.run(argv, check=False, timeout=LIMIT_S, **settings).returncode
    if status == 0:
        part.rename(file)
    else:
        part.unlink(missing_ok=True)
    return status


def _identity(request: Request) -> str:
    reference = request["reference"]
    if request["kind"] == "registry":
        return str(reference).rpartition("@")[2]
    return image_inspection.of_archive(str(reference).partition(":")[2])


def _pull(request: Request, fact: Mapping[str, Any]) -> int:
    """Pull from the registry, with a login that only this user may read and that is gone afterwards."""
    reference = request["reference"]
    if request["kind"] == "archive" and fact["runtime"] == "docker":
        argv = [_program(fact), "load", "--input", reference.partition(":")[2]]
    else:
        argv = [_program(fact), "pull", reference if fact["runtime"] == "podman" else reference.partition("://")[2]]
    with _login(request) as folder:
        if folder and fact["runtime"] == "podman":
            argv[2:2] = ["--authfile", f"{folder}/config.json"]
        elif folder:
            argv[1:1] = ["--config", folder]
        return subprocess.run(argv, check=False, timeout=LIMIT_S, **image_inspection.settings()).returncode


@contextlib.contextmanager
def _login(request: Request) -> Iterator[str]:
    auth = request["auth"]
    if not auth:
        yield ""
        return
    registry = request["reference"].partition("://")[2].partition("/")[0]
    words = base64.b64encode(f"{auth['username']}:{auth['password']}".encode()).decode()
    folder = tempfile.mkdtemp(prefix="trainyard-login-", dir=image_inspection.file_of("x", "state").parent)
    try:
        file = os.open(f"{folder}/config.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as config:
            json.dump({"auths": {registry: {"auth": words}}}, config)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copy(request: Request, fact: Mapping[str, Any], source: str) -> int:
    """Copy the image from another node, over ssh as the training user."""
    program, name = _program(fact), request["identity"] if request["kind"] == "archive" else fact["image"]
    form = ["--format", "oci-archive"] if fact["runtime"] == "podman" else []
    save = [fact["runtime"], "save", *form, name]
    ssh = ["ssh", *UNATTENDED.split(), source, *save]
    settings = image_inspection.settings()
    with subprocess.Popen(ssh, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, **settings) as sending:
        loading = subprocess.run([program, "load"], stdin=sending.stdout, check=False, timeout=LIMIT_S, **settings)
    return sending.returncode or loading.returncode
