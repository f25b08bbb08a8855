# SPDX-License-Identifier: Apache-2.0
"""Start one process of a job: its environment, its log, its folder, then exec.

Used as ExecStart of a systemd unit, as a child of the monitor, and by torchrun for each rank. The environment comes
from a file (mode 0600), not from argv or unit properties, because those can be read by everybody on the node. It is
exactly the planned one: nothing is inherited, so that a job runs the same from a shell, from cron and from Ansible.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import procs
from .exits import read_json, turn, write_json

_PR_SET_PDEATHSIG = 1

# How Open MPI calls what training programs know a rank by.
_MPI_PLACE = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
_MPI_OWN = ("OMPI_", "OPAL_", "ORTE_", "PMIX_", "PRTE_")


def end_with_parent() -> None:
    """Have the kernel end this process when the monitor or agent that started it is killed, see prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def redirect(log: str) -> None:
    """Append standard output and error to a log; read nothing."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _exec(argv: list[str], env: dict[str, str]) -> int:
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is the point
    except OSError as error:
        # The shell's own convention: 127 not found, 126 not executable.
        print(f"trainyard: cannot start {argv[0]!r}: {error.strerror} (PATH={env.get('PATH')})", file=sys.stderr)
        sys.stderr.flush()
        return 127 if isinstance(error, FileNotFoundError) else 126


def run_process(job_dir: Path, name: str) -> int:
    """Become the process `name` of the job in `job_dir`. Returns only when it cannot be started."""
    end_with_parent()
    spec: dict[str, Any] = json.loads((job_dir / "job.json").read_text())
    process = next(process for process in spec["processes"] if process["name"] == name)
    env = {**spec["base_env"], **process["env"], **spec["secret_env"]}
    # For the monitor, which must not wait until systemd has cleaned up after the process.
    mine: dict[str, Any] = {"pid": os.getpid(), "start_time": procs.start_time(os.getpid())}
    if spec.get("max_restarts"):
        mine["attempt"] = wait_for_turn(job_dir, name)
        env["TRAINYARD_ATTEMPT"] = str(mine["attempt"])
    write_json(job_dir / f"{name}.pid.json", mine)
    redirect(process["log"])
    if mine.get("attempt"):
        print(f"--- started again, attempt {mine['attempt'] + 1} ---", flush=True)
    os.chdir(job_dir / "source")
    return _exec(process["argv"], env)


def wait_for_turn(job_dir: Path, name: str) -> int:
    """Wait until this process may run (again); return how often it ran before.

    systemd starts a unit again as soon as it has ended; whether and when it runs again, the monitors decide.
    """
    last: int = (read_json(job_dir / f"{name}.pid.json") or {}).get("attempt", -1)
    while True:
        attempt = turn(read_json(job_dir / "attempts.json") or {}, name)
        if attempt > last:
            return attempt
        time.sleep(0.1)


def run_rank(argv: list[str]) -> int:
    """Become one rank under an agent that has set RANK; its output goes to the log of that global rank."""
    end_with_parent()
    return _become_rank(argv, dict(os.environ))


def _become_rank(argv: list[str], env: dict[str, str]) -> int:
    redirect(f"{env['TRAINYARD_JOB_DIR']}/logs/rank_{env['RANK']}.log")
    # Not TORCHELASTIC_RESTART_COUNT: an agent that starts its ranks again because another node's failed does not count.
    if os.fstat(1).st_size:
        print("--- started again ---", flush=True)
    return _exec(argv, env)


def run_mpi_rank(names: list[str], argv: list[str]) -> int:
    """Become one rank under mpirun, with the planned variables `names`, those of MPI itself, and the secret ones.

    What a login on this node adds is left out. mpirun has brought the planned ones; secrets come from this node's own
    job.json, as mpirun would send them unencrypted. The rank does not end with its parent: mpirun and its daemons may
    start ranks from threads that end, which the kernel takes for the parent's end. The monitor ends it.
    """
    given = dict(os.environ)
    job_dir = Path(given["TRAINYARD_JOB_DIR"])
    spec: dict[str, Any] = json.loads((job_dir / "job.json").read_text())
    planned = {name: value for name, value in given.items() if name in names or name.startswith(_MPI_OWN)}
    place = {name: given[theirs] for name, theirs in _MPI_PLACE.items()}
    os.chdir(job_dir / "source")
    return _become_rank(argv, {**spec["base_env"], **planned, **spec["secret_env"], **place})
