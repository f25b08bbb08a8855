# SPDX-License-Identifier: Apache-2.0
"""Which nodes are at which switch, as LLDP and InfiniBand name them, and the order of nodes that follows. Pure.

A topology is `{source, reason, switches}`; a switch `{path, hosts}`, where `path` names the switches above it from the
top, and itself last. Without switches `reason` says why: the cluster is flat, or its switches do not show.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import counted, grouped, some_of
from ..base.shapes import Is, Shape
from ..base.visible import one_line

Topology = Mapping[str, Any]
Path = tuple[str, ...]

SOURCES = {
    "file": "the file trainyard_topology",
    "ibnetdiscover": "ibnetdiscover",
    "lldp": "LLDP",
    "pairs": "measured pairs",
}
SHAPE: Shape = {"source": Is(tuple(SOURCES)), "reason": str, "switches": [{"path": [str], "hosts": [str]}]}
# A channel adapter and the switch that it is linked with, as ibnetdiscover -p prints them: the descriptions are those
# of the node, such as 'n1 mlx5_0', and of the switch.
_LINK = re.compile(
    r"CA\s+\d+\s+\d+\s+0x[0-9a-f]+\s.*-\s+SW\s+\d+\s+\d+\s+(0x[0-9a-f]+)\s+\(\s*'(.*?)'\s+-\s+'(.*?)'\s*\)"
)
_MAX_NAME, _MAX_SIZES, _MAX_LINE = 64, 8, 512


def topology(source: str, paths: Mapping[str, Sequence[str]], hosts: Sequence[str], reason: str = "") -> dict[str, Any]:
    """Return the topology of `hosts`, whose `paths` may be of more; switches come in the order of their first hosts."""
    known = grouped((tuple(paths[host]), host) for host in hosts if paths.get(host))
    return {"source": source, "reason": reason, "switches": [{"path": list(p), "hosts": of} for p, of in known.items()]}


def text(found: Topology) -> str:
    """Say in a line what is known: `2 switches by LLDP: leaf1 with 2 nodes, leaf2 with 2 nodes`."""
    if not found["switches"]:
        return str(found["reason"])
    each = [f"{switch['path'][-1]} with {counted(len(switch['hosts']), 'node')}" for switch in found["switches"]]
    words = ("group", "groups") if found["source"] == "pairs" else ("switch", "switches")
    number, by = counted(len(each), *words), SOURCES[found["source"]]
    return f"{number} by {by}: {', '.join(some_of(each, _MAX_SIZES))}"


def ordered(hosts: Sequence[str], found: Topology) -> list[str]:
    """Return hosts with those of a switch together: switches in the order of their first hosts, on each level."""
    paths = {host: tuple(switch["path"]) for switch in found["switches"] for host in switch["hosts"]}
    first: dict[Path, int] = {}
    above = [[paths.get(host, ())[:depth] for depth in range(1, len(paths.get(host, ())) + 1)] for host in hosts]
    for at, each in enumerate(above):
        for path in each:
            first.setdefault(path, at)
    return [hosts[at] for at in sorted(range(len(hosts)), key=lambda at: (*(first[path] for path in above[at]), at))]


def of_nodes(nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the topology that nodes read (read_machine); None where most of them know no switch.

    InfiniBand comes first, as jobs use it. Each of several adapters may be at a switch of its own.
    """
    read = {str(node["host"]): node for node in nodes}
    # What one of the nodes that were asked says of others holds if the other one says so, too.
    fabrics = [each for node in read.values() if isinstance(each := node.get("fabric"), dict) and each]
    fabric = {name: at for name, at in (fabrics or [{}])[0].items() if all(each.get(name) == at for each in fabrics)}
    names = grouped((_short(str(node.get("hostname") or "")), host) for host, node in read.items())
    linked = {of[0]: str(fabric[name]) for name, of in names.items() if name in fabric and len(of) == 1}
    neighbors = {host: str(node["switch"]) for host, node in read.items() if node.get("switch")}
    for source, switch_of in (("ibnetdiscover", linked), ("lldp", neighbors)):
        if 2 * len(switch_of) > len(read):
            return topology(source, {host: [switch] for host, switch in switch_of.items()}, list(read))
    return None


def _short(hostname: str) -> str:
    return hostname.partition(".")[0].lower()


def joined(names: Iterable[str]) -> str:
    """Return one name for all switches of a node, or of the two that a bond is linked with."""
    text = "+".join(sorted(set(names)))
    # Two long names that begin alike stay two.
    return text if len(text) <= _MAX_NAME else f"{text[: _MAX_NAME - 9]}-{zlib.crc32(text.encode()):08x}"


def parse_neighbors(output: str) -> dict[str, str]:
    """Return the switch of each interface from `lldpctl -f json`. Raises ValueError for other output.

    One interface is an object there, several are a list; a neighbor without a name has its fields in place of it.
    """
    try:
        found = json.loads(output)["lldp"].get("interface") or []
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"no output of lldpctl -f json: {error}") from None
    switches: dict[str, str] = {}
    for entry in found if isinstance(found, list) else [found]:
        for interface, neighbor in entry.items() if isinstance(entry, dict) else ():
            chassis = neighbor.get("chassis") if isinstance(neighbor, dict) else None
            if isinstance(chassis, dict) and isinstance(chassis.get("id"), dict):
                chassis = {str(chassis["id"].get("value") or ""): chassis}
            for name, about in chassis.items() if isinstance(chassis, dict) else ():
                if name and isinstance(about, dict) and _forwards(about):
                    switches.setdefault(interface, one_line(str(name), _MAX_NAME))
    return switches


def _forwards(chassis: Mapping[str, Any]) -> bool:
    """Return whether a neighbor forwards packets; another server or an adapter's own processor does not."""
    found = chassis.get("capability")
    known = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]
    return not known or any(each.get("enabled") and each.get("type") in ("Bridge", "Router") for each in known)


def parse_fabric(output: str) -> dict[str, str]:
    """Return the switch of each host name, or all of its adapters' joined, from `ibnetdiscover -p`.

    A switch is called by its description where no other has the same, else by its number (GUID).
    """
    lines = (line for line in output.splitlines() if len(line) <= _MAX_LINE)
    links = [match.groups() for line in lines if (match := _LINK.match(line))]
    numbers = {name: {guid for guid, _, other in links if other == name} for _, _, name in links}
    at = grouped(
        (_short(node.split()[0]), one_line(name) if name and len(numbers[name]) == 1 else guid)
        for guid, node, name in links
        if node.split()
    )
    return {host: joined(names) for host, names in at.items()}
