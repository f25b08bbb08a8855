# SPDX-License-Identifier: Apache-2.0
"""Start one process of a job: its environment, its log, its folder, then exec.

Used as ExecStart of a systemd unit, as a child of the monitor, and by torchrun for each rank. The environment comes
from a file (mode 0600), not from argv or unit properties, because those can be read by everybody on the node. It is
exactly the planned one: nothing is inherited, so that a job runs the same from a shell, from cron and from Ansible.

Every rank waits for this before its first line: what not all of it needs is imported late, typing and pathlib never.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9  # the module signal takes as long to import as this one

SHELLS = frozenset(("ash", "bash", "dash", "ksh", "sh", "zsh"))
# How Open MPI calls what training programs know a rank by.
_MPI_PLACE = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
_MPI_OWN = ("OMPI_", "OPAL_", "ORTE_", "PMIX_", "PRTE_")


def end_with_parent() -> None:
    """Have the kernel end this process when the monitor or agent that started it is killed, see prctl(2).

    Not as a unit: then systemd has started it, and ends it with its monitor.
    """
    if os.getppid() != 1:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def redirect(log: str) -> None:
    """Append standard output and error to a log; read nothing."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _say(text: str) -> None:
    """Write a line into the log of a rank, if that has room."""
    import contextlib

    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode())


def _exec(argv: list[str], env: dict[str, str]) -> int:
    if is_start_script(argv):
        argv = [sys.executable, "-IS", sys.argv[0], "script", *argv]
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is the point
    except OSError as error:
        # The shell's own convention: 127 not found, 126 not executable.
        _say(f"trainyard: cannot start {argv[0]!r}: {error.strerror} (PATH={env.get('PATH')})")
        return 127 if isinstance(error, FileNotFoundError) else 126


def is_start_script(argv: Sequence[str]) -> bool:
    """Tell whether a command runs a shell, or a script of one, itself or behind env, nohup, numactl and the like.

    What such a script leaves in the background is waited for (start_script.py).
    """
    if any(os.path.basename(word) in SHELLS or word.endswith(".sh") for word in argv):
        return True
    try:
        with open(argv[0], "rb") as program:
            first = program.readline(200)
    except OSError:
        return False
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    return any(os.path.basename(word) in SHELLS for word in words)


def run_process(job_dir: str, name: str) -> int:
    """Become the process `name` of the job in `job_dir`. Returns only when it cannot be started."""
    from ...machine.json_files import keep_json, read_json
    from . import processes

    end_with_parent()
    spec, process, env = _planned(job_dir, name)
    # For the monitor, which must not wait until systemd has cleaned up after the process.
    mine: dict[str, Any] = {"pid": os.getpid(), "start_time": processes.start_time(os.getpid())}
    if spec.get("max_restarts"):
        mine["attempt"] = wait_for_turn(job_dir, name)
        if mine["attempt"]:
            # Who takes part may be another one by now.
            process, env = _planned(job_dir, name)[1:]
        env["TRAINYARD_ATTEMPT"] = str(mine["attempt"])
        if "MS_RECOVERY_PATH" in env:
            # What MindSpore remembers of a cluster that is gone would be in the way of the next one.
            whole = (read_json(f"{job_dir}/attempts.json") or {}).get("", 0)
            env["MS_RECOVERY_PATH"] += f"/attempt_{whole}"
    path = f"{job_dir}/{name}.pid.json"
    why = keep_json(path, mine)
    if why and read_json(path) != mine:
        # Nobody could follow it.
        print(f"trainyard: {path} cannot be written: {why}", file=sys.stderr)
        return 1
    redirect(process["log"])
    if mine.get("attempt"):
        _say(f"--- started again, attempt {mine['attempt'] + 1} ---")
    os.chdir(f"{job_dir}/source")
    return _exec(process["argv"], env)


def _planned(job_dir: str, name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Return node_plan.json, and of it a process and its environment."""
    spec = _read_spec(job_dir)
    process = next(process for process in spec["processes"] if process["name"] == name)
    return spec, process, {**spec["base_env"], **process["env"], **spec["secret_env"]}


def _read_spec(job_dir: str) -> dict[str, Any]:
    import json

    with open(f"{job_dir}/node_plan.json", encoding="utf-8") as file:
        spec: dict[str, Any] = json.load(file)
    return spec


def wait_for_turn(job_dir: str, name: str) -> int:
    """Wait until this process may run (again); return how often it ran before.

    systemd starts a unit again as soon as it has ended; whether and when it runs again, the monitors decide.
    """
    import time

    from ...machine.json_files import read_json
    from .exits import turn

    last: int = (read_json(f"{job_dir}/{name}.pid.json") or {}).get("attempt", -1)
    while True:
        attempt = turn(read_json(f"{job_dir}/attempts.json") or {}, name)
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
        _say("--- started again ---")
    return _exec(argv, env)


def run_agent(argv: list[str]) -> None:
    """Run a module as `python -m` does, and leave as soon as it has ended, with its status.

    The interpreter's own end takes half a second of processor once torch is loaded, on each node and after all is said;
    looking for garbage while it loads takes a sixth of one.
    """
    import contextlib
    import gc
    import importlib
    import runpy

    sys.path[0], sys.argv = os.getcwd(), argv
    status = 1
    _note_ranks()
    gc.disable()
    try:
        importlib.import_module(argv[0].rpartition(".")[0])
        gc.freeze()
        gc.enable()
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        if isinstance(ended.code, int) or ended.code is None:
            status = ended.code or 0
        else:
            print(ended.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    for stream in (sys.stdout, sys.stderr):
        # A log without room changes nothing of how it ended.
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def _note_ranks() -> None:
    """Have this agent note how each of its ranks ended, see exits.py.

    Nobody else knows: the agent ends with 1 whatever ended its ranks, and after its last rank has left it waits for
    those of all other nodes. A rank that the agent ended, as another one had failed, is noted as such.
    """
    import subprocess

    from ...machine.json_files import keep_json
    from .exits import from_status

    job_dir = os.environ.get("TRAINYARD_JOB_DIR", "")
    attempt = os.environ.get("TRAINYARD_ATTEMPT", "0")
    running: dict[Any, str] = {}
    ending: set[int] = set()

    def note(process: Any, status: int | None) -> None:
        rank = "" if status is None else running.pop(process, "")
        if status is not None and rank.isdecimal():
            by_agent = {"by_agent": True} if process.pid in ending else {}
            keep_json(f"{job_dir}/exits/rank{rank}.json", {**from_status(status), "attempt": int(attempt), **by_agent})

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if "RANK" in (options.get("env") or ()):
                running[self] = options["env"]["RANK"]

        def poll(self) -> int | None:
            status = super().poll()
            note(self, status)
            return status

        def wait(self, timeout: float | None = None) -> int:
            status = super().wait(timeout)
            note(self, status)
            return status

    killpg = os.killpg

    def end_group(group: int, number: int) -> None:
        ending.add(group)
        killpg(group, number)

    # torch.distributed.elastic ends a rank with all that the rank has started.
    os.killpg = end_group
    subprocess.Popen = Popen  # type: ignore[misc]


def run_mpi_rank(names: list[str], argv: list[str]) -> int:
    """Become one rank under mpirun, with the planned variables `names`, those of MPI itself, and the secret ones.

    What a login on this node adds is left out. mpirun has brought the planned ones; secrets come from this node's own
    node_plan.json, as mpirun would send them unencrypted. The rank does not end with its parent: mpirun and its daemons
    may start ranks from threads that end, which the kernel takes for the parent's end. The monitor ends it.
    """
    given = dict(os.environ)
    job_dir = given["TRAINYARD_JOB_DIR"]
    spec = _read_spec(job_dir)
    planned = {name: value for name, value in given.items() if name in names or name.startswith(_MPI_OWN)}
    place = {name: given[theirs] for name, theirs in _MPI_PLACE.items()}
    os.chdir(f"{job_dir}/source")
    return _become_rank(argv, {**spec["base_env"], **planned, **spec["secret_env"], **place})


def tell_lost_peer(job_dir: str, rank: str) -> None:
    """Say to mpirun, whose log the head has, the line in which a rank that failed here says that a peer is gone."""
    from ....trainyard.job.run.causes import lost_peer
    from ...machine.json_files import end_of

    line = lost_peer(end_of(f"{job_dir}/logs/rank_{rank}.log", 1 << 16))
    if line:
        print(f"trainyard: rank {rank} lost its peer: {line}")
