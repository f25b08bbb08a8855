# SPDX-License-Identifier: Apache-2.0
"""Launcher `oneflow`: OneFlow's own launch module on each node, or one script on each node that configures itself.

job_oneflow_style: launch
    One `python -m oneflow.distributed.launch` on each node starts the ranks of that node. When one of them fails it
    ends the process group that it leads, and so must lead one: it has a session of its own, as every process of a job.
    It does not say which rank failed; so each starts through a small script that does, and that gives it its log.
job_oneflow_style: address_list
    One process on each node. The script finds in its environment what it hands to OneFlow: the addresses of all
    machines, the first of which is the master, one port, and the number of devices of each machine. OneFlow before 0.5
    drives all of these from the one process. Its `deprecated.init_worker` starts the others over ssh from the master
    (oneflow/python/deprecated/init_cluster_env.py of 0.1.10 to 0.4.0); nothing of a later release uses ssh.
"""

from __future__ import annotations

import re
import shlex

from ...findings.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment, same_count
from ..placement.process import File, Process, agent_log, rank_log, runtime

RANK_SCRIPT = "oneflow_rank"
# Since 0.5 OneFlow joins its cluster when it is imported, and dies of finding only some of its five variables. The
# launch module imports it, too, and sets all five for its ranks; a script that configures itself does so before.
_NOT_YET = ("MASTER_ADDR", "MASTER_PORT")
_INSTEAD = "use job_launcher: direct"

_TELL = """\
status=$?
[ $status -eq 0 ] || echo "trainyard: rank $RANK ended with status $status" >&2
exit $status
"""


def check(job: Job, placement: Placement) -> list[Finding]:
    """OneFlow takes one number of devices for all machines, talks over IPv4, and lives in the job's environment."""
    findings = same_count(placement, _INSTEAD)
    if not placement.venv:
        expected = "the virtual environment that holds OneFlow"
        findings.append(Finding("job_venv", "nothing", expected, "set job_venv: oneflow, or to where it is"))
    findings += [
        Finding(
            "network",
            f"address {node.address}",
            "an IPv4 address: OneFlow's processes speak nothing else with each other",
            "set job_network to an IPv4 network",
            host=node.host,
        )
        for node in placement.nodes
        if ":" in node.address
    ]
    del job
    return findings


def starter(job: Job) -> str:
    """The launch module is OneFlow's; a script that configures itself is started by nobody."""
    return "" if job.oneflow_style == "address_list" else "oneflow"


def starts_by_ssh(job: Job, placement: Placement) -> bool:
    """Whether the script may have OneFlow log in: in the old style, where the release is not known to be past that."""
    if job.oneflow_style != "address_list":
        return False
    found = [
        version for node in placement.nodes for name, version in node.packages.items() if name.startswith("oneflow")
    ]
    return not found or any(_before_0_5(version) for version in found)


def _before_0_5(version: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) < (0, 5)


def _environment(job: Job, placement: Placement, node: Node) -> dict[str, str]:
    env = common_environment(job, placement, node)
    return {name: value for name, value in env.items() if name not in _NOT_YET}


def _launch(job: Job, placement: Placement, node: Node) -> Process:
    argv = (
        f"{placement.venv}/bin/python",
        "-m",
        "oneflow.distributed.launch",
        "--nnodes",
        str(len(placement.nodes)),
        "--node_rank",
        str(node.node_rank),
        "--nproc_per_node",
        str(node.rank_count),
        "--master_addr",
        placement.head.address,
        "--master_port",
        str(placement.port),
        "--no_python",
        f"{placement.job_dir}/{RANK_SCRIPT}",
        *job.command,
    )
    return Process(
        name="agent",
        ranks=tuple(node.ranks),
        argv=argv,
        log=agent_log(placement.job_dir, node.node_rank),
        env=_environment(job, placement, node),
    )


def _configures_itself(job: Job, placement: Placement, node: Node) -> Process:
    return Process(
        name=f"rank{node.first_rank}",
        ranks=tuple(node.ranks),
        argv=job.command,
        log=rank_log(placement.job_dir, node.first_rank),
        env={
            **_environment(job, placement, node),
            "ONEFLOW_MACHINES": ",".join(each.address for each in placement.nodes),
            "ONEFLOW_MACHINE_ID": str(node.node_rank),
            "ONEFLOW_CTRL_PORT": str(placement.port),
            "ONEFLOW_DEVICE_NUM": str(node.rank_count),
        },
        lists_nodes=("ONEFLOW_MACHINES",),
    )


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """One process on each node: the launch module, or the script."""
    style = _configures_itself if job.oneflow_style == "address_list" else _launch
    return [style(job, placement, node)]


def shared_files(job: Job, placement: Placement) -> list[File]:
    """The script by which the launch module starts a rank, the same on every node."""
    if job.oneflow_style == "address_list":
        return []
    start = [f"{placement.venv}/bin/python", "-IS", runtime(placement.job_dir), "rank"]
    lines = [
        "#!/bin/sh",
        "# Starts a rank, and says how it ended: OneFlow's launch module does not.",
        f'{shlex.join(start)} "$@"',
        _TELL,
    ]
    return [File(RANK_SCRIPT, "\n".join(lines), "0755")]
