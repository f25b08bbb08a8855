# SPDX-License-Identifier: Apache-2.0
"""Whether one node's devices are well, by the checks of the verification as far as the node can tell alone.

Only a check that fails counts, and only of devices that are handed out, or of ports that have worked: an adapter that
nobody has plugged in is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..findings.checks import Check
from .device_health import judge
from .gpu_rules import PERSISTENCE

# Faults of a moment: a GPU slows down for a second and is well again.
PASSING = ("GPU throttling",)
# Which kind of devices the checks are about, by the beginning of their names.
_ABOUT = (("GPU", "gpu"), ("NVSwitch", "gpu"), ("NPU", "npu"))
# What is kept of an RDMA port.
PORT = ("device", "port", "state", "physical_state", "rate_gbps", "active")


def best_ports(known: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every port that has carried traffic, at the highest rate that it had."""
    best = {(port["device"], port["port"]): dict(port) for port in known}
    for port in now:
        before = best.get((port["device"], port["port"]))
        if port["active"] and (before is None or (port["rate_gbps"] or 0) > (before["rate_gbps"] or 0)):
            best[port["device"], port["port"]] = {name: port[name] for name in PORT}
    return list(best.values())


def of_node(reading: Mapping[str, Any], devices: Mapping[str, int], ports: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks of a node that failed or got no answer, beside itself as it was when its `ports` were well.

    `reading` is what device_health.read_devices returns, `devices` how many are handed out, by kind (gpu, npu).
    """
    earlier = {**reading, "vendor": "none", "gpus": [], "npus": [], "rdma": ports}
    checks = []
    for check in judge({"earlier": earlier, "node": reading}):
        kind = next((kind for begin, kind in _ABOUT if check.name.startswith(begin)), None)
        matters = bool(ports) if kind is None else bool(devices.get(kind))
        if "node" in check.hosts and matters and check.name != PERSISTENCE and check.state in ("fail", "unknown"):
            checks.append(replace(check, found=check.found.partition(": ")[2]))
    failed = {check.name for check in checks if check.state == "fail"}
    for kind, name, there in (("gpu", "GPUs", "gpus"), ("npu", "NPUs", "npus")):
        wanted, answer = devices.get(kind, 0), len(reading[there])
        if answer < wanted and name not in failed:
            checks.append(
                Check(
                    phase="devices",
                    name=name,
                    state="fail",
                    found=f"{answer} of {wanted} answer",
                    expected=f"every {name[:-1]} answers",
                    action="see the kernel log of the node; restart the node, look at its driver",
                )
            )
    return checks
