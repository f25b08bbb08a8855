# SPDX-License-Identifier: Apache-2.0
"""Submit and end a job of Slurm, and read its state from slurmctld, sacct and the job's folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ....trainyard.base.shapes import TIME, misfit
from ....trainyard.job.run.logs.progress import clock
from ....trainyard.slurm import allocation, slurm_state
from ...machine import as_user
from ...slurm.slurm_commands import SlurmError, call, show, wait_until_ended
from ..run.job_folder import base_environment
from . import private_file

# Time for a job to end, in seconds: Slurm sends SIGKILL KillWait (30 s) after SIGTERM.
_PATIENCE_S = 90
_PLANS = "its hosts check themselves and plan"
# Steps of a job at the same time, and how long one may take beside its question, in seconds.
STEPS, _STEP_S = 16, 20.0


def submit(script: str, user: str, secrets: Mapping[str, Any]) -> str:
    """Submit a script and return the job's number. Raises SlurmError with Slurm's own reason.

    `secrets` has the content of a file for the job's hosts, by its path.
    """
    owner = as_user.named(user)
    for path, content in secrets.items():
        as_user.run(owner, private_file.write, path, content)
    try:
        output = call(["sbatch", "--parsable"], user, script, env=_exported(user))
    except SlurmError as error:
        for path in secrets:
            forget(path, user)
        raise SlurmError(f"Slurm rejects the job: {error}") from error
    # `42`, or `42;cluster` where there are several.
    return output.strip().splitlines()[-1].split(";")[0]


def _exported(user: str) -> dict[str, str]:
    """Return the environment that the job's script gets: a login's variables, and of ours Slurm's settings alone."""
    ours = {name: value for name, value in os.environ.items() if name.startswith(("SLURM_", "SBATCH_"))}
    return {"PATH": os.environ.get("PATH", os.defpath), **ours, **base_environment(user)}


def forget(path: str, user: str) -> None:
    """Remove the file of a job's secrets."""
    as_user.run(as_user.named(user), _unlink, path)


def _unlink(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def end(engine_id: str, user: str, *, check: bool = False) -> bool:
    """Cancel a job and wait for its end. Returns whether it was still there. Raises SlurmError."""
    try:
        if _has_ended(show("job", engine_id)):
            return False
        if check:
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


def job_state(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Slurm says of a job: the fields of a JobState (trainyard/job/schedulers), and its `hosts`."""
    engine_id = params["engine_id"]
    records = show("job", engine_id)
    job = slurm_state.fields(records[-1]) if records else _from_sacct(engine_id)
    reported = job.get("JobState", "")
    state = slurm_state.read_state(reported) if job else "lost"
    pending, runs = state == "pending", state == "running"
    started, ended = _seconds(job.get("StartTime", "")), _seconds(job.get("EndTime", ""))
    reason, restarts, nodes = job.get("Reason", ""), job.get("Restarts") or "0", job.get("NodeList", "")
    elapsed = 0.0
    if started and not pending:
        elapsed = max(0.0, (ended if ended and not runs else time.time()) - started)
    line = slurm_state.pending_line(reason) if pending else _PLANS if runs else ""
    return {
        "state": state,
        "engine_id": engine_id,
        "reason": reason if reason not in ("None", "(null)") else "",
        "slurm_state": reported,
        "exit_code": job.get("ExitCode", ""),
        "started": None if pending else started,
        "finished": None if pending or runs else ended,
        "elapsed_s": round(elapsed, 2),
        "hosts": [] if nodes in ("", "(null)", "None assigned") else allocation.expand(nodes),
        "requeued": int(restarts) if restarts.isdigit() else 0,
        "line": f"{clock(elapsed)}   {line}" if line else "",
    }


def ask_hosts(
    job: Mapping[str, str], question: str, arguments: Mapping[str, Any], limit_s: float, here: Callable[..., Any]
) -> dict[str, str]:
    """Ask hosts of a job (`engine_id`, `user`) that share its folder with this one; return the JSON of each answer.

    While it runs, a step of the job asks each of them; afterwards their records are read `here`.
    """
    engine_id, user = job["engine_id"], job["user"]
    if _has_ended(show("job", engine_id)):
        # One after the other: some questions change the rights of this process for a moment.
        return {host: json.dumps(here(**own)) for host, own in arguments.items()}

    def ask(host: str) -> str:
        own = arguments[host]
        where = [f"--jobid={engine_id}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--quiet"]
        program = ["python3", "-IS", f"{own['job_dir']}/trainyard.pyz", "answer", question, f"{limit_s:g}"]
        try:
            return call(["srun", *where, *program], user, json.dumps(own), limit_s + _STEP_S)
        except SlurmError as error:
            return json.dumps({"failed": True, "msg": str(error)})

    with ThreadPoolExecutor(STEPS) as side_by_side:
        return dict(zip(arguments, side_by_side.map(ask, arguments)))
