# SPDX-License-Identifier: Apache-2.0
"""A process of a job: what is started on one node, under which name, and where its ranks write. And its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Process:
    """One supervised process; `ranks` are none for a scheduler, those of all nodes for mpirun."""

    name: str
    ranks: tuple[int, ...]
    argv: tuple[str, ...]
    log: str
    env: dict[str, str] = field(default_factory=dict)
    # Seconds after which it may restart alone; None where only the whole job restarts.
    recover_after_s: int | None = None
    # Variables and options whose values contain addresses of other nodes, which a spare changes.
    lists_nodes: tuple[str, ...] = ()
    # Variables and options whose values change with the nodes that take part, with templates (run/node_numbers.py).
    numbered: Mapping[str, str] = field(default_factory=dict)
    # Whether it runs on the node itself, though its job has an image.
    on_host: bool = False

    def as_dict(self, numbered: bool = False) -> dict[str, Any]:
        """Return the process as it stands in plan.json; `numbered`: the job may go on with fewer nodes."""
        return {
            "name": self.name,
            "ranks": list(self.ranks),
            "argv": list(self.argv),
            "env": self.env,
            "log": self.log,
            "recover_after_s": self.recover_after_s,
            **({"on_host": True} if self.on_host else {}),
            **({"lists_nodes": list(self.lists_nodes)} if self.lists_nodes else {}),
            **({"numbered": dict(self.numbered)} if numbered and self.numbered else {}),
        }


@dataclass(frozen=True)
class File:
    """A file that is in the job's folder before anything starts. `name` is relative to it. Never a secret."""

    name: str
    content: str
    mode: str = "0644"
    # Whether it contains addresses of other nodes, which a spare changes.
    lists_nodes: bool = False
    # For a rank table: the entry of each spare, by its address.
    servers: Mapping[str, Any] = field(default_factory=dict)
    # Lines that change with the nodes that take part, as templates (run/node_numbers.py).
    numbered: tuple[str, ...] = ()

    def as_dict(self, job_dir: str, numbered: bool = False) -> dict[str, Any]:
        """Return the file as it stands in plan.json; `numbered`: the job may go on with fewer nodes."""
        digest = hashlib.sha256(self.content.encode()).hexdigest()
        entry = {"path": f"{job_dir}/{self.name}", "content": self.content, "mode": self.mode, "sha256": digest}
        lists = {"lists_nodes": True, **({"servers": self.servers} if self.servers else {})}
        lines = {"numbered": list(self.numbered)} if numbered and self.numbered else {}
        return {**entry, **(lists if self.lists_nodes else {}), **lines}


def words(options: Mapping[str, str]) -> list[str]:
    """Return options and their values as words of a command."""
    return [word for option in options.items() for word in option]


def host_port(address: str, port: int) -> str:
    """Join address and port, with an IPv6 address in brackets, as URLs and rendezvous endpoints have it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# Name of a rank's log in the job's logs/. A launcher with another usual name defines its own RANK_LOG.
RANK_LOG = "rank_{rank}.log"


def rank_log(job_dir: str, rank: int, name: str = RANK_LOG) -> str:
    """Return the path of a rank's log."""
    return f"{job_dir}/logs/{name.replace('{rank}', str(rank))}"


def agent_log(job_dir: str, node_rank: int) -> str:
    """Return the path of a launcher agent's log (torchrun, msrun, oneflow)."""
    return f"{job_dir}/logs/agent_{node_rank}.log"


def runtime(job_dir: str) -> str:
    """Return the path of the program that runs the monitor and starts the processes."""
    return f"{job_dir}/trainyard.pyz"
