# SPDX-License-Identifier: Apache-2.0
"""Submit and end a job of Slurm, and read its state from slurmctld, sacct and the job's folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....trainyard.findings.shapes import TIME, misfit
from ....trainyard.job.run.hang import last_printed
from ....trainyard.job.run.progress import clock, progress_line, strict
from ....trainyard.job.run.progress_reader import merged, read_lines
from ....trainyard.slurm import state as slurm_state
from ...machine.as_user import in_folder
from ...machine.json_files import open_regular
from ...machine.regex_limit import TooLongError, cpu_at_most
from ...slurm.commands import SlurmError, call, hosts_of, show, wait_until_ended

# Upper bound for an exit record of a job, in bytes.
_MAX_RECORD = 16 << 20
# How much of the end of rank 0's log is searched for progress, in bytes.
_TAIL = 64 << 10
# Time for a job to end, in seconds: Slurm sends SIGKILL KillWait (30 s) after SIGTERM.
_PATIENCE_S = 90
# How long a job's script may take to ask the ranks, and to cancel the job, beside their time to save, in seconds.
_ASK_S = 30.0
# Time limit of the step that reads a log, in seconds.
_STEP_S = 15.0


def submit(script: str, user: str) -> str:
    """Submit a script and return the job's number. Raises SlurmError with Slurm's own reason."""
    try:
        output = call(["sbatch", "--parsable"], user, script)
    except SlurmError as error:
        raise SlurmError(f"Slurm rejects the job: {error}") from error
    # `42`, or `42;cluster` where there are several.
    return output.strip().splitlines()[-1].split(";")[0]


def end(engine_id: str, user: str, *, check: bool = False, grace_s: float = 0.0) -> bool:
    """Cancel a job and wait for its end. Returns whether it was still there. Raises SlurmError.

    Its script first gives the ranks `grace_s` to save, and then cancels the job itself.
    """
    try:
        records = show("job", engine_id)
        if _has_ended(records):
            return False
        if check:
            return True
        if grace_s and "running" in _states(records):
            call(["scancel", "--batch", "--signal=USR2", engine_id], user)
            if wait_until_ended(engine_id, _has_ended, grace_s + _ASK_S):
                return True
        call(["scancel", engine_id], user)
        if wait_until_ended(engine_id, _has_ended, _PATIENCE_S):
            return True
    except SlurmError as error:
        raise SlurmError(f"Slurm does not cancel job {engine_id}: {error}") from error
    raise SlurmError(
        f"Slurm job {engine_id} has not ended {_PATIENCE_S} s after scancel. Check squeue and slurmd's log on its "
        "nodes, then run stop.yml again."
    )


def _states(records: list[str]) -> set[str]:
    return {slurm_state.read_state(slurm_state.fields(record).get("JobState", "")) for record in records}


def _has_ended(records: list[str]) -> bool:
    """Return whether the job has ended; a job that Slurm has forgotten has."""
    return not _states(records) & {"pending", "running"}


def read_exits(job_dir: Path) -> list[dict[str, Any]]:
    """Read the exit records of tasks in this folder."""
    return slurm_state.exits(in_folder(job_dir, [], _exit_lines))


def _exit_lines(job_dir: Path) -> list[str]:
    lines = []
    for path in sorted((job_dir / "exits").glob("*.exit")):
        with contextlib.suppress(OSError), open_regular(path) as file:
            lines += file.read(_MAX_RECORD).decode(errors="replace").splitlines()
    return lines


def _seconds(text: str) -> float | None:
    """Parse a time printed with SLURM_TIME_FORMAT=%s; `Unknown`, `N/A` and what is no time are None."""
    found = float(text) if text.isascii() and text.isdigit() else 0.0
    return None if not found or misfit(found, TIME) else found


def _from_sacct(engine_id: str) -> dict[str, str]:
    """Query the accounting, if there is one, for a job that slurmctld has forgotten."""
    try:
        return slurm_state.from_sacct(call(["sacct", "-X", "-P", "-D", "-j", engine_id, "-o", slurm_state.SACCT]))
    except SlurmError:
        return {}


def _from_folder(job_dir: Path) -> dict[str, str]:
    """Read the exit record of the job's script, if it is on this host."""
    try:
        status, at = (in_folder(job_dir, "", _tail, "exits/job", 1024) or "").split()
    except ValueError:
        return {}
    state = "COMPLETED" if status == "0" else "FAILED"
    return {"JobState": state, "ExitCode": f"{status}:0", "EndTime": at.partition(".")[0]}


def _tail(folder: Path, name: str, limit: int) -> str | None:
    """Return the last `limit` bytes of a file; None where there is none."""
    try:
        with open_regular(folder / name) as content:
            content.seek(max(0, content.seek(0, 2) - limit))
            return content.read(limit).decode(errors="replace")
    except OSError:
        return None


def _end_of(job_dir: Path, name: str, engine_id: str, host: str, user: str) -> str:
    """Return the end of a rank's log from this host, or from its node `host` by a step of the job."""
    found: str | None = in_folder(job_dir, None, _tail, f"logs/{name}", _TAIL)
    if found is not None or not host:
        return found or ""
    where = [f"--jobid={engine_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}"]
    try:
        tail = ["tail", "-c", "8192", f"{job_dir}/logs/{name}"]
        return call(["srun", *where, "--input=none", "--quiet", *tail], user, patience_s=_STEP_S)
    except SlurmError:
        # There is no log yet, or the node is lost, which Slurm reports later.
        return ""


def last_metrics(text: str, pattern: str) -> dict[str, float | None]:
    """Return the last value of each metric in the end of a log."""
    with contextlib.suppress(TooLongError), cpu_at_most(2.0):
        return strict(merged(read_lines(text, pattern)))
    return {}


def job_state(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JobState (trainyard/job/schedulers), and `line`, `hosts`, `log_hosts`."""
    engine_id, job_dir, world_size = params["engine_id"], Path(params["job_dir"]), params["world_size"]
    records = show("job", engine_id)
    job = slurm_state.fields(records[-1]) if records else _from_sacct(engine_id) or _from_folder(job_dir)
    reported = job.get("JobState", "")
    state = slurm_state.read_state(reported) if job else "lost"
    pending, runs = state == "pending", state == "running"
    started, ended = _seconds(job.get("StartTime", "")), _seconds(job.get("EndTime", ""))
    reason, restarts, hosts = job.get("Reason", ""), job.get("Restarts") or "0", hosts_of(job.get("NodeList", ""))
    metrics: dict[str, float | None] = {}
    printed = ""
    if params["progress_pattern"] and not pending:
        steps = hosts if runs and not params["shared"] else []
        # Most programs print on rank 0, Megatron-LM on the last one.
        for rank, host in ((0, steps[:1]), (world_size - 1, steps[-1:])):
            log = params["rank_log"].replace("{rank}", str(rank))
            text = _end_of(job_dir, log, engine_id, "".join(host), params["user"])
            printed = printed or last_printed(text)
            metrics = metrics or last_metrics(text, params["progress_pattern"])
            if metrics or world_size == 1:
                break
    elapsed, line = 0.0, ""
    if started and not pending:
        elapsed = max(0.0, (ended if ended and not runs else time.time()) - started)
    if pending:
        line = f"{clock(0)}   {slurm_state.pending_line(reason)}"
    elif runs:
        line = progress_line(world_size, world_size, elapsed, metrics)
        # Slurm jobs have no secrets that a line could show.
        line = "   ".join(filter(None, [line, "" if metrics else printed]))
    return {
        "state": state,
        "engine_id": engine_id,
        "reason": reason if reason not in ("None", "(null)") else "",
        "slurm_state": reported,
        "exit_code": job.get("ExitCode", ""),
        "started": None if pending else started,
        "finished": None if pending or runs else ended,
        "elapsed_s": round(elapsed, 2),
        "ranks_running": world_size if runs else 0,
        "metrics": metrics,
        "hosts": hosts,
        "requeued": int(restarts) if restarts.isdigit() else 0,
        "line": line,
        # The login host may share the job's folder with the nodes; otherwise each node has its own.
        "log_hosts": list(dict.fromkeys([params["login_host"], *([] if params["shared"] else hosts)])),
    }
