# SPDX-License-Identifier: Apache-2.0
"""The networks of this machine, from sysfs and `ip`. Speeds in Mb/s, rates in Gb/s.

Which netdev belongs to an RDMA port follows the kernel's own tables: for RoCE the port's GIDs name it (so a bond
shows as bond0), for InfiniBand it is the child whose dev_port is the port's number minus one.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import pwd
import socket
import struct
from pathlib import Path

from ...trainyard.hardware.interfaces import (
    Interface,
    Networks,
    RdmaPort,
    is_representor,
    natural_order,
    parse_ip_address,
    parse_nccl_conf,
    parse_rate,
    parse_state,
)
from ...trainyard.hardware.tool_text import number
from ..machine.tree import Tree

_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B


def _ioctl_ipv4(name: str) -> str | None:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            address, mask = (
                socket.inet_ntoa(fcntl.ioctl(probe.fileno(), code, request)[20:24])
                for code in (_SIOCGIFADDR, _SIOCGIFNETMASK)
            )
        except OSError:
            return None
    return str(ipaddress.ip_interface(f"{address}/{mask}"))


def _addresses_without_ip(tree: Tree, problems: list[str]) -> dict[str, list[str]]:
    """Return addresses on a machine without iproute2: the first IPv4 address of each interface and all IPv6 ones."""
    addresses: dict[str, list[str]] = {}
    if tree.captured:
        problems.append("the captured tree has no commands/ip.address.out, so IPv4 addresses are unknown")
    else:
        for name in tree.names("/sys/class/net"):
            address = _ioctl_ipv4(name)
            addresses[name] = [address] if address else []
    for line in (tree.text("/proc/net/if_inet6") or "").splitlines():
        words = line.split()
        try:
            address = str(ipaddress.ip_interface((int(words[0], 16).to_bytes(16, "big"), int(words[2], 16))))
            addresses.setdefault(words[5], []).append(address)
        except (IndexError, ValueError, OverflowError):
            problems.append(f"/proc/net/if_inet6 has an unreadable line: {line[:100]}")
    return addresses


def _interfaces_from_sysfs(tree: Tree, problems: list[str]) -> list[Interface]:
    addresses = _addresses_without_ip(tree, problems)
    interfaces: list[Interface] = []
    for name in tree.names("/sys/class/net"):
        folder = f"/sys/class/net/{name}"
        try:
            flags = int(tree.text(f"{folder}/flags") or "", 16)
        except ValueError:
            continue  # bonding_masters is a file of the same folder, not an interface
        interfaces.append(
            {
                "name": name,
                # carrier cannot be read while the interface is down
                "up": bool(flags & _IFF_UP) and tree.text(f"{folder}/carrier") == "1",
                "state": tree.text(f"{folder}/operstate") or "unknown",
                "mtu": tree.number(f"{folder}/mtu"),
                "mac": tree.text(f"{folder}/address"),
                "kind": "loopback" if flags & _IFF_LOOPBACK else "virtual",
                "speed_mbps": None,
                "addresses": addresses.get(name, []),
            }
        )
    return interfaces


def _interfaces(tree: Tree, problems: list[str]) -> list[Interface]:
    outcome = tree.command("ip.address", ["ip", "-json", "address"], 10)
    interfaces: list[Interface] = []
    if outcome is not None and outcome.status == 0:
        interfaces, wrong = parse_ip_address(outcome.output)
        problems.extend(wrong)
    if not interfaces:  # no iproute2, or a busybox `ip` that knows no -json
        interfaces = _interfaces_from_sysfs(tree, problems)
    for interface in interfaces:
        folder = f"/sys/class/net/{interface['name']}"
        speed = tree.number(f"{folder}/speed")
        interface["speed_mbps"] = speed if speed is not None and speed > 0 else None  # -1: the driver does not know
        if interface["kind"] != "loopback":
            kinds = (("bridge", "bridge"), ("bonding", "bond"), ("device", "physical"))
            interface["kind"] = next((kind for name, kind in kinds if tree.exists(f"{folder}/{name}")), "virtual")
    return sorted(interfaces, key=lambda interface: natural_order(interface["name"]))


def _netdev(tree: Tree, device: str, port: int) -> str | None:
    # Entries of unused GIDs cannot be read (EINVAL); InfiniBand ports have none at all.
    gid_netdevs = f"/sys/class/infiniband/{device}/ports/{port}/gid_attrs/ndevs"
    for gid in sorted(tree.names(gid_netdevs), key=natural_order):
        netdev = tree.text(f"{gid_netdevs}/{gid}")
        if netdev:
            return netdev
    folder = f"/sys/class/infiniband/{device}/device/net"
    children = [
        name
        for name in tree.names(folder)
        if (tree.number(f"{folder}/{name}/dev_port") or 0) == port - 1
        and not is_representor(tree.text(f"{folder}/{name}/phys_port_name") or "")
    ]
    # Partitions (ib0.8001) hang on the same port as their parent, whose name is the shortest.
    return min(children, key=lambda name: (len(name), name)) if children else None


def _rdma_ports(tree: Tree, problems: list[str]) -> list[RdmaPort]:
    ports: list[RdmaPort] = []
    for device in sorted(tree.names("/sys/class/infiniband"), key=natural_order):
        numbers = [number(name) or 0 for name in tree.names(f"/sys/class/infiniband/{device}/ports")]
        for port in sorted(port for port in numbers if port > 0):
            folder = f"/sys/class/infiniband/{device}/ports/{port}"
            state = parse_state(tree.text(f"{folder}/state") or "")
            physical = parse_state(tree.text(f"{folder}/phys_state") or "")
            if state is None:
                problems.append(f"RDMA port {device}:{port}: its state cannot be read from {folder}/state")
            ports.append(
                {
                    "device": device,
                    "port": port,
                    "state": state,
                    "physical_state": physical,
                    "rate_gbps": parse_rate(tree.text(f"{folder}/rate") or ""),
                    "link_layer": tree.text(f"{folder}/link_layer"),
                    "netdev": _netdev(tree, device, port),
                    "active": state == "ACTIVE" and physical in (None, "LinkUp"),
                }
            )
    return ports


def _nccl_conf(tree: Tree, user: str | None) -> tuple[list[str], dict[str, str]]:
    """Return the files that NCCL would read for the user, and their settings, the later file winning."""
    try:
        home = pwd.getpwnam(user).pw_dir if user else str(Path("~").expanduser())
    except (KeyError, RuntimeError):
        home = ""
    own = os.environ.get("NCCL_CONF_FILE") or (f"{home}/.nccl.conf" if home else "")
    files: list[str] = []
    settings: dict[str, str] = {}
    for path in ("/etc/nccl.conf", own):
        if not path or not tree.exists(path):
            continue
        files.append(path)
        settings.update(parse_nccl_conf(tree.text(path) or ""))
    return files, settings


def read_networks(tree: Tree, user: str | None = None) -> Networks:
    """Return the networks of the machine; user is whose ~/.nccl.conf counts (default: the calling user)."""
    problems: list[str] = []
    interfaces = _interfaces(tree, problems)
    files, settings = _nccl_conf(tree, user)
    return {
        "interfaces": interfaces,
        "rdma": _rdma_ports(tree, problems),
        "nccl_conf": files,
        "nccl_settings": settings,
        "problems": problems,
    }
