# SPDX-License-Identifier: Apache-2.0
"""The Ascend devices of one node from npu-smi and hccn_tool, as an HCCL rank table needs them.

Pure. A device has three numbers: programs select it by its logic id (`index`); hccn_tool, /etc/hccn.conf and rank
tables use its physical id; npu-smi uses card and chip. Formats: npu-smi 21.x to 25.x; hccn_tool as in its source
and the vendor's guides.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

from ..base.findings import grouped
from .accelerators import Device
from .tool_text import lines_of, number

# The first generation has a 910B without a digit. The product 910B has one (910B1 to 910B4-1, 910B2C).
_FIRST_GENERATION = re.compile(r"910(?:A|B|PRO[AB]|PREMIUMA)$")
_910B = re.compile(r"910B\d")
_A3 = re.compile(r"910_93")

_IP = re.compile(r"^\s*ipaddr\s*:\s*(\S+)", re.MULTILINE | re.IGNORECASE)
_CONF = re.compile(r"^\s*(?P<six>IPv6)?address_(?P<device>\d+)\s*=\s*(?P<address>\S*)\s*$", re.IGNORECASE)
_LINK = re.compile(r"^\s*link status\s*:\s*(\S+)", re.MULTILINE | re.IGNORECASE)
_NET_HEALTH = re.compile(r"^\s*net health status\s*:\s*(\S.*?)\s*$", re.MULTILINE | re.IGNORECASE)
_SPOD = re.compile(r"^\W*(?P<field>SDID|Super Pod ID)\s*:\s*(?P<value>\d+)\b", re.MULTILINE)
# The driver's value without a super pod.
_NO_SPOD = 0xFFFFFFFF
# Not a fault: no address to ping is configured, or only since a moment ago.
NET_HEALTH_UNKNOWN = ("Init", "Detect ip set", "Unknown", "")


class Answer(NamedTuple):
    """Output and exit status of a tool."""

    status: int
    output: str


class Port(NamedTuple):
    """The answers of hccn_tool about one device; None where it was not called or is not installed."""

    ip: Answer | None = None
    link: Answer | None = None
    net_health: Answer | None = None


class NpuDevice(TypedDict):
    """One device. link is up, down or unknown; an empty string stands for a value that could not be read."""

    index: int
    physical_id: int
    device_ip: str
    health: str
    link: str
    net_health: str
    super_device_id: str
    visible: bool


class Npu(TypedDict):
    """The devices of one node; problems are faults, notes are hints and values that could not be read."""

    chip: str
    super_pod_id: str
    devices: list[NpuDevice]
    problems: list[str]
    notes: list[str]


def chip_of(devices: Sequence[Device]) -> str:
    """Return the generation as rank tables name it: 910, 910b or a3; empty for others and for a mixture."""
    chips_of_card = Counter(device["card"] for device in devices)
    found = set()
    for device in devices:
        name = re.sub(r"^ASCEND[ _-]*", "", device["model"].upper())
        if _910B.match(name):
            found.add("910b")
        elif _A3.match(name):
            found.add("a3")
        elif _FIRST_GENERATION.match(name):
            found.add("910")
        elif name == "910":
            # Old drivers print this for the first generation, and new ones for A3, whose cards have two chips.
            found.add("a3" if chips_of_card[device["card"]] > 1 else "910")
        else:
            found.add("")
    return found.pop() if len(found) == 1 else ""


def _address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return "" if address.is_unspecified else str(address)


def _value(pattern: re.Pattern[str], output: str) -> str:
    match = pattern.search(output)
    return match[1] if match else ""


def device_ip(output: str) -> str:
    """Return the address in the output of `hccn_tool -i N -ip -g`; empty without one (`-.-.-.-`, no line)."""
    return _address(_value(_IP, output))


def parse_hccn_conf(text: str) -> dict[int, str]:
    """Return the addresses in /etc/hccn.conf by physical id; IPv4 wins over IPv6, as in `hccn_tool -ip -g`."""
    found: dict[int, str] = {}
    six: dict[int, str] = {}
    for line in lines_of(text):
        match = _CONF.match(line)
        address = _address(match["address"]) if match else ""
        # \d matches the digits of any script.
        if match and address and match["device"].isascii():
            (six if match["six"] else found)[int(match["device"])] = address
    return {**six, **found}


def link_state(output: str) -> str:
    """Return up, down or unknown from the output of `hccn_tool -i N -link -g`."""
    word = _value(_LINK, output).lower()
    return word if word in ("up", "down") else "unknown"


def net_health(output: str) -> str:
    """Return the result of `hccn_tool -i N -net_health -g`: Success, Fault, Init, ...; or ""."""
    return _value(_NET_HEALTH, output)


def spod(output: str) -> tuple[str, str]:
    """Return super device id and super pod id from `npu-smi info -t spod-info`; empty without a super pod."""
    values = {match["field"]: int(match["value"]) for match in _SPOD.finditer(output)}
    device, pod = (values.get(name, _NO_SPOD) for name in ("SDID", "Super Pod ID"))
    return ("" if device == _NO_SPOD else str(device)), ("" if pod == _NO_SPOD else str(pod))


def busy(output: str) -> bool:
    """Return whether hccn_tool must be called again, as it serves one caller at a time."""
    text = output.lower()
    return "is busy" in text or "get lock failed" in text


def physical_ids(devices: Sequence[Device], nodes: Sequence[int]) -> list[int]:
    """Return each device's physical id; `nodes` are the numbers N of /dev/davinciN, which are physical ids.

    Drivers that do not print physical ids leave them equal to the logic ids, which is wrong in a container that was
    given devices 4 to 7: it counts its devices from 0.
    """
    printed = [device["physical_id"] for device in devices]
    if len(nodes) != len(devices) or printed != [device["index"] for device in devices]:
        return printed
    order = sorted(range(len(devices)), key=lambda place: devices[place]["index"])
    ids = list(printed)
    for place, node in zip(order, sorted(nodes)):
        ids[place] = node
    return ids


def visible_devices(value: str | None) -> list[int] | None:
    """Return the logic ids in ASCEND_RT_VISIBLE_DEVICES; None when it is not set. Another word ends the list."""
    if value is None:
        return None
    numbers = [number(word.strip()) for word in value.split(",")]
    return list(itertools.takewhile(lambda each: each is not None, numbers))  # type: ignore[arg-type]


def answer_text(answer: Answer | None) -> str:
    """Return the output of a tool on one line, for a message."""
    text = " ".join((answer.output if answer else "").split())
    return f"`{text[:200]}`" if text else "nothing"


def _printed(answer: Answer | None) -> str:
    return f"hccn_tool printed {answer_text(answer)}" if answer else "hccn_tool is not installed or was not called"


def _named(ids: Sequence[int]) -> str:
    return f"device{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def _have(ids: Sequence[int]) -> str:
    return f"{_named(ids)} (physical id) {'have' if len(ids) > 1 else 'has'}"


def assemble(
    devices: Sequence[Device],
    *,
    nodes: Sequence[int] = (),
    ports: Mapping[int, Port] | None = None,
    conf: Mapping[int, str] | None = None,
    spods: Mapping[tuple[int, int], Answer | None] | None = None,
    visible: str | None = None,
) -> Npu:
    """Return the record of one node.

    `ports` and `conf` (of /etc/hccn.conf) are by physical id, `spods` by card and chip; `visible` is the value of
    ASCEND_RT_VISIBLE_DEVICES. Messages name devices by their physical ids, as the vendor's tools do.
    """
    ports, conf, spods = ports or {}, conf or {}, spods or {}
    shown = visible_devices(visible)
    found: Npu = {"chip": chip_of(devices), "super_pod_id": "", "devices": [], "problems": [], "notes": []}
    pods = set()
    for device, physical in zip(devices, physical_ids(devices, nodes)):
        port = ports.get(physical, Port())
        place = (device["card"] if device["card"] is not None else -1, device["chip"] or 0)
        answer = spods.get(place)
        super_device, pod = spod(answer.output) if answer and answer.status == 0 else ("", "")
        pods.add(pod)
        found["devices"].append(
            {
                "index": device["index"],
                "physical_id": physical,
                "device_ip": (device_ip(port.ip.output) if port.ip else "") or conf.get(physical, ""),
                "health": device["health"] or "",
                "link": link_state(port.link.output) if port.link else "unknown",
                "net_health": net_health(port.net_health.output) if port.net_health else "",
                "super_device_id": super_device,
                "visible": shown is None or device["index"] in shown,
            }
        )
    if len(pods) == 1:
        found["super_pod_id"] = pods.pop()
    _check(found, ports, spods, pods)
    return found


def _check(
    found: Npu, ports: Mapping[int, Port], spods: Mapping[tuple[int, int], Answer | None], pods: set[str]
) -> None:
    """Add problems and notes to a record."""
    devices, problems, notes = found["devices"], found["problems"], found["notes"]
    if devices and not found["chip"]:
        notes.append("the devices are not of one kind among 910, 910B or A3: no HCCL rank table is made for them")
    _check_addresses(found, ports)
    down = [device["physical_id"] for device in devices if device["link"] == "down" and _expects_network(found, device)]
    if down:
        problems.append(
            f"the link of {_named(down)} (physical id) is down, expected up: check cable, optical module and switch "
            f"port (`hccn_tool -i {down[0]} -optical -g`)"
        )
    unhealthy = grouped(
        (device["net_health"], device["physical_id"])
        for device in devices
        if device["net_health"] not in ("Success", *NET_HEALTH_UNKNOWN) and _expects_network(found, device)
    )
    for words, ids in unhealthy.items():
        problems.append(
            f"the network health of {_named(ids)} (physical id) is `{words}`, expected `Success`: check gateway and "
            f"detection address (`hccn_tool -i {ids[0]} -gateway -g`, `hccn_tool -i {ids[0]} -netdetect -g`)"
        )
    unknown = [device["physical_id"] for device in devices if device["link"] == "unknown"]
    if unknown:
        port = ports.get(unknown[0])
        why = _printed(port.link if port else None)
        notes.append(f"the link of {_named(unknown)} (physical id) is unknown: {why}")
    if found["chip"] == "a3":
        lost = [device["physical_id"] for device in devices if not device["super_device_id"]]
        if lost:
            answer = next((answer for answer in spods.values() if answer is not None), None)
            text = f"`npu-smi info -t spod-info` printed {answer_text(answer)}"
            problems.append(f"{_have(lost)} no super device id: {text}")
        if len(pods) > 1:
            problems.append(
                f"the devices report the super pods {', '.join(sorted(pod or 'none' for pod in pods))}, "
                "expected one: see `npu-smi info -t spod-info -i CARD -c CHIP`"
            )
    hidden = [device["index"] for device in devices if not device["visible"]]
    if hidden:
        notes.append(
            f"ASCEND_RT_VISIBLE_DEVICES hides {_named(hidden)} (logic id) from programs, which count the others from "
            "0; numbers here are those of the whole node"
        )


def _expects_network(found: Npu, device: NpuDevice) -> bool:
    """Return whether the device needs its own network port: A3 does not, inside one super pod."""
    return found["chip"] != "a3" or bool(device["device_ip"])


def _check_addresses(found: Npu, ports: Mapping[int, Port]) -> None:
    devices, problems, notes = found["devices"], found["problems"], found["notes"]
    unset = [device["physical_id"] for device in devices if not device["device_ip"]]
    if unset and found["chip"] == "a3":
        notes.append(f"{_have(unset)} no network address: collectives stay inside the super pod")
    elif unset:
        port = ports.get(unset[0])
        why = _printed(port.ip if port else None)
        first = unset[0]
        problems.append(
            f"{_have(unset)} no network address: {why}, and /etc/hccn.conf has no "
            f"address_{first}; set it with `hccn_tool -i {first} -ip -s address ADDRESS netmask NETMASK`"
        )
    for address, same in grouped((device["device_ip"], device["physical_id"]) for device in devices).items():
        if address and len(same) > 1:
            problems.append(f"{_have(same)} the same address {address}, expected one for each")
