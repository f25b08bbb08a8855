# SPDX-License-Identifier: Apache-2.0
"""Rules of NVIDIA's stack that speak of the machine: kernel, headers, gcc, packages, space, a driver that is there.

Pure; data and form as in nvidia_rules. What the role nvidia_driver refuses (a driver from elsewhere, broken packages,
Secure Boot without a key, GPUs that are missing) is asked of that role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..findings.findings import host_list
from . import cuda as toolkits
from . import driver as nvidia_driver
from . import driver_plan
from . import hardware as nvidia
from .case import Case, Said, override, within


def _kernel(case: Case) -> Iterator[Said]:
    """Kernels that a driver does not compile against, and headers to compile with."""
    if not case.installs_driver:
        return
    for kernel in case.kernels:
        for row in case.rules["kernels"] if case.facts["os"]["family"] != "redhat" else ():
            mine = case.provider in row.get("providers", [case.provider])
            mine = mine and row.get("flavour", case.flavour) == case.flavour
            new = nvidia.number(kernel) >= nvidia.number(row["fails_from"])
            # A distribution has one version of a branch, so the branch says enough there.
            packaged = case.provider == "distro" and case.branch == nvidia.branch_of(row["drivers"][1])
            if mine and new and (packaged if not case.version else within(case.driver_number, row["drivers"])):
                yield case.say(
                    row=row,
                    check="kernel",
                    found=f"driver {case.driver_name} on kernel {kernel}",
                    expected=f"a kernel before {row['fails_from']}, or a driver after {row['drivers'][1]}",
                    action=(
                        "boot an older kernel of the distribution, take a newer driver of that branch, or, if you know "
                        "that it compiles, nvidia_stack_accept: [kernel]"
                    ),
                )
        if kernel in case.facts["kernel"]["headers"]:
            continue
        running = kernel == case.facts["kernel"]["running"]
        available = case.facts["kernel"]["headers_available"] if running else None
        if not available:
            yield (case.warn if available is None else case.stop)(
                check="kernel headers",
                found=f"none for kernel {kernel}" + (", and apt offers none" if available is False else ""),
                expected=f"linux-headers-{kernel}, to build the module with",
                action=(
                    "install a kernel whose headers the mirrors have and boot it, or name the kernels in "
                    "nvidia_driver_kernels"
                ),
            )


def _compiler(case: Case) -> Iterator[Said]:
    """Default gcc x CUDA; the role cuda_toolkit can be told another one."""
    toolkit, gcc = case.parts.get("cuda", {}), case.facts["gcc"]
    # The distribution's own toolkit brings a compiler that fits.
    if toolkit.get("provider") in (None, "none", "distro") or not toolkit.get("version") or not gcc:
        return
    newest = toolkits.newest_gcc(toolkit["version"])
    if newest and not toolkits.gcc_fits(gcc, newest):
        text = f"gcc {newest} or older for nvcc of CUDA {toolkit['version']}" + case.source({"source": "gcc"})
        found = f"gcc {gcc} is the host's default"
        yield case.warn(
            check="gcc", found=found, expected=text, action="install such a gcc beside it: see the role cuda_toolkit"
        )


def _machine(case: Case) -> Iterator[Said]:
    """What the role nvidia_driver refuses, and what else the machine is."""
    gpus, wanted = str(case.wanted["gpus"]), case.wanted
    if gpus != "auto" and not gpus.isdecimal():
        text = "auto (as many as there are), 0 (none, on purpose) or their number"
        yield case.stop(check="nvidia_gpus", found=repr(gpus), expected=text, action="correct nvidia_gpus")
        return
    plan = {
        "provider": case.provider,
        "state": "present",
        "flavour": case.flavour or "proprietary",
        "gpus": gpus,
        "kernels": case.kernels if case.installs_driver else [],
        "fabric_manager": wanted.get("fabric_manager", "auto"),
        "replace": bool(wanted.get("replace")),
        "mok": bool(wanted.get("mok")),
        "without_gpu": bool(wanted.get("without_gpu")),
        "packages": [],
        "arguments": [],
        "file": wanted.get("file", ""),
        **{name: case.driver.get(name, "") for name in ("version", "branch")},
        # An own mirror's address stands at that role, as addresses of one stack may differ between sites.
        **{name: wanted.get(name) or case.driver.get(name, "") for name in ("url", "sha256")},
    }
    _, findings = driver_plan.plan_host({"facts": case.facts, "driver": case.state, "wanted": plan})
    yield from ((True, finding) for finding in findings)
    if gpus == "0" and case.facts["gpus"]:
        found = f"{nvidia.describe_gpus(case.facts['gpus'])}, declared as 0"
        yield case.warn(check="GPUs", found=found, expected="none", action="go on without them, or correct nvidia_gpus")
    if case.facts["virtual"] and case.facts["gpus"] and case.installs_driver:
        yield case.stop(
            check="container",
            found=f"the host is a {case.facts['virtual']} container",
            expected="a machine of its own: a container has the driver of its machine",
            action="put the machine itself into the inventory, or " + override("driver", provider="none"),
        )
    if case.provider == "none" and case.facts["gpus"] and not case.driver_name:
        found = f"none, for {nvidia.describe_gpus(case.facts['gpus'])}"
        action = override("driver", provider="network_repo", version="...")
        yield case.stop(check="driver", found=found, expected="a driver, as this stack installs none", action=action)
    if case.facts["nouveau"] and case.installs_driver:
        text = "the kernel's own driver gives way"
        action = "go on: the role nvidia_driver takes it out, and a reboot is due then"
        yield case.warn(check="nouveau", found="nouveau is loaded", expected=text, action=action)
    if case.facts["secure_boot"] == "unknown" and case.installs_driver and not wanted.get("mok"):
        text = "that it is off, or a key to sign the module with: the kernel would refuse an unsigned one"
        action = "look at `mokutil --sb-state`; with Secure Boot on, set nvidia_driver_mok_key"
        yield case.warn(
            check="Secure Boot",
            found="neither mokutil nor the EFI variable says whether it is on",
            expected=text,
            action=action,
        )
    kinds = {gpu["device_id"] for gpu in case.facts["gpus"]}
    if len(kinds) > 1:
        found = nvidia.describe_gpus(case.facts["gpus"])
        yield case.warn(
            check="GPUs",
            found=found,
            expected="one model in a host",
            action="go on: a job's pace is that of the slowest",
        )


def _held(case: Case) -> Iterator[Said]:
    """Packages that somebody else holds where they are."""
    apt = case.facts["apt"]
    foreign = [name for name in apt["held"] if name.partition(":")[0] not in apt["kept"]]
    headers = [name for name in foreign if name.startswith("linux-headers")]
    if headers and case.installs_driver:
        text = "headers that follow the kernel"
        action = f"apt-mark unhold {' '.join(headers)}, or hold the kernel as well"
        yield case.warn(check="packages", found=f"{', '.join(headers)} on hold", expected=text, action=action)
    driver = [name for name in foreign if nvidia_driver.is_driver_package(name.partition(":")[0])]
    if driver and case.installs_driver:
        yield case.stop(
            check="packages",
            found=f"{host_list(driver)} on hold, which this project has not put there",
            expected=f"packages of the driver that may become {case.driver_name}",
            action=f"apt-mark unhold them, or keep what is there: {override('driver', provider='none')}",
        )


def _space(case: Case) -> Iterator[Said]:
    row = case.rules["space_mib"]
    needs: list[Mapping[str, int]] = []
    if case.installs_driver:
        needs.append(row["driver"]["any"])
    toolkit = case.parts.get("cuda", {})
    name = "distro" if toolkit.get("provider") == "distro" else toolkits.release(toolkit.get("version", ""))
    if toolkit.get("provider") in row["cuda"] and name not in map(toolkits.release, case.facts["cuda"]):
        needs.append(row["cuda"][toolkit["provider"]])
    free: Mapping[str, int] = case.facts["free_mib"]
    together: dict[int, dict[str, int]] = {}
    for need in needs:
        for folder, size in need.items():
            if folder in free:
                # Folders of one file system show the same free space.
                folders = together.setdefault(free[folder], {})
                folders[folder] = folders.get(folder, 0) + size
    for there_is, folders in together.items():
        needed = sum(folders.values())
        if there_is < needed:
            text = f"{needed} MiB for driver and CUDA" + case.source(row)
            found = f"{there_is} MiB free in {', '.join(folders)}"
            action = "free some, or, if you know better, nvidia_stack_accept: [space]"
            yield case.stop(check="space", found=found, expected=text, action=action)


def _advisories(case: Case) -> Iterator[Said]:
    for row in case.rules["advisories"]:
        if case.version and not case.without and within(case.driver_number, row["drivers"]):
            yield case.say(
                row=row,
                check="driver's faults",
                found=f"driver {case.version}, which {row['fault']}",
                expected=f"driver {row['fixed']} or newer",
                action=override("driver", version=row["fixed"]) + ", with url and sha256 for a runfile",
            )


def machine_rules(case: Case) -> Iterator[Said]:
    """Yield what the machine itself says, also one that is declared to have no GPU."""
    for rule in (_machine, _held, _space, _compiler):
        yield from rule(case)


def driver_rules(case: Case) -> Iterator[Said]:
    """Yield what speaks against this driver on this machine."""
    for rule in (_kernel, _advisories):
        yield from rule(case)
