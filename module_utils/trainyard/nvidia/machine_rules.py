# SPDX-License-Identifier: Apache-2.0
"""Rules of NVIDIA's stack about the machine: kernel, headers, gcc, packages, space, an installed driver.

Data and form as in rules.py. The findings of the role nvidia_driver (a driver from elsewhere, broken packages,
Secure Boot without a key, missing GPUs) come from driver_plan.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ..base.findings import host_list
from . import cuda, driver_plan, nvidia_hardware
from .case import Case, Result, fetched, override, row_of, within
from .driver import is_driver_package


def _kernel(case: Case) -> Iterator[Result]:
    """Find kernels that a driver does not compile against, and missing headers."""
    if not case.installs_driver:
        return
    for kernel in case.kernels:
        for row in case.rules["kernels"] if case.facts["os"]["family"] != "redhat" else ():
            applies = case.provider in row.get("providers", [case.provider])
            applies = applies and row.get("flavour", case.flavour) == case.flavour
            new = nvidia_hardware.number(kernel) >= nvidia_hardware.number(row["fails_from"])
            # A distribution has one version of a branch, so the branch says enough there.
            packaged = case.provider == "distro" and case.branch == nvidia_hardware.branch_of(row["drivers"][1])
            if applies and new and (packaged if not case.version else within(case.driver_number, row["drivers"])):
                expected = f"a kernel before {row['fails_from']}, or a driver after {row['drivers'][1]}"
                action = (
                    "boot an older kernel of the distribution, take a newer driver of that branch, or, if you know "
                    "that it compiles, set nvidia_stack_accept: [kernel]"
                )
                yield case.by_row(row, "kernel", f"driver {case.driver_name} on kernel {kernel}", expected, action)
        if kernel in case.facts["kernel"]["headers"]:
            continue
        running = kernel == case.facts["kernel"]["running"]
        available = case.facts["kernel"]["headers_available"] if running else None
        if not available:
            found = f"none for kernel {kernel}" + (", and apt offers none" if available is False else "")
            expected = f"linux-headers-{kernel}, to build the module with"
            action = "boot a kernel whose headers the mirrors have, or name the kernels in nvidia_driver_kernels"
            yield (case.warn if available is None else case.stop)("kernel headers", found, expected, action)


def _compiler(case: Case) -> Iterator[Result]:
    """Compare the default gcc with CUDA; the role cuda_toolkit can use another one."""
    toolkit, gcc = case.toolkit, case.facts["gcc"]
    # The distribution's own toolkit brings a compiler that fits.
    if not toolkit.used or toolkit["provider"] == "distro" or not toolkit["version"] or not gcc:
        return
    newest = cuda.newest_gcc(toolkit["version"])
    if newest and not cuda.gcc_fits(gcc, newest):
        text = f"gcc {newest} or older for nvcc of CUDA {toolkit['version']}" + case.source({"source": "gcc"})
        found = f"gcc {gcc} is the host's default"
        yield case.warn("gcc", found, text, "install such a gcc as well: see the role cuda_toolkit")


def _machine(case: Case) -> Iterator[Result]:
    """Report what the role nvidia_driver rejects, and other facts of the machine."""
    gpus, settings = str(case.settings["gpus"]), case.settings
    if gpus != "auto" and not gpus.isdecimal():
        text = "auto (as PCI shows), 0 (none, on purpose) or their number"
        yield case.stop("nvidia_gpus", repr(gpus), text, "correct nvidia_gpus")
        return
    plan = {
        "provider": case.provider,
        "state": "present",
        "flavour": case.flavour or "proprietary",
        "gpus": gpus,
        "kernels": case.kernels if case.installs_driver else [],
        "fabric_manager": settings.get("fabric_manager", "auto"),
        "replace": bool(settings.get("replace")),
        "mok": bool(settings.get("mok")),
        "without_gpu": bool(settings.get("without_gpu")),
        "packages": [],
        "arguments": [],
        "by_stack": True,
        "file": settings.get("file", ""),
        **{name: case.driver[name] for name in ("version", "branch")},
        # A site's own mirror is set at that role.
        **{name: settings.get(name) or case.driver[name] for name in ("url", "sha256")},
    }
    _, findings = driver_plan.plan_host({"facts": case.facts, "driver": case.state, "settings": plan})
    yield from ((True, finding.on(case.host)) for finding in findings)
    if gpus == "0" and case.facts["gpus"]:
        found = f"{nvidia_hardware.describe_gpus(case.facts['gpus'])}, declared as 0"
        yield case.warn("GPUs", found, "none", "go on without them, or correct nvidia_gpus")
    if case.facts["virtual"] and case.facts["gpus"] and case.installs_driver:
        found = f"the host is a {case.facts['virtual']} container"
        action = "put that machine into the inventory, or " + override("driver", provider="none")
        yield case.stop("container", found, "a machine: a container uses the driver of its machine", action)
    if case.provider == "none" and case.facts["gpus"] and not case.driver_name:
        found = f"none, for {nvidia_hardware.describe_gpus(case.facts['gpus'])}"
        action = override("driver", provider="network_repo", version="...")
        if case.facts["virtual"]:
            action = "install it on the machine that has this container, and give the container its GPUs"
        elif not row_of(case.rules, "network_repo", os=case.os):
            action = override("driver", provider="runfile", version="...", url="...", sha256="...")
        yield case.stop("driver", found, "a driver, as this stack installs none", action)
    if case.facts["nouveau"] and case.installs_driver:
        text = "no nouveau beside the NVIDIA driver"
        action = "go on: the role nvidia_driver disables it, and a reboot is due then"
        yield case.warn("nouveau", "nouveau is loaded", text, action)
    if case.facts["secure_boot"] == "unknown" and case.installs_driver and not settings.get("mok"):
        text = "that it is off, or a key to sign the module, as the kernel would refuse an unsigned one"
        action = "check `mokutil --sb-state`; with Secure Boot on, set " + driver_plan.MOK
        yield case.warn("Secure Boot", "neither mokutil nor the EFI variable says whether it is on", text, action)
    kinds = {gpu["device_id"] for gpu in case.facts["gpus"]}
    if len(kinds) > 1:
        found = nvidia_hardware.describe_gpus(case.facts["gpus"])
        yield case.warn("GPUs", found, "one model in a host", "go on: the slowest GPU sets the pace of a job")


def _held(case: Case) -> Iterator[Result]:
    """Find packages on hold that this project has not put on hold."""
    apt = case.facts["apt"]
    foreign = [name for name in apt["held"] if name.partition(":")[0] not in apt["kept"]]
    headers = [name for name in foreign if name.startswith("linux-headers")]
    is_kernel_held = any(name.startswith("linux-image") for name in foreign)
    if headers and not is_kernel_held and case.installs_driver:
        text = "headers that follow the kernel"
        action = f"apt-mark unhold {' '.join(headers)}, or hold the kernel as well"
        yield case.warn("packages", f"{', '.join(headers)} on hold", text, action)
    driver = [name for name in foreign if is_driver_package(name.partition(":")[0])]
    if driver and case.installs_driver:
        found = f"{host_list(driver)} on hold, and not by this project"
        expected = f"driver packages that can change to {case.driver_name}"
        action = f"apt-mark unhold them, or keep the installed driver: {override('driver', provider='none')}"
        yield case.stop("packages", found, expected, action)


def _space(case: Case) -> Iterator[Result]:
    row = case.rules["space_mib"]
    needs: list[Mapping[str, int]] = []
    if case.installs_driver:
        needs.append(row["driver"]["any"])
    provider = case.toolkit["provider"]
    name = "distro" if provider == "distro" else cuda.release(case.toolkit["version"])
    if provider in row["cuda"] and name not in map(cuda.release, case.facts["cuda"]):
        needs.append(row["cuda"][provider])
    free: Mapping[str, int] = case.facts["free_mib"]
    together: dict[int, Counter[str]] = {}
    for need in needs:
        for folder, size in need.items():
            if folder in free:
                # Folders of one file system show the same free space.
                together.setdefault(free[folder], Counter())[folder] += size
    for available, folders in together.items():
        needed = sum(folders.values())
        if available < needed:
            text = f"{needed} MiB for driver and CUDA" + case.source(row)
            found = f"{available} MiB free in {', '.join(folders)}"
            action = "free some space, or set nvidia_stack_accept: [space]"
            yield case.stop("space", found, text, action)


def _advisories(case: Case) -> Iterator[Result]:
    for row in case.rules["advisories"]:
        if case.version and not case.without and within(case.driver_number, row["drivers"]):
            expected = f"driver {row['fixed']} or newer"
            action = "upgrade it there (docs/nvidia.md)"
            if case.provider != "none":
                action = override("driver", version=row["fixed"], **fetched(case.driver))
            yield case.by_row(row, "driver's faults", f"driver {case.version}, which {row['fault']}", expected, action)


# Rules about every machine, with or without GPUs, and about this driver on this machine.
MACHINE_RULES = (_machine, _held, _space, _compiler)
DRIVER_RULES = (_kernel, _advisories)
