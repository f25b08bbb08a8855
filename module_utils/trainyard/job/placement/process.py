# SPDX-License-Identifier: Apache-2.0
"""A process of a job: what is started on one node, under which name, and where its ranks write. And its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Process:
    """One process that is started and supervised by itself. `log` is a path on the node.

    `ranks` are those whose end is its end: none for a scheduler, those of all nodes for mpirun.
    """

    name: str
    ranks: tuple[int, ...]
    argv: tuple[str, ...]
    log: str
    env: dict[str, str] = field(default_factory=dict)
    # Seconds after its death within which it may come back alone; None: only together with the whole job.
    recover_after_s: int | None = None
    # Variables and options whose values have the addresses of other nodes (moved.py).
    lists_nodes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the process as it stands in plan.json."""
        return {
            "name": self.name,
            "ranks": list(self.ranks),
            "argv": list(self.argv),
            "env": self.env,
            "log": self.log,
            "recover_after_s": self.recover_after_s,
            **({"lists_nodes": list(self.lists_nodes)} if self.lists_nodes else {}),
        }


@dataclass(frozen=True)
class File:
    """A file that is in the job's folder before anything starts. `name` is relative to it. Never a secret."""

    name: str
    content: str
    mode: str = "0644"
    # It has the addresses of other nodes (moved.py).
    lists_nodes: bool = False
    # Of a rank table: that of each spare alone, by its address.
    servers: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self, job_dir: str) -> dict[str, Any]:
        """Return the file as it stands in plan.json."""
        digest = hashlib.sha256(self.content.encode()).hexdigest()
        known = {"path": f"{job_dir}/{self.name}", "content": self.content, "mode": self.mode, "sha256": digest}
        told = {"lists_nodes": True, **({"servers": self.servers} if self.servers else {})}
        return {**known, **(told if self.lists_nodes else {})}


def host_port(address: str, port: int) -> str:
    """Join address and port as URLs and rendezvous endpoints want it: an IPv6 address stands in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# The log of a rank, in the job's logs/. A launcher whose users know another name for it says so as RANK_LOG.
RANK_LOG = "rank_{rank}.log"


def rank_log(job_dir: str, rank: int, name: str = RANK_LOG) -> str:
    """Name the log of a rank. Every launcher keeps to its RANK_LOG, so that progress and logs are found there."""
    return f"{job_dir}/logs/{name.replace('{rank}', str(rank))}"


def agent_log(job_dir: str, node_rank: int) -> str:
    """Name the log of a node's launcher agent, where there is one (torchrun, msrun, oneflow)."""
    return f"{job_dir}/logs/agent_{node_rank}.log"


def runtime(job_dir: str) -> str:
    """Name the program that the agent puts on the node; it runs the monitor and starts the processes."""
    return f"{job_dir}/trainyard.pyz"
