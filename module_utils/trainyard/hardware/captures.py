# SPDX-License-Identifier: Apache-2.0
"""Parse pasted outputs of a machine's tools, one after the other, into the records that the machine itself would give.

Outputs are recognized by their first lines, or by the command lines before them (`root@n1:~# npu-smi info -l`). Those
of hccn_tool and `npu-smi info -t` need their command line, which names the device; it may be a loop over devices. An
output whose device is not known is named. An unknown value is None, never a guess; contradictions are problems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..findings.findings import counted
from . import accelerators as acc
from . import npu, nvidia_smi, nvidia_topology, rdma_tools
from .interfaces import Networks
from .pasted import excerpt, lines_of, number

_COMMAND = re.compile(
    r"\s*(?:.*[#$%>] *)?(?:sudo +)?(?:[^\s#$%>]*/)?"
    r"(?P<tool>hccn_tool|npu-smi|nvidia-smi|lspci|ibstat|ibstatus|ibdev2netdev|rdma)"
    r"(?P<arguments>(?: +-?[\w-]+)*) *"
)
# `for i in {0..7}; do hccn_tool -i $i -ip -g; done`, also on several lines.
_BEGIN = r"\s*(?:.*[#$%>] *)?for +(?P<name>\w{1,40}) +in +(?P<values>[^;]{1,200}?) *"
_FOR = re.compile(rf"{_BEGIN}(?:; *do(?: +[^;]{{1,300}})?)?;? *")
_LOOP = re.compile(rf"{_BEGIN}; *do;? +(?P<body>[^;]{{1,300}}?) *;? *done;? *")
_RANGE = re.compile(r"\{(\d{1,3})\.\.(\d{1,3})\}|(?:\$\(|`) *seq +(\d{1,3}) +(\d{1,3}) *[)`]")
_MAX_DEVICES, _MAX_LOOP_LINES = 64, 6
# A call that is no command line, and the first lines of answers that name no device.
_CALL = re.compile(r"[^|]*\b(?:hccn_tool|npu-smi)\b.*\s-[a-z].*")
_ANSWER = re.compile(r"\s*(?:ipaddr|link status|net health status)\s*:", re.IGNORECASE)
_FAULT = re.compile(r"\s*(?:link status\s*:\s*DOWN|net health status\s*:\s*[a-z ]{0,40}fault)\b.*", re.IGNORECASE)
_UNKNOWN = "of a device that is not named"
_PROMPT = re.compile(r"\[?\w[\w.-]*@[\w.-]+[ :][^#$]*[#$](?: .*)?")
_LSPCI = re.compile(
    r"(?P<pci>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) (?P<kind>[^:]+): (?P<name>.*)", re.IGNORECASE
)
# The tools by the first lines of their outputs, and by later lines where the first ones were cut off.
_FORMS = (
    ("nvidia-smi", re.compile(r"\|\s*NVIDIA-SMI\s+\d")),
    ("nvidia-smi", nvidia_smi.ROW),
    ("nvidia-smi", nvidia_smi.FAILED),
    ("nvidia-smi -L", nvidia_smi.LISTED),
    ("nvidia-smi topo -m", re.compile(r"\s*GPU0\s+(?:GPU1\s|(?:NIC0|mlx\d_0|CPU Affinity)\b)")),
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
# Characters before each line of an output that is indented, or quoted in a mail.
_MARGIN = " \t>"
# The outputs of nvidia-smi that list GPUs, and its line for a GPU that does not answer.
_LISTING = ("nvidia-smi", "nvidia-smi -L")
_LOST = re.compile(r"\s*Unable to determine the device handle for GPU", re.IGNORECASE)
_KNOWN = sorted({tool for tool, _ in _FORMS})
# lspci -n; older releases print `Class`.
_NUMBERS = re.compile(
    r"(?:Class )?(?P<kind>[0-9a-f]{4}): (?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})(?: \(.*\))?", re.IGNORECASE
)
_FIELD = re.compile(r"\s*(?:\[device \d+\])?\s*(?P<name>[A-Za-z][\w ()%/.-]*?)\s*:\s*(?P<value>.*)")
# Kunpeng's own engines have the same class, and are no NPUs.
_NPU = re.compile(r"Huawei Technologies Co\., Ltd\. (?!HiSilicon)")


# The tools that name RDMA ports; the first ones know most.
_PORT_TOOLS = {
    "ibstat": rdma_tools.parse_ibstat,
    "ibstatus": rdma_tools.parse_ibstatus,
    "rdma link": rdma_tools.parse_rdma_link,
    "ibdev2netdev": rdma_tools.parse_ibdev2netdev,
}


class Section(NamedTuple):
    """One output: the tool, the arguments of its command line if there was one, and the text."""

    tool: str
    arguments: tuple[str, ...]
    text: str

    def number(self, option: str) -> int | None:
        """Return the number after an option, as in `-i 3`; None without one."""
        words = self.arguments
        after = words[words.index(option) + 1 :] if option in words else ()
        return number(after[0]) if after and len(after[0]) < 4 else None


def sections(text: str) -> list[Section]:
    """Split pasted text into outputs. Text before the first known one is dropped, except lines about lost GPUs.

    Outputs may be indented, or quoted as in a mail.
    """
    found: list[tuple[str, tuple[str, ...], list[str]]] = []
    lost: list[str] = []
    margin = ""
    for raw in _with_loops(lines_of(text)):
        line = raw.removeprefix(margin) if found else raw
        command, loop = _COMMAND.fullmatch(line), _LOOP.fullmatch(line)
        if command or loop:
            margin = raw[: len(raw) - len(raw.lstrip(_MARGIN))]
        if loop:
            found.append(("loop", (loop["name"], loop["values"], loop["body"]), []))
            continue
        if command:
            found.append((_named(command["tool"], command["arguments"]), tuple(command["arguments"].split()), []))
            continue
        form = _form(line)
        if not form and _form(raw.lstrip(_MARGIN)):
            line = raw.lstrip(_MARGIN)
            form, margin = _form(line), raw[: len(raw) - len(line)]
        if form and not (found and found[-1][0] == form):
            found.append((form, (), lost if form in _LISTING else []))
            lost = [] if form in _LISTING else lost
        elif not form and _LOST.match(line) and not (found and found[-1][0] in _LISTING):
            # nvidia-smi prints GPUs that do not answer first.
            lost.append(line)
            continue
        elif not form and _CALL.fullmatch(line):
            found.append((_UNKNOWN, (line.strip(),), []))
            continue
        elif not form and _PROMPT.fullmatch(line.lstrip(_MARGIN)):
            found.append(("another", (), []))
        elif _ANSWER.match(line) and not (found and found[-1][0] in ("hccn_tool", "loop", _UNKNOWN)):
            found.append((_UNKNOWN, (), []))
        if found:
            found[-1][2].append(line)
    if lost:
        found.append((_LISTING[0], (), lost))
    return [
        each
        for tool, arguments, lines in found
        for each in (_passes(arguments, lines) if tool == "loop" else [_section(tool, arguments, lines)])
    ]


def _section(tool: str, arguments: Sequence[str], lines: Sequence[str]) -> Section:
    return Section(tool, tuple(arguments), "\n".join(lines) + "\n")


def _with_loops(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines, those of a loop that was typed on several lines as one."""
    at = 0
    while at < len(lines):
        end = at + 1
        if _FOR.fullmatch(lines[at]):
            typed = [line.lstrip(_MARGIN).rstrip("; ") for line in lines[at + 1 : at + _MAX_LOOP_LINES]]
            end += typed.index("done") + 1 if "done" in typed else 0
        first = lines[at].rstrip("; ")
        rest = [line.lstrip(_MARGIN).rstrip("; ") for line in lines[at + 1 : end]]
        yield re.sub(r"; *do; *", "; do ", "; ".join([first, *rest])) if rest else lines[at]
        at = end


def _passes(loop: Sequence[str], lines: Sequence[str]) -> list[Section]:
    """Return the outputs of a loop, one for each value; one of unknown devices where their number differs.

    `loop` is the name, the values and the command.
    """
    name, values, body = loop
    span = _RANGE.fullmatch(values)
    first, last = (int(each) for each in span.groups() if each is not None) if span else (0, -1)
    numbers = list(map(str, range(first, last + 1))) if span else values.split()
    answers: list[list[str]] = []
    start = None
    for line in filter(str.strip, lines):
        field = _FIELD.fullmatch(line)
        start = start or (field["name"] if field else line)
        if not answers or (field and field["name"] == start):
            answers.append([])
        answers[-1].append(line)
    found = []
    for value, answer in zip(numbers, answers):
        call = re.sub(rf"\"?\$(?:{name}\b|\{{{name}\}})\"?", value.replace("\\", "\\\\"), body)
        command = _COMMAND.fullmatch(call)
        if command:
            found.append(_section(_named(command["tool"], command["arguments"]), command["arguments"].split(), answer))
    if 0 < len(found) == len(numbers) == len(answers) <= _MAX_DEVICES:
        return found
    return [_section(_UNKNOWN, (f"for {name} in {values}; do {body}; done",), lines)]


def _form(line: str) -> str | None:
    return next((tool for tool, pattern in _FORMS if pattern.match(line)), None)


def _named(tool: str, arguments: str) -> str:
    words = arguments.split()
    for known in _KNOWN:
        if known.split() == [tool, *words]:
            return known
    if words[:1] == ["link"] and tool == "rdma":
        return "rdma link"
    if words[:2] == ["info", "-t"] and len(words) > 2:
        return f"npu-smi {words[2]}"
    return tool if tool != "nvidia-smi" or not words else "another"


def _unread(known: Sequence[Section], tool: str = "") -> tuple[list[str], list[str]]:
    """Return notes on outputs that name no device, only those of a tool if one is given, and the faults in them."""
    notes, faults = [], []
    for section in known:
        unnamed = section.tool == _UNKNOWN or (section.tool == "hccn_tool" and section.number("-i") is None)
        of_npu_smi = "npu-smi" in " ".join(section.arguments)
        if unnamed and section.text.strip() and of_npu_smi == (tool == "npu-smi"):
            given = f"`{' '.join(section.arguments)[:120]}`: " if section.arguments else ""
            shown = f"{given}`{excerpt(section.text)}` was not read"
            notes.append(f"{shown}, as it does not say which device it is about; give one command for each device")
            lines = filter(_FAULT.fullmatch, lines_of(section.text))
            faults += [f"`{line.strip()[:120]}` of a device that the output does not name" for line in lines]
    return notes, faults


def _text(known: Sequence[Section], tool: str) -> str | None:
    texts = [section.text for section in known if section.tool == tool and section.text.strip()]
    return "".join(texts) or None


def accelerators(text: str) -> acc.Accelerators:
    """Return the accelerators of the machine. Raises ValueError without any output that lists them."""
    known = sections(text)
    nvidia, ascend, bus = _nvidia(known), _ascend(known), _on_the_bus(_text(known, "lspci") or "")
    found = [record for record in (nvidia, ascend) if record is not None]
    if not found and _text(known, "lspci") is None:
        tools = "nvidia-smi, nvidia-smi -L, npu-smi info (-m, -l), lspci"
        raise ValueError(f"no output of a tool that names accelerators: give one of {tools}")
    found.sort(key=lambda record: not record["devices"])
    result = found[0] if found else acc.no_accelerators()
    for vendor, functions in bus.items() if _text(known, "lspci") else ():
        record = {"nvidia": nvidia, "ascend": ascend}[vendor]
        if record is None and functions:
            if result["vendor"] == "none":
                result = acc.no_accelerators(vendor)
                result["problems"] = [acc.missing_driver(vendor, [address for address, _ in functions])]
        elif record is not None and len(functions) != len(record["devices"]):
            shown = len(record["devices"])
            listed = counted(len(functions), "device")
            record["problems"].append(f"lspci shows {listed} of {vendor}, the vendor's tool {shown}")
    return result


def _nvidia(known: Sequence[Section]) -> acc.Accelerators | None:
    table, listed, topology = (_text(known, tool) for tool in ("nvidia-smi", "nvidia-smi -L", "nvidia-smi topo -m"))
    found = nvidia_smi.joined(
        nvidia_smi.parse_table(table) if table else None, nvidia_smi.parse_list(listed) if listed else None
    )
    if topology and found is not None:
        ways = nvidia_topology.parse_topology(topology)
        indexes = [device["index"] for device in found["devices"]]
        found["problems"].extend(ways["problems"])
        if ways["gpus"] and ways["gpus"] != indexes:
            found["problems"].append(f"nvidia-smi topo -m has {len(ways['gpus'])} GPUs, the others {len(indexes)}")
    return found


def _on_the_bus(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return address and name of the GPUs and NPUs in the output of lspci, also with -D, -n and -nn."""
    found: dict[str, list[tuple[str, str]]] = {"nvidia": [], "ascend": []}
    for line in lines_of(text):
        row = _LSPCI.match(line)
        if row is None:
            continue
        kind, name = re.sub(r" \[[0-9a-f]{4}\]$", "", row["kind"]), row["name"]
        address = acc.pci_address(row["pci"] if row["pci"].count(":") > 1 else f"0000:{row['pci']}") or row["pci"]
        numbers = _NUMBERS.fullmatch(f"{kind}: {name}")
        if numbers:
            vendor = acc.pci_accelerator_vendor(*(f"0x{numbers[part]}" for part in ("vendor", "kind", "device")))
            if vendor is not None:
                found[vendor].append((address, name))
        if kind in ("3D controller", "VGA compatible controller") and name.startswith("NVIDIA"):
            found["nvidia"].append((address, name))
        elif kind == "Processing accelerators" and _NPU.match(name):
            found["ascend"].append((address, name))
    return found


def _ascend(known: Sequence[Section]) -> acc.Accelerators | None:
    table, mapping, listing = (_text(known, f"npu-smi info{option}") for option in ("", " -m", " -l"))
    cards, problems = _cards(listing or "")
    if table:
        found = acc.parse_npu_info(table, mapping)
        seen = {(device["card"], device["chip"]) for device in found["devices"]}
        absent = sorted({card for card, _ in cards} - {card for card, _ in seen if card is not None})
        if absent:
            problems.append(f"npu-smi info -l has NPU {', '.join(map(str, absent))}, which npu-smi info does not show")
    elif mapping or listing:
        found = acc.no_accelerators("ascend")
        chips, wrong = acc.parse_npu_map(mapping) if mapping else ([], [])
        problems += wrong
        for index, (card, chip) in enumerate(cards if not chips else []):
            chips.append({"npu": card, "chip": chip, "logic": index, "physical": None, "name": "Ascend"})
        found["devices"] = [_npu(chip) for chip in sorted(chips, key=lambda chip: chip["logic"])]
        found["notes"].append("npu-smi info was not given: health and bus addresses are unknown")
    else:
        return None
    found["problems"].extend(problems)
    found["notes"].extend(_unread(known, "npu-smi")[0])
    _add_memory(found, known)
    return found


def _npu(chip: acc.NpuChip) -> acc.Device:
    physical = chip["logic"] if chip["physical"] is None else chip["physical"]
    return acc.device(chip["logic"], chip["name"], physical_id=physical, card=chip["npu"], chip=chip["chip"])


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


def _add_memory(found: acc.Accelerators, known: Sequence[Section]) -> None:
    """Add memory from `npu-smi info -t memory`: a size comes before its Chip ID, or the command names the chip."""
    sizes: dict[tuple[int | None, int | None], int] = {}
    for section in known:
        if section.tool != "npu-smi memory":
            continue
        card, chip, values = section.number("-i"), section.number("-c"), {}
        for name, value in [*_fields(section.text), ("Chip ID", str(chip if chip is not None else 0))]:
            if name in ("HBM Capacity(MB)", "DDR Capacity(MB)") and number(value) is not None:
                values[name] = int(value[:9])
            elif name == "Chip ID" and values:
                size = values.get("HBM Capacity(MB)") or values.get("DDR Capacity(MB)")
                if size and number(value) is not None:
                    sizes[card, int(value[:4])] = size
                values = {}
    for device in found["devices"]:
        size = sizes.get((device["card"], device["chip"]))
        if size is not None and device["memory_mib"] not in (None, size):
            found["problems"].append(
                f"NPU {device['card']} chip {device['chip']}: memory is {device['memory_mib']} in npu-smi info and "
                f"{size} in npu-smi info -t memory"
            )
        device["memory_mib"] = device["memory_mib"] or size


def networks(text: str) -> Networks:
    """Return the RDMA ports of the machine. Raises ValueError without any output that lists them."""
    known = sections(text)
    read = {name: parse(output) for name, parse in _PORT_TOOLS.items() if (output := _text(known, name))}
    if not read:
        raise ValueError(f"no output of a tool that names RDMA ports: give one of {', '.join(_PORT_TOOLS)}")
    netdevs = read.pop("ibdev2netdev", None)
    states = next(iter(read.values()), None)
    link = read.get("rdma link")
    ports, problems = rdma_tools.joined(states, netdevs or (link if link is not states else None))
    return {"interfaces": [], "rdma": ports, "nccl_conf": [], "nccl_settings": {}, "problems": problems}


def npus(text: str) -> tuple[npu.Npu | None, dict[str, dict[str, dict[str, str]]]]:
    """Return the NPUs, None where there are none, and by physical id and query the other output of hccn_tool.

    Raises ValueError where no tool printed this that names accelerators.
    """
    known = sections(text)
    found = accelerators(text)
    if found["vendor"] != "ascend":
        return None, {}
    answers: dict[int, dict[str, npu.Answer]] = {}
    queries: dict[str, dict[str, dict[str, str]]] = {}
    problems = []
    spods: dict[tuple[int, int], npu.Answer | None] = {}
    for section in known:
        number, answer = section.number("-i"), npu.Answer(0, section.text)
        if section.tool == "npu-smi spod-info" and number is not None:
            spods[number, section.number("-c") or 0] = answer
        if section.tool != "hccn_tool" or number is None:
            continue
        words = [word.lstrip("-") for word in section.arguments if word not in ("-i", "-g", str(number))]
        query = words[0] if words else ""
        if query in npu.Port._fields:
            answers.setdefault(number, {})[query] = answer
        elif query:
            queries.setdefault(str(number), {})[query] = dict(_fields(section.text))
            if queries[str(number)][query].get("present", "").startswith("not"):
                problems.append(f"device {number} (physical id) has no optical module: hccn_tool says `not present`")
    record = npu.assemble(
        found["devices"],
        ports={number: npu.Port(**given) for number, given in answers.items()},
        conf=npu.parse_hccn_conf(text),
        spods=spods,
        pasted=True,
    )
    notes, faults = _unread(known)
    record["problems"] = [*found["problems"], *record["problems"], *problems, *faults]
    record["notes"] = [*found["notes"], *record["notes"], *notes]
    return record, queries
