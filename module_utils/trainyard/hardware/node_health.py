# SPDX-License-Identifier: Apache-2.0
"""Check the health of one node's devices, with the checks of the verification that need no other node.

Only devices that jobs can get count, and only ports that have worked before: an adapter without a cable is no fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.checks import Check
from .device_checks import device_check
from .device_health import check_devices
from .gpu_rules import PERSISTENCE

# Faults that pass by themselves: a GPU may slow down for a second.
PASSING = ("GPU throttling",)
# The kind of devices of a check, by the start of its name.
_ABOUT = (("GPU", "gpu"), ("NVSwitch", "gpu"), ("NPU", "npu"))
# Fields of an RDMA port that are stored.
PORT = ("device", "port", "state", "physical_state", "rate_gbps", "active")


def best_ports(previous: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return every port that has carried traffic, at the highest rate that it had."""
    best = {(port["device"], port["port"]): dict(port) for port in previous}
    for port in now:
        before = best.get((port["device"], port["port"]))
        if port["active"] and (before is None or (port["rate_gbps"] or 0) > (before["rate_gbps"] or 0)):
            best[port["device"], port["port"]] = {name: port[name] for name in PORT}
    return list(best.values())


def of_node(reading: Mapping[str, Any], devices: Mapping[str, int], ports: Sequence[Mapping[str, Any]]) -> list[Check]:
    """Return the checks of a node that failed or got no answer, compared with its own `ports` at an earlier time.

    `reading` is what device_health.read_devices returns, `devices` the number that jobs can get, by kind (gpu, npu).
    """
    earlier = {**reading, "vendor": "none", "gpus": [], "npus": [], "rdma": ports}
    checks = []
    for check in check_devices({"earlier": earlier, "node": reading}):
        kind = next((kind for begin, kind in _ABOUT if check.name.startswith(begin)), None)
        matters = bool(ports) if kind is None else bool(devices.get(kind))
        if "node" in check.hosts and matters and check.name != PERSISTENCE and check.state in ("fail", "unknown"):
            checks.append(replace(check, found=check.found.removeprefix("node: ")))
    failed = {check.name for check in checks if check.state == "fail"}
    for kind, name, there in (("gpu", "GPUs", "gpus"), ("npu", "NPUs", "npus")):
        expected, answer = devices.get(kind, 0), len(reading[there])
        if answer < expected and name not in failed:
            action = "check the kernel log and the driver of the node; restart the node"
            found, target = f"{answer} of {expected} answer", f"every {name[:-1]} answers"
            checks.append(device_check(name, "fail", found=found, expected=target, action=action))
    return checks
