# SPDX-License-Identifier: Apache-2.0
"""The context of a job's sbatch script, whose text is templates/slurm/job.sbatch.j2.

The script unpacks the program that it carries and starts it once on each host of the allocation, which the program
plans for (trainyard_node/allocated.py). It needs bash, coreutils and Python on the hosts, and Slurm's srun.
"""

from __future__ import annotations

from typing import Any

from ..file.job import SILENT_AFTER_S, Job
from ..record.folder_layout import HOST
from .records import SubmittedPlan, Template

SCRIPT = "job.sbatch"
# The packed program follows this line.
PROGRAM_MARK = "#PROGRAM"
# Beside job_timeout, which the monitors keep, and the time to save: to unpack, to plan, and to end, in seconds.
_BESIDE_S = 300


def script(plan: SubmittedPlan, limit_min: int | None = None) -> Template:
    """Return the sbatch script; the controller adds `program`, the packed program as lines of base64.

    `limit_min` is the longest time that the partition grants, in minutes, None for any.
    """
    context: dict[str, Any] = {
        "plan": plan,
        "job": plan.job,
        "submit_host": " ".join(plan.submit_host.split()),
        "options": options(plan, limit_min),
        "goes_on": _goes_on(plan.job),
        "mark": PROGRAM_MARK,
        "host": HOST,
    }
    return Template("slurm/job.sbatch.j2", context)


def _goes_on(job: Job) -> bool:
    """Return whether the job goes on in its allocation where a host is lost."""
    return bool(job.restarts.spares or job.restarts.min_nodes)


def options(plan: SubmittedPlan, limit_min: int | None) -> list[str]:
    """Return the options of sbatch."""
    job = plan.job
    run_s = job.timeout_s + job.stop.grace_s + SILENT_AFTER_S + _BESIDE_S
    # A partition that grants no more than job_timeout ends the job a little before the monitors would.
    time_min = min(-(-run_s // 60), limit_min or run_s)
    chosen = [
        f"--job-name={job.name}",
        f"--comment=trainyard:{plan.job_id}",
        f"--nodes={plan.nodes}",
        f"--ntasks-per-node={plan.ranks_per_node}",
        # Slurm counts in minutes.
        f"--time={time_min}",
        "--requeue" if job.restarts.max_restarts else "--no-requeue",
        *(["--no-kill"] if _goes_on(job) else []),
        # All is little (trainyard_node/job/schedulers/slurm_job.py). With NONE, Slurm would log in as the user on the
        # host first, which takes a second and more, and hold the job where it cannot.
        "--export=ALL",
        # The script opens its log itself.
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
