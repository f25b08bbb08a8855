# SPDX-License-Identifier: Apache-2.0
"""The rules of an HCCL rank table on addresses and ports of devices and servers."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.findings import Finding, Warned, counted
from ..base.majority import usual
from .rank_table_view import View, address_family, addresses, field_text, link_local, number, repeats, shown

# HCCL reads these on an A3 only, where operations are tried again between super pods.
_BACKUP = ("backup_device_ip", "backup_device_port")
_PORTS = ("device_port", "device_vnic_port", "host_port", "backup_device_port")


def _device_ip(view: View) -> Iterator[Finding]:
    wrong = {address for address, family in view.families.items() if family is None}
    action = "give the device its address with hccn_tool, and write the table again"
    for device in view.devices:
        if not wrong.isdisjoint(device.addresses) or isinstance(device.data.get("device_ip"), (list, dict)):
            found = field_text(device.data, "device_ip")
            yield Finding("device_ip", found, "an IPv4 or IPv6 address", action, host=device.where)


def _device_ip_missing(view: View) -> Iterator[Finding]:
    expected = "an address for each device where there are several servers, unless these are one super pod"
    action = "check hccn_tool -i N -ip -g and /etc/hccn.conf; give the device an address where it has none"
    for device in view.devices if view.needs_device_ip else ():
        value = device.data.get("device_ip")
        if value in (None, ""):
            # The NPUs of a 910 reach each other by the server's own interface, too; between the super pods of an A3
            # there is no other way.
            other_way = "host_ip" in device.server.data or value == ""
            accepted = other_way and view.chip != "910b" and (view.version != "1.2" or view.chip == "910")
            kind = Warned if accepted else Finding
            yield kind("device_ip_missing", "no device_ip", expected, action, host=device.where)


def _device_ip_count(view: View) -> Iterator[Finding]:
    # HCCL counts a missing address as one.
    first = max(len(view.devices[0].addresses), 1) if view.devices else 0
    action = "give every device as many addresses, or one each"
    for device in view.devices:
        if max(len(device.addresses), 1) != first:
            found = counted(len(device.addresses), "address", "addresses")
            yield Finding("device_ip_count", found, f"{first}, as the first device has", action, host=device.where)


def _device_ip_unique(view: View) -> Iterator[Finding]:
    action = "give one of the two devices another address with hccn_tool"
    for address, device, first in repeats((text, each) for each in view.devices for text in each.addresses):
        if view.families[address] is not None:
            found = f"device_ip {address}, which {first.where} has"
            yield Finding("device_ip_unique", found, "each device_ip once", action, host=device.where)


def _device_ip_family(view: View) -> Iterator[Finding]:
    family = usual((each for each in view.families.values() if each is not None), 0)
    # HCCL compares no addresses where there is one server.
    kind = Finding if len(view.entries) > 1 else Warned
    for device in view.devices if family else ():
        for address in device.addresses:
            if view.families[address] not in (None, family):
                expected, action = f"IPv{family}, as for other devices", "use one address family for all devices"
                yield kind("device_ip_family", f"device_ip {address}", expected, action, host=device.where)


def _device_ip_link_local(view: View) -> Iterator[Finding]:
    """Check link-local addresses: between servers, those of IPv4 work where all devices of a place have them.

    Those of IPv6 need an interface, and work nowhere without one.
    """
    local = {address for address, family in view.families.items() if family is not None and link_local(address)}
    if not view.needs_device_ip or not local:
        return
    action = "give the device an address of the others' network: hccn_tool -i N -ip -s address ADDRESS netmask NETMASK"
    places: dict[int | None, set[bool]] = {}
    for device in view.devices:
        places.setdefault(device.device_id, set()).update(address in local for address in device.addresses)
    for device in view.devices:
        for address in device.addresses:
            found, expected = (
                f"device_ip {address}, which no router forwards",
                "an address that the other servers reach",
            )
            without_interface = view.families[address] == 6 and "%" not in address
            if without_interface:
                found += " and which names no interface"
            else:
                expected += f"; device {device.device_id} of another has one that is not link-local"
            if address in local and (without_interface or len(places[device.device_id]) > 1):
                yield Warned("device_ip_link_local", found, expected, action, host=device.where)


def _device_options(view: View) -> Iterator[Finding]:
    action = "correct it, or leave it out"
    for device in view.devices:
        # An ordinary entry has none of these, and 3 or 4 keys.
        if len(device.data) < 4:
            continue
        for name in _PORTS:
            if name in device.data and not 1 <= (number(device.data[name]) or 0) <= 65535:
                kind = Warned if name in _BACKUP else Finding
                found = field_text(device.data, name)
                yield kind("device_options", found, "a port, 1 to 65535", action, host=device.where)
        backup = device.data.get("backup_device_ip", "127.0.0.1")
        if not isinstance(backup, str) or any(address_family(each) is None for each in addresses(backup)):
            found = field_text(device.data, "backup_device_ip")
            expected = "an IPv4 or IPv6 address, or several with commas"
            yield Warned("device_options", found, expected, action, host=device.where)


def _host_port_unique(view: View) -> Iterator[Finding]:
    action = "give each device of the server a port of its own: its process listens there"
    for server in view.servers:
        for port, device, first in repeats((number(each.data.get("host_port")), each) for each in server.devices):
            found = f"host_port {port}, which {first.name} has"
            yield Warned("host_port_unique", found, "each host_port of a server once", action, host=device.where)


def _host_ip(view: View) -> Iterator[Finding]:
    have = sum("host_ip" in server.data for server in view.servers)
    first = view.devices[0] if view.devices else None
    # All servers need a host_ip only where the first rank would use its server's own interface.
    missing = Finding if first and "host_ip" in first.server.data and not first.addresses else Warned
    for server in view.servers:
        if "host_ip" in server.data:
            value = server.data["host_ip"]
            if not isinstance(value, str) or address_family(value) is None:
                found, action = f"host_ip {shown(value)}", "write the address of the server's own network"
                yield Finding("host_ip", found, "an IPv4 or IPv6 address", action, host=server.where)
        elif have:
            found = f"no host_ip, which {have} of {len(view.servers)} servers have"
            expected = "host_ip on all servers or on none"
            yield missing("host_ip", found, expected, "write it for every server", host=server.where)


RULES = (
    _device_ip, _device_ip_missing, _device_ip_count, _device_ip_unique, _device_ip_family, _device_ip_link_local,
    _device_options, _host_port_unique, _host_ip,
)  # fmt: skip
