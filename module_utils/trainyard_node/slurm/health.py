# SPDX-License-Identifier: Apache-2.0
"""Slurm's HealthCheckProgram on a node: drain it when it is sick, resume it when it is well again.

slurmd starts it as root every HealthCheckInterval, ends it after a minute and logs what it prints when it does not end
with 0. The rules are in trainyard/slurm/health.py; here the node is read and Slurm told. Exit status 0: well, 1: there
are faults, 2: the check itself did not finish, and the node stays as it is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.hardware.node_health import best_ports
from ...trainyard.slurm.health import HUNG, Decision, Found, Node, decide, judge_node, read_node, recall
from ..hardware.accelerators import read_accelerators
from ..hardware.device_health import read_devices
from ..hardware.interfaces import read_networks
from ..hardware.npu import read_npu
from ..machine.tree import Outcome, Tree

SETTINGS = "/etc/trainyard-slurm-health.json"
# For all tools together, and for each word with Slurm before and after them.
_SECONDS, _SLURM_SECONDS = 30, 10


class _HurriedTree(Tree):
    """A machine whose tools have to answer within one time for all; those that did not are in `late`."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.late: set[str] = set()
        self._until = time.monotonic() + _SECONDS

    def command(self, name: str, argv: list[str], timeout: float, as_nobody: bool = False) -> Outcome | None:
        left = min(timeout, self._until - time.monotonic())
        outcome = super().command(name, argv, left, as_nobody) if left > 0 else Outcome(124, "no time was left for it")
        if outcome is not None and outcome.status == 124:
            self.late.add(Path(argv[0]).name)
        return outcome


def _scontrol(*words: str) -> str:
    done = subprocess.run(
        ["scontrol", *words], capture_output=True, text=True, timeout=_SLURM_SECONDS, check=False
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"scontrol {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


def _name() -> str:
    """Return what Slurm calls this node: slurmd says it to its programs."""
    host = socket.gethostname().partition(".")[0]
    return os.environ.get("SLURMD_NODENAME") or (_scontrol("show", "aliases", host).split() or [host])[0]


def _disk(settings: Mapping[str, Any]) -> dict[str, str]:
    room = os.statvfs(settings["folder"])
    if room.f_flag & os.ST_RDONLY:
        return {"disk": f"{settings['folder']} is read-only"}
    # Without the number of today, so that the same fault has the same words.
    short = room.f_bavail * room.f_frsize >> 20 < settings["min_disk_mib"]
    return {"disk": f"less than {settings['min_disk_mib']} MiB free in {settings['folder']}"} if short else {}


def _devices(tree: _HurriedTree, node: Node, ports: list[dict[str, Any]], ignored: Sequence[str]) -> Found:
    """Read and judge the devices; learns which ports work."""
    accelerators = read_accelerators(tree)
    npu = read_npu(tree, accelerators)
    reading = read_devices(tree, accelerators, npu, read_networks(tree), "")
    hung = sorted(tree.late & {"nvidia-smi", "npu-smi"})
    # A reading that is not whole is not judged. A driver that hangs is a fault of the node; hccn_tool, which is asked
    # three times for each device, may just be slow.
    if hung and node.devices and HUNG not in ignored:
        return Found({HUNG: f"{', '.join(hung)} did not answer within {_SECONDS} s"}, set())
    if hung or "hccn_tool" in tree.late:
        raise TimeoutError(f"{', '.join(sorted(tree.late))} did not answer within {_SECONDS} s")
    ports[:] = best_ports(ports, reading["rdma"])
    return judge_node(reading, node.devices, ports, ignored)


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _keep(path: str, memory: Mapping[str, Any]) -> None:
    """Write the memory, whole or not at all. A disk that takes no writing must not keep Slurm from being told."""
    try:
        Path(f"{path}.new").write_text(json.dumps(memory), encoding="utf-8")
        Path(f"{path}.new").replace(path)
    except OSError as error:
        print(f"trainyard: {path} cannot be written: {error}", file=sys.stderr)


def _tell(name: str, decision: Decision) -> None:
    if decision.action == "drain":
        _scontrol("update", f"nodename={name}", "state=drain", f"reason={decision.reason}")
    elif decision.action == "resume":
        _scontrol("update", f"nodename={name}", "state=resume")


def check(settings: Mapping[str, Any], root: str = "/") -> int:
    """Look at the node once; `root` is the folder of a captured machine whose devices are read instead, for tests."""
    name = _name()
    node = read_node(_scontrol("show", "node", name, "-o"))
    tree = _HurriedTree(root)
    memory = recall(_read(settings["memory"]), tree.text("/proc/sys/kernel/random/boot_id"))
    ignored = settings["ignored"]
    found = _devices(tree, node, memory["ports"], ignored)
    found.faults.update({name: text for name, text in _disk(settings).items() if name not in ignored})
    decision = decide(node, found, memory)
    # First Slurm, then the memory: what was not told must not be remembered as told.
    _tell(name, decision)
    _keep(settings["memory"], decision.memory)
    for fault, text in found.faults.items():
        print(f"{fault}: {text}")
    return 1 if found.faults else 0


def main(argv: Sequence[str]) -> int:
    """Run the program: [SETTINGS [ROOT]]."""
    try:
        settings = json.loads(Path(argv[0] if argv else SETTINGS).read_text(encoding="utf-8"))
        return check(settings, *argv[1:2])
    except Exception as error:
        # Whatever broke, it is the check and not the node.
        print(f"trainyard: the check of this node broke, nothing was changed: {error!r}", file=sys.stderr)
        return 2
