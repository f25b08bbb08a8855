# SPDX-License-Identifier: Apache-2.0
"""Ascend's software on the nodes: version files, which packages are to be installed where, and the judgement of all.

Pure. A state is what library/ascend_state returns of a node. Version files hold KEY=VALUE lines, as those of drivers 23
to 25 and of CANN 6 to 9.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, counted, host_list
from ..hardware.npu import NET_HEALTH_UNKNOWN
from .rank_table_view import link_local

State = Mapping[str, Any]
Package = Mapping[str, Any]

DEFAULT_ROOT = "/usr/local/Ascend"
COMPONENTS = ("driver", "firmware", "toolkit", "kernels", "nnal")
# Components whose version the vendor's own files name; for the others this role's record is the only source.
_VERSION_OF = {"driver": "driver", "firmware": "firmware", "toolkit": "cann"}
_FOR_ALL = ("driver", "toolkit", "kernels")
_MACHINES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86_64", "x86-64": "x86_64"}
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FIELD = re.compile(r"^\s*(?P<name>[A-Za-z ]+?)\s*:\s*(?P<value>\S.*?)\s*$", re.MULTILINE)
_NOT_SAID = ("", "NA", "N/A", "-")


def read_fields(text: str | None) -> dict[str, str]:
    """Read KEY=VALUE lines; keys in lower case, as their spelling differs between releases."""
    pairs = (line.partition("=") for line in (text or "").splitlines() if "=" in line)
    return {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}


def driver_version(text: str | None) -> str:
    """Return the driver's version from its version.info; Version is that of a component where both are there."""
    fields = read_fields(text)
    return fields.get("package_version") or fields.get("version") or ""


def board(output: str) -> dict[str, str]:
    """Return `firmware` that runs and `compatibility` with the driver, from `npu-smi info -t board`."""
    fields = {match["name"].lower(): match["value"] for match in _FIELD.finditer(output)}
    found = {"firmware": fields.get("firmware version", ""), "compatibility": fields.get("compatibility", "")}
    return {name: "" if value in _NOT_SAID else value for name, value in found.items()}


def restart_due(state: State) -> list[str]:
    """Return what is installed but does not run yet; what npu-smi does not say is not due."""
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
    there = component in ("driver", "firmware") and state[component]
    first = "--upgrade" if there else "--full" if component in ("driver", "firmware") else "--install"
    argv = [first, "--quiet"]
    if component in _FOR_ALL:
        # Without it only root and the vendor's group can read the installation.
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

    for number, count in Counter(str(package.get("component")) for package in packages).items():
        if count > 1:
            yield wrong(f"{count} packages of the component {number}", "one of each")
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
            yield wrong(
                found=f"{file} for {machine} on a node that is {state['machine']}",
                expected="a package for the node's own processor",
                action="give the nodes of each kind their own ascend_packages in group_vars",
            )


def plan_packages(
    nodes: Sequence[Mapping[str, Any]], root: str
) -> tuple[dict[str, list[dict[str, Any]]], list[Finding]]:
    """Plan for each host which packages to install, in order and with their arguments.

    A node is its `state` and the `packages` wanted there: component, version, file, sha256 and optionally `arguments`
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


def _unequal(
    states: Sequence[State], what: str, values: Mapping[str, str], wanted: str, action: str
) -> Iterator[Finding]:
    """Find hosts whose value is empty, or another than is wanted or than most have."""
    counted = Counter(value for value in values.values() if value)
    usual = wanted or (counted.most_common(1)[0][0] if counted else "")
    same = [host for host, value in values.items() if value == usual]
    expected = usual or "one"
    if usual and same and not wanted:
        expected = f"{usual}, as on {host_list(same)}"
    for state in states:
        value = values[state["host"]]
        if not value or value != usual:
            yield Finding(what, value or "none", expected, action, host=state["host"])


def _software(states: Sequence[State], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    install = "install the same version on all nodes: ascend_packages, or the vendor's packages by hand"
    for what, key in (("driver", "driver"), ("firmware", "firmware"), ("CANN", "cann")):
        yield from _unequal(
            states, f"Ascend {what}", {state["host"]: state[key] for state in states}, wanted.get(key, ""), install
        )
    for state in states:
        host = state["host"]
        for text in state["restart_due"]:
            yield Finding(
                "restart",
                text,
                "what is installed runs",
                "restart the node, or set ascend_restart: true and run site.yml again",
                host=host,
            )
        odd = sorted({one["compatibility"] for one in state["boards"]} - {"", "OK"})
        if odd:
            yield Finding(
                "compatibility",
                f"npu-smi says {', '.join(odd)} of driver {state['driver']} and firmware {state['firmware']}",
                "OK",
                "install a driver and a firmware of one of the vendor's releases",
                host=host,
            )
        if state["cann"] and not state["set_env"]:
            yield Finding(
                "set_env.sh",
                f"none for CANN {state['cann']} in {state['cann_path']}",
                "set_env.sh beside it",
                "install the CANN toolkit again",
                host=host,
            )
        home = state.get("toolkit_home")
        if state["set_env"] and home is not None and home not in state["cann_homes"]:
            yield Finding(
                "set_env.sh",
                f"{state['set_env']} leads the training user to {home or 'no toolkit'}",
                f"to {' or '.join(state['cann_homes']) or 'a toolkit'}",
                "look whether that user may read it, and whether it belongs to another installation",
                host=host,
            )


def _devices(states: Sequence[State], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    for state in states:
        host, npu = state["host"], state["npu"]
        devices = npu.get("devices") or []
        if not devices:
            yield Finding(
                "Ascend devices",
                "; ".join(npu.get("problems") or []) or "none: npu-smi is not installed and PCI shows none",
                "devices that npu-smi lists",
                "install driver and firmware, or take the node out of the group",
                host=host,
            )
            continue
        for problem in npu["problems"]:
            yield Finding(
                "Ascend devices",
                problem,
                "healthy devices, each with an address and a link that is up",
                "repair it as said there, then run playbooks/verify.yml",
                host=host,
            )
        networked = [one for one in devices if npu["chip"] != "a3" or one["device_ip"]]
        unknown = [str(one["physical_id"]) for one in networked if one["link"] == "unknown"]
        if unknown:
            why = next((note for note in npu["notes"] if note.startswith("the link of")), "")
            yield Finding(
                "link",
                why or f"unknown for devices {', '.join(unknown)} (physical id)",
                "a link that is known to be up",
                "have hccn_tool answer: it comes with the driver, and some drivers answer root only",
                host=host,
            )
        unasked = {one["net_health"] for one in networked} & set(NET_HEALTH_UNKNOWN) - set(wanted["net_health"])
        for words in sorted(unasked):
            ids = [str(one["physical_id"]) for one in networked if one["net_health"] == words]
            yield Finding(
                "network health",
                f"{f'`{words}`' if words else 'no answer'} for devices {', '.join(ids)} (physical id)",
                " or ".join(wanted["net_health"]),
                (
                    "give the devices an address to ping (hccn_tool -netdetect), or accept this: "
                    f"ascend_net_health: {[*wanted['net_health'], words]}"
                ),
                host=host,
            )
        seen = state.get("user_devices")
        if seen is not None and seen != len(devices):
            yield Finding(
                "training user",
                f"npu-smi lists {counted(seen, 'device')} for it",
                f"{len(devices)}, as for root",
                "make it a member of the vendor's group (HwHiAiUser)",
                host=host,
            )


def _cluster(states: Sequence[State], wanted: Mapping[str, Any]) -> Iterator[Finding]:
    having = [state for state in states if state["npu"].get("devices")]
    numbers = {state["host"]: counted(len(state["npu"]["devices"]), "device") for state in having}
    expected = counted(wanted["devices"], "device") if wanted["devices"] else ""
    yield from _unequal(
        having, "number of devices", numbers, expected, "see `npu-smi info`; ranks need as many on every node"
    )
    yield from _unequal(
        having,
        "chip",
        {state["host"]: state["npu"]["chip"] for state in having},
        "",
        "make groups of nodes of one kind: a rank table is for one",
    )
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
            yield Finding(
                "device address",
                f"{address} on {host_list(hosts)}",
                "each address once in the cluster",
                "correct it on one of them with hccn_tool -ip -s",
            )
    if len(families) > 1:
        yield Finding(
            "device address",
            "; ".join(f"{family} on {host_list(hosts)}" for family, hosts in families.items()),
            "one address family in the cluster",
            "give all devices addresses of one family",
        )


def remarks(states: Sequence[State]) -> list[Finding]:
    """Return what is said and stops nothing, as HCCL takes it: link-local addresses that other nodes may not reach.

    They serve devices of one switch: those of one place should all have them, or none (IPv6: none).
    """
    having = [state for state in states if state["npu"].get("devices")]
    local: dict[int, list[str]] = {}
    other: set[int] = set()
    for state in having:
        for one in state["npu"]["devices"]:
            if link_local(one["device_ip"]):
                local.setdefault(one["physical_id"], []).append(state["host"])
            elif one["device_ip"]:
                other.add(one["physical_id"])
    six = any(
        ":" in one["device_ip"] and link_local(one["device_ip"]) for each in having for one in each["npu"]["devices"]
    )
    wrong = {device: hosts for device, hosts in local.items() if device in other or (six and len(having) > 1)}
    if not wrong:
        return []
    devices = ", ".join(map(str, sorted(wrong)))
    hosts = list(dict.fromkeys(host for found in wrong.values() for host in found))
    return [
        Finding(
            "device address",
            f"link-local addresses of device{'s' if len(wrong) > 1 else ''} {devices} on {host_list(hosts)}",
            "addresses that the same devices of the other nodes reach: no router forwards link-local ones",
            "give them addresses of the others' network with hccn_tool -ip -s",
        )
    ]


def judge(states: Sequence[State], wanted: Mapping[str, Any]) -> list[Finding]:
    """Judge all nodes together.

    `wanted`: `devices` on each node (0: equal on all), versions `driver`, `firmware` and `cann` ("": equal on all), and
    `net_health`, the answers that count as healthy.
    """
    return [*_devices(states, wanted), *_cluster(states, wanted), *_software(states, wanted)]
