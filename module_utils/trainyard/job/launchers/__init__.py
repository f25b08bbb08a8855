# SPDX-License-Identifier: Apache-2.0
"""Launchers: one small file each, a pure function from job and placement to the processes of every node.

A launcher module has
    check(job, placement) -> list[Finding]                  reasons why this launcher cannot run the job
    processes(job, placement, node) -> list[Process]        the processes of one node; may be none
    files(job, placement, node) -> list[File]               the files that they read; optional
    shared_files(job, placement) -> list[File]              files that are equal on every node; optional
    rank_order(job) -> a key for sorting nodes              only where ranks may not follow the inventory
    starts_by_ssh(job, placement) -> bool                   whether the head logs in to the others, where it does
    RANK_LOG                                                name of a rank's log, where it is not rank_{rank}.log
    starter(job) -> str                                     the program bin/NAME, or the package NAME, of the job's
                                                            environment that starts the ranks; only where there is one
Processes and files that contain addresses of other nodes have `lists_nodes`, so that a spare can replace a node.
A new launcher is a new file and a line in LAUNCHERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...findings.findings import Finding
from ..file.job import Job
from ..placement.placement import Node, Placement
from ..placement.process import RANK_LOG, File, Process
from . import direct, mindspore, mpirun, msrun, oneflow, rank_table, torchrun


class Launcher(Protocol):
    """The functions of a launcher module."""

    def check(self, job: Job, placement: Placement) -> list[Finding]:
        """Return the findings that keep this launcher from running the job on this placement."""

    def processes(self, job: Job, placement: Placement, node: Node) -> list[Process]:
        """Return the processes that the launcher starts on one node."""


def files(launcher: Launcher, job: Job, placement: Placement, node: Node) -> list[File]:
    """Return the files that the launcher's processes on one node read: a hostfile, a rank table."""
    make: Callable[[Job, Placement, Node], list[File]] | None = getattr(launcher, "files", None)
    return make(job, placement, node) if make else []


def shared_files(launcher: Launcher, job: Job, placement: Placement) -> list[File]:
    """Return the files that are the same on every node; they are built and sent once."""
    make: Callable[[Job, Placement], list[File]] | None = getattr(launcher, "shared_files", None)
    return make(job, placement) if make else []


def rank_order(launcher: Launcher, job: Job) -> Callable[[Node], Any] | None:
    """Return the launcher's key for sorting nodes; None for the order of the inventory."""
    make: Callable[[Job], Callable[[Node], Any]] | None = getattr(launcher, "rank_order", None)
    return make(job) if make else None


def starts_by_ssh(launcher: Launcher, job: Job, placement: Placement) -> bool:
    """Tell whether the head starts the processes of the other nodes by ssh, which preflight then tries."""
    check: Callable[[Job, Placement], bool] | None = getattr(launcher, "starts_by_ssh", None)
    return check is not None and check(job, placement)


def starter(launcher: Launcher, job: Job) -> str:
    """Return the program `bin/NAME` or the package `NAME` of the environment that starts the ranks; "" for none."""
    name: Callable[[Job], str] | None = getattr(launcher, "starter", None)
    return name(job) if name else ""


def rank_log_name(launcher: Launcher) -> str:
    """Return the name of a rank's log under this launcher, with `{rank}` in it."""
    return str(getattr(launcher, "RANK_LOG", RANK_LOG))


LAUNCHERS: Mapping[str, Launcher] = {
    "direct": direct,
    "mindspore": mindspore,
    "mpirun": mpirun,
    "msrun": msrun,
    "oneflow": oneflow,
    "rank_table": rank_table,
    "torchrun": torchrun,
}
