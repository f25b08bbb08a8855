# SPDX-License-Identifier: Apache-2.0
"""Parse outputs on RDMA ports that somebody saved: `ibstat`, `ibstatus`, `ibdev2netdev` (also -v), `rdma link`.

Nodes read sysfs (trainyard_node/hardware/network_discovery.py). An interface that ibdev2netdev calls Down says nothing
of the port: with InfiniBand alone nobody gives it an address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from .interfaces import RdmaPort, parse_rate, parse_state, port_name
from .tool_text import excerpt, lines_of

CA = re.compile(r"CA '(?P<device>[^']+)'")
STATUS = re.compile(r"Infiniband device '(?P<device>[^']+)' port (?P<port>\d{1,3}) status:")
NETDEV = re.compile(
    r"(?P<device>\w+)\s+(?:\(.*\)\s+.*)?port\s+(?P<port>\d{1,3})\s+(?:\((?P<state>\w+)\s*\)\s+)?==>\s+(?P<netdev>\S+)\s+"
    r"\((?:Up|Down)\)"
)
LINK = re.compile(
    r"link (?P<device>[\w.-]+)/(?P<port>\d{1,3}) (?:subnet_prefix .{1,200} )?state (?P<state>\w+) "
    r"physical_state (?P<physical>\w+)(?: netdev (?P<netdev>\S+))?"
)
_PORT = re.compile(r"\s+Port (?P<port>\d{1,3}):$")
_FIELD = re.compile(r"\s+(?P<name>[A-Za-z_ ]+?):\s*(?P<value>.*)")
_PORTS = re.compile(r"\s+Number of ports:\s*(?P<ports>\d{1,3})$")
# ibstat's words; sysfs has ACTIVE, DOWN, INIT, ARMED.
_STATES = {"initializing": "INIT"}

Ports = tuple[list[RdmaPort], list[str]]


def _port(device: str, port: int) -> RdmaPort:
    unknown = dict.fromkeys(("state", "physical_state", "rate_gbps", "link_layer", "netdev"))
    return cast("RdmaPort", {**unknown, "device": device, "port": port, "active": False})


def parse_ibstat(output: str) -> Ports:
    """Parse `ibstat`: ports, and what is wrong with what it printed."""
    ports: list[RdmaPort] = []
    problems: list[str] = []
    expected: dict[str, int] = {}
    device: str | None = None
    port: RdmaPort | None = None
    for line in lines_of(output):
        named, numbered, count, field = CA.match(line), _PORT.match(line), _PORTS.match(line), _FIELD.match(line)
        if named:
            device, port = named["device"], None
            expected[device] = 1
        elif "ibpanic" in line or "failed" in line:
            problems.append(f"ibstat: {excerpt(line)}")
        elif (numbered or field) and device is None:
            problems.append(f"ibstat: the output begins in the middle, without the adapter's name: {excerpt(line)}")
            break
        elif count and device is not None:
            expected[device] = int(count["ports"])
        elif numbered and device is not None:
            port = _port(device, int(numbered["port"]))
            ports.append(port)
        elif field and port is not None:
            _take(port, field["name"].strip(), field["value"].strip())
    for name, number in expected.items():
        have = sum(each["device"] == name for each in ports)
        if have != number:
            problems.append(f"ibstat: {have} ports of {name}, expected {number}: the output may have been cut")
    return ports, problems + _finished(ports, "ibstat")


def _take(port: RdmaPort, name: str, value: str) -> None:
    word = value.split()[0] if value else None
    if name == "State" and word:
        port["state"] = _STATES.get(word.lower(), word.upper())
    elif name == "Physical state":
        port["physical_state"] = word
    elif name == "Rate" and word and re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,3})?", word):
        port["rate_gbps"] = float(word)
    elif name == "Link layer":
        port["link_layer"] = word


_STATUS_FIELDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "state": ("state", parse_state),
    "phys state": ("physical_state", parse_state),
    "rate": ("rate_gbps", parse_rate),
    "link_layer": ("link_layer", lambda value: value or None),
}


def parse_ibstatus(output: str) -> Ports:
    """Parse `ibstatus`: ports, and what is wrong with what it printed."""
    ports: list[RdmaPort] = []
    problems: list[str] = []
    read: set[str] = set()
    for line in lines_of(output):
        named, field = STATUS.match(line), _FIELD.match(line)
        if named:
            ports.append(_port(named["device"], int(named["port"])))
            read = set()
        elif field and not ports:
            problems.append(f"ibstatus: the output begins in the middle, without the adapter's name: {excerpt(line)}")
            break
        elif field:
            name, value = field["name"].strip(), field["value"].strip()
            if name in read:
                problems.append(f"ibstatus: {name} of {ports[-1]['device']} twice: a line between is missing")
                break
            read.add(name)
            if name in _STATUS_FIELDS:
                key, parse = _STATUS_FIELDS[name]
                ports[-1].update({key: parse(value)})  # type: ignore[misc]
    return ports, problems + _finished(ports, "ibstatus")


def _finished(ports: list[RdmaPort], tool: str) -> list[str]:
    problems = []
    for port in ports:
        port["active"] = port["state"] == "ACTIVE" and port["physical_state"] == "LinkUp"
        missing = [name for name in ("state", "physical_state", "rate_gbps", "link_layer") if port[name] is None]
        if missing:
            problems.append(f"{tool}: no {', '.join(missing)} of port {port_name(port)}")
    return problems


def parse_ibdev2netdev(output: str) -> Ports:
    """Parse `ibdev2netdev`, also with -v, which alone knows a port's state."""
    ports: list[RdmaPort] = []
    problems: list[str] = []
    for line in lines_of(output):
        row = NETDEV.search(line)
        if row:
            port = _port(row["device"], int(row["port"]))
            port["netdev"], port["state"] = row["netdev"], row["state"]
            port["active"] = row["state"] == "ACTIVE"
            ports.append(port)
        elif "==>" in line:
            problems.append(f"ibdev2netdev printed a line that is no port: {excerpt(line)}")
    unknown = [port_name(port) for port in ports if port["state"] is None]
    if unknown:
        problems.insert(0, f"nothing says the state of {', '.join(unknown)}: give ibstat or ibstatus")
    return ports, problems


def parse_rdma_link(output: str) -> Ports:
    """Parse `rdma link`, which knows neither rate nor link layer."""
    ports = []
    for row in filter(None, map(LINK.match, lines_of(output))):
        port = _port(row["device"], int(row["port"]))
        physical = "".join(part.capitalize() for part in row["physical"].split("_"))
        port.update({"state": row["state"], "physical_state": physical, "netdev": row["netdev"]})
        port["active"] = (port["state"], physical) == ("ACTIVE", "LinkUp")
        ports.append(port)
    return ports, []
