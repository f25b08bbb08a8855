# SPDX-License-Identifier: Apache-2.0
"""The health of this machine's devices in one read: GPUs, NPUs, RDMA ports, network interfaces.

Three processes where there are NVIDIA GPUs (nvidia-smi) and one that reads the kernel log; what npu_discovery.py says
where there are Ascend devices; none elsewhere. Nothing is changed.
"""

from __future__ import annotations

from typing import Any

from ...trainyard.hardware.accelerators import Accelerators
from ...trainyard.hardware.gpu_health import parse_query, parse_xids
from ...trainyard.hardware.gpu_links import parse_nvlinks
from ...trainyard.hardware.interfaces import Networks
from ...trainyard.hardware.npu import Npu
from ..machine.tree import Tree
from .counters import interface_counters, rdma_counters

_TOOL_SECONDS = 60


def _kernel_log(tree: Tree) -> list[str] | None:
    """Return the lines of this boot; None where neither journal nor ring buffer may be read.

    The journal first: the ring buffer forgets. Files that containers share with their machine are no log of theirs.
    """
    journal = ["journalctl", "--dmesg", "--boot", "--quiet", "--no-pager", "--output=cat"]
    for name, argv in (("journalctl.dmesg", journal), ("dmesg", ["dmesg"])):
        outcome = tree.command(name, argv, _TOOL_SECONDS)
        if outcome is not None and outcome.status == 0 and outcome.output.strip():
            return outcome.output.splitlines()
    return None


def _gpus(tree: Tree, accelerators: Accelerators) -> dict[str, Any]:
    if accelerators["vendor"] != "nvidia":
        return {"gpus": [], "nvlinks": None, "xids": None, "problems": []}
    problems = list(accelerators["problems"])
    answer = tree.command("nvidia-smi.q-x", ["nvidia-smi", "-q", "-x"], _TOOL_SECONDS)
    gpus, wrong = parse_query(answer.output) if answer is not None and accelerators["devices"] else ([], "")
    links = tree.command("nvidia-smi.nvlink", ["nvidia-smi", "nvlink", "--status"], _TOOL_SECONDS) if gpus else None
    lines = _kernel_log(tree)
    return {
        "gpus": gpus,
        "nvlinks": None if links is None else parse_nvlinks(links.output),
        "xids": None if lines is None else parse_xids(lines),
        "problems": problems + [text for text in (wrong,) if text],
    }


def read_devices(
    tree: Tree, accelerators: Accelerators, npu: Npu | None, networks: Networks, interface: str
) -> dict[str, Any]:
    """Return the devices' health; `interface` carries the job network and is read also where it is virtual."""
    return {
        "boot_id": tree.text("/proc/sys/kernel/random/boot_id"),
        "vendor": accelerators["vendor"],
        **_gpus(tree, accelerators),
        "npus": npu["devices"] if npu else [],
        "npu_problems": npu["problems"] if npu else [],
        "rdma": [{**port, "counters": rdma_counters(tree, port["device"], port["port"])} for port in networks["rdma"]],
        "interfaces": {
            item["name"]: interface_counters(tree, item["name"])
            for item in networks["interfaces"]
            if item["kind"] == "physical" or item["name"] == interface
        },
    }
