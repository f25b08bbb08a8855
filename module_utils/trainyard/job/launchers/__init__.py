# SPDX-License-Identifier: Apache-2.0
"""Launchers: one small module each, with pure functions from job and placement to the processes of every node.

Processes and files that contain addresses of other nodes have `lists_nodes`, so that a spare can replace a node.
Options, variables and lines that number nodes and ranks are `numbered`, so that a job can go on with fewer nodes.
To add a launcher, add a module and an entry in LAUNCHERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...base.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement
from ..placement.process import RANK_LOG, File, Process
from . import direct, mindspore, mpirun, msrun, oneflow, rank_table, torchrun


@dataclass(frozen=True)
class Launcher:
    """The functions of a launcher; most have a default."""

    # The processes of one node; may be none.
    processes: Callable[[Job, Placement, Node], list[Process]]
    # Findings that keep the launcher from running the job.
    check: Callable[[Job, Placement], list[Finding]] = lambda *_: []
    # The files that the processes of one node read, and those that are equal on every node.
    files: Callable[[Job, Placement, Node], list[File]] = lambda *_: []
    shared_files: Callable[[Job, Placement], list[File]] = lambda *_: []
    # The key for sorting nodes; None for the order of the inventory.
    rank_order: Callable[[Job], Callable[[Node], Any] | None] = lambda _: None
    # Whether the head logs in to the other nodes, which preflight then tries.
    starts_by_ssh: Callable[[Job, Placement], bool] = lambda *_: False
    # Whether no other node can do what the head does once the head is left out (job_min_nodes).
    needs_head: Callable[[Job, Placement], bool] = lambda *_: False
    # The program `bin/NAME` or the package NAME of the job's environment that starts the ranks; "" for none.
    starter: Callable[[Job], str] = lambda _: ""
    # Name of a rank's log, with {rank} in it.
    rank_log: str = RANK_LOG


LAUNCHERS: Mapping[str, Launcher] = {
    "direct": Launcher(direct.processes),
    "mindspore": Launcher(mindspore.processes, rank_log=mindspore.RANK_LOG),
    "mpirun": Launcher(
        mpirun.processes, mpirun.check, mpirun.files, starts_by_ssh=mpirun.starts_by_ssh, needs_head=mpirun.needs_head
    ),
    "msrun": Launcher(msrun.processes, msrun.check, starter=lambda _: msrun.MODULE, rank_log=mindspore.RANK_LOG),
    "oneflow": Launcher(
        oneflow.processes,
        oneflow.check,
        shared_files=oneflow.shared_files,
        starts_by_ssh=oneflow.starts_by_ssh,
        starter=oneflow.starter,
    ),
    "rank_table": Launcher(
        rank_table.processes, rank_table.check, shared_files=rank_table.shared_files, rank_order=rank_table.rank_order
    ),
    "torchrun": Launcher(torchrun.processes, torchrun.check, starter=lambda _: "torch"),
}
