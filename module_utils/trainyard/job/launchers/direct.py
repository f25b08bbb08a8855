# SPDX-License-Identifier: Apache-2.0
"""Launcher `direct`: every rank is a process of its own, without an agent.

For programs that read RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as PyTorch's `env://` initialization
does; and, with one process on each node, for scripts that call a launcher with NNODES and NODE_RANK.
"""

from __future__ import annotations

from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment, rank_process
from ..placement.process import Process


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return a process per rank of the node."""
    # A script may call mpirun: its daemons on other nodes get the mark of the job by these, in Open MPI 4 and 5.
    mark = f"env TRAINYARD_JOB_ID={placement.job_id}"
    agents = {"OMPI_MCA_orte_launch_agent": f"{mark} orted", "PRTE_MCA_prte_launch_agent": f"{mark} prted"}
    common = {"NODE_RANK": str(node.node_rank), **agents, **common_environment(job, placement, node)}
    if placement.world_size == len(placement.nodes):
        # With it some programs start a launcher by themselves, which must be the only one on its node.
        common = {"NNODES": str(len(placement.nodes)), **common}
    return [rank_process(job, placement, node, rank, common) for rank in node.ranks]
