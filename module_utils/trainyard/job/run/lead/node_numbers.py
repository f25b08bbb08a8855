# SPDX-License-Identifier: Apache-2.0
"""Number the ranks of a node anew when a job goes on with fewer nodes than planned (decide/remaining_nodes.py).

The plan marks what changes: `numbered` of a process has variables and options with templates, `numbered` of a file has
lines. The names of their fields are those of Numbers, and `rank` in a process of one rank. Values and
files that list nodes (`lists_nodes`) have one entry for each place.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ....ascend.rank_table_servers import dumps, without_servers
from ..decide.remaining_nodes import Numbers, numbers, own_ranks
from . import moved_addresses
from .moved_addresses import Moved

Plan = Mapping[str, Any]


def process(planned: Plan, rank_log: str, ranks: Sequence[int], place: int, absent: Collection[int]) -> dict[str, Any]:
    """Return a planned process of the node in a place as it is while some places are absent."""
    before, now = numbers(ranks, place), numbers(ranks, place, absent)
    shift = now.first_rank - before.first_rank
    own = [rank + shift for rank in planned["ranks"]]
    if planned["name"] == "mpirun":
        own = list(range(now.world_size))
    argv, env = list(planned["argv"]), dict(planned["env"])
    for name, template in (planned.get("numbered") or {}).items():
        value = _filled(template, now, own)
        # A variable with another value is the user's own.
        if env.get(name) == _filled(template, before, planned["ranks"]):
            env[name] = value
        at = moved_addresses.option_at(argv, name)
        if at is not None:
            argv[at] = f"{name}{value}" if name.endswith("=") else value
    for name in planned.get("lists_nodes", ()):
        at = moved_addresses.option_at(argv, name)
        if at is not None:
            argv[at] = _kept(argv[at], len(ranks), absent)
        if name in env:
            env[name] = _kept(env[name], len(ranks), absent)
    return {**planned, **_named(planned, rank_log, own, now), "ranks": own, "argv": argv, "env": env}


def _filled(template: str, own: Numbers, ranks: Sequence[int]) -> str:
    return template.format(**own._asdict(), rank=ranks[0] if ranks else 0)


def _named(planned: Plan, rank_log: str, own: Sequence[int], now: Numbers) -> dict[str, str]:
    """Return name and log of a process, which have the number of its first rank or its node."""
    logs = posixpath.dirname(planned["log"])
    if planned["name"].startswith("rank"):
        return {"name": f"rank{own[0]}", "log": f"{logs}/{rank_log.replace('{rank}', str(own[0]))}"}
    return {"log": f"{logs}/agent_{now.node_rank}.log"} if planned["name"] == "agent" else {}


def _kept(text: str, places: int, absent: Collection[int]) -> str:
    """Return a list with commas, one entry for each place, without those of absent places; an address as it is."""
    entries = text.split(",")
    return text if len(entries) != places else ",".join(each for at, each in enumerate(entries) if at not in absent)


def file(planned: Plan, ranks: Sequence[int], place: int, absent: Collection[int]) -> str:
    """Return the content of a planned file of the node in a place as it is while some places are absent."""
    content = str(planned["content"])
    before, now = numbers(ranks, place)._asdict(), numbers(ranks, place, absent)._asdict()
    for line in planned.get("numbered", ()):
        content = content.replace(line.format(**before), line.format(**now), 1)
    if not planned.get("lists_nodes"):
        return content
    if planned["path"].endswith(".json"):
        return dumps(without_servers(json.loads(content), absent))
    return "".join(line for at, line in enumerate(content.splitlines(keepends=True)) if at not in absent)


def changes(planned: Plan) -> bool:
    """Return whether a planned file changes with the nodes that take part."""
    return bool(planned.get("lists_nodes") or planned.get("numbered"))


def of_node(
    node_plan: Plan, absent: Collection[int], moved: Moved
) -> tuple[list[dict[str, Any]], list[tuple[Plan, str]]]:
    """Return the processes of a node while some places are absent, and its files that change, with their content.

    `planned` of the node plan has its processes before any node was left out. `moved` are the addresses of spares.
    """
    ranks, place = node_plan["fewer"]["ranks"], place_of(node_plan)
    if place is None or place in absent:
        return [], []
    more, written = _as_first(node_plan, place, absent), []
    planned = (*more["processes"], *planned_processes(node_plan))
    made = [process(each, node_plan["rank_log"], ranks, place, absent) for each in planned]
    for each in filter(changes, (*node_plan.get("files", ()), *more["files"])):
        content = file(each, ranks, place, absent)
        written.append((each, moved_addresses.file(each, content, moved)))
    return [moved_addresses.process(each, moved) for each in made], written


def _as_first(node: Plan, place: int, absent: Collection[int]) -> Plan:
    """Return the processes and files that a node has besides its own once its place has become the first."""
    nothing: Plan = {"processes": (), "files": ()}
    is_first = place not in absent and all(before in absent for before in range(place))
    return node.get("as_first", nothing) if is_first else nothing


def ranks_of(node_plan: Plan, absent: Collection[int]) -> list[int]:
    """Return the ranks of a node while some places are absent."""
    place = place_of(node_plan)
    return [] if place is None else own_ranks(node_plan["fewer"]["ranks"], place, absent)


def present(plan: Plan, absent: Collection[int]) -> list[dict[str, Any]]:
    """Return the nodes of plan.json with their ranks and processes while some places are absent."""
    if not absent:
        return list(plan["nodes"])
    ranks, nodes = [len(node["ranks"]) for node in plan["nodes"]], []
    for place, node in enumerate(plan["nodes"]):
        planned = () if place in absent else (*_as_first(node, place, absent)["processes"], *node["processes"])
        made = [process(each, plan["rank_log"], ranks, place, absent) for each in planned]
        nodes.append({**node, "ranks": own_ranks(ranks, place, absent), "processes": made})
    return nodes


def planned_processes(node_plan: Plan) -> Sequence[Plan]:
    """Return the processes of a node before any node was left out."""
    found: Sequence[Plan] = node_plan["planned"] if "planned" in node_plan else node_plan["processes"]
    return found


def place_of(node_plan: Plan) -> int | None:
    """Return the place of a node; None for a spare that has taken none."""
    if "places" in node_plan:
        return node_plan.get("place")
    return int(node_plan["node_rank"])
