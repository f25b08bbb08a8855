# SPDX-License-Identifier: Apache-2.0
"""Launcher `torchrun`: one torchrun agent on each node, which starts the ranks of that node.

Rendezvous is static, so that rank = node_rank * ranks_per_node + local_rank, also on a spare. Torchrun cannot restart
ranks then, so the monitors start every agent again.
"""

from __future__ import annotations

from ...base.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment, same_count
from ..placement.process import Process, agent_log, runtime, words

_NUMBERED = {"--nnodes": "{nodes}", "--node-rank": "{node_rank}"}


def check(job: Job, placement: Placement) -> list[Finding]:
    """Find a missing environment, and nodes with other numbers of ranks: --nproc-per-node is one for all."""
    if not placement.python:
        expected = "the virtual environment that holds torchrun"
        return [Finding("job_venv", "nothing", expected, "set job_venv, or use job_launcher: direct")]
    del job
    return same_count(placement, "use job_launcher: direct")


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return the agent. Our runtime starts it, as it is slow to exit, and its ranks, whose logs it names."""
    python = placement.python
    options = {
        "--nnodes": str(len(placement.nodes)),
        "--nproc-per-node": str(node.rank_count),
        "--rdzv-backend": "static",
        "--node-rank": str(node.node_rank),
        "--master-addr": placement.head.address,
        "--master-port": str(placement.port),
        # Without it the agent publishes its host's name, and peers hang where that does not resolve.
        "--local-addr": node.address,
        # Without it each agent leaves a folder in /tmp.
        "--log-dir": f"{placement.node_dir}/attempt/agent",
    }
    # -IS: the program that redirects a rank needs no virtual environment, and starts faster without it.
    rank = ["--no-python", python, "-IS", runtime(placement.node_dir), "rank", *job.command]
    argv = [python, runtime(placement.node_dir), "agent", "torch.distributed.run", *words(options), *rank]
    env = common_environment(job, placement, node)
    log = agent_log(placement.node_dir, node.node_rank)
    return [
        Process(
            "agent",
            tuple(node.ranks),
            tuple(argv),
            log,
            env,
            numbered=_NUMBERED,
            lists_nodes=("--master-addr", "MASTER_ADDR"),
        )
    ]
