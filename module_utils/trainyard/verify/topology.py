# SPDX-License-Identifier: Apache-2.0
"""Ways between the GPUs and network adapters of a node (`nvidia-smi topo -m`), compared among nodes of one kind.

The expected topology depends on the machine, so most nodes of a group of hardware decide it. A difference is a GPU in
another slot, an adapter behind the other socket, a missing NVLink bridge. A single node is shown, not checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..base.checks import Check
from ..base.findings import counted, grouped, some_of
from ..base.majority import usual
from ..hardware.device_checks import Reading, Rule
from ..hardware.interfaces import natural_order

_MAX_PAIRS = 4


def _pairs(topology: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the way of each pair of devices, once."""
    return {
        (one, other): way
        for one in sorted(topology["links"], key=natural_order)
        for other, way in topology["links"][one].items()
        if natural_order(one) < natural_order(other)
    }


def _odd(nodes: Mapping[str, Mapping[tuple[str, str], str]]) -> dict[str, list[str]]:
    """Return by host the pairs whose way is not that of most hosts; without a usual way, those of all hosts."""
    bad: dict[str, list[str]] = {}
    for pair in sorted({pair for pairs in nodes.values() for pair in pairs}, key=lambda each: natural_order(str(each))):
        ways = {host: pairs.get(pair, "missing") for host, pairs in nodes.items()}
        most = usual(ways.values(), "")
        most = most if 2 * [*ways.values()].count(most) > len(ways) else ""
        for host, own in ways.items():
            if own != most and len(set(ways.values())) > 1:
                others = f", {most} on most" if most else ", and no way that most have"
                bad.setdefault(host, []).append(f"{pair[0]} to {pair[1]} {own}{others}")
    return {host: some_of(texts, _MAX_PAIRS) for host, texts in bad.items()}


def describe(topology: Mapping[str, Any]) -> str:
    """Say in one line how the GPUs of a node are joined: `GPU to GPU NV2 6; GPU to mlx5_0 PIX 2, SYS 2`."""
    between: Counter[str] = Counter()
    nics: dict[str, Counter[str]] = {}
    for (one, other), way in _pairs(topology).items():
        gpus = [name for name in (one, other) if name.startswith("GPU")]
        if len(gpus) == 2:
            between[way] += 1
        elif gpus:
            nics.setdefault(one if other == gpus[0] else other, Counter())[way] += 1
    parts = [("GPU", between)] if between else []
    parts += sorted(nics.items(), key=lambda item: natural_order(item[0]))
    return "; ".join(
        f"GPU to {name} {', '.join(f'{way} {number}' for way, number in sorted(ways.items()))}" for name, ways in parts
    )


_RULE = Rule(
    "GPU topology",
    "the ways between GPUs and adapters that the other nodes of the kind have",
    "GPUs or adapters are joined in another way",
    "look at slots, risers, NVLink bridges and BIOS settings (ACS, NUMA), and at the order of the devices",
    "nvidia-smi topo -m",
)


def check_topology(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Compare the ways of all hosts with several GPUs; `groups` is the group of hardware of each host."""
    # A second reading of the devices alone has no topology.
    hosts = {
        host: reading["topology"] or {"problems": ["nvidia-smi topo -m gives no answer"]}
        for host, reading in readings.items()
        if "topology" in reading and len(reading["gpus"]) > 1
    }
    unanswered = {host: topology["problems"] for host, topology in hosts.items() if topology["problems"]}
    complete = {host: topology for host, topology in hosts.items() if host not in unanswered}
    faults: dict[str, list[str]] = {host: [] for host in complete}
    for group in sorted({groups.get(host, "") for host in complete}):
        members = {host: _pairs(topology) for host, topology in complete.items() if groups.get(host, "") == group}
        faults.update(_odd(members))
    kinds = grouped((describe(topology), host) for host, topology in complete.items())
    found = " | ".join(f"{counted(len(names), 'node')}: {text}" for text, names in kinds.items())
    return _RULE.checks(faults, unanswered, found, inventory)
