# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver of a machine: parsers of its tools and files, where it came from, and whether it is as expected.

A state is what library/nvidia_driver returns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from .nvidia_hardware import branch_of

State = Mapping[str, Any]

VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)*")
# Packages that are installed and removed with the driver. Toolkits for containers, CUDA and profilers are not.
_DRIVER_PACKAGE = re.compile(
    r"(cuda-drivers|nvidia-(driver|open|dkms|kernel|headless|tesla|legacy|alternative|smi|utils|compute-utils|modprobe"
    r"|persistenced|settings|firmware|fabric-?manager|imex|xconfig|vdpau|egl|opencl|libopencl|cuda-mps|vulkan"
    r"|suspend|powerd|detector|support|installer-cleanup)|glx-alternative-nvidia|firmware-nvidia|linux-(modules|objects|signatures)-nvidia"
    r"|xserver-xorg-video-nvidia|libnvidia|libcuda1|libnvcuvid1|libnvoptix1|lib(egl|gl1?|gles|glx|glx1)-nvidia"
    r"|kmod-nvidia|dkms-nvidia|xorg-x11-nvidia|libcudadebugger1)"
)
_OTHER_PACKAGE = re.compile(r"libnvidia-(container|ml-dev)|nvidia-(container|docker|cuda-(toolkit|dev|doc|gdb)|vaapi)")
# The package with the kernel module: its maintainer shows whose driver it is.
_KERNEL_PACKAGE = re.compile(
    r"(nvidia-(open-)?kernel|nvidia-kernel-open|nvidia-tesla-\d+-kernel|nvidia-tesla-kernel|nvidia-dkms-\d+\S*"
    r"|nvidia-legacy-\S+-kernel|kmod-nvidia\S*)(-dkms)?$|linux-modules-nvidia-"
)
_DKMS = re.compile(
    r"^(?P<module>nvidia[^/,\s]*)[/,]\s*(?P<version>[^,:\s]+)"
    r"(?:,\s*(?P<kernel>[^,:\s]+)(?:,\s*(?P<arch>[^:\s]+))?)?:\s*(?P<state>[a-z]+)"
)
# Maintainers of a distribution's own packages.
_DISTRIBUTOR = re.compile(r"[@.](debian\.org|ubuntu\.com|canonical\.com)>")
_PROVIDER = "run site.yml with an nvidia_driver_provider that installs one"
# Modules in dkms that are not the driver.
_OTHER_MODULES = ("nvidia-fs", "nvidia-peermem", "nvidia-gdrdrv")


def package_version(version: str) -> str:
    """Return the driver's version from that of a package: without epoch and packaging suffix."""
    return version.rpartition(":")[2].partition("-")[0]


def is_driver_package(name: str) -> bool:
    """Return whether a package of this name is part of a driver."""
    return bool(_DRIVER_PACKAGE.match(name)) and not _OTHER_PACKAGE.match(name)


def read_packages(output: str) -> list[dict[str, str]]:
    """Read `dpkg-query -W` with name, version, status abbreviation and maintainer, separated by tabs.

    Only packages of a driver are returned, without those that are removed up to their configuration files.
    """
    found = []
    for line in output.splitlines():
        fields = line.split("\t")
        if len(fields) == 4 and is_driver_package(fields[0]) and fields[2][1:2] not in ("n", "c", ""):
            found.append(dict(zip(("name", "version", "status", "maintainer"), fields)))
    return found


def read_held(output: str) -> list[str]:
    """Return the packages of a driver in the output of `apt-mark showhold`."""
    return sorted(name for name in output.split() if is_driver_package(name.partition(":")[0]))


def read_dkms(output: str) -> list[dict[str, str]]:
    """Read `dkms status`, also of releases before 3 (`nvidia, 470.103.01, ...`).

    `state` is added, built or installed. `kernel` is empty for a module that is built for no kernel.
    """
    found = []
    for line in output.splitlines():
        match = _DKMS.match(line.strip())
        if match and match["module"] not in _OTHER_MODULES:
            found.append({name: match[name] or "" for name in ("module", "version", "kernel", "state")})
    return found


def read_proc_version(text: str | None) -> tuple[str, str]:
    """Return version and flavour from /proc/driver/nvidia/version; both empty without a loaded driver."""
    line = next((line for line in (text or "").splitlines() if line.startswith("NVRM version:")), "")
    found = VERSION.search(line)
    if not found:
        return "", ""
    return found[0], "open" if "Open Kernel Module" in line else "proprietary"


def read_modinfo(output: str) -> dict[str, str]:
    """Return version, flavour and signer from `modinfo nvidia`; all empty without such a module."""
    pairs = (line.partition(":") for line in output.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    licence = fields.get("license", "")
    return {
        "version": fields["version"] if VERSION.fullmatch(fields.get("version", "")) else "",
        # The open flavour is licensed as Dual MIT/GPL, the other as NVIDIA.
        "flavour": "" if not licence else "open" if "GPL" in licence else "proprietary",
        "signer": fields.get("signer", ""),
    }


def read_fabric_manager(output: str) -> str:
    """Return the version from `nv-fabricmanager --version`."""
    found = re.search(r"version is\s*:\s*(" + VERSION.pattern + ")", output)
    return found[1] if found else ""


def read_installer_log(text: str | None) -> str:
    """Return the version from /var/lib/nvidia/log, the log of the vendor's installer."""
    found = VERSION.findall((text or "").partition("\n")[0])
    return found[-1] if found else ""


def read_smi(status: int, output: str) -> dict[str, str]:
    """Read `nvidia-smi --query-gpu=driver_version --format=csv,noheader`: version of the module, or the problem."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status == 0 and lines and all(VERSION.fullmatch(line) for line in lines):
        return {"driver": lines[0], "problem": ""}
    return {"driver": "", "problem": " ".join(lines)[:300] or f"it ended with status {status} and no output"}


def read_libraries(names: Iterable[str]) -> str:
    """Return the version that libnvidia-ml's file names have; several, which is an error, joined by commas."""
    found = {name.partition(".so.")[2] for name in names if name.startswith("libnvidia-ml.so.")}
    return ", ".join(sorted(version for version in found if VERSION.fullmatch(version)))


def build_reason(log: str, most: int = 3) -> str:
    """Return the first errors of the compiler in dkms' make.log, else its last lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = [line for line in lines if re.search(r"(^|[\s:])(fatal )?error:|^ERROR: modpost|^ld: ", line)]
    if not wrong:
        wrong = [line for line in lines if re.search(r"\*\*\*|ERROR|[Nn]o such file", line)] or lines[-most:]
    return " / ".join(dict.fromkeys(wrong[:most])) if wrong else ""


def provider_of(packages: Sequence[Mapping[str, str]], runfile: str, loaded: str) -> str:
    """Return where a driver came from: none, distro, network_repo, runfile or unknown.

    Unknown means packages beside traces of the vendor's installer, or a driver that runs without either.
    """
    kernel = [one for one in packages if _KERNEL_PACKAGE.match(one["name"])]
    # Libraries alone are no driver: other packages depend on them.
    if kernel:
        origins = {bool(_DISTRIBUTOR.search(one["maintainer"].lower())) for one in kernel}
        if runfile or len(origins) > 1:
            return "unknown"
        return "distro" if True in origins else "network_repo"
    if runfile:
        return "runfile"
    return "unknown" if loaded else "none"


def installed_version(packages: Sequence[Mapping[str, str]], runfile: str) -> str:
    """Return the version of the installed driver, from its kernel packages or the vendor's installer."""
    for one in packages:
        if _KERNEL_PACKAGE.match(one["name"]):
            return package_version(one["version"])
    return runfile


def reboot_due(state: State) -> list[str]:
    """Return why a reboot is due, one text for each reason; empty without any."""
    due = []
    if state["version"] and state["loaded"] and state["loaded"] != state["version"]:
        due.append(f"module {state['loaded']} is loaded, {state['version']} is installed")
    if state["version"] and state["nouveau"]:
        due.append(f"nouveau is loaded, {state['version']} is installed")
    if not due and "version mismatch" in state["smi"]["problem"]:
        due.append(f"nvidia-smi reports: {state['smi']['problem']}")
    return due


def modules_for(state: State, kernel: str) -> list[Mapping[str, str]]:
    """Return the entries of dkms for the installed version and a kernel, with those that are only added."""
    return [one for one in state["dkms"] if one["version"] == state["version"] and one["kernel"] in (kernel, "")]


def has_module(state: State, kernel: str) -> bool:
    """Return whether a kernel has the module of the installed version.

    modinfo shows what would be loaded, as another module may hide that of dkms; without kmod, dkms decides. A module
    that is only added or built counts as missing.
    """
    there: str = state["modules"].get(kernel, {}).get("version", "")
    if there:
        return bool(there == state["version"])
    return any(one["kernel"] == kernel and one["state"] == "installed" for one in modules_for(state, kernel))


def unbuilt(state: State, kernels: Sequence[str]) -> list[dict[str, str]]:
    """Return module, version and kernel of the modules that dkms can build and has not built."""
    modules = [one["module"] for one in state["dkms"] if one["version"] == state["version"]]
    return [
        {"module": modules[0], "version": state["version"], "kernel": kernel}
        for kernel in kernels
        if modules and kernel in state["headers"] and not has_module(state, kernel)
    ]


def _kernels(state: State, kernels: Sequence[str]) -> Iterator[Finding]:
    for kernel in kernels:
        if has_module(state, kernel):
            continue
        status = ", ".join(f"{one['module']}/{one['version']} {one['state']}" for one in modules_for(state, kernel))
        other = state["modules"].get(kernel, {}).get("version", "")
        reason = state["builds"].get(kernel, "")
        found = (
            f"{'module ' + other if other else 'none'} for kernel {kernel}; dkms status: {status or 'nothing'}"
            + ("" if kernel in state["headers"] else "; its headers are not installed")
            + (f"; errors of the build: {reason}" if reason else "")
        )
        expected = f"module {state['version']} for it, built and installed"
        action = "install that kernel's headers, or correct nvidia_driver_kernels; see make.log below /var/lib/dkms"
        yield Finding("kernel module", found, expected, action)


def check_hosts(hosts: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Compare each host's `driver` with what is `expected` there; a host without a driver on purpose has neither."""
    return [finding for host in hosts if host for finding in check(host["driver"], host["expected"])]


def module_findings(states: Sequence[State], kernels: Sequence[str]) -> list[Finding]:
    """Find kernels that have no module of the installed driver."""
    return [each.on(state["host"]) for state in states if state["version"] for each in _kernels(state, kernels)]


def check(state: State, expected: Mapping[str, Any]) -> list[Finding]:
    """Compare the driver of one host with what is expected.

    `expected`: `version` and `branch` ("": any), `flavour`, `kernels` that need a module, `gpus` (whether the module
    must be loaded), `fabric_manager` (whether it must be there).
    """
    return [finding.on(state["host"]) for finding in _check(state, expected)]


def _check(state: State, expected: Mapping[str, Any]) -> Iterator[Finding]:
    runs = state["version"] or state["loaded"]
    if not runs:
        yield Finding("driver", "none is installed", expected["version"] or "a driver", _PROVIDER)
        return
    requested = expected["version"] or expected["branch"]
    if requested not in ("", runs, branch_of(runs)):
        names = [f"nvidia_driver_{name}" for name in ("version", "branch") if expected[name]]
        yield Finding("driver", runs, requested, f"run site.yml, or correct {' and '.join(names)}")
    for due in state["reboot_due"]:
        action = "run playbooks/nvidia_reboot.yml -e nvidia_driver_reboot=true"
        yield Finding("reboot due", due, "that the installed driver runs", action)
    if state["userspace"] not in ("", runs):
        yield Finding("user space", state["userspace"], runs, "remove the files of the other driver: libnvidia-ml.so.*")
    if expected["fabric_manager"] and state["fabric_manager"] != runs:
        found = state["fabric_manager"] or "none"
        action = "run site.yml again; beside a driver that somebody else installs, install it there, or set "
        action += "nvidia_driver_fabric_manager: false"
        yield Finding("Fabric Manager", found, f"{runs}, exactly the driver's version", action)
    if state["version"]:
        yield from _kernels(state, expected["kernels"])
    if state["reboot_due"]:
        return
    if expected["gpus"] and not state["loaded"]:
        yield Finding("kernel module", "nvidia is not loaded", f"{runs} is loaded", "see `modprobe nvidia` and `dmesg`")
    elif expected["gpus"] and state["smi"]["problem"]:
        action = "see `dmesg` for lines with Xid and NVRM"
        yield Finding("nvidia-smi", state["smi"]["problem"], "a list of the GPUs", action)
    if expected["flavour"] and state["flavour"] not in ("", expected["flavour"]):
        action = "run site.yml, or correct nvidia_driver_flavour"
        yield Finding("flavour", state["flavour"], expected["flavour"], action)
