# SPDX-License-Identifier: Apache-2.0
"""Which packages or which installer bring a driver to a host, and what prevents it.

A root is a list of names for one package, as the vendor has renamed packages between branches; the first offered one
counts. The names are those of Debian 12 and 13, Ubuntu 22.04 and 24.04, and NVIDIA's driver installation guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from ..software.requirements import is_sha256
from .case import also_replace, override
from .driver import VERSION, has_module, package_version
from .nvidia_hardware import branch_of

Host = Mapping[str, Any]
Roots = list[list[str]]

# What signs the module, both together.
MOK = "nvidia_driver_mok_key and nvidia_driver_mok_certificate"
# The first branch with open modules.
FIRST_OPEN = 515
# The first branch whose installer takes --kernel-module-type. Older ones take the folder to build from; before 515
# neither exists.
FIRST_MODULE_TYPE = 560
# The first branch whose installer can skip loading the module, which fails without a GPU.
FIRST_SKIP_LOAD = 535
# The first branches whose packages have no branch in their names.
_PLAIN_DRIVER = 590
_PLAIN_FABRIC_MANAGER = 580
_BRANCH = re.compile(r"(\d{3})?")
# A compute node needs these of Debian's packages, and no X server.
_LIBRARIES = ("cuda1", "ml1", "cfg1", "ptxjitcompiler1")
# In Debian these have their own versions.
OWN_VERSIONS = ("nvidia-modprobe", "nvidia-persistenced")
_TESLA_BRANCHES = ("450", "470")


def requested_branch(settings: Host) -> str:
    """Return the requested branch, by itself or from the version; empty without any."""
    return str(settings["branch"]) or branch_of(settings["version"])


def _distro(system: Mapping[str, str], branch: str, flavour: str, fabric_manager: bool) -> Roots:
    if system["id"] == "ubuntu":
        suffix = "-open" if flavour == "open" else ""
        roots = [[f"nvidia-headless-{branch}-server{suffix}"], [f"nvidia-utils-{branch}-server"]]
        return [*roots, [f"nvidia-fabricmanager-{branch}"]] if fabric_manager else roots
    if branch in _TESLA_BRANCHES:
        tesla = f"nvidia-tesla-{branch}"
        names = [f"{tesla}-kernel-dkms", f"{tesla}-smi", *(f"lib{tesla}-{name}" for name in _LIBRARIES)]
    else:
        kernel = "nvidia-open-kernel-dkms" if flavour == "open" else "nvidia-kernel-dkms"
        names = [
            kernel,
            "nvidia-smi",
            "libcuda1",
            *(f"libnvidia-{name}" for name in _LIBRARIES[1:]),
            "firmware-nvidia-gsp",
        ]
    return [[name] for name in (*names, *OWN_VERSIONS)]


def _network_repo(branch: str, flavour: str, fabric_manager: bool) -> Roots:
    plain = "nvidia-open" if flavour == "open" else "cuda-drivers"
    roots = [[plain] if not branch or int(branch) >= _PLAIN_DRIVER else [f"{plain}-{branch}", plain]]
    if fabric_manager:
        names = ["nvidia-fabricmanager", f"nvidia-fabricmanager-{branch}"]
        roots.append(names if branch and int(branch) >= _PLAIN_FABRIC_MANAGER else names[::-1])
    return roots


def pinning_packages(version: str, branch: str) -> list[str]:
    """Return the names of NVIDIA's packages that pin apt to a version or branch, the exact one first."""
    return [f"nvidia-driver-pinning-{one}" for one in (version, branch) if one]


def roots(system: Mapping[str, str], settings: Host, fabric_manager: bool) -> Roots:
    """Return the packages to request, that of the kernel module first; apt adds what they depend on."""
    if settings["packages"]:
        return [[name] for name in settings["packages"]]
    branch = requested_branch(settings)
    if settings["provider"] == "distro":
        return _distro(system, branch, settings["flavour"], fabric_manager)
    return _network_repo(branch, settings["flavour"], fabric_manager)


def offers(settings: Host) -> list[dict[str, Any]]:
    """Return the package that decides the version, as apt_offers takes it; the system is not known yet."""
    if settings["state"] == "absent" or settings["provider"] not in ("distro", "network_repo"):
        return []
    if str(settings["gpus"]) == "0" and not settings["without_gpu"]:
        return []
    branch = requested_branch(settings)
    if not _BRANCH.fullmatch(branch):
        return []
    names = dict.fromkeys(name for system in ("debian", "ubuntu") for name in roots({"id": system}, settings, False)[0])
    return [{"names": list(names), "version": settings["version"], "begins": f"{branch}." if branch else ""}]


def installer_arguments(settings: Host, state: Host, gpus: bool) -> list[str]:
    """Return the arguments of the vendor's installer, without options that the branch does not know."""
    branch, kernels = int(branch_of(settings["version"]) or 0), settings["kernels"]
    arguments = ["--silent", "--no-questions", "--no-x-check"]
    if kernels:
        arguments.append("--dkms")
        if kernels[0] != state["kernel"]:
            arguments.append(f"--kernel-name={kernels[0]}")
    else:
        arguments.append("--no-kernel-module")
    if branch >= FIRST_MODULE_TYPE:
        arguments.append(f"--kernel-module-type={settings['flavour']}")
    elif settings["flavour"] == "open":
        arguments.append("--kernel-module-build-directory=kernel-open")
    if state["nouveau"]:
        # The reboot that is due then removes nouveau.
        arguments.append("--no-nouveau-check")
    if branch >= FIRST_SKIP_LOAD and (not gpus or state["nouveau"] or kernels[:1] != [state["kernel"]]):
        arguments.append("--skip-module-load")
    return [*arguments, *settings["arguments"]]


def choose_version(offered: Sequence[str], version: str, branch: str) -> str:
    """Return the newest offered package version that has the driver's version or branch; empty without any.

    `offered` is newest first. 550.54.1 does not match 550.54.15, nor branch 55 550.
    """
    for one in offered:
        upstream = package_version(one)
        if version in ("", upstream) and branch in ("", branch_of(upstream)):
            return one
    return ""


def _by_stack(settings: Host) -> bool:
    return bool(settings.get("by_stack"))


def _setting(settings: Host, **fields: str) -> str:
    """Return the setting of the role, or of nvidia_stack where that compares the hosts."""
    if _by_stack(settings):
        return override("driver", **fields)
    return " and ".join(f"nvidia_driver_{name}: {value}" for name, value in fields.items())


def _kept(settings: Host, state: Host) -> dict[str, str]:
    """Return the settings that keep the installed driver.

    A runfile is known by its version: without that, the next run would ask for its address.
    """
    version = str(state["version"])
    fields = {"provider": str(state["provider"])}
    if state["provider"] == "runfile" or settings["version"] not in ("", version):
        fields["version"] = version
    if str(settings["branch"]) not in ("", branch_of(version)):
        fields["branch"] = branch_of(version)
    return fields


def _wrong_input(host: Host, settings: Host) -> Iterator[Finding]:
    # Before the roles, nvidia_stack compares what its overrides say.
    overridden = ("nvidia_driver_version", "nvidia_driver_branch", "nvidia_driver_flavour") * _by_stack(settings)

    def wrong(check: str, found: str, expected: str, action: str = "") -> Finding:
        variable = "nvidia_stack_overrides" if check in overridden else check
        return Finding(check, found, expected, action or f"correct {variable}")

    version, branch = settings["version"], str(settings["branch"])
    if version and not VERSION.fullmatch(version):
        yield wrong("nvidia_driver_version", repr(version), "an exact version such as 550.127.08")
    if not _BRANCH.fullmatch(branch) or (version and branch not in ("", branch_of(version))):
        yield wrong("nvidia_driver_branch", repr(branch), f"the branch of {version or 'a driver'} such as 550")
    elif settings["flavour"] == "open" and 0 < int(requested_branch(settings) or 0) < FIRST_OPEN:
        expected = f"proprietary: open modules begin with branch {FIRST_OPEN}"
        yield wrong("nvidia_driver_flavour", f"open of branch {requested_branch(settings)}", expected)
    if settings["provider"] != "runfile":
        return
    name = (settings["file"] or settings["url"]).rpartition("/")[2]
    if not version:
        yield wrong("nvidia_driver_version", "none", "the version of the runfile, as its name has it")
    if version and host["driver"]["runfile"] == version:
        # It is installed already.
        return
    if not name:
        yield wrong("nvidia_driver_url", "none, and no nvidia_driver_file", "where the runfile comes from")
    elif version and version not in VERSION.findall(name):
        yield wrong("nvidia_driver_url", name, f"the runfile of {version}", "make file name and version agree")
    machine = next((one for one in ("x86_64", "aarch64") if one in name), "")
    if machine and machine != host["facts"]["arch"]:
        yield wrong("nvidia_driver_url", name, f"a runfile for {host['facts']['arch']}")
    if not is_sha256(settings["sha256"]):
        yield wrong("nvidia_driver_sha256", repr(settings["sha256"]), "64 hexadecimal digits: sha256sum of the runfile")


def _in_the_way(host: Host, settings: Host, fabric_manager: bool) -> Iterator[Finding]:
    state, facts = host["driver"], host["facts"]
    there, check = f"driver {state['version'] or state['loaded']}", "driver from elsewhere"
    if state["provider"] == "unknown":
        mixed = f"packages {', '.join(sorted(state['packages'])[:4])}" if state["packages"] else "no package"
        installer = f"the vendor's installer ({state['runfile']})" if state["runfile"] else "no trace of an installer"
        keep = _setting(settings, provider="none")
        action = f"remove it the way it came (apt purge, nvidia-uninstall), or keep it: {keep}"
        yield Finding(check, f"{there}: {mixed}, and {installer}", "a driver with one source", action)
    elif state["provider"] not in ("none", settings["provider"]) and not settings["replace"]:
        expected = f"none, or one from {settings['provider']}"
        keep = _setting(settings, **_kept(settings, state))
        action = f"set {keep} to keep it, or nvidia_driver_replace: true"
        yield Finding(check, f"{there} from {state['provider']}", expected, action)
    broken = sorted({*facts["apt"]["broken"], *state["broken"]})
    if broken and settings["provider"] != "none":
        found = f"half installed: {', '.join(broken)}"
        yield Finding("packages", found, "none", "run `dpkg --configure -a` and `apt -f install`")
    if facts["secure_boot"] == "enabled" and settings["kernels"] and not settings["mok"]:
        found = "enabled, without a key to sign the module: the kernel would refuse to load it"
        action = f"set {MOK}, or disable Secure Boot"
        yield Finding("Secure Boot", found, "an enrolled key (mokutil --import)", action)
    has_none = settings["provider"] == "runfile" or (settings["provider"] == "distro" and facts["os"]["id"] == "debian")
    if fabric_manager and has_none and not settings["packages"]:
        found = f"{facts['nvswitches']} NVSwitches, and {settings['provider']} has no Fabric Manager"
        expected = "Fabric Manager of exactly the driver's version, without which CUDA does not start there"
        repository = _setting(settings, provider="network_repo") + also_replace(state, settings)
        action = f"set {repository}, or nvidia_driver_fabric_manager: false if you bring it"
        yield Finding("Fabric Manager", found, expected, action)


def _gpus(host: Host, settings: Host) -> Iterator[Finding]:
    declared, found = str(settings["gpus"]), len(host["facts"]["gpus"])
    if declared == "auto" and not found:
        action = "check `lspci -d 10de:`, or set nvidia_gpus: 0 for a host without GPUs"
        yield Finding("GPUs", "none on the PCI bus", "at least one", action)
    elif declared not in ("auto", "0", str(found)):
        action = "check `lspci -d 10de:` and the machine's own log, or correct nvidia_gpus"
        yield Finding("GPUs", f"{found} on the PCI bus", declared, action)


def _step(state: Host, settings: Host, remove: str) -> str:
    """Return in one line what a run would do; empty for nothing."""
    branch = f"branch {settings['branch']}" if settings["branch"] else "the newest available"
    target = settings["version"] or branch
    if settings["state"] == "absent":
        return f"remove driver {state['version']} ({state['provider']})" if state["version"] else ""
    if settings["provider"] == "none":
        return ""
    if remove:
        return f"remove driver {state['version']} ({remove}), install {target} ({settings['provider']})"
    if not state["version"]:
        return f"install driver {target} ({settings['provider']})"
    other_branch = requested_branch(settings) not in ("", branch_of(state["version"]))
    if other_branch or settings["version"] not in ("", state["version"]):
        return f"driver {target} instead of {state['version']} ({settings['provider']})"
    missing = [kernel for kernel in settings["kernels"] if not has_module(state, kernel)]
    return f"build the module {state['version']} for {', '.join(missing)}" if missing else ""


def plan_host(host: Host) -> tuple[dict[str, Any], list[Finding]]:
    """Plan for one host, from its `driver` (state), its `facts` (library/nvidia_driver) and the `settings` of the role.

    Returns `action` (skip, verify, install or remove), `remove` (provider of a driver that goes first), `roots`,
    `pinning`, `arguments`, `gpus` and `fabric_manager` (whether it is to have them) and `step` (one line of text).
    """
    state, facts, settings = host["driver"], host["facts"], host["settings"]
    gpus = str(settings["gpus"]) != "0"
    fabric_manager = settings["fabric_manager"] == "true" or (
        settings["fabric_manager"] == "auto" and gpus and bool(facts["nvswitches"])
    )
    plan: dict[str, Any] = {
        "action": "verify" if settings["provider"] == "none" else "install",
        "remove": "",
        "roots": [],
        "pinning": [],
        "arguments": [],
        "gpus": gpus,
        "fabric_manager": fabric_manager,
        "step": "",
    }
    if settings["state"] == "absent":
        findings: list[Finding] = []
        if state["provider"] == "unknown":
            findings += _in_the_way(host, {**settings, "replace": True, "mok": True, "kernels": []}, False)
        return {**plan, "action": "remove", "remove": state["provider"], "step": _step(state, settings, "")}, findings
    if not gpus and not settings["without_gpu"]:
        return {**plan, "action": "skip"}, []
    findings = [*_wrong_input(host, settings), *_gpus(host, settings)]
    if settings["provider"] == "none":
        return plan, findings
    findings += _in_the_way(host, settings, fabric_manager)
    if state["provider"] not in ("none", "unknown", settings["provider"]):
        plan["remove"] = state["provider"]
    if settings["provider"] == "runfile":
        plan["arguments"] = installer_arguments(settings, state, gpus and bool(facts["gpus"]))
    elif _BRANCH.fullmatch(branch := requested_branch(settings)):
        plan["roots"] = roots(facts["os"], settings, fabric_manager)
        if settings["provider"] == "network_repo":
            plan["pinning"] = pinning_packages(settings["version"], branch)
    return {**plan, "step": _step(state, settings, plan["remove"])}, findings


def plan_hosts(hosts: Sequence[Host]) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Return the plan of each host, and the findings of all."""
    plans: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for host in hosts:
        name = host["driver"]["host"]
        plans[name], found = plan_host(host)
        findings += [finding.on(name) for finding in found]
    return plans, findings
