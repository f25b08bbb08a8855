# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table on addresses and ports of devices and servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..findings.findings import Finding, Warned, counted
from .rank_table_view import DeviceView, View, address_family, addresses, field_text, link_local, number, shown

# Read only on an A3, and where operations are tried again between super pods.
_BACKUP = ("backup_device_ip", "backup_device_port")


def _device_ip(view: View) -> Iterator[Finding]:
    wrong = {address for address, family in view.families.items() if family is None}
    for device in view.devices:
        if not wrong.isdisjoint(device.addresses) or isinstance(device.data.get("device_ip"), (list, dict)):
            yield Finding(
                "device_ip",
                field_text(device.data, "device_ip"),
                "an IPv4 or IPv6 address",
                "give the device its address with hccn_tool, and write the table again",
                host=device.where,
            )


def _device_ip_missing(view: View) -> Iterator[Finding]:
    if not view.needs_device_ip:
        return
    for device in view.devices:
        value = device.data.get("device_ip")
        if value in (None, ""):
            # The NPUs of a 910 reach each other by the server's own interface, too; between the super pods of an A3
            # there is no other way.
            other_way = "host_ip" in device.server.data or value == ""
            taken = other_way and view.chip != "910b" and (view.version != "1.2" or view.chip == "910")
            yield (Warned if taken else Finding)(
                check="device_ip_missing",
                host=device.where,
                found="no device_ip",
                expected="an address for each device where there are several servers, unless these are one super pod",
                action=(
                    "look with hccn_tool -i N -ip -g or in /etc/hccn.conf; give the device an address where it has none"
                ),
            )


def _device_ip_count(view: View) -> Iterator[Finding]:
    # One that is missing counts as one address to HCCL.
    usual = max(len(view.devices[0].addresses), 1) if view.devices else 0
    for device in view.devices:
        if max(len(device.addresses), 1) != usual:
            yield Finding(
                "device_ip_count",
                counted(len(device.addresses), "address", "addresses"),
                f"{usual}, as the first device has",
                "give every device as many addresses, or one each",
                host=device.where,
            )


def _device_ip_unique(view: View) -> Iterator[Finding]:
    first: dict[str, DeviceView] = {}
    for device in view.devices:
        for address in device.addresses:
            if first.setdefault(address, device) is not device and view.families[address] is not None:
                yield Finding(
                    "device_ip_unique",
                    f"device_ip {address}, which {first[address].where} has",
                    "each device_ip once",
                    "give one of the two devices another address with hccn_tool",
                    host=device.where,
                )


def _device_ip_family(view: View) -> Iterator[Finding]:
    counts = Counter(family for family in view.families.values() if family is not None)
    # HCCL compares no addresses where there is one server.
    kind = Finding if len(view.entries) > 1 else Warned
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        for device in view.devices:
            for address in device.addresses:
                if view.families[address] not in (None, usual):
                    yield kind(
                        check="device_ip_family",
                        host=device.where,
                        found=f"device_ip {address}",
                        expected=f"IPv{usual}, as for other devices",
                        action="use one address family for all devices",
                    )


def _device_ip_link_local(view: View) -> Iterator[Finding]:
    """Between servers, IPv4's link-local addresses do where all devices of a place have them; IPv6's never."""
    if not view.needs_device_ip:
        return
    local = {address for address, family in view.families.items() if family is not None and link_local(address)}
    places: dict[int | None, set[bool]] = {}
    for device in view.devices if local else ():
        places.setdefault(device.device_id, set()).update(address in local for address in device.addresses)
    for device in view.devices if local else ():
        for address in device.addresses:
            six = view.families[address] == 6 and "%" not in address
            if address in local and (six or len(places[device.device_id]) > 1):
                yield Warned(
                    "device_ip_link_local",
                    (
                        f"device_ip {address}, which no router forwards"
                        + (" and which says no interface" if six else "")
                    ),
                    (
                        "an address that the other servers reach"
                        + ("" if six else f"; device {device.device_id} of another has one that is not link-local")
                    ),
                    (
                        "give the device an address of the others' network: hccn_tool -i N -ip -s address ADDRESS "
                        "netmask NETMASK"
                    ),
                    host=device.where,
                )


def _device_options(view: View) -> Iterator[Finding]:
    for device in view.devices:
        # An ordinary entry has none of these, and 3 or 4 keys.
        if len(device.data) < 4:
            continue
        action = "correct it, or leave it out"
        for name in ("device_port", "device_vnic_port", "host_port", "backup_device_port"):
            if name in device.data and not 1 <= (number(device.data[name]) or 0) <= 65535:
                found = field_text(device.data, name)
                yield (Warned if name in _BACKUP else Finding)(
                    check="device_options", host=device.where, found=found, expected="a port, 1 to 65535", action=action
                )
        backup = device.data.get("backup_device_ip", "127.0.0.1")
        if not isinstance(backup, str) or any(address_family(each) is None for each in addresses(backup)):
            yield Warned(
                "device_options",
                field_text(device.data, "backup_device_ip"),
                "an IPv4 or IPv6 address, or several with commas",
                action,
                host=device.where,
            )


def _host_port_unique(view: View) -> Iterator[Finding]:
    for server in view.servers:
        first: dict[int, DeviceView] = {}
        for device in server.devices:
            port = number(device.data.get("host_port"))
            if port is not None and first.setdefault(port, device) is not device:
                yield Warned(
                    "host_port_unique",
                    f"host_port {port}, which {first[port].name} has",
                    "each host_port of a server once",
                    "give each device of the server a port of its own: its process listens there",
                    host=device.where,
                )


def _host_ip(view: View) -> Iterator[Finding]:
    have = sum("host_ip" in server.data for server in view.servers)
    first = view.devices[0] if view.devices else None
    by_host = first is not None and "host_ip" in first.server.data and not first.addresses
    for server in view.servers:
        if "host_ip" in server.data:
            value = server.data["host_ip"]
            if not isinstance(value, str) or address_family(value) is None:
                found, expected = f"host_ip {shown(value)}", "an IPv4 or IPv6 address"
                yield Finding(
                    "host_ip", found, expected, "write the address of the server's own network", host=server.where
                )
        elif have:
            # Only where the first rank would use the server's own interface do all need one.
            yield (Finding if by_host else Warned)(
                check="host_ip",
                host=server.where,
                found=f"no host_ip, which {have} of {len(view.servers)} servers have",
                expected="host_ip on all servers or on none",
                action="write it for every server",
            )


RULES = (
    _device_ip,
    _device_ip_missing,
    _device_ip_count,
    _device_ip_unique,
    _device_ip_family,
    _device_ip_link_local,
    _device_options,
    _host_port_unique,
    _host_ip,
)
