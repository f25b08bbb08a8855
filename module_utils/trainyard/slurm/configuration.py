# SPDX-License-Identifier: Apache-2.0
"""Compute the content of Slurm's files, slurm.conf among them, the same for all nodes, from the facts of the nodes."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.findings import Finding, grouped, host_list
from ..base.spans import ranges
from .change import SIGN, change_findings, node_findings
from .confinement import confinement_findings
from .slurm_words import ADDRESS, HOST_NAME, NAME, PATH, fits, is_whole, number, shown, word_findings
from .switch_tree import lines

# Name of the generic resource and path of a device file, by vendor.
GRES = {"nvidia": ("gpu", "/dev/nvidia{index}"), "ascend": ("npu", "/dev/davinci{index}")}
# Upper bound for numbers in slurm.conf, most of which have 16 bits with some values for themselves.
_MAX = 65533
# Required fields of slurmd -C with their upper bounds; memory is in MiB.
_HARDWARE = dict.fromkeys(("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"), _MAX) | {"RealMemory": 2**30}
# Lower bound for the memory of a CPU, in MiB: the smallest share of a node is the default of all jobs, and 0 no limit.
_MIN_SHARE = 32
# Upper bound for the number of a device file.
_MAX_DEVICE = 1023
# Bounds of the times of the role, in seconds. Slurm ignores a smaller lifetime of credentials.
_TIMES = {"node_timeout_s": (0, _MAX), "requeue_wait_s": (5, _MAX), "health_interval_s": (0, _MAX)}

# The proctrack and task plugins. With cgroup, a job is confined to its cores, memory and devices, and all its processes
# are found. Without writable cgroups, Slurm finds the process tree only.
CONFINEMENT = {
    "cgroup": ("proctrack/cgroup", "task/cgroup,task/affinity"),
    "none": ("proctrack/linuxproc", "task/none"),
}


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of the role; `controller` is slurmctld's host in the inventory."""

    name: str
    controller: str
    confinement: str = "cgroup"
    partition: str = "train"
    node_timeout_s: int = 60
    requeue_wait_s: int = 120
    health_interval_s: int = 300
    health_program: str = ""
    epilog: str = ""
    # Memory of each node that is reserved for the system, in MiB.
    memory_reserve_mib: int = 1024


def nodes_of(hosts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes for content() and obstacles() from the results that the role registered on each host.

    A result of another shape is None.
    """
    return [
        {
            "host": host["name"],
            "address": host.get("ansible_host") or host["name"],
            "hostname": _text(host, "ansible_facts", "hostname"),
            "conf": _decoded(_text(host, "__slurm_conf", "content") or ""),
            "cgroups": _text(host, "__slurm_cgroups", "stdout"),
            "slurmd": _text(host, "__slurm_described", "stdout"),
            "version": _text(host, "__slurm_version", "stdout"),
            "accelerators": _within(host, "__slurm_accelerators", "accelerators"),
        }
        for host in hosts
    ]


def _within(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any, *names: str) -> str | None:
    found = _within(value, *names)
    return found if isinstance(found, str) else None


def _decoded(content: str) -> str:
    """Decode a file. A damaged answer stays as it is: it is no file of this role."""
    try:
        return b64decode(content, validate=True).decode()
    except ValueError:
        return content


def obstacles(settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]], states: str) -> list[Finding]:
    """Find everything that stops a cluster before anything is changed; `states` as in change_findings()."""
    findings = [*_wrong_settings(settings, nodes), *_wrong_names(nodes)]
    findings += change_findings(settings.name, settings.controller, nodes, states)
    return findings + (confinement_findings(nodes) if settings.confinement == "cgroup" else [])


def _wrong_settings(settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    yield from word_findings("slurm_cluster", settings.name, NAME)
    yield from word_findings("slurm_partition", settings.partition, NAME)
    for name in ("health_program", "epilog"):
        yield from word_findings(f"path of the {name}", getattr(settings, name), PATH)
    for name, (least, most) in _TIMES.items():
        value = getattr(settings, name)
        if not is_whole(value, least, most):
            variable = f"slurm_{name.removesuffix('_s')}"
            found = str(value)[:100] if is_whole(value, -(2**63), 2**63) else "no whole number"
            yield Finding(variable, found, f"a whole number of seconds from {least} to {most}", f"correct {variable}")
    if all(node["host"] != settings.controller for node in nodes):
        found, expected = "no host of the cluster", "a host of slurm_hosts"
        yield Finding("slurm_controller", found, expected, "correct slurm_controller or slurm_hosts")


def _wrong_names(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Find names and addresses that no line can hold, and host names that are names of other nodes, too."""
    holders = grouped(
        (name.lower(), str(node["host"]))
        for node in nodes
        for name in {node["host"], node["hostname"]}
        if isinstance(name, str)
    )
    for node in nodes:
        host = str(node["host"])
        yield from word_findings("name in the inventory", node["host"], NAME, host)
        yield from word_findings("address", node["address"], ADDRESS, host)
        yield from word_findings("host name", node["hostname"], HOST_NAME, host)
        others = sorted({*holders.get(str(node["hostname"]).lower(), ())} - {host})
        if others and fits(node["hostname"], HOST_NAME):
            expected = "a host name of its own on each node, by which slurmd knows which node it is"
            found = f"{node['hostname']}, which is a name of {host_list(others)}"
            yield Finding("host name", found, expected, HOST_NAME.action, host)


def hardware(text: str) -> dict[str, str]:
    """Parse the first line of `slurmd -C`. Raises ValueError for missing fields and impossible numbers."""
    line = text.strip().partition("\n")[0][:4096]
    words = dict(word.partition("=")[::2] for word in line.split())
    found = {name: number(words.get(name), most, 1) for name, most in _HARDWARE.items()}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f"slurmd -C does not print {', '.join(missing)} within bounds: {line[:200]!a}")
    known = {name: value for name, value in found.items() if value is not None}
    threads = known["SocketsPerBoard"] * known["CoresPerSocket"] * known["ThreadsPerCore"]
    if threads > _MAX:
        raise ValueError(f"slurmd -C prints sockets, cores and threads for {threads} CPUs")
    return {name: str(value) for name, value in known.items()}


def gres_of(accelerators: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Return the generic resource of a node and its device numbers, or "" and []. Raises ValueError."""
    vendor, devices = accelerators.get("vendor", "none"), accelerators.get("devices", [])
    if not isinstance(vendor, str) or vendor not in (*GRES, "none"):
        raise ValueError(f"the vendor {shown(vendor)}")
    indices: list[Any] = [_within(device, "index") for device in devices] if isinstance(devices, list) else [None]
    wrong = [index for index in indices if not is_whole(index, 0, _MAX_DEVICE)]
    if wrong or len({*indices}) < len(indices):
        raise ValueError("devices without a number of their own")
    return (GRES[vendor][0], sorted(indices)) if vendor in GRES and indices else ("", [])


def content(
    settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]], topology: Mapping[str, Any] | None = None
) -> tuple[dict[str, Mapping[str, Any]], list[Finding]]:
    """Return the context of each file's template (templates/slurm/) by name, or the findings of settings and nodes.

    A node is {host, address, hostname, slurmd (output of slurmd -C), version (of slurmd -V), conf (its present
    slurm.conf), accelerators}.
    """
    described: list[dict[str, Any]] = []
    findings = [*_wrong_settings(settings, nodes), *_wrong_names(nodes)]
    for node in nodes:
        each, wrong = _described(settings, node)
        described.append(each)
        findings += wrong
    gres = {str(node["host"]): f"{node['gres']}:{node['devices']}" for node in described if node["gres"]}
    findings += node_findings(settings.controller, nodes, gres)
    if findings:
        return {}, findings
    proctrack, task_plugin = CONFINEMENT[settings.confinement]
    of_cluster = {
        "sign": SIGN,
        "settings": settings,
        "controller": next(node for node in described if node["host"] == settings.controller),
        "nodes": described,
        "proctrack": proctrack,
        "task_plugin": task_plugin,
        # Memory for each CPU of the node with the least, in MiB.
        "memory_per_cpu": min(_share(node["hardware"]) for node in described),
        "switches": lines(topology, [str(node["host"]) for node in nodes]) if topology else [],
        "gres_types": list(dict.fromkeys(node["gres"] for node in described if node["gres"])),
    }
    others = {"cgroup.conf": settings.confinement == "cgroup", "topology.conf": of_cluster["switches"]}
    names = ("slurm.conf", "gres.conf", *(name for name, is_needed in others.items() if is_needed))
    return dict.fromkeys(names, of_cluster), []


def _share(described: Mapping[str, str]) -> int:
    """Return the memory of each CPU in MiB."""
    return int(described["RealMemory"]) // int(described["CPUs"])


def _described(settings: ClusterSettings, node: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Return a node as the templates need it, and what is wrong in its description by slurmd and of its devices."""
    found: dict[str, str] = {}
    gres, indices, findings = "", list[int](), list[Finding]()
    try:
        found = hardware(str(node.get("slurmd") or ""))
        memory = int(found["RealMemory"])
        found["RealMemory"] = str(max(memory // 2, memory - settings.memory_reserve_mib))
        if _share(found) < _MIN_SHARE:
            raise ValueError(f"{memory} MiB for {found['CPUs']} CPUs")
    except ValueError as error:
        expected = f"a line with sockets, cores and memory: at most {_MAX} CPUs with {_MIN_SHARE} MiB or more each"
        findings.append(Finding("slurmd", str(error), expected, "run slurmd -C there", host=node["host"]))
    try:
        gres, indices = gres_of(node.get("accelerators") or {})
    except ValueError as error:
        expected = f"devices of {' or '.join(GRES)} with different numbers from 0 to {_MAX_DEVICE}"
        action = "run ansible -m accelerator_info there"
        findings.append(Finding("accelerators", str(error), expected, action, host=node["host"]))
    path = GRES[str(node["accelerators"]["vendor"])][1] if gres else ""
    described = {
        **{key: node[key] for key in ("host", "hostname", "address")},
        "hardware": found,
        "gres": gres,
        "devices": len(indices),
        "file": path.replace("{index}", f"[{ranges(indices)}]"),
    }
    return described, findings
