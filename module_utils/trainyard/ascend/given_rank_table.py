# SPDX-License-Identifier: Apache-2.0
"""Read the rank table that a user gives for a job (job_rank_table); job/placement/job_rank_table.py checks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .rank_table_view import ServerView, View, loads


@dataclass(frozen=True)
class GivenTable:
    """The file's path on the controller, its text, which is sent to the nodes unchanged, and the parsed table."""

    path: str
    text: str
    table: object

    @cached_property
    def servers(self) -> Sequence[ServerView]:
        """The servers in the order of their ranks, as far as the table can be read."""
        servers = View(self.table).servers if isinstance(self.table, dict) else []
        return sorted(servers, key=lambda server: min(server.ranks, default=0))

    @cached_property
    def _place(self) -> dict[str, int]:
        # A server whose server_id is only a name (version 1.2) is known by its host_ip.
        by_host = {host_ip(server): place for place, server in enumerate(self.servers)}
        return {**by_host, **{server.server_id: place for place, server in enumerate(self.servers)}}

    def place(self, address: str) -> int | None:
        """Return the index in `servers` of the node with this address.

        The only server of a table may be 127.0.0.1, as usual generators write it, which matches every node.
        """
        alone = len(self.servers) == 1 and self.servers[0].server_id.startswith("127.")
        return 0 if alone else self._place.get(address)


def host_ip(server: ServerView) -> str:
    """Return a server's host_ip, empty where it has none."""
    value = server.data.get("host_ip")
    return value if isinstance(value, str) else ""


def read(path: str, text: str) -> tuple[GivenTable | None, str]:
    """Read a table's text; return it, or None and why it is no JSON."""
    table, problems = loads(text)
    if problems:
        return None, f"no JSON in {problems[0].host}: {problems[0].found}"
    return GivenTable(path, text, table), ""
