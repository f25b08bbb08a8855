# SPDX-License-Identifier: Apache-2.0
"""Compare the RDMA ports of nodes with what is declared, or with each other. Rates in Gb/s.

A state is a dict with `host`, the inventory name; `networks`, what library/network_info returns; `virtual`, the
container or hypervisor that the node is in, "" on a machine of its own; `expected`, `auto`, "0" or a number of ports;
`ports`, those that are declared one by one; `rate_gbps` (0: any) and `link_layer` ("": any), which hold for all of
them; `verbs`, what `ibv_devices` prints, None where it was not called. A declared port is a dict with `device`, `port`
(default 1), and as far as they are declared rate_gbps, link_layer, state, netdev.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import Finding, host_list
from ..base.majority import usual
from .interfaces import RdmaPort, port_name

State = Mapping[str, Any]

_CABLE = "look at cable, switch port and subnet manager (ibstat; for Ethernet ethtool NETDEV), then run the role again"
_SPEED = "look at cable, optical module and the switch port's speed, or correct the declared rate"
_CORRECT = {
    "link_layer": "set the port's type (mlxconfig LINK_TYPE_P1) and restart the adapter, or correct the declaration",
    "netdev": "see the names of the interfaces (udev, bonds), or correct the declaration",
}
_CONTAINERS = ("docker", "podman", "container", "containerd", "lxc", "systemd-nspawn", "openvz", "kubernetes")


def describe(port: RdmaPort) -> str:
    """Return `InfiniBand 400 Gb/s ACTIVE`, with the physical state where that is not LinkUp."""
    rate = f"{port['rate_gbps']:g} Gb/s" if port["rate_gbps"] else "no rate"
    physical = port["physical_state"] or "LinkUp"
    state = (port["state"] or "no state") + ("" if physical == "LinkUp" else f" ({physical})")
    return f"{port['link_layer'] or 'no link layer'} {rate} {state}"


def _listed(ports: Sequence[RdmaPort]) -> str:
    return "; ".join(f"{port_name(port)} {describe(port)}" for port in ports) or "no port"


def parse_ibv_devices(text: str) -> list[str]:
    """Return the devices in the table of `ibv_devices`, in its order."""
    return re.findall(r"^[ \t]+(\S+)[ \t]+[0-9a-f]{16}[ \t\r]*$", text, re.M)


def _verbs_findings(state: State) -> list[Finding]:
    """Find devices of the kernel that programs do not see."""
    if state["verbs"] is None:
        return []
    seen = parse_ibv_devices(state["verbs"])
    devices = dict.fromkeys(port["device"] for port in state["networks"]["rdma"])
    hidden = [device for device in devices if device not in seen]
    if not hidden:
        return []
    found, expected = f"ibv_devices does not list {', '.join(hidden)}", "every device that the kernel has"
    action = (
        "modprobe ib_uverbs; see that rdma_packages has the adapter's provider; give /dev/infiniband to a container"
    )
    return [Finding("RDMA user space", found, expected, action, state["host"])]


def _no_device(state: State) -> tuple[str, str]:
    """Say what a node without devices is, and what to do about it."""
    found, action = "no RDMA device", "see lspci for the adapter and `modprobe mlx5_ib` (its driver) for the reason"
    virtual = str(state["virtual"])
    if virtual in _CONTAINERS:
        found += f" inside a container ({virtual})"
        action = "start the container with /dev/infiniband and the host's network"
    elif virtual:
        found += f" inside a virtual machine ({virtual})"
        action = "pass the adapter or a virtual function of it through"
    return found, f"{action}, or set rdma_expected: 0 for it"


def _declared_findings(state: State) -> list[Finding]:
    """Compare the ports that are declared one by one."""
    found = {port_name(port): port for port in state["networks"]["rdma"]}
    findings = []
    for declared in state["ports"]:
        name = f"{declared['device']}:{declared.get('port') or 1}"
        port = found.get(name)
        target = {
            "link_layer": declared.get("link_layer") or state["link_layer"],
            "rate_gbps": declared.get("rate_gbps") or state["rate_gbps"],
            "state": declared.get("state") or "ACTIVE",
            "netdev": declared.get("netdev"),
        }
        rate = f"{target['rate_gbps']:g} Gb/s" if target["rate_gbps"] else ""
        expected = " ".join(str(part) for part in (target["link_layer"], rate, target["state"]) if part)
        if target["netdev"]:
            expected += f", netdev {target['netdev']}"
        if port is None:
            text = f"none; the node has {', '.join(found)}"
            action = "see lspci and dmesg for the adapter, or correct rdma_ports (ibdev2netdev lists the names)"
            findings.append(Finding(f"RDMA port {name}", text, expected, action, state["host"]))
            continue
        wrong = [key for key, value in target.items() if value and not _same(port[key], value)]
        if wrong or (target["state"] == "ACTIVE" and not port["active"]):
            text = describe(port) + (f", netdev {port['netdev']}" if target["netdev"] else "")
            findings.append(Finding(f"RDMA port {name}", text, expected, _action(wrong), state["host"]))
    return findings


def _same(found: Any, target: Any) -> bool:
    return float(found or 0) == float(target) if isinstance(target, (int, float)) else str(found) == str(target)


def _action(wrong: Sequence[str]) -> str:
    named = next((key for key in ("link_layer", "netdev") if key in wrong), "")
    return _CORRECT[named] if named else _SPEED if wrong == ["rate_gbps"] else _CABLE


def _number_findings(state: State) -> list[Finding]:
    """Compare the number of ports that carry traffic, of the declared link layer and rate, with the declared number."""
    ports, target = state["networks"]["rdma"], int(state["expected"])
    layer, rate = state["link_layer"], state["rate_gbps"]
    kind = [port for port in ports if not layer or port["link_layer"] == layer]
    good = [port for port in kind if port["active"] and (not rate or port["rate_gbps"] == rate)]
    if len(good) == target:
        return []
    words = [layer, f"{rate:g} Gb/s" if rate else "", "ACTIVE"]
    expected = f"{target} of {' '.join(word for word in words if word)}"
    odd = [port for port in kind if port not in good]
    found = f"{len(good)}" + (f", and {_listed(odd)}" if odd else "")
    action = _CABLE if odd else "see lspci for the adapters, or correct rdma_expected"
    return [Finding("RDMA ports", found, expected, action, state["host"])]


def _odd_nodes(states: Sequence[State]) -> list[Finding]:
    """Find undeclared nodes whose ports are not those of most such nodes."""
    ports = {state["host"]: _listed(state["networks"]["rdma"]) for state in states}
    if not ports:
        return []
    most = usual(ports.values(), "")
    others = host_list([host for host, text in ports.items() if text == most])
    action = "make them equal, or declare what the node has: rdma_expected, rdma_ports"
    findings = []
    for host, text in ports.items():
        if text != most:
            own, expected = text.split("; "), most.split("; ")
            more = [part for part in own if part not in expected]
            less = [part for part in expected if part not in own]
            found = "; ".join(more) or f"no {' and no '.join(less)}"
            target = f"{'; '.join(less) or f'nothing more than {most}'}, as on {others}"
            findings.append(Finding("RDMA ports", found, target, action, host))
    return findings


def check(states: Sequence[State]) -> list[Finding]:
    """Check the ports of all nodes together: every finding of every node."""
    findings: list[Finding] = []
    undeclared = []
    for state in states:
        ports, host, expected = state["networks"]["rdma"], state["host"], str(state["expected"])
        if expected == "0" and not state["ports"]:
            if ports:
                action = "set rdma_expected for the node, or leave it out of the group rdma"
                findings.append(Finding("RDMA ports", _listed(ports), "none: rdma_expected is 0", action, host))
            continue
        findings += [
            Finding("RDMA ports", problem, "ports that can be read", "see dmesg for the driver's reason", host)
            for problem in state["networks"]["problems"]
            if problem.startswith("RDMA port")
        ]
        if not ports:
            found, action = _no_device(state)
            number = str(len(state["ports"]) or expected).replace("auto", "at least one")
            findings.append(Finding("RDMA ports", found, number, action, host))
            continue
        findings += _verbs_findings(state)
        if state["ports"]:
            findings += _declared_findings(state)
        if expected != "auto":
            findings += _number_findings(state)
        elif not state["ports"]:
            undeclared.append(state)
            findings += _undeclared_findings(state)
    return findings + _odd_nodes(undeclared)


def _undeclared_findings(state: State) -> list[Finding]:
    """Without a declaration one port has to carry traffic, and those that do are of the declared rate and layer."""
    ports, layer, rate = state["networks"]["rdma"], state["link_layer"], state["rate_gbps"]
    kind = [port for port in ports if port["active"] and (not layer or port["link_layer"] == layer)]
    if not kind:
        expected = f"at least one port that is {layer + ' ' if layer else ''}ACTIVE"
        return [Finding("RDMA ports", _listed(ports), expected, _CABLE, state["host"])]
    return [
        Finding(f"RDMA port {port_name(port)}", describe(port), f"{rate:g} Gb/s", _SPEED, state["host"])
        for port in kind
        if rate and port["rate_gbps"] != rate
    ]
