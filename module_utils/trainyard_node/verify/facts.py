# SPDX-License-Identifier: Apache-2.0
"""Read what two nodes of one kind should have in common: software, firmware, limits, networks.

A missing fact is "" (no CUDA, no GPU), an unreadable one None. No framework is imported and no compiler is started:
versions are read from metadata, headers and file names. Memory in MiB, speeds in Mb/s.
"""

from __future__ import annotations

import array
import fcntl
import os
import platform
import pwd
import re
import resource
import socket
import struct
from collections import Counter
from typing import Any

from ...trainyard.base.findings import grouped
from ...trainyard.cluster import switches
from ...trainyard.hardware.accelerators import Accelerators, pci_accelerator_vendor
from ...trainyard.hardware.interfaces import Interface, Networks, SelectionError, natural_order, select_interface
from ...trainyard.hardware.nvidia_topology import Topology, parse_topology
from ...trainyard.nvidia.nvidia_hardware import read_os
from ...trainyard.software.mindspore_releases import FORMER_NAMES
from ..ascend.ascend_state import read_ascend
from ..cluster.baseline_check import parse_ulimit
from ..cluster.node_identity import container, installed_packages
from ..hardware.device_discovery import read_accelerators
from ..hardware.health_readings import read_devices
from ..hardware.network_discovery import read_networks
from ..hardware.npu_discovery import read_npu
from ..hardware.port_facts import read_port_facts
from ..machine.tree import Tree
from ..software.installed_openmpi import read_mpi

_TOOL_SECONDS = 20
# A sweep of a fabric of thousands of ports.
_FABRIC_SECONDS = 60
_SIOCETHTOOL, _ETHTOOL_GDRVINFO = 0x8946, 0x3
_NCCL_HEADER = re.compile(r"^\s*#define\s+NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.MULTILINE)
_NCCL_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
# What frameworks are called among distributions, and what they are known by.
_FRAMEWORKS = {
    "torch": "torch",
    "torch-npu": "torch_npu",
    **dict.fromkeys(("mindspore", *FORMER_NAMES), "mindspore"),
    "oneflow": "oneflow",
    "numpy": "numpy",
}


def _os(tree: Tree) -> str:
    found = read_os(tree.text("/etc/os-release") or tree.text("/usr/lib/os-release"))
    # os-release of Debian does not know the point release.
    point = tree.text("/etc/debian_version") or "" if found["id"] == "debian" else ""
    return f"{found['id']} {point or found['version']}".strip()


def _cpu(tree: Tree) -> tuple[str, int]:
    """Return the model and the number of CPUs that are online."""
    lines = (tree.text("/proc/cpuinfo") or "").splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part"))]
    return (models[0] if models else "", sum(line.startswith("processor") for line in lines))


def _memory_mib(tree: Tree) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", tree.text("/proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) // 1024 if match else None


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _limits(tree: Tree, user: str) -> dict[str, str | None]:
    """Return the hard limits of a session of the training user; ours where we cannot become that user."""
    if tree.captured:
        outcome = tree.command("ulimit", [], _TOOL_SECONDS)
    elif os.geteuid() == 0 and user and _exists(user):
        argv = ["su", "-s", "/bin/sh", user, "-c", "ulimit -H -l && ulimit -H -n"]
        outcome = tree.command("ulimit", argv, _TOOL_SECONDS)
    else:
        locked, files = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE))
        memlock = "unlimited" if locked == resource.RLIM_INFINITY else str(locked // 1024)
        return {"memlock": memlock, "nofile": str(files)}
    try:
        return {**parse_ulimit(outcome.output if outcome else "")}
    except ValueError:
        return {"memlock": None, "nofile": None}


def _toolkits(tree: Tree, root: str) -> str:
    found = {
        name.partition("-")[2]
        for folder in ("/usr/local", root)
        for name in tree.names(folder)
        if name.startswith("cuda-") and tree.exists(f"{folder}/{name}/bin/nvcc")
    }
    if tree.exists("/usr/lib/nvidia-cuda-toolkit/bin/nvcc"):
        found.add("distro")
    return ", ".join(sorted(found, key=natural_order))


def _nccl(tree: Tree, root: str) -> str | None:
    """Return the version of the NCCL that programs of this node are linked with: its header's, or the library's."""
    places = [f"{root}/nccl", "/usr", "/usr/local"]
    for place in places:
        numbers = dict(_NCCL_HEADER.findall(tree.text(f"{place}/include/nccl.h") or ""))
        if len(numbers) == 3:
            return ".".join(numbers[part] for part in ("MAJOR", "MINOR", "PATCH"))
    for folder in (f"{root}/nccl/lib", *_NCCL_LIBRARIES):
        if tree.exists(f"{folder}/libnccl.so.2"):
            name = tree.path(f"{folder}/libnccl.so.2").resolve().name
            return name.partition(".so.")[2] if name.count(".") > 2 else None
    return ""


def _venvs(tree: Tree, root: str) -> dict[str, dict[str, str]]:
    """Return the packages of every environment below root, with its `python`."""
    found = {}
    for name in tree.names(root):
        path = f"{root}/{name}"
        if tree.exists(f"{path}/pyvenv.cfg"):
            settings = tree.text(f"{path}/pyvenv.cfg") or ""
            match = re.search(r"^version(?:_info)?\s*=\s*(\S+)", settings, re.MULTILINE)
            found[name] = {"python": match[1] if match else "", **installed_packages(tree, path)}
    return found


def _framework_facts(venvs: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the versions of each framework, in the order of the environments."""
    versions = grouped(
        (fact, packages[package])
        for packages in venvs.values()
        for package, fact in _FRAMEWORKS.items()
        if package in packages
    )
    return {fact: ", ".join(dict.fromkeys(found)) for fact, found in versions.items()}


def _driver_info(tree: Tree, interface: str) -> str:
    """Return driver and firmware of an interface, as `ethtool -i` shows them, by the same request to the kernel."""
    if tree.captured:
        outcome = tree.command(f"ethtool.i.{interface}", [], _TOOL_SECONDS)
        fields = dict(line.partition(": ")[::2] for line in (outcome.output if outcome else "").splitlines())
        return f"{fields.get('driver', '')} {fields.get('firmware-version', '')}".strip()
    # struct ethtool_drvinfo of linux/ethtool.h: u32 cmd, then driver, version, fw_version, 32 bytes each, and more.
    data = array.array("B", struct.pack("I", _ETHTOOL_GDRVINFO) + bytes(192))
    request = struct.pack("16sP", interface.encode()[:15], data.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            fcntl.ioctl(probe.fileno(), _SIOCETHTOOL, request)
        except OSError:
            return ""
    parts = (bytes(data[start : start + 32]).partition(b"\0")[0].decode("ascii", "replace") for start in (4, 68))
    return " ".join(part for part in parts if part and part != "N/A").strip()


def _nic_facts(tree: Tree, networks: Networks, interface: str) -> dict[str, Any]:
    """Return speed and MTU of the job's interface, and driver and firmware of the adapters."""
    chosen: Interface | None = next((item for item in networks["interfaces"] if item["name"] == interface), None)
    physical = [item for item in networks["interfaces"] if item["kind"] == "physical"]
    firmware = {item["name"]: _driver_info(tree, item["name"]) for item in physical}
    # A virtual interface has the speed that its driver invents (veth: 10000).
    virtual = chosen is not None and chosen["kind"] not in ("physical", "bond")
    return {
        "nic_speed": "" if chosen is None or virtual else chosen["speed_mbps"],
        "mtu": "" if chosen is None else chosen["mtu"],
        "nic_firmware": "; ".join(f"{name} {text}" for name, text in firmware.items() if text),
    }


def _hca_facts(tree: Tree, networks: Networks) -> dict[str, Any]:
    devices = list(dict.fromkeys(port["device"] for port in networks["rdma"]))
    parts = []
    for device in devices:
        folder = f"/sys/class/infiniband/{device}"
        texts = (device, tree.text(f"{folder}/fw_ver"), tree.text(f"{folder}/board_id"))
        parts.append(" ".join(filter(None, texts)))
    return {"hca_firmware": "; ".join(parts)}


def _gpu_facts(accelerators: Accelerators, devices: dict[str, Any]) -> dict[str, Any]:
    models = Counter(device["model"] for device in accelerators["devices"])
    broken = bool(accelerators["problems"]) and not accelerators["devices"]
    vbios = sorted({str(gpu["vbios"]) for gpu in devices["gpus"] if gpu["vbios"]})
    unread = bool(accelerators["devices"]) and accelerators["vendor"] == "nvidia" and not vbios
    return {
        "driver": accelerators["driver"] or (None if broken else ""),
        "gpus": None if broken else ", ".join(f"{count} x {model}" for model, count in sorted(models.items())),
        "vbios": None if unread else ", ".join(vbios),
    }


def _ascend_facts(tree: Tree, accelerators: Accelerators, root: str) -> dict[str, Any]:
    if accelerators["vendor"] != "ascend":
        return {"npu_firmware": "", "cann": ""}
    state = read_ascend(tree, root)
    return {"npu_firmware": state["firmware"], "cann": state["cann"]}


def hardware(tree: Tree) -> list[str]:
    """Return the kinds of accelerators and network adapters on the PCI bus: nodes with the same ones are one group.

    Their number does not count: a node that has lost one of eight GPUs is still compared with those that have eight.
    Virtual functions do not count, as there may be any number.
    """
    kinds = set()
    for address in tree.names("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{address}"
        vendor, pci_class = tree.text(f"{folder}/vendor") or "", tree.text(f"{folder}/class") or ""
        # 0x02: network controllers.
        compared = pci_class.startswith("0x02") or pci_accelerator_vendor(vendor, pci_class) is not None
        if compared and not tree.exists(f"{folder}/physfn"):
            kinds.add(f"{vendor[2:]}:{(tree.text(f'{folder}/device') or '')[2:]}")
    return sorted(kinds)


def _machine_facts(tree: Tree) -> dict[str, Any]:
    model, cpus = _cpu(tree)
    bios = [tree.text(f"/sys/class/dmi/id/{name}") or "" for name in ("bios_vendor", "bios_version", "bios_date")]
    return {
        "kernel": tree.text("/proc/sys/kernel/osrelease"),
        "os": _os(tree),
        "machine": platform.machine() if not tree.captured else "",
        "container": container(tree),
        "cpu": model,
        "cpus": cpus,
        "memory_mib": _memory_mib(tree),
        "governor": tree.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "",
        "product": tree.text("/sys/class/dmi/id/product_name") or "",
        "bios": " ".join(part for part in bios if part),
    }


def _topology(tree: Tree, devices: dict[str, Any]) -> Topology | None:
    """Return the ways between GPUs and adapters, None where there are no two GPUs."""
    if len(devices["gpus"]) < 2:
        return None
    answer = tree.command("nvidia-smi.topo", ["nvidia-smi", "topo", "-m"], _TOOL_SECONDS)
    return None if answer is None or answer.status else parse_topology(answer.output)


def _network(networks: Networks, network: str, host_address: str, alone: bool) -> dict[str, Any]:
    """Return interface and address of the job network, or why there is none; for one node alone loopback will do."""
    found: dict[str, Any] = {"interface": "", "address": "", "problem": "", "action": ""}
    try:
        name, address = select_interface(networks["interfaces"], network, host_address, alone=alone)
        found.update(interface=name, address=address)
    except SelectionError as error:
        why = error.finding
        found.update(problem=f"{why.found}; expected {why.expected}", action=why.action)
    found["addresses"] = [
        address.partition("/")[0]
        for item in networks["interfaces"]
        if item["kind"] != "loopback"
        for address in item["addresses"]
        if not address.lower().startswith("fe80")
    ]
    return found


def _switch(tree: Tree, interface: str) -> str:
    """Return the switch of an interface, or of those below a VLAN or bond, by LLDP; "" where lldpd does not run."""
    answer = tree.command("lldpctl", ["lldpctl", "-f", "json"], _TOOL_SECONDS) if interface else None
    try:
        neighbors = switches.parse_neighbors(answer.output) if answer and not answer.status else {}
    except ValueError:
        return ""
    names, found = [interface], []
    while names and neighbors:
        name = names.pop()
        found += [neighbors[name]] if name in neighbors else []
        names += [below.partition("_")[2] for below in tree.names(f"/sys/class/net/{name}") if below[:6] == "lower_"]
    return switches.joined(found)


def _fabric(tree: Tree, networks: Networks) -> dict[str, str]:
    """Return the switches of all hosts of the InfiniBand fabric by host name; {} on a host without a port there."""
    if not any(port["active"] and port["link_layer"] == "InfiniBand" for port in networks["rdma"]):
        return {}
    answer = tree.command("ibnetdiscover.p", ["ibnetdiscover", "-p"], _FABRIC_SECONDS)
    return switches.parse_fabric(answer.output) if answer and not answer.status else {}


def read_machine(
    tree: Tree,
    *,
    host: str,
    root: str,
    venvs: str,
    user: str,
    ascend_root: str,
    network: str,
    host_address: str,
    alone: bool = False,
    devices_only: bool = False,
    fabric: bool = False,
) -> dict[str, Any]:
    """Return all facts that the verification of a cluster checks; with `devices_only` only the devices.

    `fabric` also asks the InfiniBand fabric for its switches, which few nodes should do at once.
    """
    accelerators = read_accelerators(tree)
    npu = read_npu(tree, accelerators)
    networks = read_networks(tree, user or None)
    way = _network(networks, network, host_address, alone)
    devices = read_devices(tree, accelerators, npu, networks, way["interface"])
    if devices_only:
        return {"host": host, "devices": devices}
    # How devices are joined does not change while benchmarks run.
    devices["topology"] = _topology(tree, devices)
    way |= {"switch": _switch(tree, way["interface"]), "fabric": _fabric(tree, networks) if fabric else {}}
    devices["ports"] = read_port_facts(tree, networks)
    environments = _venvs(tree, venvs)
    mpi = read_mpi(tree, f"{root}/openmpi")
    facts = {
        **_machine_facts(tree),
        **_gpu_facts(accelerators, devices),
        **_ascend_facts(tree, accelerators, ascend_root),
        "cuda": _toolkits(tree, root),
        "nccl": _nccl(tree, root),
        "nccl_settings": "; ".join(f"{name}={value}" for name, value in sorted(networks["nccl_settings"].items())),
        "openmpi": mpi["version"] if mpi else "",
        "python": platform.python_version() if not tree.captured else "",
        **_framework_facts(environments),
        **_nic_facts(tree, networks, way["interface"]),
        **_hca_facts(tree, networks),
        **_limits(tree, user),
    }
    return {
        "host": host,
        "hostname": tree.text("/proc/sys/kernel/hostname") or "",
        "facts": facts,
        "environments": environments,
        "hardware": hardware(tree),
        "network": way,
        "devices": devices,
    }
