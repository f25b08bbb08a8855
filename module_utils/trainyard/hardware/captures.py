# SPDX-License-Identifier: Apache-2.0
"""Parse what one tool printed on some machine into the record that the machine itself would give.

An output is recognized by its lines. An unknown value is None, never a guess; what the output lacks is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from . import nvidia_smi, rdma_tools
from .accelerators import (
    Accelerators,
    Device,
    NpuChip,
    device,
    missing_driver,
    no_accelerators,
    parse_npu_info,
    parse_npu_map,
    pci_accelerator_vendor,
    pci_address,
)
from .interfaces import Networks
from .tool_text import lines_of, number

_LSPCI = re.compile(
    r"(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>[^:]+): (?P<name>.*)", re.IGNORECASE
)
# The tools by the first lines of their outputs, and by later lines where the first ones were cut off.
_FORMS = (
    ("nvidia-smi", re.compile(r"\|\s*NVIDIA-SMI\s+\d")),
    ("nvidia-smi", nvidia_smi.ROW),
    ("nvidia-smi", nvidia_smi.FAILED),
    ("nvidia-smi -L", nvidia_smi.LISTED),
    ("npu-smi info", re.compile(r"\|\s*npu-smi \S+\s+Version:|\|\s*NPU\s+Name\s+\|")),
    ("npu-smi info", re.compile(r"\|\s*\d+\s+(?:\d+\s*)?\|\s*[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s*\|")),
    ("npu-smi info -m", re.compile(r"\s*NPU ID\s+Chip ID\s")),
    ("npu-smi info -l", re.compile(r"\s*Total Count\s*:\s*\d")),
    ("ibstat", rdma_tools.CA),
    ("ibstatus", rdma_tools.STATUS),
    ("ibdev2netdev", re.compile(r".*\sport\s+\d+\s.*==>\s")),
    ("rdma link", rdma_tools.LINK),
    ("lspci", _LSPCI),
)
# nvidia-smi's line for a GPU that does not answer, in each of its outputs.
_LOST = re.compile(r"\s*Unable to determine the device handle for GPU", re.IGNORECASE)
# lspci -n; older releases print `Class`.
_NUMBERS = re.compile(
    r"(?:Class )?(?P<kind>[0-9a-f]{4}): (?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})(?: \(.*\))?", re.IGNORECASE
)
_FIELD = re.compile(r"\s*(?P<name>[A-Za-z][\w ()%/.-]*?)\s*:\s*(?P<value>.*)")
# Kunpeng's own engines have the same class, and are no NPUs.
_NPU = re.compile(r"Huawei Technologies Co\., Ltd\. (?!HiSilicon)")


def _tool(text: str, named: str, tools: Mapping[str, object]) -> str:
    """Return the tool that printed this. Raises ValueError unless it is one of `tools`, which name what is `named`."""
    lines = lines_of(text)
    found = list(dict.fromkeys(tool for line in lines for tool, form in _FORMS if form.match(line)))
    if not found and any(map(_LOST.match, lines)):
        found = ["nvidia-smi"]
    if len(found) > 1:
        raise ValueError(f"it holds outputs of {', '.join(found)}: give a file for each command")
    if not found or found[0] not in tools:
        raise ValueError(f"no output of a tool that names {named}: give one of {', '.join(tools)}")
    return found[0]


def accelerators(text: str) -> Accelerators:
    """Return the accelerators of the machine. Raises ValueError for any other output than one that lists them."""
    return _ACCELERATORS[_tool(text, "accelerators", _ACCELERATORS)](text)


def _lspci(text: str) -> Accelerators:
    """Return the devices on the bus as what they are without a tool of their vendor: devices without a driver."""
    for vendor, functions in _on_the_bus(text).items():
        if functions:
            found = no_accelerators(vendor)
            found["problems"] = [missing_driver(vendor, [address for address, _ in functions])]
            return found
    return no_accelerators()


def _on_the_bus(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return address and name of the GPUs and NPUs in the output of lspci, also with -D, -n and -nn."""
    found: dict[str, list[tuple[str, str]]] = {"nvidia": [], "ascend": []}
    for line in lines_of(text):
        row = _LSPCI.match(line)
        if row is None:
            continue
        kind, name = re.sub(r" \[[0-9a-f]{4}\]$", "", row["kind"]), row["name"]
        address = pci_address(row["pci"] if row["pci"].count(":") > 1 else f"0000:{row['pci']}") or row["pci"]
        numbers = _NUMBERS.fullmatch(f"{kind}: {name}")
        if numbers:
            vendor = pci_accelerator_vendor(*(f"0x{numbers[part]}" for part in ("vendor", "kind", "device")))
            if vendor is not None:
                found[vendor].append((address, name))
        if kind in ("3D controller", "VGA compatible controller") and name.startswith("NVIDIA"):
            found["nvidia"].append((address, name))
        elif kind == "Processing accelerators" and _NPU.match(name):
            found["ascend"].append((address, name))
    return found


def _npu_list(text: str) -> Accelerators:
    found = no_accelerators("ascend")
    cards, found["problems"] = _cards(text)
    found["devices"] = [
        device(index, "Ascend", physical_id=index, card=card, chip=chip) for index, (card, chip) in enumerate(cards)
    ]
    return _without_health(found)


def _npu_map(text: str) -> Accelerators:
    found = no_accelerators("ascend")
    chips, found["problems"] = parse_npu_map(text)
    found["devices"] = [_npu(chip) for chip in sorted(chips, key=lambda chip: chip["logic"])]
    return _without_health(found)


def _without_health(found: Accelerators) -> Accelerators:
    found["notes"].append("npu-smi info was not given: health and bus addresses are unknown")
    return found


def _npu(chip: NpuChip) -> Device:
    physical = chip["logic"] if chip["physical"] is None else chip["physical"]
    return device(chip["logic"], chip["name"], physical_id=physical, card=chip["npu"], chip=chip["chip"])


def _cards(text: str) -> tuple[list[tuple[int, int]], list[str]]:
    """Return card and chip of each NPU in `npu-smi info -l`, and the problems."""
    chips: list[tuple[int, int]] = []
    problems: list[str] = []
    total = card = None
    cards = 0
    for name, value in _fields(text):
        count = number(value) if len(value) < 4 else None
        if name == "Total Count":
            total = count
        elif name == "NPU ID":
            card, cards = count, cards + 1
        elif name == "Chip Count" and card is not None and count is not None:
            chips += [(card, chip) for chip in range(min(count, 64))]
            card = None
    if text and (total != cards or card is not None or len(set(chips)) < len(chips)):
        problems.append(f"npu-smi info -l counts {total} NPUs and lists {cards}: the output may have been cut")
    return chips, problems


def _fields(text: str) -> list[tuple[str, str]]:
    matches = (_FIELD.fullmatch(line) for line in lines_of(text))
    return [(match["name"], match["value"].strip()) for match in matches if match]


_ACCELERATORS: Mapping[str, Callable[[str], Accelerators]] = {
    "nvidia-smi": nvidia_smi.parse_table,
    "nvidia-smi -L": nvidia_smi.parse_list,
    "npu-smi info": lambda text: parse_npu_info(text, None),
    "npu-smi info -m": _npu_map,
    "npu-smi info -l": _npu_list,
    "lspci": _lspci,
}
_PORTS: Mapping[str, Callable[[str], rdma_tools.Ports]] = {
    "ibstat": rdma_tools.parse_ibstat,
    "ibstatus": rdma_tools.parse_ibstatus,
    "rdma link": rdma_tools.parse_rdma_link,
    "ibdev2netdev": rdma_tools.parse_ibdev2netdev,
}


def networks(text: str) -> Networks:
    """Return the RDMA ports of the machine. Raises ValueError for any other output than one that lists them."""
    ports, problems = _PORTS[_tool(text, "RDMA ports", _PORTS)](text)
    return {"interfaces": [], "rdma": ports, "nccl_conf": [], "nccl_settings": {}, "problems": problems}
