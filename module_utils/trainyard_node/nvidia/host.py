# SPDX-License-Identifier: Apache-2.0
"""Facts of this machine for NVIDIA's software: GPUs by PCI, kernel and headers, Secure Boot, packages, space in MiB.

Neither driver nor root is needed, and nothing is changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...trainyard.hardware import accelerators
from ...trainyard.nvidia import nvidia_hardware
from ...trainyard.software import apt
from ..cluster.node_identity import container
from ..machine.tree import Tree

_FOLDERS = ("/", "/usr", "/boot", "/var")
_EFI_VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def _pci(tree: Tree) -> tuple[list[dict[str, str]], int]:
    gpus, switches = [], 0
    for address in tree.names("/sys/bus/pci/devices"):
        folder = f"/sys/bus/pci/devices/{address}"
        vendor, pci_class = tree.text(f"{folder}/vendor") or "", tree.text(f"{folder}/class") or ""
        if vendor == "0x10de" and pci_class.startswith(nvidia_hardware.NVSWITCH_CLASS):
            switches += 1
        # A virtual function (vGPU) is a part of a GPU that is listed already.
        elif accelerators.pci_accelerator_vendor(vendor, pci_class) == "nvidia" and not tree.exists(f"{folder}/physfn"):
            device_id = tree.text(f"{folder}/device") or ""
            name, generation = nvidia_hardware.gpu_of(device_id)
            gpus.append({"pci": address, "device_id": device_id, "name": name, "generation": generation})
        elif vendor == "0x15b3" and nvidia_hardware.SWITCH_ADAPTER in (tree.text(f"{folder}/vpd") or ""):
            switches += 1
    return gpus, switches


def _headers(tree: Tree) -> list[str]:
    """Return the kernel releases for which modules can be built."""
    found = []
    for release in tree.names("/lib/modules"):
        build = f"/lib/modules/{release}/build"
        try:
            # The link is there without its target where the kernel is installed and its headers are not.
            target = os.readlink(tree.path(build))  # noqa: PTH115 (Path.readlink is younger than Python 3.9 on nodes)
        except OSError:
            target = build
        if not target.startswith("/"):
            target = f"/lib/modules/{release}/{target}"
        if tree.exists(f"{target}/Makefile"):
            found.append(release)
    return found


def _headers_available(tree: Tree, release: str) -> bool | None:
    """Return whether apt offers the kernel's headers; None where that cannot be known."""
    lists = [name for name in tree.names("/var/lib/apt/lists") if "_Packages" in name]
    if not lists:
        return None
    output = tree.output("apt-cache.headers", ["apt-cache", "policy", f"linux-headers-{release}"])
    return None if output is None else nvidia_hardware.read_candidate(output)


def _secure_boot(tree: Tree) -> str:
    efi = tree.exists("/sys/firmware/efi")
    variable = tree.text(_EFI_VARIABLE) if efi else None
    mokutil = tree.output("mokutil.sb-state", ["mokutil", "--sb-state"]) if efi and not variable else None
    return nvidia_hardware.secure_boot(efi, variable, mokutil)


def _toolkits(tree: Tree, folders: Sequence[str]) -> list[str]:
    """Return the CUDA toolkits that are installed: versions, and `distro` for the distribution's own."""
    found = [
        name.partition("-")[2]
        for folder in folders
        for name in tree.names(folder)
        if name.startswith("cuda-") and tree.exists(f"{folder}/{name}/bin/nvcc")
    ]
    return found + (["distro"] if tree.exists("/usr/lib/nvidia-cuda-toolkit/bin/nvcc") else [])


def _held(tree: Tree, records: str) -> list[str]:
    """Return the packages that the role nvidia_repository has put on hold, from its records."""
    held: set[str] = set()
    for name in tree.names(records):
        try:
            held.update(apt.read_record((tree.text(f"{records}/{name}") or "{}").encode()))
        except ValueError:
            continue  # that role says so itself
    return sorted(held)


def _rdma_ports(tree: Tree) -> int:
    devices = [f"/sys/class/infiniband/{name}" for name in tree.names("/sys/class/infiniband")]
    # The ports through which NVSwitches are managed carry no data.
    data = [
        device for device in devices if nvidia_hardware.SWITCH_ADAPTER not in (tree.text(f"{device}/device/vpd") or "")
    ]
    return sum(len(tree.names(f"{device}/ports")) for device in data)


def read_host(
    tree: Tree, toolkits: Sequence[str] = ("/usr/local",), records: str = "/var/lib/trainyard-root/packages"
) -> dict[str, Any]:
    """Return the facts that library/nvidia_driver describes."""
    gpus, switches = _pci(tree)
    running = tree.text("/proc/sys/kernel/osrelease") or ""
    folders = [folder for folder in _FOLDERS if tree.exists(folder)]
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev}\\t${binary:Package}\\t${Version}\\n"]
    return {
        "os": nvidia_hardware.read_os(tree.text("/etc/os-release") or tree.text("/usr/lib/os-release")),
        "arch": (tree.output("uname.machine", ["uname", "-m"]) or "").strip(),
        "kernel": {
            "running": running,
            "headers": _headers(tree),
            "headers_available": _headers_available(tree, running),
        },
        "virtual": container(tree),
        "gpus": gpus,
        "nvswitches": switches,
        "secure_boot": _secure_boot(tree),
        "nouveau": nvidia_hardware.module_loaded(tree.text("/proc/modules"), "nouveau"),
        "gcc": nvidia_hardware.first_version(tree.output("gcc.version", ["gcc", "-dumpfullversion", "-dumpversion"])),
        "apt": {**nvidia_hardware.read_packages(tree.output("dpkg-query.status", query)), "kept": _held(tree, records)},
        "cuda": _toolkits(tree, toolkits),
        "free_mib": nvidia_hardware.read_free(folders, tree.output("df", ["df", "-Pk", *folders])),
        "rdma_ports": _rdma_ports(tree),
    }
