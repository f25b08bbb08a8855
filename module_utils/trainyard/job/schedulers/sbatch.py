# SPDX-License-Identifier: Apache-2.0
"""The context of a job's sbatch script, whose text is templates/slurm/job.sbatch.j2.

The script reads everything about the nodes in the allocation, as they are unknown before. It needs bash, coreutils, tar
and iproute2 on the nodes, and Slurm's own commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Set
from typing import Any

from ...findings.findings import grouped
from ...software.container_flags import APPTAINER, PODMAN
from ..file.job import Job, Stop
from ..placement.placement import SYSTEM_PATH
from .records import SubmittedPlan, Template

SCRIPT = "job.sbatch"
# The packed source follows this line.
SOURCE_MARK = "#SOURCE"
# The container programs that a script of Slurm can start.
IMAGE_PROGRAMS = ("podman", "apptainer")
# Variables that the container program alone gets, and those of the user's login on a node which name files there.
_OUTSIDE = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
_OF_THE_LOGIN = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "BASH_ENV", "TMPDIR")


def script(plan: SubmittedPlan, archive: str, node_env: Mapping[str, Mapping[str, str]]) -> Template:
    """Return the sbatch script. `archive` is the source as base64, `node_env` has variables by name of the node."""
    job = plan.job
    context = {
        "plan": plan,
        "job": job,
        "submit_host": " ".join(plan.submit_host.split()),
        "options": options(plan),
        "stop": saves(job),
        "image": image(job, {*job.env, *(name for env in node_env.values() for name in env)}),
        "path": f"{job.venv}/bin:{SYSTEM_PATH}" if job.venv else SYSTEM_PATH,
        "node_env": _node_environment(node_env),
        "mpi_parameters": {**({"btl_tcp_if_include": job.network} if job.network else {}), **job.mpi.parameters},
        "mark": SOURCE_MARK,
        "source": [archive[at : at + 76] for at in range(0, len(archive), 76)],
    }
    return Template("slurm/job.sbatch.j2", context)


def image(job: Job, chosen: Set[str]) -> dict[str, Any] | None:
    """Return how a task runs the job's image; None without one. The nodes and what they have are unknown.

    `chosen` are the variables that the job itself sets.
    """
    if job.image is None:
        return None
    program = next((name for name in job.image.runtimes if name in IMAGE_PROGRAMS), "podman")
    data = [(path, path, "ro") for path in job.data]
    mounts = [":".join(mount) for mount in (*data, *job.image.mounts)]
    option, run = ("--volume", ["podman", "run", "--rm", "--pull=never", "--replace", *PODMAN, "--entrypoint="])
    if program == "apptainer":
        gpus = ["--nv"] if job.slurm.gres != "none" else []
        option, run = "--bind", ["apptainer", "--quiet", *APPTAINER, *gpus]
    elif job.slurm.gres != "none":
        run += ["--device", "nvidia.com/gpu=all"]
    venv = (
        f"[ ! -x {shlex.quote(job.venv)}/bin/python ] || PATH={shlex.quote(job.venv)}/bin:$PATH; " if job.venv else ""
    )
    return {
        "program": program,
        "reference": job.image.reference,
        "kind": job.image.kind,
        "pull": job.image.pull,
        "run": [*run, *(word for mount in mounts for word in (option, mount))],
        "not_inside": [*_OUTSIDE, *(name for name in _OF_THE_LOGIN if name not in chosen)],
        "begin": f'{venv}exec "$@"',
    }


def saves(job: Job) -> Stop | None:
    """Return how the ranks are asked to end; None where they get no time to save.

    msrun starts workers itself, and ends all others as soon as one has left.
    """
    return job.stop if job.stop.grace_s and job.launcher != "msrun" else None


def _signal(job: Job) -> list[str]:
    """Return the option by which Slurm signals the script before the time is up: up to 60 s too early.

    A short job would be asked to end soon after its start: it has Slurm's own KillWait.
    """
    stop = saves(job)
    fits = stop and job.timeout_s >= 2 * (stop.grace_s + 60)
    return [f"--signal=B:USR1@{stop.grace_s}"] if stop and fits else []


def options(plan: SubmittedPlan) -> list[str]:
    """Return the options of sbatch."""
    job = plan.job
    chosen = [
        f"--job-name={job.name}",
        f"--comment=trainyard:{plan.job_id}",
        f"--nodes={plan.nodes}",
        f"--ntasks-per-node={plan.ranks_per_node}",
        # Slurm counts in minutes.
        f"--time={-(-job.timeout_s // 60)}",
        *_signal(job),
        "--requeue" if job.restarts.most else "--no-requeue",
        # Without the login host's environment; variables that the script sets reach srun.
        "--export=NONE",
        # The script creates the folder of its log, so it opens the log itself.
        "--output=/dev/null",
    ]
    slurm = job.slurm
    named = {"partition": slurm.partition, "account": slurm.account, "qos": slurm.qos, "gres": gres_option(job)}
    return [*chosen, *(f"--{name}={value}" for name, value in named.items() if value), *slurm.options]


def gres_option(job: Job) -> str:
    """Return the devices of each node for --gres, or "". `job_devices: auto` needs the facts of the cluster."""
    gres = job.slurm.gres
    if gres != "auto":
        return "" if gres == "none" else gres
    return f"gpu:{len(job.devices)}" if job.devices else ""


def _node_environment(node_env: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the variables of single nodes as {hosts, env}, nodes with the same variables together."""
    alike = grouped((tuple(env.items()), host) for host, env in node_env.items() if env)
    return [{"hosts": hosts, "env": dict(env)} for env, hosts in alike.items()]
