# SPDX-License-Identifier: Apache-2.0
"""Launcher `msrun`: MindSpore's msrun on each node starts its workers, on the head also the scheduler; from 2.3 on.

Our runtime runs it, so that it notes how its workers end, and lets them save before it ends them.
"""

from __future__ import annotations

from ...base.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment, same_count
from ..placement.process import Process, agent_log, runtime
from .mindspore import cluster_environment, feature_findings

MODULE = "mindspore.parallel.cluster.run"
# Programs that msrun starts directly; it puts `python` before any other word.
_PROGRAMS = ("python", "python3", "pytest")
_INSTEAD = "use job_launcher: mindspore"
_NUMBERED = {"--worker_num=": "{world_size}", "--node_rank=": "{node_rank}"}


def check(job: Job, placement: Placement) -> list[Finding]:
    """Find a missing environment, other programs than Python, and nodes with different numbers of ranks."""
    findings = feature_findings(placement, "msrun") + same_count(placement, _INSTEAD)
    if not placement.python:
        expected = "the virtual environment that holds msrun"
        findings.append(Finding("job_venv", "nothing", expected, f"set job_venv, or {_INSTEAD}"))
    if job.command[0] not in _PROGRAMS and not job.command[0].endswith(".py"):
        found = f"{job.command[0]}, before which msrun would put python"
        action = f"begin job_command with python, or {_INSTEAD}"
        findings.append(Finding("job_command", found, "a Python script, or python and its arguments", action))
    return findings


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return one msrun; it writes the logs of workers and scheduler with the names of the launcher `mindspore`."""
    # The module, as the program of an environment that layers another one runs the other's Python.
    argv = (
        placement.python,
        runtime(placement.node_dir),
        "agent",
        MODULE,
        f"--worker_num={placement.world_size}",
        f"--local_worker_num={node.rank_count}",
        f"--master_addr={placement.head.address}",
        f"--master_port={placement.port}",
        f"--node_rank={node.node_rank}",
        f"--log_dir={placement.node_dir}/logs",
        # Without it msrun returns before anything is known of the workers.
        "--join=True",
        f"--cluster_time_out={job.join_timeout_s}",
        *job.command,
    )
    env = {**common_environment(job, placement, node), **cluster_environment(job, node)}
    log = agent_log(placement.node_dir, node.node_rank)
    return [
        Process(
            "agent",
            tuple(node.ranks),
            argv,
            log,
            env,
            numbered=_NUMBERED,
            lists_nodes=("--master_addr=", "MASTER_ADDR"),
        )
    ]
