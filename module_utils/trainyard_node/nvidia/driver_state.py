# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver of this machine: what is installed, what is built for which kernel, and what runs."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

from ...trainyard.nvidia import driver
from ..machine.tree import Tree

_TOOL_SECONDS = 30
# Debian keeps each driver's libraries in a folder of its own and leads to one of them by alternatives.
_LIBRARIES = (
    *(
        f"{folder}{own}"
        for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
        for own in ("", "/nvidia/current", "/nvidia/tesla-470", "/nvidia/tesla-535")
    ),
    "/usr/lib64",
)
_PACKAGE_FORMAT = "${Package}\\t${Version}\\t${db:Status-Abbrev}\\t${Maintainer}\\n"


def installed_packages(tree: Tree) -> list[dict[str, str]]:
    """Return the driver's packages of which anything is there, with name, version, status and maintainer."""
    argv = ["dpkg-query", "-W", "-f", _PACKAGE_FORMAT]
    return driver.read_packages(tree.output("dpkg-query", argv) or "")


def _modules(tree: Tree, kernels: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return for each kernel the module that it would load, under the first name that it has."""
    found = {}
    for kernel in kernels:
        found[kernel] = driver.read_modinfo("")
        # modinfo prints nothing for a kernel that is not installed.
        for name in names if tree.captured or tree.exists(f"/lib/modules/{kernel}") else ():
            output = tree.output(f"modinfo.{kernel}.{name}", ["modinfo", "-k", kernel, name])
            if output is not None:
                found[kernel] = driver.read_modinfo(output)
                break
    return found


def _dkms(tree: Tree) -> list[dict[str, str]]:
    """Return what dkms has, and sources that it could build but that nobody has told it of."""
    found = driver.read_dkms(tree.output("dkms", ["dkms", "status"]) or "")
    known = {(one["module"], one["version"]) for one in found}
    for name in tree.names("/usr/src"):
        module, _, version = name.rpartition("-")
        if module.startswith("nvidia") and (module, version) not in known and tree.exists(f"/usr/src/{name}/dkms.conf"):
            found.append({"module": module, "version": version, "kernel": "", "state": "unregistered"})
    return found


def _builds(tree: Tree, kernels: Sequence[str]) -> dict[str, str]:
    """Return for each kernel why dkms' last build for it failed; dkms keeps the log of a failed build only."""
    found: dict[str, str] = {}
    for module in tree.names("/var/lib/dkms"):
        if not module.startswith("nvidia"):
            continue
        for version in tree.names(f"/var/lib/dkms/{module}"):
            log = tree.text(f"/var/lib/dkms/{module}/{version}/build/make.log")
            kernel = next((kernel for kernel in kernels if log and kernel in log[:2000]), "")
            if log and kernel:
                found[kernel] = driver.build_reason(log)
    return found


def read_driver(tree: Tree, kernels: Sequence[str]) -> dict[str, Any]:
    """Return the state of the machine that library/nvidia_driver describes."""
    running = tree.text("/proc/sys/kernel/osrelease") or platform.release()
    kernels = kernels or [running]
    packages = installed_packages(tree)
    # The vendor's installer leaves its log, but its uninstaller goes with the driver.
    installed = tree.exists("/usr/bin/nvidia-uninstall")
    runfile = driver.read_installer_log(tree.text("/var/lib/nvidia/log")) if installed else ""
    loaded, flavour = driver.read_proc_version(tree.text("/proc/driver/nvidia/version"))
    loaded = tree.text("/sys/module/nvidia/version") or loaded
    dkms = _dkms(tree)
    # Debian's files have the name of the package; a setting in modprobe.d leads to them.
    modules = _modules(tree, kernels, list(dict.fromkeys(["nvidia", *(one["module"] for one in dkms)])))
    fabric_manager = tree.command("nv-fabricmanager", ["nv-fabricmanager", "--version"], _TOOL_SECONDS)
    argv = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    smi = tree.command("nvidia-smi", argv, _TOOL_SECONDS)
    state = {
        "kernel": running,
        "headers": [one for one in tree.names("/lib/modules") if tree.exists(f"/lib/modules/{one}/build")],
        "provider": driver.provider_of(packages, runfile, loaded),
        "version": driver.installed_version(packages, runfile),
        "packages": {one["name"]: one["version"] for one in packages},
        "broken": sorted(one["name"] for one in packages if one["status"][1:2] != "i"),
        "held": driver.read_held(tree.output("apt-mark", ["apt-mark", "showhold"]) or ""),
        "runfile": runfile,
        "loaded": loaded,
        "flavour": flavour or next((one["flavour"] for one in modules.values() if one["flavour"]), ""),
        "userspace": driver.read_libraries(name for folder in _LIBRARIES for name in tree.names(folder)),
        "fabric_manager": driver.read_fabric_manager(fabric_manager.output if fabric_manager else ""),
        "smi": driver.read_smi(*smi) if smi else {"driver": "", "problem": "nvidia-smi is not installed"},
        "dkms": dkms,
        "modules": modules,
        "builds": _builds(tree, kernels),
        "nouveau": tree.exists("/sys/module/nouveau"),
    }
    return {**state, "unbuilt": driver.unbuilt(state, kernels), "reboot_due": driver.reboot_due(state)}
