# SPDX-License-Identifier: Apache-2.0
"""Which packages or which installer bring a driver to a host, and what forbids it. Pure.

A root is a list of names of one package, the first that is offered is meant: the vendor has renamed packages between
branches. Names of Debian's and Ubuntu's archives are as in Debian 12 and 13 and Ubuntu 22.04 and 24.04; those of
NVIDIA's network repository as in its driver installation guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from .driver import VERSION, branch_of, has_module, package_version

Host = Mapping[str, Any]
Roots = list[list[str]]

PROVIDERS = ("distro", "network_repo", "runfile", "none")
# Open modules exist from this branch on.
FIRST_OPEN = 515
# From this branch on the installer takes --kernel-module-type; before, the folder to build from; before 515, neither.
FIRST_MODULE_TYPE = 560
# From this branch on the installer can leave the module unloaded, which it cannot load where there is no GPU.
FIRST_SKIP_LOAD = 535
# From these branches on NVIDIA's packages have no branch in their names.
_PLAIN_DRIVER = 590
_PLAIN_FABRIC_MANAGER = 580
_SHA256 = re.compile(r"[0-9a-f]{64}")
# What a node that computes needs, and no X server.
_DEBIAN = ["nvidia-smi", "libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1"]
_TESLA = ["smi"]
_TESLA_LIBRARIES = ["cuda1", "ml1", "cfg1", "ptxjitcompiler1"]
# In Debian these have versions of their own.
_APART = ["nvidia-modprobe", "nvidia-persistenced"]
_TESLA_BRANCHES = ("450", "470")


def wanted_branch(wanted: Host) -> str:
    """Return the branch that is wanted, by itself or as part of the version; empty where none is said."""
    return str(wanted["branch"] or (branch_of(wanted["version"]) or ""))


def _distro(system: Mapping[str, str], branch: str, flavour: str, fabric_manager: bool) -> Roots:
    if system["id"] == "ubuntu":
        suffix = "-open" if flavour == "open" else ""
        roots = [[f"nvidia-headless-{branch}-server{suffix}"], [f"nvidia-utils-{branch}-server"]]
        return [*roots, [f"nvidia-fabricmanager-{branch}"]] if fabric_manager else roots
    if branch in _TESLA_BRANCHES:
        tesla = [f"nvidia-tesla-{branch}-kernel-dkms", *(f"nvidia-tesla-{branch}-{name}" for name in _TESLA)]
        return [
            [name] for name in (*tesla, *(f"libnvidia-tesla-{branch}-{name}" for name in _TESLA_LIBRARIES), *_APART)
        ]
    kernel = "nvidia-open-kernel-dkms" if flavour == "open" else "nvidia-kernel-dkms"
    return [[name] for name in (kernel, *_DEBIAN, "firmware-nvidia-gsp", *_APART)]


def _network_repo(branch: str, flavour: str, fabric_manager: bool) -> Roots:
    plain, suffixed = (
        ("nvidia-open", f"nvidia-open-{branch}") if flavour == "open" else ("cuda-drivers", f"cuda-drivers-{branch}")
    )
    roots = [[plain] if not branch or int(branch) >= _PLAIN_DRIVER else [suffixed, plain]]
    if fabric_manager:
        names = ["nvidia-fabricmanager", f"nvidia-fabricmanager-{branch}"]
        roots.append(names if branch and int(branch) >= _PLAIN_FABRIC_MANAGER else names[::-1])
    return roots


def pinning_packages(version: str, branch: str) -> list[str]:
    """Return the names of the vendor's own package that keeps apt on a version or branch, the exact one first."""
    return [f"nvidia-driver-pinning-{one}" for one in (version, branch) if one]


def roots(system: Mapping[str, str], wanted: Host, fabric_manager: bool) -> Roots:
    """Return the packages to ask for, that of the kernel module first; what they depend on comes with them."""
    if wanted["packages"]:
        return [[name] for name in wanted["packages"]]
    branch = wanted_branch(wanted)
    if wanted["provider"] == "distro":
        return _distro(system, branch, wanted["flavour"], fabric_manager)
    return _network_repo(branch, wanted["flavour"], fabric_manager)


def offers(wanted: Host) -> list[dict[str, Any]]:
    """Return which package decides what version is meant, as apt_offers takes it; the system is not known yet."""
    if wanted["state"] == "absent" or wanted["provider"] not in ("distro", "network_repo"):
        return []
    if str(wanted["gpus"]) == "0" and not wanted["without_gpu"]:
        return []
    names = dict.fromkeys(name for system in ("debian", "ubuntu") for name in roots({"id": system}, wanted, False)[0])
    branch = wanted_branch(wanted)
    return [{"names": list(names), "version": wanted["version"], "begins": f"{branch}." if branch else ""}]


def installer_arguments(wanted: Host, state: Host, gpus: bool) -> list[str]:
    """Return the arguments of the vendor's installer; of options that a branch does not know, none is given."""
    branch, kernels = branch_of(wanted["version"]), wanted["kernels"]
    arguments = ["--silent", "--no-questions", "--no-x-check"]
    if kernels:
        arguments.append("--dkms")
        if kernels[0] != state["kernel"]:
            arguments.append(f"--kernel-name={kernels[0]}")
    else:
        arguments.append("--no-kernel-module")
    if branch >= FIRST_MODULE_TYPE:
        arguments.append(f"--kernel-module-type={wanted['flavour']}")
    elif wanted["flavour"] == "open":
        arguments.append("--kernel-module-build-directory=kernel-open")
    if state["nouveau"]:
        # It goes with the reboot that is due then.
        arguments.append("--no-nouveau-check")
    if branch >= FIRST_SKIP_LOAD and (not gpus or state["nouveau"] or kernels[:1] != [state["kernel"]]):
        arguments.append("--skip-module-load")
    return [*arguments, *wanted["arguments"]]


def choose_version(offered: Sequence[str], version: str, branch: str) -> str:
    """Return the newest of the packages' versions offered that is of the driver's version or branch; empty for none.

    `offered` is newest first. 550.54.1 is not 550.54.15, and branch 55 not 550.
    """
    for one in offered:
        upstream = package_version(one)
        if (not version or upstream == version) and (not branch or str(branch_of(upstream)) == branch):
            return one
    return ""


def _wrong_input(host: Host, wanted: Host) -> Iterator[Finding]:
    def wrong(check: str, found: str, expected: str, action: str = "") -> Finding:
        return Finding(check, found, expected, action or f"correct {check}", host=host["driver"]["host"])

    version, branch = wanted["version"], str(wanted["branch"])
    if version and not VERSION.fullmatch(version):
        yield wrong(check="nvidia_driver_version", found=repr(version), expected="an exact version such as 550.127.08")
    if branch and (not re.fullmatch(r"\d{3}", branch) or (version and str(branch_of(version)) != branch)):
        yield wrong(
            check="nvidia_driver_branch",
            found=repr(branch),
            expected=f"the branch of {version or 'a driver'} such as 550",
        )
    if wanted["flavour"] == "open" and 0 < int(wanted_branch(wanted) or 0) < FIRST_OPEN:
        yield wrong(
            check="nvidia_driver_flavour",
            found=f"open of branch {wanted_branch(wanted)}",
            expected=f"proprietary: open modules begin with branch {FIRST_OPEN}",
        )
    if wanted["provider"] != "runfile":
        return
    name = (wanted["file"] or wanted["url"]).rpartition("/")[2]
    if not version:
        yield wrong(
            check="nvidia_driver_version", found="none", expected="the version of the runfile, as its name has it"
        )
    if version and host["driver"]["runfile"] == version:
        # It is installed, so none is needed.
        return
    if not name:
        yield wrong(
            check="nvidia_driver_url", found="none, and no nvidia_driver_file", expected="where the runfile comes from"
        )
    elif version and version not in VERSION.findall(name):
        yield wrong(
            check="nvidia_driver_url",
            found=name,
            expected=f"the runfile of {version}",
            action="make file name and version agree",
        )
    machine = next((one for one in ("x86_64", "aarch64") if one in name), "")
    if machine and machine != host["facts"]["arch"]:
        yield wrong(check="nvidia_driver_url", found=name, expected=f"a runfile for {host['facts']['arch']}")
    if not _SHA256.fullmatch(wanted["sha256"]):
        yield wrong(
            check="nvidia_driver_sha256",
            found=repr(wanted["sha256"]),
            expected="64 hexadecimal digits: sha256sum of the runfile",
        )


def _in_the_way(host: Host, wanted: Host, fabric_manager: bool) -> Iterator[Finding]:
    state, facts = host["driver"], host["facts"]
    name = state["host"]
    there = f"driver {state['version'] or state['loaded']}"
    if state["provider"] == "unknown":
        mixed = f"packages {', '.join(sorted(state['packages'])[:4])}" if state["packages"] else "no package"
        installer = f"the vendor's installer ({state['runfile']})" if state["runfile"] else "no trace of an installer"
        yield Finding(
            "driver from elsewhere",
            f"{there}: {mixed}, and {installer}",
            "a driver that came one way",
            "remove it the way it came (apt purge, nvidia-uninstall), or keep it: nvidia_driver_provider: none",
            host=name,
        )
    elif state["provider"] not in ("none", wanted["provider"]) and not wanted["replace"]:
        yield Finding(
            "driver from elsewhere",
            f"{there} from {state['provider']}",
            f"none, or one from {wanted['provider']}",
            (
                f"keep it: nvidia_driver_provider: {state['provider']}; or have it removed first: "
                "nvidia_driver_replace: true"
            ),
            host=name,
        )
    broken = sorted({*facts["apt"]["broken"], *state["broken"]})
    if broken and wanted["provider"] != "none":
        yield Finding(
            "packages",
            f"not wholly installed: {', '.join(broken)}",
            "none",
            "`dpkg --configure -a`, `apt -f install`",
            host=name,
        )
    if facts["secure_boot"] == "enabled" and wanted["kernels"] and not wanted["mok"]:
        yield Finding(
            "Secure Boot",
            "enabled, and no key to sign the module with, which the kernel would refuse to load",
            "a key that is enrolled (mokutil --import)",
            "set nvidia_driver_mok_key and nvidia_driver_mok_certificate, or disable Secure Boot",
            host=name,
        )
    has_none = wanted["provider"] == "runfile" or (wanted["provider"] == "distro" and facts["os"]["id"] == "debian")
    if fabric_manager and has_none and not wanted["packages"]:
        yield Finding(
            "Fabric Manager",
            f"{facts['nvswitches']} NVSwitches, and {wanted['provider']} has no Fabric Manager",
            "Fabric Manager of exactly the driver's version, without which CUDA does not start there",
            "nvidia_driver_provider: network_repo, or nvidia_driver_fabric_manager: false if you bring it yourself",
            host=name,
        )


def _gpus(host: Host, wanted: Host) -> Iterator[Finding]:
    declared, found = str(wanted["gpus"]), len(host["facts"]["gpus"])
    if declared == "auto" and not found:
        yield Finding(
            "GPUs",
            "none on the PCI bus",
            "at least one",
            "look at `lspci -d 10de:`, or declare it: nvidia_gpus: 0",
            host=host["driver"]["host"],
        )
    elif declared not in ("auto", "0") and declared != str(found):
        yield Finding(
            "GPUs",
            f"{found} on the PCI bus",
            declared,
            "look for the missing one in `lspci -d 10de:` and in the machine's own log, or correct nvidia_gpus",
            host=host["driver"]["host"],
        )


def _step(state: Host, wanted: Host, remove: str) -> str:
    """Say in one line what a run would do; empty for nothing."""
    target = f"{wanted['version'] or ('branch ' + wanted['branch'] if wanted['branch'] else 'what there is')}"
    if wanted["state"] == "absent":
        return f"remove driver {state['version']} ({state['provider']})" if state["version"] else ""
    if wanted["provider"] == "none":
        return ""
    if remove:
        return f"remove driver {state['version']} ({remove}), install {target} ({wanted['provider']})"
    if not state["version"]:
        return f"install driver {target} ({wanted['provider']})"
    other_branch = wanted_branch(wanted) not in ("", str(branch_of(state["version"])))
    if other_branch or (wanted["version"] and state["version"] != wanted["version"]):
        return f"driver {target} instead of {state['version']} ({wanted['provider']})"
    missing = [kernel for kernel in wanted["kernels"] if not has_module(state, kernel)]
    return f"build the module {state['version']} for {', '.join(missing)}" if missing else ""


def plan_host(host: Host) -> tuple[dict[str, Any], list[Finding]]:
    """Plan for one host: its `driver` (state), its `facts` (library/nvidia_host) and what is `wanted` there.

    Returns `action` (skip, verify, install or remove), `remove` (provider of a driver that goes first), `roots`,
    `pinning`, `arguments`, `gpus` and `fabric_manager` (whether it is to have these) and `step` (one line of text).
    """
    state, facts, wanted = host["driver"], host["facts"], host["wanted"]
    gpus = str(wanted["gpus"]) != "0"
    fabric_manager = wanted["fabric_manager"] == "true" or (
        wanted["fabric_manager"] == "auto" and gpus and bool(facts["nvswitches"])
    )
    plan: dict[str, Any] = {
        "action": "verify" if wanted["provider"] == "none" else "install",
        "remove": "",
        "roots": [],
        "pinning": [],
        "arguments": [],
        "gpus": gpus,
        "fabric_manager": fabric_manager,
        "step": "",
    }
    if wanted["state"] == "absent":
        unknown = list(_in_the_way(host, {**wanted, "replace": True, "mok": True, "kernels": []}, False))
        findings = unknown if state["provider"] == "unknown" else []
        return {**plan, "action": "remove", "remove": state["provider"], "step": _step(state, wanted, "")}, findings
    if not gpus and not wanted["without_gpu"]:
        return {**plan, "action": "skip"}, []
    findings = [*_wrong_input(host, wanted), *_gpus(host, wanted)]
    if wanted["provider"] == "none":
        return plan, findings
    findings += _in_the_way(host, wanted, fabric_manager)
    if state["provider"] not in ("none", "unknown", wanted["provider"]):
        plan["remove"] = state["provider"]
    if wanted["provider"] == "runfile":
        plan["arguments"] = installer_arguments(wanted, state, gpus and bool(facts["gpus"]))
    else:
        plan["roots"] = roots(facts["os"], wanted, fabric_manager)
        plan["pinning"] = (
            pinning_packages(wanted["version"], wanted_branch(wanted)) if (wanted["provider"] == "network_repo") else []
        )
    return {**plan, "step": _step(state, wanted, plan["remove"])}, findings


def plan_hosts(hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for all hosts; returns each one's plan and the findings of all."""
    plans: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for host in hosts:
        plans[host["driver"]["host"]], found = plan_host(host)
        findings += found
    return plans, findings
