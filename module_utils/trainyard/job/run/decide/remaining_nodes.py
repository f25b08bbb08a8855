# SPDX-License-Identifier: Apache-2.0
"""Keep which nodes take part when a job goes on with fewer than planned (job_min_nodes).

A place is the node rank in the plan; a spare may have taken it. Places that nobody has are `absent`. The others keep
their order, so that ranks stay contiguous. The first of them has the rendezvous, and the processes that a plan has only
in the first place. The head decides which places are absent and sends them with each restart; every node derives its
own part from its plan (node_numbers.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple

from ..logs.progress import clock


class Numbers(NamedTuple):
    """The numbers of one node among those that take part."""

    nodes: int
    node_rank: int
    world_size: int
    first_rank: int


def of_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each node plan has of this.

    That is the least number of nodes, the number of ranks of each place, and the hosts that may be the first.
    """
    if not plan.get("min_nodes"):
        return {}
    first = [node["host"] for node in (*plan["nodes"], *plan.get("spares", ())) if "as_first" in node]
    ranks = [len(node["ranks"]) for node in plan["nodes"]]
    return {"fewer": {"min_nodes": plan["min_nodes"], "ranks": ranks, "first": first}}


def numbers(ranks: Sequence[int], place: int, absent: Collection[int] = ()) -> Numbers:
    """Return the numbers of the node in a place; `ranks` has the number of ranks of each place."""
    left = [at for at in range(len(ranks)) if at not in absent]
    before = [at for at in left if at < place]
    return Numbers(len(left), len(before), sum(ranks[at] for at in left), sum(ranks[at] for at in before))


def own_ranks(ranks: Sequence[int], place: int, absent: Collection[int] = ()) -> list[int]:
    """Return the ranks of the node in a place; none where the place is absent."""
    first = numbers(ranks, place, absent).first_rank
    return [] if place in absent else list(range(first, first + ranks[place]))


class Fewer:
    """The places of a job that are absent, as its head keeps them."""

    def __init__(self, fewer: Mapping[str, Any] | None, previous: Mapping[str, int] | None = None) -> None:
        """Take `fewer` of the node plan, None where the job needs all nodes; `previous` is left_out before a reboot."""
        self._least = int((fewer or {}).get("min_nodes", 0))
        self._ranks: list[int] = list((fewer or {}).get("ranks", ()))
        self._first: Collection[str] = (fewer or {}).get("first", ())
        # Places by the hosts that were left out.
        self.left_out: dict[str, int] = dict(previous or {})

    def as_dict(self) -> dict[str, Any]:
        """Return the state for cluster.json; nothing where the job needs all nodes."""
        return {"left_out": self.left_out} if self._least else {}

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
        left = [host for host in members if host not in hosts]
        enough = self._least and hosts and len(left) == len(members) - len(hosts) >= self._least
        return bool(enough) and (left[0] == members[0] or left[0] in self._first)

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

    def size(self, members: Sequence[str]) -> dict[str, int]:
        """Return the number of ranks and nodes for the restart history."""
        return {"world_size": self.world_size, "nodes": len(members)}

    def ranks_of(self, members: Sequence[str]) -> dict[str, list[int]]:
        """Return the ranks of each member."""
        places = [place for place in range(len(self._ranks)) if place not in self.absent]
        return {host: own_ranks(self._ranks, place, self.absent) for host, place in zip(members, places)}


def size_text(world_size: int, nodes: int) -> str:
    """Return the size of a job in words."""
    return f"{_ranks(world_size)} on {nodes} {'node' if nodes == 1 else 'nodes'}"


def history_text(restart: Mapping[str, Any]) -> str:
    """Return what a restart changed about the nodes that take part, "" for nothing."""
    back, out = restart.get("back") or (), restart.get("left_out") or ()
    texts = [f"{', '.join(back)} {'takes' if len(back) == 1 else 'take'} part again"] if back else []
    texts += [f"the job goes on without {', '.join(out)}"] if out else []
    return f"; {', '.join(texts)}: {size_text(restart['world_size'], restart['nodes'])}" if texts else ""


def left_out_text(restart: Mapping[str, Any]) -> str:
    """Return whom a restart left out, and why, as a line of its own; "" for nobody."""
    text = history_text({**restart, "back": ()}).removeprefix("; ")
    return f"{text} ({restart['why']})" if text else ""


def world_sizes(planned: int, nodes: int, history: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the number of ranks and nodes over time, from the restart history; empty where it never changed.

    `elapsed_s` is when all ranks had started.
    """
    found = [{"elapsed_s": 0.0, "world_size": planned, "nodes": nodes}]
    for restart in history:
        if restart.get("world_size"):
            elapsed_s = restart["elapsed_s"] + (restart.get("restart_s") or 0.0)
            found.append(
                {"elapsed_s": round(elapsed_s, 1), **{name: restart[name] for name in ("world_size", "nodes")}}
            )
    return found if len(found) > 1 else []


def world_sizes_text(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Return world_sizes() as a line; "" for none."""
    return ", ".join(f"{_ranks(each['world_size'])} from {clock(each['elapsed_s'])}" for each in sizes)


def _ranks(count: int) -> str:
    return f"{count} {'rank' if count == 1 else 'ranks'}"
