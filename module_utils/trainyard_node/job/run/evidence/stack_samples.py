# SPDX-License-Identifier: Apache-2.0
"""Take three samples of the stacks of a job's ranks on this node, without stopping, signalling or tracing a rank.

py-spy reads Python stacks (`py-spy dump --nonblocking` only reads memory): the one of the rank's environment, or of
another environment of the node. Without it, /proc still shows the state of a rank. All runs with the rights of the
job's user. No signal that prints a stack is ever sent: a program may handle it by saving and exiting.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from .....trainyard.base.shapes import misfit
from .....trainyard.job.run.logs import flight_recorder, stacks
from ....machine import mounts
from ....machine.json_files import read_object
from ....machine.private import only_root_changes
from ..ranks import process_table
from . import evidence

# Number of samples, and in seconds: their distance, the time limit of one, and of all.
SAMPLES, APART_S, DUMP_S, LIMIT_S = 3, 1.0, 4.0, 15.0
# Upper bounds for one dump, in bytes, and for the text of a node, in characters.
MAX_DUMP, MAX_TEXT = 4 << 20, 1 << 20
TOOL = "py-spy"
# Variables in which launchers pass a rank its number.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK_ID")
_LOCAL_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "DEVICE_ID")
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")
# A process in pids.json, which the job's user may write.
_MAIN = {"pid": int, "start_time": int}


class Rank(NamedTuple):
    """The process of a rank."""

    rank: int
    pid: int
    env: Mapping[str, str]


def of_job(job_dir: Path, node_plan: Mapping[str, Any], proc: str = process_table.PROC) -> list[Rank]:
    """Find the processes of this node's ranks.

    Workers of a data loader inherit the number of their rank: the first Python on the way down counts. msrun gives its
    scheduler the number 0.
    """
    started = _started_ranks(job_dir, node_plan["processes"])
    found: dict[int, list[tuple[int, Rank]]] = {}
    for pid in process_table.ranks_of_job(node_plan["job_id"], job_dir, node_plan.get("unit", ""), proc):
        env = process_table.environment(pid, proc)
        text = next((env[name] for name in _RANK if env.get(name, "").isdecimal()), "")
        # MindSpore's launcher passes no number to a start script, and so to what it starts.
        number = int(text) if text and len(text) < 9 else started.get(process_table.started_by(pid, started, proc) or 0)
        began = process_table.start_time(pid, proc)
        serves_ranks = (
            env.get("MS_ROLE") == "MS_SCHED" or process_table.command_of_runtime(pid, job_dir, proc) == "agent"
        )
        if number is not None and began is not None and not serves_ranks:
            found.setdefault(number, []).append((began, Rank(number, pid, env)))
    ranks = []
    for number in sorted(found)[: stacks.MAX_RANKS]:
        oldest_first = [rank for _, rank in sorted(found[number], key=lambda each: (each[0], each[1].pid))]
        ranks.append(next((rank for rank in oldest_first if _is_python(rank.pid, proc)), oldest_first[0]))
    return ranks


def _started_ranks(job_dir: Path, processes: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the ranks that were started as one process each, by process id: some get no number.

    What starts the ranks of its node, one or more, is no rank.
    """
    found, pids = {}, read_object(job_dir / "pids.json")
    for process in processes:
        main: Any = pids.get(process["name"])
        alone = [process["name"]] == [f"rank{rank}" for rank in process["ranks"]]
        if alone and not misfit(main, _MAIN) and process_table.start_time(main["pid"]) == main["start_time"]:
            found[main["pid"]] = process["ranks"][0]
    return found


def _is_python(pid: int, proc: str) -> bool:
    try:
        return "python" in Path(f"{proc}/{pid}/exe").readlink().name
    except OSError:
        return False


def device(env: Mapping[str, str]) -> str:
    """Return the device of a rank as its environment names it, "" where it does not.

    With a rank table DEVICE_ID is the device itself; otherwise it counts those that are visible, as LOCAL_RANK does,
    and msrun sets it on nodes without any.
    """
    if "RANK_TABLE_FILE" in env:
        return env.get("DEVICE_ID", "")
    visible = next((env[name] for name in _VISIBLE if env.get(name)), "").split(",")
    local = next((env[name] for name in _LOCAL_RANK if env.get(name, "").isdecimal()), "")
    if len(visible) == 1:
        return visible[0]
    return visible[int(local)] if len(local) < 9 and int(local or len(visible)) < len(visible) else ""


def tool(rank: Rank, venvs: str = "", proc: str = process_table.PROC) -> str | None:
    """Find py-spy beside the Python of a rank, on its PATH, or in an environment of the folder `venvs`."""
    try:
        first = Path(f"{proc}/{rank.pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        first = b""
    beside = str(Path(os.fsdecode(first)).parent)
    folders = [beside] if beside.startswith("/") else []
    own = shutil.which(TOOL, path=os.pathsep.join([*folders, rank.env.get("PATH", os.defpath)]))
    return own or of_environments(venvs)


def of_environments(venvs: str) -> str | None:
    """Find py-spy in the environments of a folder: one that only root or we ourselves can change, as it runs as us."""
    user = os.geteuid()
    for link in sorted(Path(venvs).glob(f"*/bin/{TOOL}")) if venvs else ():
        with contextlib.suppress(OSError):
            path = link.resolve(strict=True)
            state = path.lstat()
            safe = (
                mounts.owner(state) in (0, user) and not state.st_mode & 0o022 and only_root_changes(path.parent, user)
            )
            if safe and stat.S_ISREG(state.st_mode) and os.access(path, os.X_OK):
                return str(path)
    return None


def _missing(venvs: str) -> str:
    """Say where there is no py-spy, and how it gets there."""
    places = ["beside the job's Python", "on its PATH", *([f"in {venvs}/*/bin"] if venvs else [])]
    return (
        f"found no {TOOL} {' or '.join(places)}, expected one that only root or the job's user can change: run "
        "site.yml with a framework, see docs/hangs.md"
    )[:400]


def process_state(pid: int, proc: str = process_table.PROC) -> tuple[str, str, int]:
    """Return state, wait channel and CPU ticks of a process; ("", "", 0) where it is gone (proc(5))."""
    try:
        fields = Path(f"{proc}/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        state, ticks = fields[0].decode(), int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return "", "", 0
    return state, _text(f"{proc}/{pid}/wchan")[: stacks.MAX_NAME], ticks


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def dump(
    ranks: Sequence[Rank], tools: Mapping[int, str], proc: str = process_table.PROC
) -> dict[int, tuple[dict[str, Any], str]]:
    """Take one sample of the Python stacks of all ranks side by side: threads, or why there are none, by process."""
    running: dict[int, tuple[subprocess.Popen[bytes] | None, BinaryIO, BinaryIO, str]] = {}
    for rank in ranks:
        if rank.pid in tools:
            out, err = (cast(BinaryIO, os.fdopen(os.memfd_create(TOOL), "w+b")) for _ in range(2))
            argv = [tools[rank.pid], "dump", "--nonblocking", "--json", "--pid", str(rank.pid)]
            try:
                started = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={"LC_ALL": "C"})
            except OSError as error:
                running[rank.pid] = (None, out, err, f"{TOOL} cannot be run: {error.strerror}")
            else:
                running[rank.pid] = (started, out, err, "")
    until, found = time.monotonic() + DUMP_S, {}
    for pid, (child, out, err, why) in running.items():
        threads: dict[str, Any] = {}
        with out, err:
            while child and child.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            if child and child.poll() is None:
                # It may hang like the rank, so nothing waits for it.
                child.kill()
                why = f"{TOOL} took longer than {DUMP_S:g} s"
            elif child:
                out.seek(0)
                err.seek(0)
                try:
                    threads = stacks.read_dump(out.read(MAX_DUMP).decode("utf-8", "replace"))
                except ValueError:
                    why = _why_not(err.read(4000).decode("utf-8", "replace"), proc)
        found[pid] = threads, why
    return found


def _why_not(message: str, proc: str) -> str:
    """Say why py-spy could not read a process; where Yama forbids it, how it can be allowed."""
    last = (message.strip().splitlines() or ["it printed nothing that can be read"])[0].removeprefix("Error: ")
    scope = _text(f"{proc}/sys/kernel/yama/ptrace_scope").strip()
    if "ermission" in message and scope not in ("", "0"):
        return (
            f"the kernel forbids it (kernel.yama.ptrace_scope is {scope}): sysctl kernel.yama.ptrace_scope=0 as root "
            "allows it to processes of the same user"
        )
    return f"{TOOL} says: {last}"[:300]


def take(
    job_dir: Path,
    node_plan: Mapping[str, Any],
    *,
    looks: int = SAMPLES,
    apart_s: float = APART_S,
    proc: str = process_table.PROC,
) -> tuple[list[dict[str, Any]], str]:
    """Return a record of each rank here (stacks.rank_shape), and all details as text.

    More than the usual number of `looks` also show how often a rank waits; the stacks are those of the last ones.
    """
    until = time.monotonic() + LIMIT_S + looks * apart_s
    venvs = node_plan.get("venvs", "")
    ranks = of_job(job_dir, node_plan, proc)
    tools = {rank.pid: path for rank in ranks for path in [tool(rank, venvs, proc)] if path}
    first = {rank.pid: process_state(rank.pid, proc) for rank in ranks}
    asked, before = time.monotonic(), evidence.ras(ranks[0].env, evidence.RAS_S, as_json=True) if ranks else ""
    for rank in ranks:
        evidence.request_dump(rank.env, rank.rank)
    begun, samples = time.monotonic(), deque[dict[int, tuple[dict[str, Any], str]]](maxlen=SAMPLES)
    looked: Counter[int] = Counter()
    waited: Counter[int] = Counter()
    for number in range(looks):
        if number:
            # Random, to avoid the rhythm of the steps.
            time.sleep(apart_s * random.uniform(0.5, 1.5))  # noqa: S311
        samples.append(dump(ranks, tools, proc))
        for pid, (threads, _) in samples[-1].items():
            looked[pid] += bool(threads)
            waited[pid] += stacks.waiting(threads.get("MainThread", ()), process_state(pid, proc)[0])
        if time.monotonic() > until - DUMP_S:
            break
    took, tick_s = max(time.monotonic() - begun, 0.01), os.sysconf("SC_CLK_TCK")
    records, texts = [], []
    for rank in ranks:
        state, wchan, ticks = process_state(rank.pid, proc)
        dumps = [sample[rank.pid][0] for sample in samples if sample.get(rank.pid, ({}, ""))[0]]
        why = "" if dumps else samples[-1][rank.pid][1] if rank.pid in tools else _missing(venvs)
        in_time = time.monotonic() < until
        calls, recorder = (
            evidence.dumped(rank.env, rank.rank, process_table.began(rank.pid, proc)) if in_time else ([], "")
        )
        record = {
            "rank": rank.rank,
            "pid": rank.pid,
            "device": device(rank.env)[: stacks.MAX_NAME],
            "state": state,
            "wchan": wchan,
            "cpu_percent": max(0, round(100 * (ticks - first[rank.pid][2]) / tick_s / took)),
            "frames": stacks.common_frames([dump.get("MainThread", []) for dump in dumps]) if dumps else [],
            "problem": why,
            "calls": calls,
            "ras": [],
            "recorder": recorder or flight_recorder.text(calls),
            "looks": looked[rank.pid],
            "waited": waited[rank.pid],
        }
        records.append(record)
        texts.append(stacks.full_text(record, dumps, _text(f"{proc}/{rank.pid}/stack")))
    ras = evidence.ras(ranks[0].env, min(evidence.RAS_S, until - time.monotonic())) if ranks else ""
    if ras:
        texts.append(f"NCCL's RAS, of whatever job answers here\n{ras}")
    if before:
        from .....trainyard.job.run.logs import nccl_ras

        after = evidence.ras(ranks[0].env, min(evidence.RAS_S, until - time.monotonic()), as_json=True)
        records[0]["ras"] = nccl_ras.lines(before, after, time.monotonic() - asked)
    return records, "\n\n".join(texts)[:MAX_TEXT] + "\n"


def _append(path: Path, text: str) -> None:
    """Append to a log until it is full. Raises OSError for what is no file: of a pipe nobody may ever read."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "wb") as log:
        if os.fstat(log.fileno()).st_size < MAX_TEXT:
            log.write(text.encode("utf-8", "replace"))


class Taker:
    """Takes stacks in a thread beside the monitor, as reading may hang."""

    def __init__(self, job_dir: Path, node_plan: Mapping[str, Any]) -> None:
        """Take the job's folder and node_plan.json."""
        self._job_dir, self._node_plan = job_dir, node_plan
        self._thread: threading.Thread | None = None
        self._answer: tuple[int, list[dict[str, Any]]] = 0, []

    def take(self, number: int) -> list[dict[str, Any]] | None:
        """Return what was taken for the order of this number; None as long as it is being taken."""
        if self._answer[0] == number:
            return self._answer[1]
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(number,), daemon=True)
            self._thread.start()
        return None

    def _run(self, number: int) -> None:
        node_plan, ranks = self._node_plan, list[dict[str, Any]]()
        try:
            ranks, text = take(self._job_dir, node_plan)
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            log = self._job_dir / "logs" / f"stacks_{node_plan['node_rank']}.log"
            _append(log, f"==== {node_plan['host']}, {when}\n\n{text}\n")
        except (OSError, ValueError, LookupError, TypeError) as error:
            # Ranks may have damaged their files: the head gets what was read, and the log has the error.
            print(f"stacks: {type(error).__name__}: {error}", flush=True)
        self._answer = number, ranks
