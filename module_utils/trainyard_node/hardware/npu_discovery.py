# SPDX-License-Identifier: Apache-2.0
"""The Ascend devices of this machine as an HCCL rank table needs them.

No process is started on a machine without Ascend devices. With them, hccn_tool is started three times for each device,
one after the other, as it serves one caller at a time; on A3 also npu-smi once for each.
"""

from __future__ import annotations

import re

from ...trainyard.ascend.ascend_software import read_fields
from ...trainyard.hardware import npu
from ...trainyard.hardware.accelerators import Accelerators
from ..machine.tree import Tree

_ROOT = "/usr/local/Ascend"
_TOOL_SECONDS = 20
_TRIES = 5
_DAVINCI = re.compile(r"^davinci(\d+)$")


def install_path(tree: Tree, component: str, otherwise: str = _ROOT) -> str:
    """Return the folder that `driver` or `firmware` were installed into, as their installer has written down."""
    fields = read_fields(tree.text("/etc/ascend_install.info"))
    return fields.get(f"{component}_install_path_param", "").rstrip("/") or otherwise


def hccn_tool(tree: Tree, device: int, query: str, *words: str) -> npu.Answer | None:
    """Call `hccn_tool -i DEVICE -QUERY` with `words`, by default `-g`; None where it is not installed."""
    # Not in anybody's PATH; containers of the vendor have a copy in /usr/bin.
    programs = (f"{install_path(tree, 'driver')}/driver/tools/hccn_tool", "hccn_tool")
    for _ in range(_TRIES):
        outcome = None
        for program in programs:
            argv = [program, "-i", str(device), f"-{query}", *(words or ["-g"])]
            outcome = tree.command(f"hccn_tool.{query}.{device}", argv, _TOOL_SECONDS)
            if outcome is not None:
                break
        if outcome is None or not npu.busy(outcome.output):
            break
    return None if outcome is None else npu.Answer(*outcome)


def _port(tree: Tree, device: int) -> npu.Port | None:
    answer = hccn_tool(tree, device, "ip")
    if answer is None:
        return None
    return npu.Port(answer, hccn_tool(tree, device, "link"), hccn_tool(tree, device, "net_health"))


def _visible(tree: Tree) -> str | None:
    """Return ASCEND_RT_VISIBLE_DEVICES of this process."""
    for entry in (tree.text("/proc/self/environ") or "").split("\0"):
        name, _, value = entry.partition("=")
        if name == "ASCEND_RT_VISIBLE_DEVICES":
            return value
    return None


def read_npu(tree: Tree, accelerators: Accelerators, *, alone: bool = True) -> npu.Npu | None:
    """Return the Ascend devices; None on a machine that has none.

    `alone`: `problems` and `notes` also have those of the accelerators, such as a broken driver; False for a record
    that holds the accelerators beside it.
    """
    if accelerators["vendor"] != "ascend":
        return None
    devices = accelerators["devices"]
    matches = [_DAVINCI.match(name) for name in tree.names("/dev")]
    nodes = [int(match[1]) for match in matches if match]
    ports: dict[int, npu.Port] = {}
    for physical in npu.physical_ids(devices, nodes):
        port = _port(tree, physical)
        if port is None:
            break
        ports[physical] = port
    spods: dict[tuple[int, int], npu.Answer | None] = {}
    if npu.chip_of(devices) == "a3":
        for device in devices:
            card, chip = device["card"], device["chip"]
            if card is not None and chip is not None:
                argv = ["npu-smi", "info", "-t", "spod-info", "-i", str(card), "-c", str(chip)]
                outcome = tree.command(f"npu-smi.spod-info.{card}.{chip}", argv, _TOOL_SECONDS)
                spods[card, chip] = None if outcome is None else npu.Answer(*outcome)
    found = npu.assemble(
        devices,
        nodes=nodes,
        ports=ports,
        conf=npu.parse_hccn_conf(tree.text("/etc/hccn.conf") or ""),
        spods=spods,
        visible=_visible(tree),
    )
    if alone:
        found["problems"] = [*accelerators["problems"], *found["problems"]]
        found["notes"] = [*accelerators["notes"], *found["notes"]]
    return found
