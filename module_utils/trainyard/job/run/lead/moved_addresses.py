# SPDX-License-Identifier: Apache-2.0
"""Replace the addresses of nodes in hostfiles, arguments and rank tables after spares took their places.

The plan has the addresses of the first nodes. `moved` maps an old address to the new one, in the order in which spares
were chosen, so that a spare can be replaced, too. A replaced node never returns, so applying the map twice is harmless.
Launchers mark what has addresses (`lists_nodes` of Process and File): the user's own command and environment do not
change. A rank table has more of a server than its address: `servers` of File has the entries of the spares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....ascend.rank_table_servers import dumps, with_servers

Moved = Mapping[str, str]


def pattern(address: str) -> str:
    """Return a pattern that matches an address, but not inside another one."""
    return rf"(?<![\w.:]){re.escape(address)}(?![\w.])"


def text(before: str, moved: Moved) -> str:
    """Return a text with the addresses of the present nodes."""
    for old, new in moved.items():
        before = re.sub(pattern(old), new, before)
    return before


def file(planned: Mapping[str, Any], content: str, moved: Moved) -> str:
    """Return the content of a planned file with the present nodes.

    Raises ValueError where it should be a rank table and is none.
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
    """Return the address of the node that now has the place of this one."""
    for old, new in moved.items():
        address = new if address == old else address
    return address


def option_at(argv: Sequence[str], name: str) -> int | None:
    """Return where the value of an option is: behind `--name`, or in the word itself for `--name=`; None without it.

    The launcher's option precedes the command, which may have an option of the same name.
    """
    if name.endswith("="):
        return next((at for at, word in enumerate(argv) if word.startswith(name)), None)
    return argv.index(name) + 1 if name.startswith("-") and name in argv else None


def process(planned: Mapping[str, Any], moved: Moved) -> dict[str, Any]:
    """Return a planned process with the addresses of the present nodes."""
    names = planned.get("lists_nodes", ())
    argv, env = list(planned["argv"]), planned["env"]
    for name in names:
        at = option_at(argv, name)
        if at is not None:
            argv[at] = text(argv[at], moved)
    changed = {name: text(env[name], moved) for name in names if name in env}
    return {**planned, "argv": argv, "env": {**env, **changed}}
