# SPDX-License-Identifier: Apache-2.0
"""Start one process of a job: its environment, its log, its folder, then exec.

Used by the monitor for each process of its node, and by torchrun for each rank. The environment comes from a file (mode
0600), as every user can read argv. It is exactly the planned one: nothing is inherited, so a job runs the same from a
shell, from cron and from Ansible.

Every rank waits for these imports: most are late, typing and pathlib never happen.
"""

from __future__ import annotations

import os
import sys

from ...record.node_plan import source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9  # importing signal takes as long as importing this module

SHELLS = frozenset(("ash", "bash", "dash", "ksh", "sh", "zsh"))
# Open MPI's names of the variables that training programs read.
_MPI_PLACE = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
# Upper bound for a variable, in bytes: execve(2) takes 128 KiB.
_MAX_VARIABLE = 120_000
_MPI_OWN = ("OMPI_", "OPAL_", "ORTE_", "PMIX_", "PRTE_")


def end_with_parent() -> None:
    """Have the kernel end this process when the monitor or agent that started it is killed, see prctl(2).

    A monitor that is process 1, as in a pod, ends with all others anyway.
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


def _log(text: str) -> None:
    """Write a line into the log of a rank, if the disk has room."""
    import contextlib

    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode())


def _exec(argv: list[str], env: dict[str, str], container: tuple[dict[str, Any], str, str] | None = None) -> int:
    """Become a command, in the image of its job where there is a `container`: its record, the job's folder, a name."""
    bind(env)
    record, *place = container or ({},)
    # An old Python of an image cannot run our runtime.
    python = record.get("python", "") if record else sys.executable
    if python and is_start_script(argv):
        argv = [python, "-IS", sys.argv[0], "script", *argv]
    if record:
        argv = [sys.executable, "-IS", sys.argv[0], "container", *place, *argv]
    return become(argv, env)


def bind(env: dict[str, str]) -> None:
    """Run on the cores next to the rank's device (binding.py), as far as this process may."""
    import contextlib

    with contextlib.suppress(KeyError, ValueError, IndexError, OSError):
        near = env["TRAINYARD_RANK_CPUS"].split(";")[int(env["LOCAL_RANK"])]
        from .....trainyard.base.spans import numbers

        os.sched_setaffinity(0, numbers(near) & os.sched_getaffinity(0))


def become(argv: list[str], env: dict[str, str]) -> int:
    """Become a program, or return the status that a shell gives: 127 not found, 126 not executable."""
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - no shell is the point
    except OSError as error:
        # The kernel reports a missing interpreter as it reports a missing program.
        first = _first_line(argv[0]) if isinstance(error, FileNotFoundError) else ""
        why = f", which its first line names: {first.strip()!r}" if first else ""
        why += "; its lines end as on Windows (CRLF)" if first.endswith("\r") else ""
        _log(f"trainyard: cannot start {argv[0]!r}: {error.strerror}{why} (PATH={env.get('PATH')})")
        return 127 if isinstance(error, FileNotFoundError) else 126


def is_start_script(argv: Sequence[str]) -> bool:
    """Return whether a command runs a shell or its script, itself or behind env, nohup, numactl and the like.

    start_script.py waits for the processes that such a script leaves in the background.
    """
    if any(os.path.basename(word) in SHELLS or word.endswith(".sh") for word in argv):
        return True
    return any(os.path.basename(word) in SHELLS for word in _first_line(argv[0]).split())


def _first_line(program: str) -> str:
    """Return what the first line of a script names after `#!`, without the end of the line; "" for other programs."""
    try:
        with open(program, "rb") as file:
            first = file.readline(200)
    except OSError:
        return ""
    return os.fsdecode(first[2:].rstrip(b"\n")) if first.startswith(b"#!") else ""


def run_process(job_dir: str, name: str) -> int:
    """Become the process `name` of the job in `job_dir`. Returns only when it cannot be started."""
    end_with_parent()
    node_plan = read_node_plan(job_dir)
    process = next(each for each in node_plan["processes"] if each["name"] == name)
    env = {**node_plan["base_env"], **process["env"], **node_plan["secret_env"], **_of_node(job_dir)}
    attempt = 0
    if node_plan.get("max_restarts"):
        from .rank_exits import read_attempts, turn

        attempts = read_attempts(job_dir)
        attempt = turn(attempts, name)
        env["TRAINYARD_ATTEMPT"] = str(attempt)
        if "MS_RECOVERY_PATH" in env:
            # MindSpore's record of the last cluster would be in the way of the next one.
            env["MS_RECOVERY_PATH"] += f"/attempt_{attempts.get('', 0)}"
    redirect(process["log"])
    if attempt:
        _log(f"--- started again, attempt {attempt + 1} ---")
    os.chdir(node_plan.get("code_dir") or source_of(job_dir))
    if name == "mpirun":
        # Its ranks may be start scripts, but it is none.
        return become(process["argv"], env)
    in_image = node_plan.get("container") and not process.get("on_host")
    return _exec(process["argv"], env, (node_plan["container"], job_dir, name) if in_image else None)


def _of_node(job_dir: str) -> dict[str, str]:
    """Return TRAINYARD_NODE_DIR, and TRAINYARD_HOSTS, as far as it fits.

    These are the part of the job's folder that this node writes, and the addresses of the present nodes in the order of
    their ranks.
    """
    own = {"TRAINYARD_NODE_DIR": job_dir}
    try:
        with open(f"{job_dir}/hosts", encoding="utf-8") as file:
            hosts = ",".join(file.read(_MAX_VARIABLE + 1).split())
    except OSError:
        return own
    return {**own, "TRAINYARD_HOSTS": hosts} if len(hosts) < _MAX_VARIABLE else own


def read_node_plan(job_dir: str) -> dict[str, Any]:
    """Return the plan of this node."""
    import json

    with open(f"{job_dir}/node_plan.json", encoding="utf-8") as file:
        node_plan: dict[str, Any] = json.load(file)
    return node_plan


def own_dir() -> str:
    """Return the part of the job's folder that this node writes: trainyard.pyz lies there."""
    return os.path.dirname(sys.argv[0])


def run_rank(*argv: str) -> int:
    """Become one rank under an agent that has set RANK; its output goes to the log of that global rank."""
    end_with_parent()
    return _become_rank(argv, dict(os.environ))


def _become_rank(argv: Sequence[str], env: dict[str, str], image: dict[str, Any] | None = None) -> int:
    job_dir = own_dir()
    redirect(f"{job_dir}/logs/rank_{env['RANK']}.log")
    note_process(job_dir, env["RANK"], os.getpid())
    # Not TORCHELASTIC_RESTART_COUNT: an agent that starts its ranks again because another node's failed does not count.
    if os.fstat(1).st_size:
        _log("--- started again ---")
    container = (image, job_dir, f"rank{env['RANK']}") if image else None
    return _exec(list(argv), env, container)


def note_process(job_dir: str, rank: str, pid: int) -> None:
    """Note the process of a rank, for the time to save (stop_grace.py); without it the rank gets none."""
    import contextlib

    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/stat", "rb") as stat:
            started = stat.read().rpartition(b")")[2].split()[19].decode()
        os.makedirs(f"{job_dir}/ranks", exist_ok=True)
        with open(f"{job_dir}/ranks/{rank}", "w", encoding="ascii") as note:
            note.write(f"{pid} {started}")


def run_mpi_rank(names: str, *argv: str) -> int:
    """Become one rank under mpirun, with the planned variables `names` (A,B), those of MPI itself, and the secret ones.

    Variables of a login on this node are left out. mpirun sends the planned ones; secrets come from this node's plan,
    as mpirun would send them unencrypted. The rank does not end with its parent: mpirun may start ranks from threads
    that end, which the kernel takes for the parent's end. The monitor ends it.
    """
    environment, own = dict(os.environ), set(names.split(","))
    job_dir = own_dir()
    node_plan = read_node_plan(job_dir)
    planned = {name: value for name, value in environment.items() if name in own or name.startswith(_MPI_OWN)}
    place = {name: environment[theirs] for name, theirs in _MPI_PLACE.items()}
    os.chdir(source_of(job_dir))
    env = {**node_plan["base_env"], **planned, **node_plan["secret_env"], **_of_node(job_dir), **place}
    return _become_rank(argv, env, node_plan.get("container"))


def print_end(job_dir: str, rank: str, status: str) -> None:
    """Print into mpirun's log, which the head has, why a rank failed: its lost peer, its error, the OOM killer."""
    from .....trainyard.job.run.decide.restart_rules import evidence
    from .....trainyard.job.run.logs.causes import lost_peer
    from .....trainyard.job.run.logs.failures import of_last_attempt
    from ....machine.json_files import end_of, read_object
    from ....machine.tree import Tree
    from . import oom_kills

    log = of_last_attempt(end_of(f"{job_dir}/logs/rank_{rank}.log", 1 << 16))
    lost = lost_peer(log)
    # A log does not say why its rank was killed.
    found = {} if int(status) == 128 + _SIGKILL else {"lost its peer": lost} if lost else evidence(log)
    node_plan = read_node_plan(job_dir)
    before = {"job": 0, **read_object(f"{job_dir}/{oom_kills.BEFORE}")}
    kills = oom_kills.since(before, oom_kills.read(Tree(), node_plan.get("unit", "")))
    # A container may have a group elsewhere.
    if kills.get("oom_of_job") and (kills["oom_kills"] or not node_plan.get("container")):
        found["oom kills"] = str(kills["oom_kills"])
    for name, line in found.items():
        print(f"trainyard: rank {rank} {name}: {line}")
