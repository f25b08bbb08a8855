# SPDX-License-Identifier: Apache-2.0
"""Launcher `oneflow`: OneFlow's own launch module on each node, or one script on each node that configures itself.

job_oneflow_style: launch
    One `python -m oneflow.distributed.launch` on each node starts the ranks of that node. When one of them fails, it
    ends the process group that it leads, and does not name the rank. So each rank starts through a small script that
    does, and that gives it its log.
job_oneflow_style: address_list
    One process on each node. The script reads in its environment the addresses of all machines, the master's first, one
    port, and the number of devices of each machine. OneFlow before 0.5 drives all devices from one process, and its
    `deprecated.init_worker` starts the others over ssh from the master (oneflow/python/deprecated/init_cluster_env.py
    of 0.1.10 to 0.4.0); no later release uses ssh.
"""

from __future__ import annotations

import re
import shlex

from ...base.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment, only_ipv4, same_count
from ..placement.process import File, Process, agent_log, rank_log, runtime, words
from .held_exit import HERE, hold_exit

RANK_SCRIPT = "oneflow_rank"
# Since 0.5 OneFlow joins its cluster when it is imported, and fails with only some of its five variables. The launch
# module imports it, too, and sets all five for its ranks; a script that configures itself does so before.
_NOT_YET = ("MASTER_ADDR", "MASTER_PORT")
_INSTEAD = "use job_launcher: direct"
_NUMBERED = {"--nnodes": "{nodes}", "--node_rank": "{node_rank}"}

_REPORT_EXIT = """\
status=$?
[ $status -eq 0 ] || echo "trainyard: rank $RANK ended with status $status" >&2
"""


def check(job: Job, placement: Placement) -> list[Finding]:
    """Find different numbers of devices, a missing environment, and IPv6, which OneFlow does not support."""
    del job
    findings = same_count(placement, _INSTEAD)
    if not placement.python:
        expected = "the virtual environment that holds OneFlow"
        findings.append(Finding("job_venv", "nothing", expected, "set job_venv: oneflow, or to where it is"))
    return findings + only_ipv4(placement, "OneFlow's processes use nothing else")


def starter(job: Job) -> str:
    """Return OneFlow, whose launch module it is; "" for a script that configures itself."""
    return "" if job.oneflow_style == "address_list" else "oneflow"


def starts_by_ssh(job: Job, placement: Placement) -> bool:
    """Tell whether OneFlow may log in: with a list of addresses, unless all releases are known to be 0.5 or newer."""
    packages = [package for node in placement.nodes for package in node.packages.items()]
    versions = [version for name, version in packages if name.startswith("oneflow")]
    return job.oneflow_style == "address_list" and not (versions and all(map(_since_0_5, versions)))


def _since_0_5(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (0, 5)


def _environment(job: Job, placement: Placement, node: Node) -> dict[str, str]:
    env = common_environment(job, placement, node)
    return {name: value for name, value in env.items() if name not in _NOT_YET}


def _launch(job: Job, placement: Placement, node: Node) -> Process:
    options = {
        "--nnodes": str(len(placement.nodes)),
        "--node_rank": str(node.node_rank),
        "--nproc_per_node": str(node.rank_count),
        "--master_addr": placement.head.address,
        "--master_port": str(placement.port),
    }
    launch = (placement.python, "-m", "oneflow.distributed.launch", *words(options))
    argv = (*launch, "--no_python", f"{placement.node_dir}/{RANK_SCRIPT}", *job.command)
    log = agent_log(placement.node_dir, node.node_rank)
    env = _environment(job, placement, node)
    return Process("agent", tuple(node.ranks), argv, log, env, numbered=_NUMBERED, lists_nodes=("--master_addr",))


def _configures_itself(job: Job, placement: Placement, node: Node) -> Process:
    return Process(
        name=f"rank{node.first_rank}",
        ranks=tuple(node.ranks),
        argv=job.command,
        log=rank_log(placement.node_dir, node.first_rank),
        env={
            **_environment(job, placement, node),
            "ONEFLOW_MACHINES": ",".join(each.address for each in placement.nodes),
            "ONEFLOW_MACHINE_ID": str(node.node_rank),
            "ONEFLOW_CTRL_PORT": str(placement.port),
            "ONEFLOW_DEVICE_NUM": str(node.rank_count),
        },
        lists_nodes=("ONEFLOW_MACHINES",),
        numbered={"ONEFLOW_MACHINE_ID": "{node_rank}"},
    )


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return one process: the launch module, or the script."""
    style = _configures_itself if job.oneflow_style == "address_list" else _launch
    return [style(job, placement, node)]


def shared_files(job: Job, placement: Placement) -> list[File]:
    """Return the script by which the launch module starts a rank, the same on every node."""
    if job.oneflow_style == "address_list":
        return []
    lines = [
        "#!/bin/sh",
        "# Starts a rank, and reports its exit: OneFlow's launch module does not.",
        HERE,
        f'{shlex.quote(placement.python)} -IS "{runtime("$here")}" rank "$@"',
        f"{_REPORT_EXIT}{hold_exit(job, '$RANK')}exit $status\n",
    ]
    return [File(RANK_SCRIPT, "\n".join(lines), "0755")]
