# SPDX-License-Identifier: Apache-2.0
"""The NUMA domains of this machine: the cores of each, and the accelerators that are next to them."""

from __future__ import annotations

from typing import Any

from ...trainyard.hardware.accelerators import Accelerators
from ..machine.tree import Tree

_NODES = "/sys/devices/system/node"


def read_numa(tree: Tree, accelerators: Accelerators) -> list[dict[str, Any]]:
    """Return `cpus` (as the kernel writes them: 0-31,64-95) and the `devices` (indexes) of each domain with cores.

    Devices whose place the firmware does not say (-1) are in none.
    """
    places = {
        device["index"]: (tree.text(f"/sys/bus/pci/devices/{device['pci']}/numa_node") or "").strip()
        for device in accelerators["devices"]
        if device["pci"]
    }
    numbers = sorted(int(name[4:]) for name in tree.names(_NODES) if name.startswith("node") and name[4:].isdecimal())
    cpus = {number: (tree.text(f"{_NODES}/node{number}/cpulist") or "").strip() for number in numbers}
    return [
        {"cpus": cpus[number], "devices": sorted(index for index, place in places.items() if place == str(number))}
        for number in numbers
        if cpus[number]
    ]
