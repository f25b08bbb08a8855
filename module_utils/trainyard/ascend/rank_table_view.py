# SPDX-License-Identifier: Apache-2.0
"""Read an HCCL rank table as far as possible: it may come from anywhere, and be wrong in any way."""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ..base.findings import Finding

CHIPS = ("910", "910b", "a3")
# Upper bounds in characters: a server_id, and a value in a message.
MAX_SERVER_ID = 64
_MAX_SHOWN = 80
WRITE_ANEW = "write the table with library/rank_table"
T = TypeVar("T")


def as_error(problem: Finding) -> Finding:
    """Return a warning as an error, where more is required than HCCL requires."""
    return Finding(**problem.as_dict())


def loads(text: str) -> tuple[object, list[Finding]]:
    """Return the table in a text, for validate(), or None and why the text is not JSON."""
    try:
        return json.loads(text), []
    except json.JSONDecodeError as error:
        where, found = f"line {error.lineno}, column {error.colno}", error.msg
    except RecursionError:
        where, found = "file", "nested too deeply"
    except ValueError as error:  # a number of thousands of digits
        where, found = "file", str(error)
    return None, [Finding("json", found, "JSON text", WRITE_ANEW, host=where)]


def shown(value: object) -> str:
    """Return a value as JSON, shortened; a number in a string has no quotes."""
    value = value if number(value) is None else number(value)
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():  # half a surrogate pair would break the module's result
        text = json.dumps(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def number(value: object) -> int | None:
    """Return the number in a decimal string or an integer, None where there is none."""
    if isinstance(value, str):
        return int(value) if value.isdigit() and value.isascii() and len(value) <= 10 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**10 else None


def _name(value: object) -> str:
    """Return a name, which may be written as a number; "" where there is none."""
    return value if isinstance(value, str) else "" if number(value) is None else str(value)


def plain(text: str) -> str:
    """Return a text for a message, in quotes if it has characters that cannot be printed."""
    return text if text.isprintable() else shown(text)


def address_family(text: str) -> int | None:
    """Return 4 or 6 for an address, which may name its interface (fe80::1%eth0), None for anything else."""
    text, mark, interface = text.partition("%")
    if mark and not interface:
        return None
    for family, version in ((socket.AF_INET, 4), (socket.AF_INET6, 6)):
        # A table may have thousands of addresses, for which `ipaddress` is slow. This is as strict.
        try:
            socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
        return version
    return None


def link_local(address: str) -> bool:
    """Tell whether an address is one that no router forwards: 169.254.0.0/16 (RFC 3927), fe80::/10 (RFC 4291)."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_link_local
    except ValueError:
        return False


def version_of(chip: str) -> str:
    """Return the version of table that a chip needs. Raises ValueError for an unknown chip."""
    if chip not in CHIPS:
        raise ValueError(f"chip {chip!r}: expected one of {', '.join(CHIPS)}")
    return "1.2" if chip == "a3" else "1.0"


def objects(data: Mapping[str, Any], name: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects in a list, each with its index."""
    entries = data.get(name)
    listed = entries if isinstance(entries, list) else []
    return [(at, entry) for at, entry in enumerate(listed) if isinstance(entry, dict)]


def field_text(data: Mapping[str, Any], name: str) -> str:
    """Return the value of a field for a message."""
    return f"{name} {shown(data[name])}" if name in data else f"no {name}"


def repeats(pairs: Iterable[tuple[Hashable, T]]) -> Iterator[tuple[Any, T, T]]:
    """Yield the key, the item and the earlier item of each pair whose key another item has; None and "" are no keys."""
    first: dict[Hashable, T] = {}
    for key, item in pairs:
        if key not in (None, "") and first.setdefault(key, item) is not item:
            yield key, item, first[key]


def addresses(value: object) -> Sequence[str]:
    """Return the parts of a field that HCCL splits at commas. It ignores one comma at the end."""
    if not isinstance(value, str) or not value:
        return ()
    return value.removesuffix(",").split(",") if "," in value else (value,)


class DeviceView:
    """One entry of a server's `device`."""

    __slots__ = ("data", "device_id", "index", "rank", "server")

    def __init__(self, server: ServerView, index: int, data: Mapping[str, Any]) -> None:
        """Read the numbers that other rules build on."""
        self.server, self.index, self.data = server, index, data
        self.rank, self.device_id = number(data.get("rank_id")), number(data.get("device_id"))

    @property
    def addresses(self) -> Sequence[str]:
        """The addresses in `device_ip`, which HCCL lets be several with commas."""
        return addresses(self.data.get("device_ip"))

    @property
    def where(self) -> str:
        """Name the device for a message."""
        return f"{self.server.where}, {self.name}{'' if self.rank is None else f', rank {self.rank}'}"

    @property
    def name(self) -> str:
        """Name the device among those of its server."""
        return f"device[{self.index}]" if self.device_id is None else f"device {self.device_id}"


class ServerView:
    """One entry of `server_list`."""

    def __init__(self, index: int, data: Mapping[str, Any]) -> None:
        """Read the devices, leaving out entries that are none."""
        self.index, self.data = index, data
        self.server_id = _name(data.get("server_id"))
        entries = data.get("device")
        self.entries: list[Any] = entries if isinstance(entries, list) else []
        self.devices = [DeviceView(self, at, entry) for at, entry in objects(data, "device")]

    @property
    def where(self) -> str:
        """Name the server for a message."""
        if not self.server_id or len(self.server_id) > MAX_SERVER_ID:
            return f"server_list[{self.index}]"
        return f"server {plain(self.server_id)}"

    @property
    def places(self) -> list[str]:
        """The server, its entries and its devices, as problems name them."""
        entries = [f"{self.where}, device[{index}]" for index in range(len(self.entries))]
        return [self.where, *entries, *(device.where for device in self.devices)]

    @cached_property
    def ranks(self) -> list[int]:
        """The ranks of its devices, as far as they are numbers."""
        return [device.rank for device in self.devices if device.rank is not None]


class View:
    """A table, read as far as it can be read."""

    def __init__(self, table: Mapping[str, Any], chip: str = "") -> None:
        """Read the servers, leaving out entries that are none."""
        self.table, self.chip = table, chip
        version = table.get("version")
        # A number 1.0 is a problem of `string` only.
        self.version = str(version) if isinstance(version, float) else _name(version)
        entries = table.get("server_list")
        self.entries: list[Any] = entries if isinstance(entries, list) else []
        self.servers = [ServerView(at, entry) for at, entry in objects(table, "server_list")]
        self.devices = [device for server in self.servers for device in server.devices]

    @cached_property
    def families(self) -> dict[str, int | None]:
        """Each address of a device, and its family; None where it is no address."""
        addresses = dict.fromkeys(address for device in self.devices for address in device.addresses)
        return {address: address_family(address) for address in addresses}

    @cached_property
    def pods(self) -> list[tuple[int, str, list[str]]]:
        """Index, super_pod_id and server ids of each super pod, as far as they can be read."""
        found = []
        for index, pod in objects(self.table, "super_pod_list"):
            ids = [_name(server.get("server_id")) for _, server in objects(pod, "server_list")]
            found.append((index, _name(pod.get("super_pod_id")), [each for each in ids if each]))
        return found

    @cached_property
    def pod_of(self) -> dict[str, str]:
        """The super pod of each server."""
        return {server: pod for _, pod, servers in self.pods for server in servers}

    @property
    def needs_device_ip(self) -> bool:
        """Whether devices talk over the network: between servers, unless all of these are in one super pod."""
        return len(self.entries) > 1 and not (self.version == "1.2" and len(self.pods) < 2)
