# SPDX-License-Identifier: Apache-2.0
"""Read and write the tree of switches as Slurm has it (topology.conf(5)). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster.switches import Path, Topology
from .allocation import expand

_KEYS = ("switchname", "nodes", "switches", "linkspeed")
# Upper bound for switches above one another, and Slurm's for the letters of a name.
_MAX_DEPTH, _MAX_NAME = 16, 64
# The switch above all others: a job would not span switches without a common one. And that of nodes at no known one.
_TOP, _OTHERS = "trainyard-top", "trainyard-others"


def parse(text: str) -> dict[str, Path]:
    """Return the switches above each node from the top, with names as written. Raises ValueError with the line."""
    nodes: dict[str, str] = {}
    above: dict[str, str] = {}
    switches: set[str] = set()
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), start=1):
        words = dict(word.partition("=")[::2] for word in line.partition("#")[0].split())
        fields = {key.lower(): value for key, value in words.items()}
        if not fields:
            continue
        name = fields.get("switchname", "")
        if not name or set(fields) - set(_KEYS) or ("nodes" in fields) == ("switches" in fields) or name in switches:
            expected = "SwitchName=, once for each switch, with Nodes= or Switches="
            raise ValueError(f"line {number} is {line.strip()[:100]!a}, expected {expected}")
        switches.add(name)
        below, into = ("nodes", nodes) if "nodes" in fields else ("switches", above)
        listed = expand(fields[below])
        if not listed or fields[below].count("[") != fields[below].count("]"):
            raise ValueError(f"line {number} has {fields[below][:100]!a}, expected names such as n[1-8],gpu1")
        for each in listed:
            if into.setdefault(each, name) != name:
                raise ValueError(f"line {number} has {each[:100]!a}, which is below {into[each][:100]!a}, too")
    if missing := sorted({*above} - switches):
        raise ValueError(f"no line has SwitchName={missing[0][:100]}, which is below {above[missing[0]][:100]}")
    return {node: _path(switch, above) for node, switch in nodes.items()}


def _path(switch: str, above: Mapping[str, str]) -> Path:
    path = [switch]
    while path[0] in above:
        path.insert(0, above[path[0]])
        if len(path) > _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} switches above one another, up from {switch[:100]!a}")
    return tuple(path)


def lines(topology: Topology, hosts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines of topology.conf for `hosts`: {name, nodes} or {name, switches}; [] without switches of them."""
    paths = {
        host: tuple(switch["path"]) for switch in topology["switches"] for host in switch["hosts"] if host in hosts
    }
    if not paths:
        return []
    names: dict[Path, str] = {}
    below: dict[Path, dict[str, None]] = {}
    for host in hosts:
        path = (_TOP, *(paths.get(host) or (_OTHERS,)))
        for depth in range(1, len(path)):
            below.setdefault(path[:depth], {})[_name(path[: depth + 1], names)] = None
        below.setdefault(path, {})[host] = None
    leaves = {(_TOP, *(paths.get(host) or (_OTHERS,))) for host in hosts}
    ordered = sorted(below, key=lambda path: (path not in leaves, -len(path)))
    return [
        {"name": _name(path, names), "nodes" if path in leaves else "switches": list(below[path])} for path in ordered
    ]


def _name(path: Path, names: dict[Path, str]) -> str:
    """Return a name of its own for a switch, in letters that Slurm takes."""
    if path not in names:
        word = re.sub(r"[^A-Za-z0-9_.-]+", "-", path[-1])[: _MAX_NAME - 6].strip(".-") or "switch"
        taken, number = {*names.values()}, 1
        names[path] = word
        while names[path] in taken:
            number += 1
            names[path] = f"{word}-{number}"
    return names[path]
