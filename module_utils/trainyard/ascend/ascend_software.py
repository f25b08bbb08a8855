# SPDX-License-Identifier: Apache-2.0
"""Ascend's software on the nodes: parse version files, plan which packages to install, and check all nodes together.

A state is what library/ascend_state returns of a node. Version files of drivers 23 to 25 and of CANN 6 to 9 hold
KEY=VALUE lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding, counted, host_list
from ..base.majority import usual
from ..hardware.npu import NET_HEALTH_UNKNOWN
from .rank_table_view import link_local

State = Mapping[str, Any]
Package = Mapping[str, Any]

DEFAULT_ROOT = "/usr/local/Ascend"
COMPONENTS = ("driver", "firmware", "toolkit", "kernels", "nnal")
# Components whose version the vendor's own files name. The only source for the others is this role's record.
_VERSION_OF = {"driver": "driver", "firmware": "firmware", "toolkit": "cann"}
_FOR_ALL = ("driver", "toolkit", "kernels")
_MACHINES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "x86-64": "x86_64"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELD = re.compile(r"^\s*(?P<name>[A-Za-z ]+?)\s*:\s*(?P<value>\S.*?)\s*$", re.MULTILINE)
_UNKNOWN = ("", "NA", "N/A", "-")


def read_fields(text: str | None) -> dict[str, str]:
    """Read KEY=VALUE lines; keys in lower case, as their spelling differs between releases."""
    pairs = (line.partition("=") for line in (text or "").splitlines() if "=" in line)
    return {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}


def driver_version(text: str | None) -> str:
    """Return the driver's version from its version.info. `Version` may be that of a component."""
    fields = read_fields(text)
    return fields.get("package_version") or fields.get("version") or ""


def board(output: str) -> dict[str, str]:
    """Return the running `firmware` and its `compatibility` with the driver, from `npu-smi info -t board`."""
    fields = {match["name"].lower(): match["value"] for match in _FIELD.finditer(output)}
    found = {"firmware": fields.get("firmware version", ""), "compatibility": fields.get("compatibility", "")}
    return {name: "" if value in _UNKNOWN else value for name, value in found.items()}


def restart_due(state: State) -> list[str]:
    """Return what is installed but does not run yet, as far as npu-smi reports what runs."""
    due = []
    if state["driver"] and state["running_driver"] and state["driver"] != state["running_driver"]:
        due.append(f"driver {state['running_driver']} runs, {state['driver']} is installed")
    running = sorted({one["firmware"] for one in state["boards"]} - {"", state["firmware"]})
    if state["firmware"] and running:
        due.append(f"firmware {', '.join(running)} runs, {state['firmware']} is installed")
    return due


def _has(state: State, package: Package) -> bool:
    component = package["component"]
    if component in _VERSION_OF:
        return bool(state[_VERSION_OF[component]] == package["version"])
    return bool(state["installed"].get(component, {}).get("sha256") == package["sha256"])


def _argv(state: State, component: str, root: str) -> list[str]:
    if component in ("driver", "firmware"):
        argv = ["--upgrade" if state[component] else "--full", "--quiet"]
    else:
        argv = ["--install", "--quiet"]
    if component in _FOR_ALL:
        # Otherwise only root and the vendor's group can read the installation.
        argv.append("--install-for-all")
    if root != DEFAULT_ROOT and component != "firmware":
        argv.append(f"--install-path={root}")
    return argv


def _order(state: State, package: Package) -> int:
    """Driver before firmware where there is no driver; firmware before driver in an upgrade, as the vendor demands."""
    order = list(COMPONENTS)
    if state["driver"]:
        order[:2] = ["firmware", "driver"]
    return order.index(package["component"])


def _wrong_packages(state: State, packages: Sequence[Package]) -> Iterator[Finding]:
    def wrong(found: str, expected: str, action: str = "correct ascend_packages") -> Finding:
        return Finding("ascend_packages", found, expected, action, host=state["host"])

    for name, count in Counter(str(package.get("component")) for package in packages).items():
        if count > 1:
            yield wrong(f"{count} packages of the component {name}", "one of each")
    for package in packages:
        component, file = str(package.get("component", "")), str(package.get("file", ""))
        if component not in COMPONENTS:
            yield wrong(f"component {component!r}", f"one of {', '.join(COMPONENTS)}")
        if not package.get("version"):
            yield wrong(f"no version of {component}", "the exact version, as the vendor's version file has it")
        if not _SHA256.fullmatch(str(package.get("sha256", ""))):
            yield wrong(f"sha256 {package.get('sha256', '')!r} of {component}", "64 hexadecimal digits")
        if not file or "/" in file:
            yield wrong(f"file {file!r} of {component}", "the name of the package's file in ascend_source")
        machine = next((name for mark, name in _MACHINES.items() if mark in file), "")
        if machine and machine != state["machine"]:
            found = f"{file} for {machine} on a node that is {state['machine']}"
            action = "give the nodes of each kind their own ascend_packages in group_vars"
            yield wrong(found, "a package for the node's own processor", action)


def request(packages: Sequence[Package], source: str) -> dict[str, Any]:
    """Return what a lock takes of the vendor's packages: `sources` at a mirror, or `missing`, as they need a login."""
    named = [(f"Ascend {each.get('component', '')} {each.get('version', '')}".rstrip(), each) for each in packages]
    if not re.match(r"(https?|file)://", source):
        why = f"Ascend's packages need a login: take {source or 'ascend_source'} of the controller along"
        return {"sources": [], "missing": [{"what": what, "why": why} for what, _ in named]}
    address = source.rstrip("/")
    sources = [
        {"what": what, "url": f"{address}/{each.get('file', '')}", "sha256": str(each.get("sha256") or "")}
        for what, each in named
    ]
    return {"sources": sources, "missing": []}


def plan_packages(
    nodes: Sequence[Mapping[str, Any]], root: str
) -> tuple[dict[str, list[dict[str, Any]]], list[Finding]]:
    """Plan for each host which packages to install, in order and with their arguments.

    Each node has its `state` and the requested `packages`: component, version, file, sha256 and optionally `arguments`
    instead of the usual ones.
    """
    plan: dict[str, list[dict[str, Any]]] = {}
    findings: list[Finding] = []
    root = root.rstrip("/")
    for node in nodes:
        state, packages = node["state"], node["packages"]
        wrong = list(_wrong_packages(state, packages))
        findings += wrong
        missing = [] if wrong else [package for package in packages if not _has(state, package)]
        plan[state["host"]] = [
            {
                **{name: package[name] for name in ("component", "version", "file", "sha256")},
                "found": state[_VERSION_OF[package["component"]]] if package["component"] in _VERSION_OF else "",
                "arguments": package.get("arguments") or _argv(state, package["component"], root),
            }
            for package in sorted(missing, key=lambda package: _order(state, package))
        ]
    return plan, findings


def _unequal(check: str, values: Mapping[str, str], required: str, action: str) -> Iterator[Finding]:
    """Find hosts without a value, or with another one than is required or than most hosts have."""
    most = required or usual(filter(None, values.values()), "")
    expected = most or "one"
    if most and not required:
        expected = f"{most}, as on {host_list([host for host, value in values.items() if value == most])}"
    for host, value in values.items():
        if not value or value != most:
            yield Finding(check, value or "none", expected, action, host=host)


def _software(states: Sequence[State], required: Mapping[str, Any]) -> Iterator[Finding]:
    install = "install the same version on all nodes: ascend_packages, or the vendor's packages by hand"
    for title, key in (("driver", "driver"), ("firmware", "firmware"), ("CANN", "cann")):
        values = {state["host"]: state[key] for state in states}
        yield from _unequal(f"Ascend {title}", values, required.get(key, ""), install)
    for state in states:
        for problem in _software_of(state):
            yield Finding(*problem, host=state["host"])


# Check, found, expected, action.
Problem = tuple[str, str, str, str]


def _software_of(state: State) -> Iterator[Problem]:
    for text in state["restart_due"]:
        action = "restart the node, or set ascend_restart: true and run site.yml again"
        yield "restart", text, "what is installed runs", action
    odd = sorted({one["compatibility"] for one in state["boards"]} - {"", "OK"})
    if odd:
        found = f"npu-smi reports {', '.join(odd)} for driver {state['driver']} and firmware {state['firmware']}"
        yield "compatibility", found, "OK", "install a driver and a firmware of one of the vendor's releases"
    if state["cann"] and not state["set_env"]:
        found = f"none for CANN {state['cann']} in {state['cann_path']}"
        yield "set_env.sh", found, "set_env.sh beside it", "install the CANN toolkit again"
    home = state.get("toolkit_home")
    if state["set_env"] and home is not None and home not in state["cann_homes"]:
        found = f"{state['set_env']} leads the training user to {home or 'no toolkit'}"
        expected = f"to {' or '.join(state['cann_homes']) or 'a toolkit'}"
        action = "check whether that user may read it, and whether it belongs to another installation"
        yield "set_env.sh", found, expected, action


def _devices_of(state: State, healthy: Sequence[str]) -> Iterator[Problem]:
    npu = state["npu"]
    devices = npu.get("devices") or []
    if not devices:
        found = "; ".join(npu.get("problems") or []) or "none: npu-smi is not installed and PCI shows none"
        action = "install driver and firmware, or take the node out of the group"
        yield "Ascend devices", found, "devices that npu-smi lists", action
        return
    for problem in npu["problems"]:
        expected = "healthy devices, each with an address and a link that is up"
        yield "Ascend devices", problem, expected, "repair it, then run playbooks/verify.yml"
    networked = [one for one in devices if npu["chip"] != "a3" or one["device_ip"]]
    unknown = [str(one["physical_id"]) for one in networked if one["link"] == "unknown"]
    if unknown:
        note = next((note for note in npu["notes"] if note.startswith("the link of")), "")
        found = note or f"unknown for devices {', '.join(unknown)} (physical id)"
        action = "make hccn_tool answer: it comes with the driver, and with some drivers only root can use it"
        yield "link", found, "a link that is known to be up", action
    not_healthy = {one["net_health"] for one in networked} & set(NET_HEALTH_UNKNOWN) - set(healthy)
    for answer in sorted(not_healthy):
        ids = [str(one["physical_id"]) for one in networked if one["net_health"] == answer]
        found = f"{f'`{answer}`' if answer else 'no answer'} for devices {', '.join(ids)} (physical id)"
        action = (
            "give the devices an address to ping (hccn_tool -netdetect), or accept this: "
            f"ascend_net_health: {[*healthy, answer]}"
        )
        yield "network health", found, " or ".join(healthy), action
    seen = state.get("user_devices")
    if seen is not None and seen != len(devices):
        found, action = f"npu-smi lists {counted(seen, 'device')} for it", "add it to the vendor's group (HwHiAiUser)"
        yield "training user", found, f"{len(devices)}, as for root", action


def _cluster(states: Sequence[State], required: Mapping[str, Any]) -> Iterator[Finding]:
    having = [state for state in states if state["npu"].get("devices")]
    numbers = {state["host"]: counted(len(state["npu"]["devices"]), "device") for state in having}
    number = counted(required["devices"], "device") if required["devices"] else ""
    action = "see `npu-smi info`; ranks need as many on every node"
    yield from _unequal("number of devices", numbers, number, action)
    chips = {state["host"]: state["npu"]["chip"] for state in having}
    yield from _unequal("chip", chips, "", "make groups of nodes of one kind: a rank table is for one")
    owners: dict[str, list[str]] = {}
    families: dict[str, list[str]] = {}
    for state in having:
        addresses = {one["device_ip"] for one in state["npu"]["devices"]} - {""}
        for address in sorted(addresses):
            owners.setdefault(address, []).append(state["host"])
        for family in sorted({"IPv6" if ":" in address else "IPv4" for address in addresses}):
            families.setdefault(family, []).append(state["host"])
    for address, hosts in owners.items():
        if len(hosts) > 1:
            found, action = f"{address} on {host_list(hosts)}", "correct it on one of them with hccn_tool -ip -s"
            yield Finding("device address", found, "each address once in the cluster", action)
    if len(families) > 1:
        found = "; ".join(f"{family} on {host_list(hosts)}" for family, hosts in families.items())
        action = "give all devices addresses of one family"
        yield Finding("device address", found, "one address family in the cluster", action)


def remarks(states: Sequence[State]) -> list[Finding]:
    """Find link-local addresses that other nodes may not reach. They stop nothing, as HCCL accepts them.

    They work for devices of one switch: either all devices of one place should have them, or none (IPv6: none).
    """
    local: dict[int, list[str]] = {}
    other: set[int] = set()
    six = False
    having = [state for state in states if state["npu"].get("devices")]
    for state in having:
        for one in state["npu"]["devices"]:
            if link_local(one["device_ip"]):
                local.setdefault(one["physical_id"], []).append(state["host"])
                six = six or ":" in one["device_ip"]
            elif one["device_ip"]:
                other.add(one["physical_id"])
    wrong = {device: hosts for device, hosts in local.items() if device in other or (six and len(having) > 1)}
    if not wrong:
        return []
    devices = f"device{'s' if len(wrong) > 1 else ''} {', '.join(map(str, sorted(wrong)))}"
    hosts = list(dict.fromkeys(host for found in wrong.values() for host in found))
    found = f"link-local addresses of {devices} on {host_list(hosts)}"
    expected = "addresses that the same devices of the other nodes reach: no router forwards link-local ones"
    action = "give them addresses of the others' network with hccn_tool -ip -s"
    return [Finding("device address", found, expected, action)]


def verify(states: Sequence[State], required: Mapping[str, Any]) -> list[Finding]:
    """Check all nodes together.

    `required` has `devices` on each node (0: equal on all), versions `driver`, `firmware` and `cann` ("": equal on
    all), and `net_health`, the answers that count as healthy.
    """
    devices = [
        Finding(*problem, host=state["host"])
        for state in states
        for problem in _devices_of(state, required["net_health"])
    ]
    return [*devices, *_cluster(states, required), *_software(states, required)]
