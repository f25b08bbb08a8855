# SPDX-License-Identifier: Apache-2.0
"""The CUDA toolkits of this machine, its host compilers, and what a program with MPI and NCCL would be built with."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from ...trainyard.base.shapes import misfit
from ...trainyard.base.state_format import loads
from ...trainyard.cluster import session_environment
from ...trainyard.hardware import accelerators
from ...trainyard.nvidia import cuda
from ...trainyard.nvidia.nvidia_hardware import read_os
from ..machine.tree import Tree
from ..software.build_prefix import RECORD, free_bytes
from ..software.installed_openmpi import read_mpi

_ANSWER_SECONDS = 20
_NUMBERED = re.compile(r"cuda-(?P<version>\d+\.\d+(?:\.\d+)?)$")


def _record(tree: Tree, path: str) -> dict[str, Any]:
    try:
        found = loads(tree.text(path) or "{}")
    except ValueError:
        return {}
    return found if not misfit(found, {"?provider": str}) else {}


def _toolkit(tree: Tree, where: str, root: str) -> dict[str, Any] | None:
    if not tree.exists(where):
        return None
    name = where.rpartition("/")[2]
    nvcc = tree.output(f"nvcc.{name}", [f"{where}/bin/nvcc", "--version"], _ANSWER_SECONDS)
    record = _record(tree, f"{where}/{RECORD}") or _record(tree, f"{root}/.{name}.json")
    packed = tree.exists(f"/var/lib/dpkg/info/cuda-toolkit-{name[len('cuda-') :].replace('.', '-')}.list")
    kind = str(record["provider"]) if "provider" in record else "network_repo" if packed else "foreign"
    headers = (f"{where}/include/crt/host_config.h", "/usr/include/crt/host_config.h")
    texts = [tree.text(header) for header in headers[: 2 if where == "/usr" else 1]]
    match = _NUMBERED.search(where)
    return {
        "nvcc": cuda.nvcc_version(nvcc or ""),
        "cuda": cuda.toolkit_version(tree.text(f"{where}/version.json")),
        "newest_gcc": next((newest for text in texts if (newest := cuda.newest_gcc_of(text))), ""),
        "kind": kind,
        "named": match["version"] if match else "",
        "record": record,
    }


def _compiler(tree: Tree, setting: str) -> dict[str, Any]:
    """Return the host compiler: the one that is there, else the version that the repositories would install."""
    name = setting or "g++"
    there = tree.output("host-compiler", [name, "-dumpfullversion"], _ANSWER_SECONDS)
    if there is not None:
        return {"name": name, "version": cuda.gcc_version(there), "installed": True}
    package = cuda.compiler_package(setting)
    policy = tree.output("apt-cache.policy", ["apt-cache", "policy", package], _ANSWER_SECONDS) if package else ""
    candidate = re.search(r"^\s*Candidate:(.*)", policy or "", re.MULTILINE)
    return {"name": name, "version": cuda.gcc_version(candidate[1] if candidate else ""), "installed": False}


def _compilers(tree: Tree) -> list[str]:
    """Return the packages g++-N that apt knows, oldest first."""
    names = tree.output("apt-cache.pkgnames", ["apt-cache", "pkgnames", "g++-"], _ANSWER_SECONDS)
    found = re.findall(r"^g\+\+-\d+$", names or "", re.MULTILINE)
    return sorted(set(found), key=lambda name: int(name.rpartition("-")[2]))


def _gpus(tree: Tree) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus; no driver is needed for that."""
    found = 0
    for address in tree.names("/sys/bus/pci/devices"):
        device = f"/sys/bus/pci/devices/{address}"
        vendor, kind = tree.text(f"{device}/vendor") or "", tree.text(f"{device}/class") or ""
        found += vendor in accelerators.PCI_VENDORS and accelerators.pci_accelerator_vendor(vendor, kind) == "nvidia"
    return found


def _session(tree: Tree, user: str) -> dict[str, str] | None:
    """Return what sshd sets for a user; None where it does not report it, as to anybody but root."""
    argv = ["sshd", "-T", "-C", f"user={user},host=localhost,addr=127.0.0.1"]
    printed = tree.output("sshd.config", argv, _ANSWER_SECONDS)
    return None if printed is None else session_environment.effective(printed)


def read_cuda(tree: Tree, root: str, homes: list[str], compiler: str, user: str = "") -> dict[str, Any]:
    """Return the state that library/cuda_toolkit describes; `homes` are read besides the usual places."""
    places = [
        *(f"/usr/local/{name}" for name in tree.names("/usr/local") if _NUMBERED.search(name)),
        *(f"{root}/{name}" for name in tree.names(root) if _NUMBERED.search(name) or name == "cuda-distro"),
        *homes,
    ]
    found = {place: _toolkit(tree, place, root) for place in dict.fromkeys(places)}
    link = tree.path(f"{root}/cuda")
    default = str(link.readlink()) if link.is_symlink() else ""
    beside = str(Path(os.path.realpath(tree.path(default or f"{root}/cuda"))).parent / "nccl")
    # NCCL is where the role nccl puts it, beside a wheel's toolkit, or in the system's folders.
    nccl_places = (f"{root}/nccl", beside, "/usr")
    system = read_os(tree.text("/etc/os-release"))
    return {
        "os": f"{system['id'] or 'linux'} {system['version']}".strip(),
        "family": system["family"],
        "arch": platform.machine(),
        "root": root,
        "toolkits": {place: toolkit for place, toolkit in found.items() if toolkit is not None},
        "default": default,
        "default_kind": "link" if link.is_symlink() else "foreign" if link.exists() else "none",
        "compiler": _compiler(tree, compiler),
        "compilers": _compilers(tree),
        "free_mib": {folder: free_bytes(tree.path(folder)) >> 20 for folder in ("/usr", "/usr/local", root)},
        "gpus": _gpus(tree),
        "mpi": read_mpi(tree, f"{root}/openmpi"),
        "session": _session(tree, user) if user else None,
        "nccl": next((place for place in nccl_places if tree.exists(f"{place}/include/nccl.h")), ""),
    }
