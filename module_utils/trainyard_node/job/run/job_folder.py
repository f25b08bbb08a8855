# SPDX-License-Identifier: Apache-2.0
"""Create and read the folder of a job on this node, with functions that run as the job's user.

`job_dir` is the part of it that this node writes: node_plan.json (0600: environment and token), logs/, exits/,
monitor.json, and on the head cluster.json. The source lies above, where nodes may share it (folder_layout.py). The user
owns these files: a function here trusts no content, follows no link and waits for no pipe, and as_user.py makes sure
that it has no rights but the user's.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import gzip  # noqa: F401 (tarfile imports it late, when these rights may not be enough)
import hashlib
import io
import json
import os
import pwd
import select
import shutil
import signal
import tarfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ....trainyard.base import state_format
from ....trainyard.base.shapes import Shape, misfit, named
from ....trainyard.job.record.folder_layout import common_dir
from ....trainyard.job.record.masking import Forms, forms, mask, mask_text
from ....trainyard.job.run.lead import leader
from ....trainyard.job.run.logs.failure_kinds import EXIT
from ....trainyard.job.run.logs.log_lines import FIRST_BYTES, MAX_BYTES, cut
from ....trainyard.job.run.wire.monitor_files import CLUSTER, MONITOR
from ....trainyard.nvidia.nccl_lines import is_of_transport
from ....trainyard.slurm.allocation import PODS
from ...machine import as_user, json_files, open_folders, private
from ...machine.as_user import JobError, Owner
from ...machine.json_files import open_regular, read_object
from ..record.node_plan import FOLDERS, MACHINE, plan_path, source_of
from ..record.secrets import forget_secrets, read_masked
from .evidence import stack_samples
from .ranks import agent_ranks, container, process_table
from .ranks.rank_exits import read_exits

Record = dict[str, Any]
# For the user and root only.
MODE = 0o700
# The jobs of all users: a user can rename or remove only their own folders.
JOBS_MODE = 0o1775
# What stays when a scheduler starts a job again.
_STAY = (MACHINE, "logs", "home", "metrics.jsonl")
# The digest of the source that the first node has unpacked.
_DIGEST = "source.sha256"
_NODE_PLAN = {"job_id": str, "processes": [{"name": str, "ranks": [int]}]}
# Upper bounds for what is collected: logs of one node, their bytes, and lines of one log for a reader that follows it.
MAX_LOGS, MAX_LOG_BYTES, MAX_FOLLOWED = 4096, 256 << 20, 400
# Upper bounds in bytes: of a log that is searched for NCCL's first lines, of the lines found, and of one line.
NCCL_SCAN_BYTES, NCCL_MAX_BYTES, NCCL_LINE = 4 << 20, 128 << 10, 400


# ---- create


def make(job_dir: Path, owner: Owner) -> bool:
    """Create the empty part of this node in the folder of a job; return False if it exists."""
    common = Path(common_dir(str(job_dir)))
    jobs = common.parent
    place = open_folders.of_another(jobs, owner.uid)
    if place:
        raise JobError(f"{place}: expected {open_folders.EXPECTED}; {open_folders.action(place)}")
    if not jobs.is_dir():
        try:
            as_user.run(owner, _make_folders, jobs)
        except (JobError, OSError):
            if os.geteuid():
                raise
            _make_jobs(jobs, owner)
    try:
        return bool(as_user.run(owner, _make_empty, job_dir))
    except JobError:
        # The parent is root's: then root creates the job's folder, in which the user does the rest.
        if common.exists() or os.geteuid() or not private.only_root_changes(jobs):
            raise
        common.mkdir(mode=MODE)
        os.chown(common, owner.uid, owner.gid, follow_symlinks=False)
        return bool(as_user.run(owner, _make_empty, job_dir))


def _make_folders(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def _make_jobs(jobs: Path, owner: Owner) -> None:
    """Create the folder of all jobs as root, where only root could move it meanwhile."""
    above = next(folder for folder in jobs.parents if folder.exists())
    if not private.only_root_changes(above):
        raise JobError(f"{jobs} cannot be made by the training user, and {above} is not root's alone: run site.yml")
    jobs.mkdir(parents=True)
    os.chown(jobs, 0, owner.gid, follow_symlinks=False)
    jobs.chmod(JOBS_MODE)


def _make_empty(job_dir: Path) -> bool:
    common = Path(common_dir(str(job_dir)))
    # Another node may have made the upper ones.
    for folder in dict.fromkeys((common, *((job_dir.parent,) if common != job_dir else ()), job_dir)):
        try:
            folder.mkdir()
        except FileExistsError:
            if folder == job_dir:
                return False
            continue
        # Regardless of the umask.
        folder.chmod(MODE)
    (job_dir / MACHINE).write_text(os.uname().nodename)
    return True


def begin_again(job_dir: Path) -> None:
    """Remove what an earlier run of the job has left, but for its logs, its metrics, and all that it saved."""
    for path in job_dir.iterdir():
        if path.name in _STAY:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def fill(job_dir: Path, node_plan: Record, archive: bytes, runtime: bytes, secret_files: Mapping[str, bytes]) -> None:
    """Write all that the job needs. Raises JobError where a file has other content afterwards."""
    (job_dir / MACHINE).write_text(os.uname().nodename)
    for name in (*FOLDERS, *(("home",) if node_plan.get("container") else ())):
        (job_dir / name).mkdir(exist_ok=True)
    for process in node_plan["processes"]:
        # Room for how it ends (rank_exits.py).
        (job_dir / "exits" / f"{process['name']}.json").write_text("{}\n")
    _place_source(archive, job_dir)
    files = node_plan.get("files", ())
    for item in files:
        path = Path(item["path"])
        path.write_text(item["content"], encoding="utf-8")
        path.chmod(int(item["mode"], 8))
    for name, content in secret_files.items():
        (job_dir / name).parent.mkdir(mode=0o700, exist_ok=True)
        _write_private(job_dir / name, content)
    (job_dir / "trainyard.pyz").write_bytes(runtime)
    # Each process reads node_plan.json, and a file may be as large as the cluster is. Files that change with the
    # nodes that take part are written again from their first content.
    changing = files if "fewer" in node_plan else ()
    bare = [item if item in changing else {key: item[key] for key in item if key != "content"} for item in files]
    written = state_format.stamped(node_plan, state_format.JOB_FOLDER)
    written |= {"secret_files": list(secret_files), "files": bare}
    _write_private(job_dir / "node_plan.json", json.dumps(written).encode())
    complaint = changed_files(node_plan)
    if complaint:
        raise JobError(complaint)


def _place_source(archive: bytes, job_dir: Path) -> None:
    """Unpack the source, unless another node has done so that shares the folder. Raises JobError if that had another.

    Neither a witness nor a job without a source has an archive.
    """
    source = Path(source_of(job_dir))
    if not archive:
        source.mkdir(exist_ok=True)
        return
    digest, kept = hashlib.sha256(archive).hexdigest(), source.with_name(_DIGEST)
    # A link has its content at once.
    with contextlib.suppress(FileExistsError):
        kept.symlink_to(digest)
    if str(kept.readlink()) != digest:
        raise JobError(f"{source} has the source of another launch: expected a new job id; launch again")
    if source.is_dir() and any(source.iterdir()):
        return
    unpacked = job_dir / source.name
    # The archive of an empty folder makes none.
    unpacked.mkdir()
    _unpack(archive, unpacked)
    try:
        # An empty folder is replaced.
        unpacked.rename(source)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # Another node was faster.
        shutil.rmtree(unpacked)


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as private:
        private.write(content)


def _unpack(archive: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:*") as source:
        if hasattr(tarfile, "data_filter"):
            source.extractall(folder, filter="data")
        else:
            # Python before 3.9.17 knows no filters; the archive is our own and was made on the controller just now.
            source.extractall(folder)  # noqa: S202


def changed_files(node_plan: Record) -> str:
    """Return which of the job's files differ from the plan on this node; "" if none.

    Ranks with different hostfiles or rank tables would wait for each other without any message.
    """
    wrong = []
    for item in node_plan.get("files", ()):
        try:
            found = hashlib.sha256(Path(item["path"]).read_bytes()).hexdigest()
        except OSError as error:
            found = f"none ({error.strerror})"
        if found != item["sha256"]:
            wrong.append(
                f"{item['path']} has sha256 {found}, expected {item['sha256']}, as in the plan and on all other "
                "nodes: see whether its file system is full (trainyard_state)"
            )
    return "; ".join(wrong)


# ---- read


def reported(job_dir: Path, seconds: float) -> bool:
    """Wait until the monitor has reported for the first time, for some seconds; return whether it has."""
    deadline = time.monotonic() + seconds
    while not (job_dir / "monitor.json").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def monitor_output(job_dir: Path) -> str:
    """Return the end of the monitor's output."""
    text = ""
    for path in (job_dir / "logs").glob("monitor_*.log"):
        with open_regular(path) as log:
            text += log.read(1 << 20)[-500:].decode(errors="replace")
    return mask_text(text.strip(), known_secrets(job_dir))


def read_node_plan(job_dir: Path) -> Record | None:
    """Return node_plan.json; None where there is none that names the job's processes.

    Raises JobError where a newer version of the project wrote it.
    """
    node_plan = read_object(plan_path(job_dir), json_files.MAX_BYTES)
    why = state_format.misread(node_plan, state_format.JOB_FOLDER)
    if why:
        raise JobError(f"{plan_path(job_dir)}: {why}; use the checkout that started the job, or a newer one")
    return None if misfit(node_plan, _NODE_PLAN) else node_plan


def read_plan(job_dir: Path) -> str | None:
    """Return the text of the plan that the first host of an allocation made for all; None where there is none."""
    try:
        with open_regular(job_dir / "plan.json") as plan:
            return str(plan.read(json_files.MAX_BYTES).decode())
    except (OSError, UnicodeDecodeError):
        return None


def _checked(path: Path, shape: Shape) -> Record | None:
    """Return the declared fields of a file; None if it does not have the shape that a monitor writes."""
    found = read_object(path)
    return None if misfit(found, shape) else named(found, shape)


def status(job_dir: Path) -> Record | None:
    """Return the state of this node's processes, and on the head that of the whole job; None without a job."""
    node_plan = read_node_plan(job_dir)
    if node_plan is None:
        return None
    exits = {name: ended for name, ended in read_exits(job_dir).items() if not misfit(ended, EXIT)}
    return {
        "known": True,
        "monitor_alive": process_table.monitor_alive(job_dir),
        "processes": [
            {
                "name": process["name"],
                "ranks": process["ranks"],
                "exit": exits.get(process["name"]),
                "ends": {str(rank): ended for rank, ended in agent_ranks.noted(process, exits).items()},
            }
            for process in node_plan["processes"]
        ],
        "monitor": _checked(job_dir / "monitor.json", MONITOR),
        "cluster": _checked(job_dir / "cluster.json", CLUSTER),
    }


def has_end(job_dir: Path) -> bool:
    """Return whether this node led the job when it ended."""
    found = _checked(job_dir / "cluster.json", CLUSTER) or {}
    return leader.ends_job(found.get("end"))


def take_stacks(job_dir: Path, looks: int) -> dict[str, Any] | None:
    """Return the records of the ranks here, and all details as `text`; None without a job."""
    node_plan = read_node_plan(job_dir)
    if node_plan is None:
        return None
    ranks, text = stack_samples.take(job_dir, node_plan, looks=looks)
    return {"ranks": ranks, "text": mask_text(text, forms(node_plan))}


def wait(job_dir: Path, seconds: float) -> None:
    """Return when the job's monitor on this node has ended, or after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0 and (monitor := process_table.monitor_of(job_dir)):
        end = process_table.open_end(*monitor)
        if end is None:
            time.sleep(min(0.1, left))
            continue
        with os.fdopen(end, "rb"):
            poll = select.poll()
            poll.register(end, select.POLLIN)
            poll.poll(left * 1000)


def end_monitor(job_dir: Path, grace_s: float) -> None:
    """Ask the job's monitor to end, and wait at most `grace_s`; as the user, whose file has its process id."""
    monitor = process_table.monitor_of(job_dir)
    if monitor is None:
        return
    try:
        os.kill(monitor[0], signal.SIGTERM)
    except (PermissionError, ProcessLookupError):
        # Then it is not the monitor.
        return
    deadline = time.monotonic() + grace_s
    while process_table.monitor_alive(job_dir) and time.monotonic() < deadline:
        time.sleep(0.05)


def forget_what_is_over(job_dir: Path) -> None:
    """Remove the secrets of a job whose monitor has ended, and containers that it left."""
    if (job_dir / "monitor.json").exists() and not process_table.monitor_alive(job_dir):
        forget_secrets(job_dir)
        container.remove_left(job_dir)


def read_logs(job_dir: Path, limit: int) -> dict[str, str]:
    """Return the logs of this node and the metrics, base64, each cut to its last `limit` bytes, with masked secrets.

    Only regular files are read, and at most MAX_LOGS of them with MAX_LOG_BYTES.
    """
    logs, left = {}, MAX_LOG_BYTES
    paths = sorted((job_dir / "logs").glob("*.log"))[:MAX_LOGS]
    hidden = known_secrets(job_dir)
    nccl = mask(_nccl_lines(paths), hidden)
    if nccl:
        # Named after this node, as the logs of all nodes are collected in one folder.
        logs[f"nccl_{os.uname().nodename.partition('.')[0]}.log"] = base64.b64encode(nccl).decode()
    for path in [*paths, job_dir / "metrics.jsonl"]:
        try:
            with open_regular(path) as log:
                content = _end_of(log, min(limit, left), path, hidden)
        except OSError:
            continue
        if content:
            left = max(0, left - len(content))
            logs[path.name] = base64.b64encode(content).decode()
    return logs


def follow(job_dir: Path, offsets: Mapping[str, int | None]) -> dict[str, Record]:
    """Return the lines that were added to these logs since `offsets` in bytes, and how far each was read.

    An offset of None: the log was not read before, so only its last lines are returned. If there is more than one visit
    can show, only the end is read; `skipped` counts the other bytes.
    """
    found, hidden = {}, known_secrets(job_dir)
    for name, offset in offsets.items():
        # Names only, no paths.
        if "/" in name:
            continue
        with contextlib.suppress(OSError), open_regular(job_dir / "logs" / name) as log:
            size = log.seek(0, os.SEEK_END)
            # A log that is shorter than before was written anew.
            done = offset if offset is not None and offset <= size else 0
            known = max(0, size - FIRST_BYTES) if offset is None else done
            begin = max(known, size - MAX_BYTES)
            content = read_masked(log, begin, MAX_BYTES, hidden)
            lines, read = cut(content)
            if begin > done and len(lines) > 1:
                # The first line is incomplete.
                del lines[0]
            skipped = 0 if offset is None else begin - done
            skipped += sum(len(line.encode()) + 1 for line in lines[:-MAX_FOLLOWED])
            found[name] = {"lines": lines[-MAX_FOLLOWED:], "offset": begin + read, "skipped": skipped}
    return found


def _nccl_lines(paths: Iterable[Path]) -> bytes:
    """Return NCCL's lines about networks from the beginning of the logs, as only the end of a long log is collected."""
    found, size = [], 0
    for path in paths:
        with contextlib.suppress(OSError), open_regular(path) as log:
            for line in log.read(NCCL_SCAN_BYTES).decode("utf-8", "replace").splitlines():
                if size < NCCL_MAX_BYTES and "NCCL" in line and is_of_transport(line[:NCCL_LINE]):
                    found.append(line[:NCCL_LINE])
                    size += len(found[-1])
    return "".join(f"{line}\n" for line in found).encode()


def known_secrets(job_dir: Path) -> Forms:
    """Return the secrets to mask; none once the job has ended, as its logs are masked then."""
    return forms(read_object(plan_path(job_dir), json_files.MAX_BYTES))


def _end_of(log: Any, limit: int, path: Path, hidden: Forms) -> bytes:
    size = log.seek(0, os.SEEK_END)
    content = read_masked(log, max(0, size - limit), limit, hidden)
    if size > limit:
        content = f"[the first {size - limit} bytes are in {path} on the node]\n".encode() + content
    return content


def base_environment(user: str) -> dict[str, str]:
    """Return the variables that a login sets, in a pod also those of its image and its manifest."""
    owner = pwd.getpwnam(user)
    image = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
    login = {"HOME": owner.pw_dir, "USER": user, "LOGNAME": user, "SHELL": owner.pw_shell}
    return {**(image if PODS in os.environ else {}), **login}
