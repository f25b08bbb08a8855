# SPDX-License-Identifier: Apache-2.0
"""Slurm's HealthCheckProgram on a node: drain a faulty node, and resume it when the fault is gone.

slurmd runs it as root every HealthCheckInterval, kills it after a minute, and logs its output if it fails. The rules
are in trainyard/slurm/health.py. Exit status 0 means healthy, 1 faults, 2 that the check itself failed and changed
nothing.
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

from ...trainyard.base.state_format import loads
from ...trainyard.hardware.node_health import best_ports
from ...trainyard.slurm.health import HUNG, Decision, Found, Node, check_node, decide, read_node, recall
from ..hardware.device_discovery import read_accelerators
from ..hardware.health_readings import read_devices
from ..hardware.network_discovery import read_networks
from ..hardware.npu_discovery import read_npu
from ..machine.programs import english
from ..machine.tree import Outcome, Tree

SETTINGS = "/etc/trainyard-slurm-health.json"
# Time limits for all tools together, and for each call of scontrol.
_SECONDS, _SLURM_SECONDS = 30, 10


class _HurriedTree(Tree):
    """A machine whose tools share one time limit; `late` has the tools that exceeded it."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.late: set[str] = set()
        self._until = time.monotonic() + _SECONDS

    def command(self, name: str, argv: list[str], timeout: float, as_nobody: bool = False) -> Outcome | None:
        left = min(timeout, self._until - time.monotonic())
        outcome = super().command(name, argv, left, as_nobody) if left > 0 else Outcome(124, "no time left")
        if outcome is not None and outcome.status == 124:
            self.late.add(Path(argv[0]).name)
        return outcome


def _scontrol(*words: str) -> str:
    argv = ["scontrol", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_SLURM_SECONDS, check=False, env=english())
    if done.returncode:
        raise RuntimeError(f"scontrol {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout


def _name() -> str:
    """Return the name of this node in Slurm, which slurmd passes to its programs."""
    host = socket.gethostname().partition(".")[0]
    return os.environ.get("SLURMD_NODENAME") or (_scontrol("show", "aliases", host).split() or [host])[0]


def _disk(settings: Mapping[str, Any]) -> dict[str, str]:
    room = os.statvfs(settings["folder"])
    if room.f_flag & os.ST_RDONLY:
        return {"disk": f"{settings['folder']} is read-only"}
    # Without the present number, so that the text of a fault does not change.
    short = room.f_bavail * room.f_frsize >> 20 < settings["min_disk_mib"]
    return {"disk": f"less than {settings['min_disk_mib']} MiB free in {settings['folder']}"} if short else {}


def _devices(tree: _HurriedTree, node: Node, ports: list[dict[str, Any]], ignored: Sequence[str]) -> Found:
    accelerators = read_accelerators(tree)
    npu = read_npu(tree, accelerators)
    reading = read_devices(tree, accelerators, npu, read_networks(tree), "")
    hung = sorted(tree.late & {"nvidia-smi", "npu-smi"})
    # An incomplete reading is not checked. A driver that hangs is a fault of the node; hccn_tool, which runs three
    # times for each device, may just be slow.
    if hung and node.devices and HUNG not in ignored:
        return Found({HUNG: f"{', '.join(hung)} did not answer within {_SECONDS} s"}, set())
    if hung or "hccn_tool" in tree.late:
        raise TimeoutError(f"{', '.join(sorted(tree.late))} did not answer within {_SECONDS} s")
    ports[:] = best_ports(ports, reading["rdma"])
    return check_node(reading, node.devices, ports, ignored)


def _read(path: str) -> Any:
    try:
        return loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None


def _store(path: str, memory: Mapping[str, Any]) -> None:
    """Write the memory atomically. A read-only disk must not prevent a drain, so it is a warning only."""
    try:
        Path(f"{path}.new").write_text(json.dumps(memory), encoding="utf-8")
        Path(f"{path}.new").replace(path)
    except OSError as error:
        print(f"trainyard: {path} cannot be written: {error}", file=sys.stderr)


def _apply(name: str, decision: Decision) -> None:
    if decision.action == "drain":
        _scontrol("update", f"nodename={name}", "state=drain", f"reason={decision.reason}")
    elif decision.action == "resume":
        _scontrol("update", f"nodename={name}", "state=resume")


def check(settings: Mapping[str, Any], root: str = "/") -> int:
    """Check the node once; `root` is the folder of a captured machine, for tests."""
    name = _name()
    node = read_node(_scontrol("show", "node", name, "-o"))
    tree = _HurriedTree(root)
    memory = recall(_read(settings["memory"]), tree.text("/proc/sys/kernel/random/boot_id"))
    ignored = settings["ignored"]
    found = _devices(tree, node, memory["ports"], ignored)
    found.faults.update({name: text for name, text in _disk(settings).items() if name not in ignored})
    decision = decide(node, found, memory)
    # The order matters: if scontrol fails, the memory must not say that the node was drained.
    _apply(name, decision)
    _store(settings["memory"], decision.memory)
    for fault, text in found.faults.items():
        print(f"{fault}: {text}")
    return 1 if found.faults else 0


def main(argv: Sequence[str]) -> int:
    """Run the program: [SETTINGS [ROOT]]."""
    try:
        settings = json.loads(Path(argv[0] if argv else SETTINGS).read_text(encoding="utf-8"))
        return check(settings, *argv[1:2])
    except Exception as error:
        # Any error is one of the check, not of the node.
        print(f"trainyard: the check of this node failed, nothing was changed: {error!r}", file=sys.stderr)
        return 2
