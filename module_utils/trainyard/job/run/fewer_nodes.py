# SPDX-License-Identifier: Apache-2.0
"""Number nodes and ranks anew when a job goes on with fewer nodes than planned (job_min_nodes).

A place is the node rank in the plan; a spare may have taken it. Places that nobody has are `absent`. The others keep
their order, so that ranks stay contiguous, and the first place is never absent. The head decides which places are
absent and sends them with each restart; every node derives its own ranks, variables, options and files from its plan.

The plan marks what changes: `numbered` of a process has variables and options with templates, `numbered` of a file has
lines. The names of their fields are those of Numbers, and `rank` in a process of one rank. What lists nodes
(`lists_nodes`) has one entry for each place.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple

from ...ascend.rank_table_servers import dumps, without_servers
from . import moved_addresses
from .moved_addresses import Moved

Plan = Mapping[str, Any]


class Numbers(NamedTuple):
    """The numbers of one node among those that take part."""

    nodes: int
    node_rank: int
    world_size: int
    first_rank: int


def of_plan(plan: Plan) -> dict[str, Any]:
    """Return what each node plan has of this: the least number of nodes, and the number of ranks of each place."""
    if not plan.get("min_nodes"):
        return {}
    return {"fewer": {"min_nodes": plan["min_nodes"], "ranks": [len(node["ranks"]) for node in plan["nodes"]]}}


def numbers(ranks: Sequence[int], place: int, absent: Collection[int] = ()) -> Numbers:
    """Return the numbers of the node in a place; `ranks` has the number of ranks of each place."""
    left = [at for at in range(len(ranks)) if at not in absent]
    before = [at for at in left if at < place]
    return Numbers(len(left), len(before), sum(ranks[at] for at in left), sum(ranks[at] for at in before))


def own_ranks(ranks: Sequence[int], place: int, absent: Collection[int] = ()) -> list[int]:
    """Return the ranks of the node in a place; none where the place is absent."""
    first = numbers(ranks, place, absent).first_rank
    return [] if place in absent else list(range(first, first + ranks[place]))


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
            argv[at] = _kept(argv[at], absent)
        if name in env:
            env[name] = _kept(env[name], absent)
    return {**planned, **_named(planned, rank_log, own, now), "ranks": own, "argv": argv, "env": env}


def _filled(template: str, own: Numbers, ranks: Sequence[int]) -> str:
    return template.format(**own._asdict(), rank=ranks[0] if ranks else 0)


def _named(planned: Plan, rank_log: str, own: Sequence[int], now: Numbers) -> dict[str, str]:
    """Return name and log of a process, which have the number of its first rank or its node."""
    logs = posixpath.dirname(planned["log"])
    if planned["name"].startswith("rank"):
        return {"name": f"rank{own[0]}", "log": f"{logs}/{rank_log.replace('{rank}', str(own[0]))}"}
    return {"log": f"{logs}/agent_{now.node_rank}.log"} if planned["name"] == "agent" else {}


def _kept(entries: str, absent: Collection[int]) -> str:
    """Return a list with commas, one entry for each place, without those of absent places."""
    return ",".join(entry for at, entry in enumerate(entries.split(",")) if at not in absent)


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
    made = [process(each, node_plan["rank_log"], ranks, place, absent) for each in planned_processes(node_plan)]
    written = []
    for each in filter(changes, node_plan.get("files", ())):
        content = file(each, ranks, place, absent)
        written.append((each, moved_addresses.file(each, content, moved)))
    return [moved_addresses.process(each, moved) for each in made], written


def planned_processes(node_plan: Plan) -> Sequence[Plan]:
    """Return the processes of a node before any node was left out."""
    found: Sequence[Plan] = node_plan["planned"] if "planned" in node_plan else node_plan["processes"]
    return found


def place_of(node_plan: Plan) -> int | None:
    """Return the place of a node; None for a spare that has taken none."""
    if "places" in node_plan:
        return node_plan.get("place")
    return int(node_plan["node_rank"])


class Fewer:
    """The places of a job that are absent, as its head keeps them."""

    def __init__(self, fewer: Mapping[str, Any] | None, previous: Mapping[str, int] | None = None) -> None:
        """Take `fewer` of the node plan, None where the job needs all nodes; `previous` is left_out before a reboot."""
        self._least = int((fewer or {}).get("min_nodes", 0))
        self._ranks: list[int] = list((fewer or {}).get("ranks", ()))
        # Places by the hosts that were left out.
        self.left_out: dict[str, int] = dict(previous or {})

    @property
    def absent(self) -> list[int]:
        """Return the absent places, in order."""
        return sorted(self.left_out.values())

    @property
    def world_size(self) -> int:
        """Return the number of ranks; 0 where the job needs all nodes."""
        return sum(count for place, count in enumerate(self._ranks) if place not in self.absent)

    def hosts(self, members: Sequence[str]) -> list[str]:
        """Return the hosts of all places; `members` are those that take part, in order."""
        found = list(members)
        for host in sorted(self.left_out, key=self.left_out.__getitem__):
            found.insert(self.left_out[host], host)
        return found

    def may_leave_out(self, hosts: Collection[str], members: Sequence[str]) -> bool:
        """Return whether the job may go on without these members."""
        enough = self._least and len(members) - len(hosts) >= self._least
        return bool(enough and hosts) and set(hosts) <= set(members[1:])

    def leave_out(self, hosts: Iterable[str], members: MutableSequence[str]) -> None:
        """Leave members out."""
        all_hosts = self.hosts(members)
        for host in hosts:
            self.left_out[host] = all_hosts.index(host)
            members.remove(host)

    def take_back(self, hosts: Collection[str], members: MutableSequence[str]) -> None:
        """Have hosts that were left out take part again in their places."""
        all_hosts = self.hosts(members)
        self.left_out = {host: place for host, place in self.left_out.items() if host not in hosts}
        members[:] = [host for host in all_hosts if host not in self.left_out]

    def ranks_of(self, members: Sequence[str]) -> dict[str, list[int]]:
        """Return the ranks of each member."""
        places = [place for place in range(len(self._ranks)) if place not in self.absent]
        return {host: own_ranks(self._ranks, place, self.absent) for host, place in zip(members, places)}

    def entry(self, hosts: Sequence[str], members: Sequence[str], what: str) -> dict[str, Any]:
        """Return what the restart history has of hosts that were `left_out`, or came `back`."""
        return {what: list(hosts), "world_size": self.world_size, "nodes": len(members)}


def history_text(restart: Mapping[str, Any]) -> str:
    """Return what a restart changed about the nodes that take part, "" for nothing."""
    size = f"{restart['world_size']} ranks on {restart['nodes']} nodes" if restart.get("world_size") else ""
    size = size.replace("on 1 nodes", "on 1 node")
    back, out = (", ".join(restart.get(name) or ()) for name in ("back", "left_out"))
    texts = [f"{back} takes part again"] if back and "," not in back else [f"{back} take part again"] if back else []
    texts += [f"the job goes on without {out}"] if out else []
    return f"; {', '.join(texts)}: {size}" if texts else ""


def world_sizes(planned: int, nodes: int, history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the number of ranks and nodes over time, from the restart history; empty where it never changed.

    `elapsed_s` is when the nodes began to gather with these numbers.
    """
    found = [{"elapsed_s": 0.0, "world_size": planned, "nodes": nodes}]
    for restart in history:
        if restart.get("world_size"):
            found.append({name: restart[name] for name in ("elapsed_s", "world_size", "nodes")})
    return found if len(found) > 1 else []


def world_sizes_text(sizes: Sequence[Mapping[str, Any]], clock: Any) -> str:
    """Return world_sizes() as a line; "" for none."""
    parts = [f"{each['world_size']} from {clock(each['elapsed_s'] or 0.0)}" for each in sizes]
    return f"world size  {', '.join(parts)}" if parts else ""
