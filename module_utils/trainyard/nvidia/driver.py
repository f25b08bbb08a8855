# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA driver of a machine: what its tools and files say, where it came from, whether it is the one that runs.

Pure. A state is what library/nvidia_driver_state returns of a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding

State = Mapping[str, Any]

VERSION = re.compile(r"\d{3}\.\d+(?:\.\d+)*")
# Belongs to the driver: goes with it, comes with it. Toolkits for containers, CUDA and profilers do not.
_DRIVER_PACKAGE = re.compile(
    r"(cuda-drivers|nvidia-(driver|open|dkms|kernel|headless|tesla|legacy|alternative|smi|utils|compute-utils|modprobe"
    r"|persistenced|settings|firmware|fabric-?manager|imex|xconfig|vdpau|egl|opencl|libopencl|cuda-mps|vulkan"
    r"|suspend|powerd|detector|support|installer-cleanup)|glx-alternative-nvidia|firmware-nvidia|linux-(modules|objects|signatures)-nvidia"
    r"|xserver-xorg-video-nvidia|libnvidia|libcuda1|libnvcuvid1|libnvoptix1|lib(egl|gl1?|gles|glx|glx1)-nvidia"
    r"|kmod-nvidia|dkms-nvidia|xorg-x11-nvidia|libcudadebugger1)"
)
_OTHER_PACKAGE = re.compile(r"libnvidia-(container|ml-dev)|nvidia-(container|docker|cuda-(toolkit|dev|doc|gdb)|vaapi)")
# The part of a driver that its kernel module is built from: what tells whose driver it is.
_KERNEL_PACKAGE = re.compile(
    r"(nvidia-(open-)?kernel|nvidia-kernel-open|nvidia-tesla-\d+-kernel|nvidia-tesla-kernel|nvidia-dkms-\d+\S*"
    r"|nvidia-legacy-\S+-kernel|kmod-nvidia\S*)(-dkms)?$|linux-modules-nvidia-"
)
_DKMS = re.compile(
    r"^(?P<module>nvidia[^/,\s]*)[/,]\s*(?P<version>[^,:\s]+)"
    r"(?:,\s*(?P<kernel>[^,:\s]+)(?:,\s*(?P<arch>[^:\s]+))?)?:\s*(?P<state>[a-z]+)"
)
# Who maintains a distribution's own packages.
_DISTRIBUTOR = re.compile(r"[@.](debian\.org|ubuntu\.com|canonical\.com)>")
# dkms' names of modules that are no driver.
_OTHER_MODULES = ("nvidia-fs", "nvidia-peermem", "nvidia-gdrdrv")


def package_version(version: str) -> str:
    """Return the driver's version from that of a package: without epoch and packaging suffix."""
    return version.rpartition(":")[2].partition("-")[0]


def branch_of(version: str) -> int:
    """Return the branch of a driver's version, 0 where it has none."""
    found = re.match(r"\d{3}(?!\d)", version)
    return int(found[0]) if found else 0


def is_driver_package(name: str) -> bool:
    """Tell whether a package of this name is part of a driver."""
    return bool(_DRIVER_PACKAGE.match(name)) and not _OTHER_PACKAGE.match(name)


def read_packages(output: str) -> list[dict[str, str]]:
    """Read `dpkg-query -W` with name, version, status abbreviation and maintainer, separated by tabs.

    Only packages of a driver, and only those of which anything is there: not those whose settings are all that is left.
    """
    found = []
    for line in output.splitlines():
        fields = line.split("\t")
        if len(fields) == 4 and is_driver_package(fields[0]) and fields[2][1:2] not in ("n", "c", ""):
            found.append(dict(zip(("name", "version", "status", "maintainer"), fields)))
    return found


def read_held(output: str) -> list[str]:
    """Read `apt-mark showhold`: the packages of a driver among those held."""
    return sorted(name for name in output.split() if is_driver_package(name.partition(":")[0]))


def read_dkms(output: str) -> list[dict[str, str]]:
    """Read `dkms status`, also of releases before 3 (`nvidia, 470.103.01, ...`).

    `state` is added, built or installed; of a module that is built for no kernel, `kernel` is empty.
    """
    found = []
    for line in output.splitlines():
        match = _DKMS.match(line.strip())
        if match and match["module"] not in _OTHER_MODULES:
            found.append({name: match[name] or "" for name in ("module", "version", "kernel", "state")})
    return found


def read_proc_version(text: str | None) -> tuple[str, str]:
    """Return version and flavour from /proc/driver/nvidia/version; both empty where no driver is loaded."""
    line = next((line for line in (text or "").splitlines() if line.startswith("NVRM version:")), "")
    found = VERSION.search(line)
    if not found:
        return "", ""
    return found[0], "open" if "Open Kernel Module" in line else "proprietary"


def read_modinfo(output: str) -> dict[str, str]:
    """Return version, flavour and signer from `modinfo nvidia`; all empty where there is no such module."""
    pairs = (line.partition(":") for line in output.splitlines())
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    licence = fields.get("license", "")
    return {
        "version": fields["version"] if VERSION.fullmatch(fields.get("version", "")) else "",
        # The open flavour says Dual MIT/GPL, the other NVIDIA.
        "flavour": "" if not licence else "open" if "GPL" in licence else "proprietary",
        "signer": fields.get("signer", ""),
    }


def read_fabric_manager(output: str) -> str:
    """Return the version from `nv-fabricmanager --version`."""
    found = re.search(r"version is\s*:\s*(" + VERSION.pattern + ")", output)
    return found[1] if found else ""


def read_installer_log(text: str | None) -> str:
    """Return the version from /var/lib/nvidia/log, in which the vendor's installer notes what it installed."""
    found = VERSION.findall((text or "").partition("\n")[0])
    return found[-1] if found else ""


def read_smi(status: int, output: str) -> dict[str, str]:
    """Read `nvidia-smi --query-gpu=driver_version --format=csv,noheader`: version of the module, or what it says."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status == 0 and lines and all(VERSION.fullmatch(line) for line in lines):
        return {"driver": lines[0], "problem": ""}
    return {"driver": "", "problem": " ".join(lines)[:300] or f"ended with status {status} and said nothing"}


def read_libraries(names: Iterable[str]) -> str:
    """Return the version that libnvidia-ml's file names have; several, which is a fault, joined by commas."""
    found = {name.partition(".so.")[2] for name in names if name.startswith("libnvidia-ml.so.")}
    return ", ".join(sorted(version for version in found if VERSION.fullmatch(version)))


def build_reason(log: str, most: int = 3) -> str:
    """Return from dkms' make.log why a module was not built: the compiler's first errors, else the last lines."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    wrong = [line for line in lines if re.search(r"(^|[\s:])(fatal )?error:|^ERROR: modpost|^ld: ", line)]
    if not wrong:
        wrong = [line for line in lines if re.search(r"\*\*\*|ERROR|[Nn]o such file", line)] or lines[-most:]
    return " / ".join(dict.fromkeys(wrong[:most])) if wrong else ""


def provider_of(packages: Sequence[Mapping[str, str]], runfile: str, loaded: str) -> str:
    """Tell where a driver came from: none, distro, network_repo, runfile or unknown.

    Packages and traces of the vendor's installer side by side are unknown, as is a driver that runs without either.
    """
    kernel = [one for one in packages if _KERNEL_PACKAGE.match(one["name"])]
    # Libraries alone are no driver: other packages bring them along.
    if kernel:
        origins = {bool(_DISTRIBUTOR.search(one["maintainer"].lower())) for one in kernel}
        if runfile or len(origins) > 1:
            return "unknown"
        return "distro" if True in origins else "network_repo"
    if runfile:
        return "runfile"
    return "unknown" if loaded else "none"


def installed_version(packages: Sequence[Mapping[str, str]], runfile: str) -> str:
    """Return the version of the driver that is installed: that of its kernel packages, or of the vendor's installer."""
    for one in packages:
        if _KERNEL_PACKAGE.match(one["name"]):
            return package_version(one["version"])
    return runfile


def reboot_due(state: State) -> list[str]:
    """Return what is installed but does not run before a reboot."""
    due = []
    if state["version"] and state["loaded"] and state["loaded"] != state["version"]:
        due.append(f"module {state['loaded']} is loaded, {state['version']} is installed")
    if state["version"] and state["nouveau"]:
        due.append(f"nouveau is loaded, {state['version']} is installed")
    if not due and "version mismatch" in state["smi"]["problem"]:
        due.append(f"nvidia-smi says: {state['smi']['problem']}")
    return due


def modules_for(state: State, kernel: str) -> list[Mapping[str, str]]:
    """Return what dkms says of the installed version and a kernel; of one that is only added, with an empty kernel."""
    return [one for one in state["dkms"] if one["version"] == state["version"] and one["kernel"] in (kernel, "")]


def has_module(state: State, kernel: str) -> bool:
    """Tell whether the installed version's module is there for a kernel.

    modinfo tells what would be loaded; without kmod, dkms is asked. A module that dkms has built may be hidden by
    another one, and one that it has only added or built is not there.
    """
    there: str = state["modules"].get(kernel, {}).get("version", "")
    if there:
        return bool(there == state["version"])
    return any(one["kernel"] == kernel and one["state"] == "installed" for one in modules_for(state, kernel))


def unbuilt(state: State, kernels: Sequence[str]) -> list[dict[str, str]]:
    """Return module, version and kernel of what dkms could build and has not."""
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
        known = modules_for(state, kernel)
        said = ", ".join(f"{one['module']}/{one['version']} {one['state']}" for one in known)
        other = state["modules"].get(kernel, {}).get("version", "")
        reason = state["builds"].get(kernel, "")
        yield Finding(
            "kernel module",
            (
                f"{'module ' + other if other else 'none'} for kernel {kernel}; dkms status: {said or 'nothing'}"
                + ("" if kernel in state["headers"] else "; its headers are not installed")
                + (f"; the build said: {reason}" if reason else "")
            ),
            f"module {state['version']} for it, built and installed",
            (
                "install the headers of that kernel, or name the right ones in nvidia_driver_kernels; see make.log "
                "below /var/lib/dkms"
            ),
            host=state["host"],
        )


def judge_all(hosts: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Judge hosts by what each has, its `driver`, and what is `wanted` there."""
    return [finding for host in hosts for finding in judge(host["driver"], host["wanted"])]


def judge(state: State, wanted: Mapping[str, Any]) -> list[Finding]:
    """Judge one host.

    `wanted`: `version` and `branch` ("": any), `flavour`, `kernels` that need a module, `gpus` whether the module must
    be loaded, `fabric_manager` whether it must be there.
    """
    host, version = state["host"], state["version"]
    findings: list[Finding] = []

    def odd(check: str, found: str, expected: str, action: str) -> None:
        findings.append(Finding(check, found, expected, action, host=host))

    if not (version or state["loaded"]):
        odd(
            check="driver",
            found="none is installed",
            expected=wanted["version"] or "a driver",
            action="set nvidia_driver_provider",
        )
        return findings
    runs = version or state["loaded"]
    expected = wanted["version"] or wanted["branch"]
    if expected and runs != expected and str(branch_of(runs)) != expected:
        odd(
            check="driver",
            found=runs,
            expected=expected,
            action="run site.yml, or set nvidia_driver_version to what is wanted",
        )
    for due in state["reboot_due"]:
        odd(
            check="reboot due",
            found=due,
            expected="what is installed runs",
            action="playbooks/nvidia_reboot.yml -e nvidia_driver_reboot=true",
        )
    if state["userspace"] and state["userspace"] != runs:
        odd(
            check="user space",
            found=state["userspace"],
            expected=runs,
            action="remove what is left of another driver: libnvidia-ml.so.*",
        )
    if wanted["fabric_manager"] and state["fabric_manager"] != runs:
        odd(
            check="Fabric Manager",
            found=state["fabric_manager"] or "none",
            expected=f"{runs}, exactly the driver's",
            action="run site.yml again",
        )
    if version:
        findings += _kernels(state, wanted["kernels"])
    if wanted["gpus"] and not state["reboot_due"]:
        if not state["loaded"]:
            odd(
                check="kernel module",
                found="nvidia is not loaded",
                expected=f"{runs} is loaded",
                action="see `modprobe nvidia` and `dmesg`",
            )
        elif state["smi"]["problem"]:
            odd(
                check="nvidia-smi",
                found=state["smi"]["problem"],
                expected="it lists the GPUs",
                action="see `dmesg` for Xid and NVRM lines",
            )
    if wanted["flavour"] and state["flavour"] and state["flavour"] != wanted["flavour"] and not state["reboot_due"]:
        odd(
            check="flavour",
            found=state["flavour"],
            expected=wanted["flavour"],
            action="set nvidia_driver_flavour to what is wanted",
        )
    return findings
