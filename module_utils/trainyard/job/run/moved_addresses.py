# SPDX-License-Identifier: Apache-2.0
"""Addresses of nodes in what a launcher tells its processes, once spares have taken the places of some.

A hostfile, a list of machines: it is planned with the nodes that the job begins with, and has the spare's address
where that of the node was that it replaced. `moved` has the new address by the old one, in the order in which spares
were taken, so that a spare may be replaced, too; whoever was replaced never comes back, so that it can be applied to
what it was applied to before. Launchers say what of theirs has addresses (`lists_nodes` of Process and File): in the
user's own command and environment nothing is changed. A rank table has more of a server than its address: what each
spare has stands beside it (`servers` of File).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ...ascend.rank_table_servers import dumps, with_servers

Moved = Mapping[str, str]


def whole(address: str) -> str:
    """Return the pattern of an address that is no part of another one."""
    return rf"(?<![\w.:]){re.escape(address)}(?![\w.])"


def text(told: str, moved: Moved) -> str:
    """Return a text with the addresses of those who take part now."""
    for old, new in moved.items():
        told = re.sub(whole(old), new, told)
    return told


def file(planned: Mapping[str, Any], content: str, moved: Moved) -> str:
    """Return the content of a file, as it stands in a plan, as it is with those who take part now.

    Raises ValueError where it should be a rank table, and is none.
    """
    if not planned.get("lists_nodes"):
        return content
    servers = planned.get("servers") or {}
    if not servers:
        return text(content, moved)
    try:
        table = json.loads(content)
        now = {entry["server_id"]: _now(entry["server_id"], moved) for entry in table["server_list"]}
        return dumps(
            with_servers(table, {name: servers[address] for name, address in now.items() if address in servers})
        )
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no rank table: {type(error).__name__} {error}") from None


def _now(address: str, moved: Moved) -> str:
    """Return the address of who has the place now of the node that was planned with this one."""
    for old, new in moved.items():
        address = new if address == old else address
    return address


def process(planned: Mapping[str, Any], moved: Moved) -> dict[str, Any]:
    """Return a process, as it stands in a plan, with the addresses of those who take part now."""
    names = planned.get("lists_nodes", ())
    argv, env = list(planned["argv"]), planned["env"]
    for name in names:
        if name in argv:
            # The launcher's own option stands before the command, which may have one of that name.
            at = argv.index(name) + 1
            argv[at] = text(argv[at], moved)
    told = {name: text(env[name], moved) for name in names if name in env}
    return {**planned, "argv": argv, "env": {**env, **told}}
