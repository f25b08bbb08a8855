# SPDX-License-Identifier: Apache-2.0
"""Read all facts of this machine that the job plan needs. Memory is in MiB.

A node without accelerators and MPI starts one process at most (`ip`). No framework is imported and nothing is changed.
Only Ascend's hccn_tool needs root, with some drivers.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...trainyard.cluster import ports
from ...trainyard.software.mindspore_releases import FORMER_NAMES
from ..hardware.device_discovery import read_accelerators
from ..hardware.network_discovery import read_networks
from ..hardware.npu_discovery import read_npu
from ..hardware.numa import read_numa
from ..machine import as_user
from ..machine.tree import Tree
from ..machine.users import user_name
from ..software import package_folders
from ..software.build_tools import build_tools
from ..software.installed_openmpi import read_mpi

_DISTRIBUTION = re.compile(r"^(?P<name>.+)-(?P<version>[^-]+)\.dist-info$")
_EGG = re.compile(r"^(?P<name>[^-]+)-(?P<version>[^-]+?)(-py[0-9.]+)?\.egg-info$")


def _service_manager(tree: Tree) -> str:
    """Return `systemd` only where transient system units can be created: PID 1 is systemd and we are root."""
    booted = tree.text("/proc/1/comm") == "systemd" and tree.exists("/run/systemd/system")
    return "systemd" if booted and os.geteuid() == 0 else "none"


def container(tree: Tree) -> str:
    """Return the engine of this container by the files that engines leave, or "" for a machine."""
    manager = tree.text("/run/systemd/container")
    if manager:
        return manager
    return "podman" if tree.exists("/run/.containerenv") else "docker" if tree.exists("/.dockerenv") else ""


def _memory_mib(tree: Tree) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+)", tree.text("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) // 1024 if match else None


def _cpus(tree: Tree) -> int:
    """Return the number of CPUs that a process may use here; a container or cpuset can limit it."""
    if not tree.captured:
        return len(os.sched_getaffinity(0))
    return len(re.findall(r"^processor", tree.text("/proc/cpuinfo") or "", re.MULTILINE))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(tree: Tree, venv: str | None) -> dict[str, str]:
    """Return the version of each distribution by its normal name (torch-npu).

    The names of the metadata folders suffice: the venv's Python would cost a process, importing a framework seconds.
    """
    versions: dict[str, str] = {}
    running = [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]
    for folder in running if venv is None else package_folders.folders(tree, venv):
        for entry in tree.names(folder):
            match = _DISTRIBUTION.match(entry) or _EGG.match(entry)
            if match:
                versions.setdefault(_normal(match["name"]), match["version"])
    return versions


def package_versions(tree: Tree, venv: str | None, names: list[str]) -> dict[str, str | None]:
    """Return the installed version of each distribution, None where it is missing."""
    versions = installed_packages(tree, venv) if names else {}
    for former in FORMER_NAMES:
        if former in versions:
            versions.setdefault("mindspore", versions[former])
    return {name: versions.get(_normal(name)) for name in names}


def _read_python(tree: Tree, venv: str | None, packages: list[str]) -> dict[str, Any]:
    environment = None
    if venv is not None:
        settings = package_folders.settings(tree, venv)
        python = settings.get("version", settings.get("version_info"))
        environment = {"path": venv, "exists": tree.exists(f"{venv}/bin/python"), "python": python}
    return {
        "venv": environment,
        "packages": package_versions(tree, venv, packages),
        "build_tools": build_tools(tree, venv),
    }


def _of_user(user: str | None, function: Callable[..., Any], tree: Tree, *arguments: Any) -> Any:
    """Call a function as a user, since its files may be the user's own; as ourselves if there is no such user yet."""
    try:
        owner = as_user.named(user) if user and not tree.captured else None
    except as_user.JobError:
        owner = None
    return function(tree, *arguments) if owner is None else as_user.run(owner, function, tree, *arguments)


def used_ports(tree: Tree, state: str = "[0-9A-F]{2}") -> set[int]:
    """Return the local TCP ports of all sockets, or of those in a state: 0A is LISTEN."""
    tables = [tree.text(path) or "" for path in ("/proc/net/tcp", "/proc/net/tcp6")]
    local = re.compile(rf"^\s*\d+:\s+[0-9A-F]+:([0-9A-F]{{4}})\s+\S+\s+{state}\s", re.MULTILINE)
    return {int(port, 16) for table in tables for port in local.findall(table)}


def _can_bind(port: int) -> bool:
    """Tell whether the port is free on all addresses of both families."""
    for family, every in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 (a probe, closed at once)
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a kernel without IPv6
        with probe:
            try:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((every, port))
            except OSError as error:
                if family == socket.AF_INET6 and error.errno == errno.EADDRNOTAVAIL:
                    continue  # IPv6 is switched off
                return False
    return True


def unused_ports(tree: Tree) -> set[int]:
    """Return the unused TCP ports.

    The ephemeral range is left out, as an outgoing connection may take one of its ports before the job starts. Reserved
    ports belong to services that may start later.
    """
    taken = used_ports(tree)
    taken |= ports.parse_ports(tree.text("/proc/sys/net/ipv4/ip_local_port_range") or "32768 60999")
    taken |= ports.parse_ports(tree.text("/proc/sys/net/ipv4/ip_local_reserved_ports") or "")
    return set(range(ports.FIRST, ports.LAST + 1)) - taken


def free_port(tree: Tree, seed: str) -> int | None:
    """Return a TCP port that is free on all addresses; the seed decides where the search starts."""
    candidates = sorted(unused_ports(tree))
    if not candidates:
        return None
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(candidates)
    return next((port for port in candidates[start:] + candidates[:start] if _can_bind(port)), None)


def _cuda_home(tree: Tree, mpi_prefix: str | None) -> str:
    """Return the CUDA toolkit of the role cuda_toolkit, whose link lies beside that of openmpi; else ""."""
    home = str(Path(mpi_prefix).parent / "cuda") if mpi_prefix else ""
    # The distribution's own toolkit is in the system's folders.
    ours = home and tree.exists(f"{home}/bin/nvcc") and tree.path(home).resolve() != Path("/usr")
    return home if ours else ""


def fingerprint(node: dict[str, Any]) -> str:
    """Return a digest of the facts that change rarely; if it is the same, cached facts are still valid.

    Unused ports and virtual interfaces without an address are left out, as containers come and go with these.
    """
    lasting = {key: value for key, value in node.items() if key not in ("unused_ports", "fingerprint")}
    interfaces = [item for item in node["networks"]["interfaces"] if item["addresses"] or item["kind"] != "virtual"]
    lasting["networks"] = {**node["networks"], "interfaces": interfaces}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()


def read_node(
    tree: Tree, *, packages: list[str], venv: str | None, user: str | None, mpi_prefix: str | None = None
) -> dict[str, Any]:
    """Return all facts of the machine."""
    uid = os.geteuid()
    accelerators = read_accelerators(tree)
    node: dict[str, Any] = {
        "hostname": tree.text("/proc/sys/kernel/hostname") or socket.gethostname(),
        "boot_id": tree.text("/proc/sys/kernel/random/boot_id"),
        "kernel": tree.text("/proc/sys/kernel/osrelease") or platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": _cpus(tree),
        "memory_mib": _memory_mib(tree),
        "service_manager": _service_manager(tree),
        "container": container(tree),
        "uid": uid,
        # A container may have an arbitrary uid.
        "user": user_name(uid) or str(uid),
        **_of_user(user, _read_python, tree, venv, packages),
        "accelerators": accelerators,
        "npu": read_npu(tree, accelerators, alone=False) or {},
        "numa": read_numa(tree, accelerators),
        "networks": read_networks(tree, user),
        "mpi": read_mpi(tree, mpi_prefix),
        "cuda_home": _cuda_home(tree, mpi_prefix),
    }
    node["fingerprint"] = fingerprint(node)
    node["unused_ports"] = ports.port_ranges(unused_ports(tree))
    return node
