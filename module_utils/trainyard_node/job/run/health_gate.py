# SPDX-License-Identifier: Apache-2.0
"""Check the health of a node before a job starts on it, and before each restart (job_health_gate).

Both use the same checks. At the launch the agent runs them, mostly as root; before a restart the monitor does, as the
training user, and compares with the start. Values that cannot be read are ignored.
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

from ....trainyard.findings.findings import Finding
from ....trainyard.hardware import node_health, port_counters
from ....trainyard.hardware.accelerators import no_accelerators
from ....trainyard.hardware.interfaces import network_of, port_name
from ....trainyard.hardware.port_counters import Counters
from ....trainyard.nvidia import local_collective as rules
from ...hardware.accelerators import read_accelerators
from ...hardware.counters import interface_counters, rdma_counters
from ...hardware.device_health import read_devices
from ...hardware.interfaces import read_networks
from ...hardware.npu import read_npu
from ...machine.tree import Tree
from ...nvidia import local_collective
from .device_holders import held
from .processes import OWN_TOOL

if TYPE_CHECKING:
    from ...machine.as_user import Owner

Spec = Mapping[str, Any]
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


def disk_findings(spec: Spec) -> list[Finding]:
    """Find that the job's folder cannot be created, or has no room."""
    folder = Path(spec["job_dir"])
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return [_unwritable(spec, folder)]
    free_mib = shutil.disk_usage(folder).free >> 20
    if free_mib >= spec["min_disk_mib"]:
        return []
    return [
        Finding(
            "disk",
            f"{free_mib} MiB free in {folder}",
            f"at least {spec['min_disk_mib']} MiB (job_min_disk_mib)",
            "make room, or lower job_min_disk_mib",
            host=spec["host"],
        )
    ]


def _unwritable(spec: Spec, folder: Path) -> Finding:
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        check, found, action = "disk", f"{folder} is mounted read-only", "mount it read-write, or"
    else:
        me = pwd.getpwuid(os.geteuid()).pw_name
        # The node is healthy: Ansible has not become root there, or root has no rights on this file system.
        check, found, action = OF_USER, f"{folder} cannot be written by {me}", ""
        if os.geteuid():
            action = "set trainyard_become: true, or"
    return Finding(
        check,
        found,
        "a folder for the files of the job",
        f"{action} set trainyard_state to another folder".strip(),
        host=spec["host"],
    )


def limit_findings(tree: Tree, spec: Spec) -> list[Finding]:
    """Find limits of the job that this node can never meet: then the job is wrong, not the node."""
    folder = Path(spec["job_dir"])
    while not folder.exists():
        folder = folder.parent
    has = {
        "job_min_memory_mib": _memory_mib(tree, "MemTotal:"),
        "job_min_disk_mib": shutil.disk_usage(folder).total >> 20,
    }
    limits = {
        "job_min_memory_mib": spec["min_memory_mib"] if spec["health_gate"] else 0,
        "job_min_disk_mib": spec["min_disk_mib"],
    }
    return [
        Finding(
            name,
            f"{limits[name]} MiB, and this node has {mib} MiB of {LIMITS[name]} in all",
            "a limit that the node can meet",
            f"correct {name}, or choose other nodes",
            host=spec["host"],
        )
        for name, mib in has.items()
        # A network or kernel file system may have no size.
        if mib and limits[name] > mib
    ]


def _memory_mib(tree: Tree, name: str) -> int | None:
    """Return a figure of /proc/meminfo, see proc(5)."""
    lines = (line.split() for line in (tree.text("/proc/meminfo") or "").splitlines())
    return next((int(words[1]) >> 10 for words in lines if words[:1] == [name]), None)


def _memory_findings(tree: Tree, spec: Spec) -> list[Finding]:
    """Find too little memory that is available without swapping."""
    free_mib = _memory_mib(tree, "MemAvailable:")
    if free_mib is None or free_mib >= spec["min_memory_mib"]:
        return []
    return [
        Finding(
            "memory",
            f"{free_mib} MiB available",
            f"at least {spec['min_memory_mib']} MiB (job_min_memory_mib)",
            "see what has it (ps -e --sort=-rss; files in /dev/shm), or lower job_min_memory_mib",
            host=spec["host"],
        )
    ]


def _network_findings(spec: Spec, machine: Mapping[str, Any]) -> list[Finding]:
    """Find that the interface of the job's network is down, or lacks the planned address."""
    name, address = str(spec.get("interface") or ""), str(spec.get("address") or "")
    interfaces = machine["networks"]["interfaces"]
    if not name or not address or not any(each["addresses"] for each in interfaces):
        return []
    found = next((each for each in interfaces if each["name"] == name), None)
    if found and found["up"] and network_of(interfaces, name, address):
        return []
    what = f"no interface {name}" if not found else f"{name} does not have it" if found["up"] else f"{name} is down"
    return [
        Finding(
            "network",
            f"{address}: {what}",
            "the address of the job's network, on an interface that is up",
            "see cable and switch port (ip -statistics link), and what sets up the network there",
            host=spec["host"],
        )
    ]


def _device_findings(tree: Tree, spec: Spec, machine: Mapping[str, Any], earlier: Earlier) -> list[Finding]:
    """Check the job's devices, and the RDMA ports that have worked, as verify.yml does."""
    devices, vendor = list(spec["devices"]), machine["accelerators"]["vendor"]
    kinds = {"nvidia": "gpu", "ascend": "npu"}
    if not devices and not earlier.ports:
        return []
    reading = read_devices(tree, machine["accelerators"], machine["npu"] or None, machine["networks"], "")
    reading["gpus"] = [gpu for gpu in reading["gpus"] if gpu["index"] in devices]
    for name in ("problems", "npu_problems"):
        reading[name] = [text for text in reading[name] if text not in earlier.problems]
    wanted = dict.fromkeys([kinds[vendor]] if vendor in kinds else [], len(devices))
    return [
        Finding(check.name, check.found, check.expected, check.action + SWITCH, host=spec["host"])
        for check in node_health.of_node(reading, wanted, earlier.ports)
        if check.state == "fail"
    ]


def check(tree: Tree, spec: Spec, machine: Mapping[str, Any], earlier: Earlier | None = None) -> list[Finding]:
    """Return the findings of the health check. `machine` is from read_machine, or the facts of a node (node.py).

    At the launch, without `earlier`, the plan has checked whether the devices answer.
    """
    if earlier is None:
        earlier = Earlier((), frozenset(machine["accelerators"]["problems"]))
    return [
        *disk_findings(spec),
        *_memory_findings(tree, spec),
        *_network_findings(spec, machine),
        *_device_findings(tree, spec, machine, earlier),
    ]


def collective_findings(spec: Spec, owner: Owner | None = None) -> list[Finding]:
    """Run an all-reduce over the job's GPUs here, if nccl-tests are installed and the GPUs are free.

    It runs as `owner`, the job's user, if the caller is root. It takes seconds, so run it after all other checks.
    """
    command, devices = spec.get("local_collective"), list(spec["devices"])
    if not command or held(devices, -math.inf):
        return []
    # It belongs to the job, and is no rank of it.
    ran = local_collective.run(command, {"TRAINYARD_JOB_ID": str(spec["job_id"]), OWN_TOOL: "1"}, owner)
    fault = rules.fault(ran.status, ran.said, len(devices)) if ran else ""
    if not fault:
        return []
    again = shlex.join(["env", *(f"{name}={value}" for name, value in command["env"].items()), *command["argv"]])
    return [
        Finding(
            "collective",
            f"all-reduce over GPUs {command['env']['CUDA_VISIBLE_DEVICES']}: {fault}",
            f"right sums within {rules.LIMIT_S:g} s",
            f"see the GPUs, their links and the kernel's log; run it there: {again}{SWITCH}",
            host=spec["host"],
        )
    ]


def texts(findings: Sequence[Finding]) -> list[str]:
    """Return findings in short, each with the name of its check."""
    return [f"{finding.check}: {finding.found}" for finding in findings]


def read_machine(tree: Tree, spec: Spec) -> dict[str, Any]:
    """Read networks, and accelerators if the job uses some here."""
    accelerators = read_accelerators(tree) if spec["devices"] else no_accelerators()
    return {"accelerators": accelerators, "npu": read_npu(tree, accelerators), "networks": read_networks(tree)}


def note(tree: Tree, spec: Spec) -> Earlier:
    """Return the state of the node while nothing has failed."""
    machine = read_machine(tree, spec)
    problems = [*machine["accelerators"]["problems"], *(machine["npu"] or {}).get("problems", ())]
    ports = node_health.best_ports([], machine["networks"]["rdma"])
    return Earlier(ports, frozenset(problems), links(tree, spec, ports), _now())


def later(earlier: Earlier, now: Mapping[str, Counters]) -> Earlier:
    """Return the state for the next attempt, with the present counters."""
    return earlier._replace(links=now, at=_now())


def links(tree: Tree, spec: Spec, ports: Sequence[Mapping[str, Any]]) -> dict[str, Counters]:
    """Return the error counters of the job's interface and of the working RDMA ports."""
    name = str(spec.get("interface") or "")
    found = {name: interface_counters(tree, name)} if name else {}
    return {**found, **{port_name(port): rdma_counters(tree, port["device"], port["port"]) for port in ports}}


def bad_links(earlier: Earlier, now: Mapping[str, Counters]) -> str:
    """Return which links had errors since then, "" if none: such a node is not excluded, but others are preferred."""
    return port_counters.bad_links(earlier.links, now, (_now() - earlier.at) / 3600)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
