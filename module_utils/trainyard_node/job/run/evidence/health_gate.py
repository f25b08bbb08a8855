# SPDX-License-Identifier: Apache-2.0
"""Check the health of a node before a job starts on it, and before each restart (job_health_gate).

At the launch the agent runs the checks, mostly as root; before a restart the monitor does, as the training user, and
compares with the start. Values that cannot be read are ignored. The caller adds the host to the findings.
"""

from __future__ import annotations

import math
import os
import pwd
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .....trainyard.base.findings import Finding
from .....trainyard.hardware import node_health, port_counters
from .....trainyard.hardware.accelerators import no_accelerators
from .....trainyard.hardware.interfaces import network_of, port_name
from .....trainyard.hardware.port_counters import Counters
from .....trainyard.nvidia.local_collective import LIMIT_S, fault
from ....hardware.counters import interface_counters, rdma_counters
from ....hardware.device_discovery import read_accelerators
from ....hardware.health_readings import read_devices
from ....hardware.network_discovery import read_networks
from ....hardware.npu_discovery import read_npu
from ....machine.tree import Tree
from ....nvidia import collective_run
from ..ranks.process_table import OWN_TOOL
from .device_holders import held

if TYPE_CHECKING:
    from ....machine.as_user import Owner

NodePlan = Mapping[str, Any]
# Checks whose problems may pass: links recover, somebody makes room.
PASSING = frozenset({*node_health.PASSING, "disk", "memory", "network", "NPU links", "RDMA ports", "RDMA rate"})
# Limits of a job, and the check that compares each with the free amount.
LIMITS = {"job_min_memory_mib": "memory", "job_min_disk_mib": "disk"}
OF_USER = "trainyard_state"
SWITCH = "; job_health_gate: false starts all the same"


class Earlier(NamedTuple):
    """The state before: RDMA ports at their best, messages of tools, error counters of links by name.

    `at` is the time of the counters, in seconds since boot.
    """

    ports: Sequence[Mapping[str, Any]] = ()
    problems: frozenset[str] = frozenset()
    links: Mapping[str, Counters] = MappingProxyType({})
    at: float = 0.0


def disk_findings(node_plan: NodePlan) -> list[Finding]:
    """Find that the job's folder cannot be created, or has no room."""
    folder, limit = _existing(node_plan), node_plan["min_disk_mib"]
    if not os.access(folder, os.W_OK):
        return [_unwritable(folder)]
    free_mib = shutil.disk_usage(folder).free >> 20
    if free_mib >= limit:
        return []
    expected = f"at least {limit} MiB (job_min_disk_mib)"
    return [Finding("disk", f"{free_mib} MiB free in {folder}", expected, "make room, or lower job_min_disk_mib")]


def _existing(node_plan: NodePlan) -> Path:
    """Return the job's folder, or the nearest one above it that exists."""
    folder = Path(node_plan["job_dir"])
    return next(each for each in (folder, *folder.parents) if each.exists())


def _unwritable(folder: Path) -> Finding:
    action = "set trainyard_state to another folder"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        check, found, action = "disk", f"{folder} is mounted read-only", f"mount it read-write, or {action}"
    else:
        # The node is healthy: Ansible has not become root there, or root has no rights on this file system.
        check, found = OF_USER, f"{folder} cannot be written by {pwd.getpwuid(os.geteuid()).pw_name}"
        if os.geteuid():
            action = f"set trainyard_become: true, or {action}"
    return Finding(check, found, "a folder for the files of the job", action)


def limit_findings(tree: Tree, node_plan: NodePlan) -> list[Finding]:
    """Find limits of the job that this node can never meet: then the job is wrong, not the node."""
    min_memory_mib = node_plan["min_memory_mib"] if node_plan["health_gate"] else 0
    limits = {
        "job_min_memory_mib": (min_memory_mib, _memory_mib(tree, "MemTotal:")),
        "job_min_disk_mib": (node_plan["min_disk_mib"], shutil.disk_usage(_existing(node_plan)).total >> 20),
    }
    return [
        Finding(
            name,
            f"{limit} MiB, and this node has {mib} MiB of {LIMITS[name]} in all",
            "a limit that the node can meet",
            f"correct {name}, or choose other nodes",
        )
        for name, (limit, mib) in limits.items()
        # A network or kernel file system may have no size.
        if mib and limit > mib
    ]


def _memory_mib(tree: Tree, name: str) -> int | None:
    """Return a figure of /proc/meminfo, see proc(5)."""
    lines = (line.split() for line in (tree.text("/proc/meminfo") or "").splitlines())
    return next((int(words[1]) >> 10 for words in lines if words[:1] == [name]), None)


def _memory_findings(tree: Tree, node_plan: NodePlan) -> list[Finding]:
    """Find too little memory that is available without swapping."""
    free_mib, limit = _memory_mib(tree, "MemAvailable:"), node_plan["min_memory_mib"]
    if free_mib is None or free_mib >= limit:
        return []
    expected = f"at least {limit} MiB (job_min_memory_mib)"
    action = "see what has it (ps -e --sort=-rss; files in /dev/shm), or lower job_min_memory_mib"
    return [Finding("memory", f"{free_mib} MiB available", expected, action)]


def _network_findings(node_plan: NodePlan, machine: Mapping[str, Any]) -> list[Finding]:
    """Find that the interface of the job's network is down, or lacks the planned address."""
    name, address = str(node_plan.get("interface") or ""), str(node_plan.get("address") or "")
    interfaces = machine["networks"]["interfaces"]
    if not name or not address or not any(each["addresses"] for each in interfaces):
        return []
    interface = next((each for each in interfaces if each["name"] == name), None)
    if not interface:
        found = f"no interface {name}"
    elif not interface["up"]:
        found = f"{name} is down"
    elif not network_of(interfaces, name, address):
        found = f"{name} does not have it"
    else:
        return []
    expected = "the address of the job's network, on an interface that is up"
    action = "see cable and switch port (ip -statistics link), and what sets up the network there"
    return [Finding("network", f"{address}: {found}", expected, action)]


def _device_findings(tree: Tree, node_plan: NodePlan, machine: Mapping[str, Any], earlier: Earlier) -> list[Finding]:
    """Check the job's devices, and the RDMA ports that have worked, as verify.yml does."""
    devices, vendor = list(node_plan["devices"]), machine["accelerators"]["vendor"]
    kinds = {"nvidia": "gpu", "ascend": "npu"}
    if not devices and not earlier.ports:
        return []
    reading = read_devices(tree, machine["accelerators"], machine["npu"] or None, machine["networks"], "")
    reading["gpus"] = [gpu for gpu in reading["gpus"] if gpu["index"] in devices]
    for name in ("problems", "npu_problems"):
        reading[name] = [text for text in reading[name] if text not in earlier.problems]
    expected = {kinds[vendor]: len(devices)} if vendor in kinds else {}
    return [
        Finding(check.name, check.found, check.expected, check.action + SWITCH)
        for check in node_health.of_node(reading, expected, earlier.ports)
        if check.state == "fail"
    ]


def check(tree: Tree, node_plan: NodePlan, machine: Mapping[str, Any], earlier: Earlier | None = None) -> list[Finding]:
    """Return the findings of the health check. `machine` is from read_machine, or has the facts of a node.

    At the launch, without `earlier`, the plan has checked whether the devices answer.
    """
    if earlier is None:
        earlier = Earlier((), frozenset(machine["accelerators"]["problems"]))
    return [
        *disk_findings(node_plan),
        *_memory_findings(tree, node_plan),
        *_network_findings(node_plan, machine),
        *_device_findings(tree, node_plan, machine, earlier),
    ]


def collective_findings(node_plan: NodePlan, owner: Owner | None = None) -> list[Finding]:
    """Run an all-reduce over the job's GPUs here, if nccl-tests are installed and the GPUs are free.

    It runs as `owner`, the job's user, if the caller is root. It takes seconds, so run it after all other checks.
    """
    command, devices = node_plan.get("local_collective"), list(node_plan["devices"])
    if not command or held(devices, -math.inf):
        return []
    # It belongs to the job, and is no rank of it.
    ran = collective_run.run(command, {"TRAINYARD_JOB_ID": str(node_plan["job_id"]), OWN_TOOL: "1"}, owner)
    problem = fault(ran.status, ran.output, len(devices)) if ran else ""
    if not problem:
        return []
    again = shlex.join(["env", *(f"{name}={value}" for name, value in command["env"].items()), *command["argv"]])
    found = f"all-reduce over GPUs {command['env']['CUDA_VISIBLE_DEVICES']}: {problem}"
    action = f"see the GPUs, their links and the kernel's log; run it there: {again}{SWITCH}"
    return [Finding("collective", found, f"right sums within {LIMIT_S:g} s", action)]


def texts(findings: Sequence[Finding]) -> list[str]:
    """Return findings in short, each with the name of its check."""
    return [f"{finding.check}: {finding.found}" for finding in findings]


def read_machine(tree: Tree, node_plan: NodePlan) -> dict[str, Any]:
    """Read networks, and accelerators if the job uses some here."""
    accelerators = read_accelerators(tree) if node_plan["devices"] else no_accelerators()
    return {"accelerators": accelerators, "npu": read_npu(tree, accelerators), "networks": read_networks(tree)}


def note(tree: Tree, node_plan: NodePlan) -> Earlier:
    """Return the state of the node while nothing has failed."""
    machine = read_machine(tree, node_plan)
    problems = [*machine["accelerators"]["problems"], *(machine["npu"] or {}).get("problems", ())]
    ports = node_health.best_ports([], machine["networks"]["rdma"])
    return Earlier(ports, frozenset(problems), links(tree, node_plan, ports), _now())


def later(earlier: Earlier, now: Mapping[str, Counters]) -> Earlier:
    """Return the state for the next attempt, with the present counters."""
    return earlier._replace(links=now, at=_now())


def links(tree: Tree, node_plan: NodePlan, ports: Sequence[Mapping[str, Any]]) -> dict[str, Counters]:
    """Return the error counters of the job's interface and of the working RDMA ports."""
    name = str(node_plan.get("interface") or "")
    found = {name: interface_counters(tree, name)} if name else {}
    return {**found, **{port_name(port): rdma_counters(tree, port["device"], port["port"]) for port in ports}}


def bad_links(earlier: Earlier, now: Mapping[str, Counters]) -> str:
    """Return which links had errors since then, "" if none: such a node is not excluded, but others are preferred."""
    return port_counters.bad_links(earlier.links, now, (_now() - earlier.at) / 3600)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
