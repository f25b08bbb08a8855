# SPDX-License-Identifier: Apache-2.0
"""Find which bus bandwidth a benchmark should reach: from the hardware, a site's own baseline, or a given number.

Pure. GB/s are 1e9 bytes a second, as nccl-tests print them; rates of NICs are Gb/s. Every expected value names its
source; without an expected value, NoFigure says why.

A node is a dict with `host`, `networks` (what library/network_info returns), `gpus` (each with `model` or `name`, and
`link_gen_max`, `link_width_max` where known) and `interface`, by which the node takes part in jobs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..base.findings import host_list
from ..base.shapes import MAYBE_TEXT, Each, Is, finite, misfit
from ..base.state_format import DamagedError, loads
from ..hardware.interfaces import RdmaPort

Node = Mapping[str, Any]

FRACTION = 0.9
# busbw = algbw x factor, of nccl-tests' doc/PERFORMANCE.md and its sources.
_ALL_BUT_ONE = ("all_gather", "reduce_scatter", "alltoall", "alltoallv", "gather", "scatter")
_AS_MEASURED = ("broadcast", "reduce", "sendrecv", "hypercube")
# By collective, the busbw as a part of the rate at which a node sends to the others. NCCL works in rings; the bytes of
# gloo and Open MPI 4.1 were counted, and a missing one depends on its algorithm. PyTorch's gloo makes a reduce_scatter
# of an all_reduce.
_PARTS: Mapping[str, Mapping[str, float]] = {
    "nccl": dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"), 1.0),
    "gloo": {"all_reduce": 1.0, "all_gather": 1.0, "reduce_scatter": 0.5},
    "mpi": {"all_reduce": 1.0, "all_gather": 1.0},
}
# Each rank sends to others by itself: by its share of the node's links (alltoall), or by one of them (sendrecv).
_EXCHANGES = ("alltoall", "sendrecv")
# An estimate, not measured here: many flows meet at one port.
_OF_EXCHANGE = 0.75

# Figures that vendors and operators report for large messages between the 8 GPUs of one machine: for all_reduce, which
# NVLink SHARP adds up in the switch, and for others; and whether a switch joins them.
_NVLINK_8 = (
    (re.compile(r"\bV100\b.*\bSXM[23]\b"), "V100 SXM", 130.0, 130.0, False),
    (re.compile(r"\bA100\b.*\bSXM4\b"), "A100 SXM4", 235.0, 235.0, True),
    (re.compile(r"\bH100\b.*(?:\bSXM5\b|\bHBM3\b)"), "H100 SXM5", 480.0, 360.0, True),
    (re.compile(r"\bH200\b(?!.*\bNVL\b)"), "H200 SXM", 480.0, 360.0, True),
)
# Cards whose only way to each other is PCIe, or a bridge between two of them. Nothing is assumed of others.
_CARDS = re.compile(r"\b(?:PCIe|P4|P40|T4|A2|A10G?|A16|A30|A40|L2|L4|L20|L40[GS]?|RTX|GeForce|Quadro)\b", re.I)
# 12 of 12.5 GB/s on one 100 Gb/s NIC, 192 of 200 on 8 of 200 Gb/s, 384 of 400 on 8 of 400 Gb/s.
_OF_RDMA_RATE = 0.96
# What headers and acknowledgements leave of an Ethernet's rate, and what the kernel's TCP makes of fast NICs.
_OF_TCP_RATE = 0.9
_MAX_TCP = 5.0
# Up to here the NIC is what limits gloo and MPI, beyond it their own copying.
_SLOW_NIC_GBPS = 10.0
# Bytes a second of one lane by generation, after line coding: 8, 16, 32 and 64 GT/s.
_PCIE_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# Share of PCIe's rate that packet headers leave, for one direction, and for a ring through the CPU without NVLink.
_OF_PCIE = 0.85
_OF_PCIE_RING = 0.6


@dataclass(frozen=True)
class Expected:
    """A bus bandwidth in GB/s, the fraction of it that has to be reached, and where it comes from."""

    busbw: float
    fraction: float
    source: str

    @property
    def gate(self) -> float:
        """Return the least that passes."""
        return self.busbw * self.fraction

    def as_dict(self) -> dict[str, Any]:
        """Return it as the record of a benchmark has it."""
        return {**asdict(self), "gate": round(self.gate, 3)}


@dataclass(frozen=True)
class NoFigure:
    """Why no bandwidth can be expected: there is no figure for such hardware, or it has a rate that was `unread`."""

    why: str
    unread: bool = False


# GB/s, and the rule that they come from.
Figure = tuple[float, str]


def factor(collective: str, ranks: int) -> float | None:
    """Return busbw / algbw; None for a collective that is not known."""
    if ranks < 1:
        return None
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in _ALL_BUT_ONE:
        return (ranks - 1) / ranks
    return 1.0 if collective in _AS_MEASURED else None


def active_ports(node: Node) -> list[RdmaPort]:
    """Return the RDMA ports that a job uses: the active ones, of InfiniBand where there is any."""
    active = [port for port in (node.get("networks") or {}).get("rdma", []) if port["active"]]
    return [port for port in active if port["link_layer"] == "InfiniBand"] or active


def _model(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("model") or gpu.get("name") or "").replace("-", " ")


def _pcie(gpu: Mapping[str, Any]) -> float | None:
    """Return GB/s of a GPU's PCIe link in one direction, None where generation or width are not known."""
    lane, width = _PCIE_LANE.get(int(gpu.get("link_gen_max") or 0)), int(gpu.get("link_width_max") or 0)
    return lane * width if lane and width else None


def _inside(node: Node, collective: str, ranks: int) -> Figure | NoFigure:
    """Return what the GPUs of one node reach among themselves."""
    gpus = list(node.get("gpus") or [])
    if not gpus:
        return NoFigure(f"{node['host']} has no GPU, and nothing is known of traffic inside a node")
    models = Counter(_model(gpu) for gpu in gpus)
    if len(models) > 1:
        return NoFigure(f"{node['host']} has GPUs of {len(models)} models")
    model = next(iter(models))
    exchange = collective in _EXCHANGES
    known = next((figure[1:] for figure in _NVLINK_8 if figure[0].search(model)), None)
    if known and ranks == len(gpus) == 8 and (known[3] or not exchange):
        value = known[1] if collective == "all_reduce" else known[2] * (_OF_EXCHANGE if exchange else 1)
        return value, f"8 x {known[0]} over NVLink: figure for large messages"
    if known or exchange or not _CARDS.search(model):
        return NoFigure(f"there is no figure for {ranks} of {len(gpus)} x {model or 'an unknown GPU'}")
    links = [_pcie(gpu) for gpu in gpus]
    slowest = min((link for link in links if link), default=None)
    if slowest is None or None in links:
        return NoFigure(f"PCIe generation and width of {node['host']}'s {model} are not known", unread=True)
    first = min(gpus, key=lambda gpu: _pcie(gpu) or 0.0)
    link = f"{model} over PCIe {first['link_gen_max']} x{first['link_width_max']} ({slowest:.1f} GB/s)"
    share = f"{_OF_PCIE_RING:.0%}"
    return slowest * _OF_PCIE_RING, f"{link}, of which rings through the processor reach about {share}"


def _over_rdma(node: Node, ports: Sequence[RdmaPort], ranks: int) -> Figure | NoFigure:
    """Return what a node's RDMA ports carry for its ranks: a rank drives one port."""
    rates = sorted((port["rate_gbps"] or 0.0 for port in ports), reverse=True)[: max(1, ranks)]
    if not all(rates):
        return NoFigure(f"{node['host']} has an active RDMA port without a rate", unread=True)
    links = [link for link in (_pcie(gpu) for gpu in node.get("gpus") or []) if link]
    limit = min(links, default=0.0) * _OF_PCIE
    values = [rate / 8 * _OF_RDMA_RATE for rate in rates]
    used = [min(value, limit) if limit else value for value in values]
    text = " + ".join(f"{count} x {rate:g} Gb/s" for rate, count in Counter(rates).items())
    layer = ports[0]["link_layer"] or "RDMA"
    source = f"{text} {'RoCE' if layer == 'Ethernet' else layer} a node, of which {_OF_RDMA_RATE:.0%} are reached"
    if used != values:
        source += f", at most {limit:.1f} GB/s each through the GPUs' PCIe"
    return sum(used), source


def _over_tcp(node: Node, backend: str) -> Figure | NoFigure:
    """Return what the kernel's TCP makes of the interface by which the node takes part."""
    name, interface = _interface(node)
    if interface is None:
        why = f"{node['host']} has no interface {name}" if name else f"the interface of {node['host']} is not known"
        return NoFigure(why, unread=True)
    if interface["kind"] not in ("physical", "bond"):
        return NoFigure(f"{name} of {node['host']} is {interface['kind']}: it has no speed of its own")
    if not interface["speed_mbps"]:
        return NoFigure(f"{name} of {node['host']} does not say its speed, as in virtual machines")
    gbps = interface["speed_mbps"] / 1000
    if backend != "nccl" and gbps > _SLOW_NIC_GBPS:
        limit = f"more than {backend or 'this backend'} is known to fill"
        return NoFigure(f"{name} of {node['host']} has {gbps:g} Gb/s, {limit}")
    value, source = gbps / 8 * _OF_TCP_RATE, f"{name} with {gbps:g} Gb/s, of which "
    if value > _MAX_TCP:
        return _MAX_TCP, f"{source}the kernel's TCP makes about {_MAX_TCP:g} GB/s"
    return value, f"{source}TCP makes {_OF_TCP_RATE:.0%}"


def _interface(node: Node) -> tuple[str, Mapping[str, Any] | None]:
    """Return the name of the interface by which the node takes part, and what is known of it."""
    name = str(node.get("interface") or "")
    interfaces = (node.get("networks") or {}).get("interfaces", [])
    return name, next((each for each in interfaces if each["name"] == name), None)


def from_hardware(
    nodes: Sequence[Node], collective: str, backend: str, ranks: int, *, groups: int = 1, fraction: float = FRACTION
) -> Expected | NoFigure:
    """Return what the slowest node allows, or why nothing can be expected.

    `ranks` are those of all nodes; with several groups (NCCL_TESTS_SPLIT) nothing is known.
    """
    if not nodes:
        return NoFigure("the nodes' hardware was not read", unread=True)
    if groups > 1:
        return NoFigure(f"{groups} groups of ranks share the hardware")
    if backend not in _PARTS:
        return NoFigure(f"there are no figures for {backend or 'an unknown backend'}")
    if collective not in _EXCHANGES and collective not in _PARTS[backend]:
        name = f"{collective or 'a collective without a name'} over {backend}"
        return NoFigure(f"how {name} uses the links depends on its algorithm")
    each = max(1, ranks // len(nodes))
    if len(nodes) == 1:
        if backend != "nccl":
            return NoFigure(f"inside one node {backend} uses memory or loopback, which have no rate")
        found = [_inside(nodes[0], collective, ranks)]
    else:
        found = [_between(node, collective, backend, each) for node in nodes]
    missing = [one for one in found if isinstance(one, NoFigure)]
    if missing:
        # A value that could have been read decides: the other hosts' hardware has no figure in any case.
        return next((one for one in missing if one.unread), missing[0])
    figures = [one for one in found if not isinstance(one, NoFigure)]
    least, source = min(figures, key=lambda figure: figure[0])
    if any(value > least for value, _ in figures):
        others = [str(node["host"]) for node, (value, _) in zip(nodes, figures) if value == least]
        source += f" ({host_list(others)}; other nodes have more)"
    return Expected(round(least, 3), fraction, source)


def _between(node: Node, collective: str, backend: str, ranks: int) -> Figure | NoFigure:
    """Return what a node can exchange with others, and not more than its GPUs among themselves."""
    ports = active_ports(node)
    if backend == "mpi" and ports:
        return NoFigure("there are no figures for MPI over RDMA")
    found = _over_rdma(node, ports, ranks) if backend == "nccl" and ports else _over_tcp(node, backend)
    if isinstance(found, NoFigure):
        return found
    value, source = found
    if collective in _EXCHANGES:
        shares = ranks if collective == "alltoall" else min(ranks, len(ports)) if backend == "nccl" and ports else 1
        found = value * _OF_EXCHANGE / shares, f"{source}; {_OF_EXCHANGE:.0%} of 1/{shares} of it for {collective}"
    elif _PARTS[backend][collective] < 1:
        part = _PARTS[backend][collective]
        found = value * part, f"{source}; {part:.0%} of it for {collective} over {backend}"
    alone = backend != "nccl" or ranks == 1
    inside = NoFigure("nothing is sent inside") if alone else _inside(node, collective, ranks)
    return found if isinstance(inside, NoFigure) else min(found, inside, key=lambda figure: figure[0])


# -- baselines

BASELINE_SCHEMA = "trainyard-baseline-1"


def _positive(value: Any) -> None:
    """a number above 0"""
    finite(value)
    if value <= 0:
        raise ValueError(value)


_BASELINES = {
    "schema": Is((BASELINE_SCHEMA,)),
    "entries": Each(
        {
            "busbw": _positive,
            "bytes": int,
            **dict.fromkeys(("?run", "?saved"), MAYBE_TEXT),
            "?latency_us": _positive,
            "?latency_bytes": int,
        }
    ),
}


def _node_hardware(node: Node) -> str:
    models = Counter(_model(gpu) for gpu in node.get("gpus") or [])
    gpus = " + ".join(f"{count} x {model or 'GPU'}" for model, count in sorted(models.items())) or "no GPU"
    rates = Counter((port["link_layer"] or "RDMA", port["rate_gbps"] or 0.0) for port in active_ports(node))
    network = " + ".join(f"{count} x {layer} {rate:g} Gb/s" for (layer, rate), count in sorted(rates.items()))
    if not network:
        _, interface = _interface(node)
        if interface is None:
            network = "unknown network"
        else:
            network = f"{interface['kind']} NIC"
            if interface["kind"] in ("physical", "bond"):
                speed = interface["speed_mbps"]
                network += f" {speed} Mb/s" if speed else " of unknown speed"
    return f"{gpus}, {network}"


def hardware(nodes: Sequence[Node]) -> str:
    """Name the hardware that a baseline holds for; nodes that differ are all named."""
    return " / ".join(sorted({_node_hardware(node) for node in nodes})) or "unknown hardware"


def baseline_key(nodes: Sequence[Node], collective: str, backend: str, hosts: int, ranks: int) -> str:
    """Return the name of a baseline: a bandwidth holds only for the same hardware and the same spread of ranks."""
    each = f"{ranks // hosts}" if hosts and ranks % hosts == 0 else f"{ranks / max(1, hosts):.2f}"
    spread = f"{hosts} host{'' if hosts == 1 else 's'} x {each} rank{'' if each == '1' else 's'}"
    return f"{collective} over {backend}, {spread}, {hardware(nodes)}"


class BaselineError(ValueError):
    """A file of baselines that cannot be used: what was found in it, and what was expected."""


def read_baselines(text: str) -> dict[str, dict[str, Any]]:
    """Read a file of baselines, empty text as none. Raises BaselineError."""
    if not text.strip():
        return {}
    try:
        data: Any = loads(text)
    except DamagedError as error:
        raise BaselineError(str(error)) from None
    if wrong := misfit(data, _BASELINES):
        raise BaselineError(wrong)
    return dict(data["entries"])


def add_baseline(text: str, key: str, entry: Mapping[str, Any]) -> str:
    """Return the file with an entry in place of an older one of that name. Raises BaselineError.

    If one run measured the same several times, as inside each of many equal nodes, the best of them is saved: a slow
    node must not become the measure for the others.
    """
    entries = read_baselines(text)
    old = entries.get(key, {})
    if not (entry.get("run") and old.get("run") == entry["run"] and old["busbw"] >= entry["busbw"]):
        entries[key] = dict(entry)
    return json.dumps({"schema": BASELINE_SCHEMA, "entries": dict(sorted(entries.items()))}, indent=2) + "\n"
