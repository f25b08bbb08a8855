# SPDX-License-Identifier: Apache-2.0
"""Parse nvidia-smi and npu-smi into the accelerators of one node.

Pure; memory in MiB. Formats: nvidia-smi's CSV query (drivers 418 and newer), npu-smi's tables of the drivers 21.x,
23.x, 24.x and 25.x. A line that cannot be read becomes a problem: a broken driver must never look like a node without
accelerators.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypedDict, cast

from .tool_text import excerpt, lines_of, number

# The name comes last because it is the only free-form field.
NVIDIA_FIELDS = ("index", "uuid", "memory.total", "pci.bus_id", "driver_version", "mig.mode.current", "name")
# Drivers before 450 do not know MIG and reject the whole query.
NVIDIA_FIELDS_BEFORE_MIG = tuple(field for field in NVIDIA_FIELDS if field != "mig.mode.current")

PCI_VENDORS = {"0x10de": "nvidia", "0x19e5": "ascend"}
# 3D controllers and displays of NVIDIA (its NVSwitches are 0x0680), processing accelerators of Huawei.
PCI_CLASSES = {"nvidia": ("0x0302", "0x0300"), "ascend": ("0x1200",)}

# Kunpeng's own ZIP engines are processing accelerators of Huawei, too (hisi_zip of the kernel: PF, VF).
_KUNPENG_ENGINES = ("0xa250", "0xa251")

_PCI_ADDRESS = re.compile(r"^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])$")
_LINK_SPEED = re.compile(r"^(\d+(?:\.\d+)?) GT/s")
# Kernels print 16 GT/s as 16 or 16.0.
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_USED_OF_TOTAL = re.compile(r"(\d+)\s*/\s*(\d+)")
_NPU_VERSION = re.compile(r"\bVersion:\s*(\S+)")


class PciLink(TypedDict, total=False):
    """PCIe generation and lanes that a device and its slot support; absent where unknown."""

    link_gen_max: int
    link_width_max: int


class Device(PciLink):
    """One accelerator; index is the number by which frameworks select it (CUDA, or Ascend's logic id).

    health, and card and chip (which npu-smi takes as arguments), exist only for Ascend; None elsewhere.
    """

    index: int
    uuid: str | None
    model: str
    memory_mib: int | None
    pci: str | None
    mig: bool
    physical_id: int
    health: str | None
    card: int | None
    chip: int | None


class Accelerators(TypedDict):
    """The accelerators of one node; vendor is nvidia, ascend or none."""

    vendor: str
    driver: str | None
    devices: list[Device]
    problems: list[str]
    notes: list[str]


class NpuChip(TypedDict):
    """One row of `npu-smi info -m` that computes (management chips have no logic id)."""

    npu: int
    chip: int
    logic: int
    physical: int | None
    name: str


def no_accelerators(vendor: str = "none") -> Accelerators:
    """Return the record of a node without any accelerator, to which the vendor's tool may add some."""
    return {"vendor": vendor, "driver": None, "devices": [], "problems": [], "notes": []}


def device(index: int, model: str, **known: Any) -> Device:
    """Return a device with what is known of it."""
    unknown = dict.fromkeys(("uuid", "memory_mib", "pci", "health", "card", "chip"))
    return cast("Device", {**unknown, "index": index, "physical_id": index, "model": model, "mig": False, **known})


def pci_address(text: str) -> str | None:
    """Return a PCI address as sysfs writes it; nvidia-smi prints eight digits of domain in capitals."""
    match = _PCI_ADDRESS.match(text.strip())
    if match is None:
        return None
    domain, bus, slot, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{slot}.{function}".lower()


def pci_link(speeds: Sequence[str | None], widths: Sequence[str | None]) -> PciLink:
    """Return the link between two ends from their max_link_speed (`16.0 GT/s PCIe`) and max_link_width files."""
    rates = [_LINK_SPEED.match(speed) for speed in speeds if speed]
    generations = [_GENERATIONS[float(rate[1])] for rate in rates if rate and float(rate[1]) in _GENERATIONS]
    lanes = [lane for lane in (number(width) for width in widths if width) if lane]
    return {"link_gen_max": min(generations), "link_width_max": min(lanes)} if generations and lanes else {}


def pci_accelerator_vendor(vendor: str, pci_class: str, device: str = "") -> str | None:
    """Return the vendor of an accelerator from the files `vendor`, `class` and `device` in sysfs, or None."""
    if vendor.strip().lower() == "0x19e5" and device.strip().lower() in _KUNPENG_ENGINES:
        return None
    name = PCI_VENDORS.get(vendor.strip().lower())
    return name if name and pci_class.strip().lower().startswith(PCI_CLASSES[name]) else None


# Printed instead of a value. [N/A] is a value: GPU and CPU share one memory.
_NO_VALUE = frozenset(
    {"", "[unknown error]", "[insufficient permissions]", "[gpu requires reset]", "[gpu is lost]", "err!"}
)


def first_missing(indexes: Sequence[int]) -> list[int]:
    """Return the first missing indexes below the highest one, at most eight, as a broken line may have any index."""
    known = set(indexes)
    return list(itertools.islice((index for index in range(max(known, default=0)) if index not in known), 8))


def parse_nvidia_query(output: str, fields: tuple[str, ...] = NVIDIA_FIELDS) -> Accelerators:
    """Parse `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits`."""
    found = no_accelerators("nvidia")
    problems = found["problems"]
    for line in filter(str.strip, lines_of(output)):
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        row = dict(zip(fields, values))
        index = number(row.get("index", ""))
        if index is None or len(values) != len(fields):
            problems.append(
                "nvidia-smi found no GPU although the driver runs: look for `NVRM` and `Xid` in the kernel log"
                if "no devices were found" in line.lower()
                else f"nvidia-smi printed a line that is no GPU record: {excerpt(line)}"
            )
            continue
        uuid = row["uuid"] if row["uuid"].startswith(("GPU-", "MIG-")) else None
        unanswered = [f"{name} `{row[name]}`" for name in ("name", "memory.total") if row[name].lower() in _NO_VALUE]
        if uuid is None:
            unanswered = [f"`{row['uuid']}` instead of a UUID"]
        if unanswered:
            problems.append(
                f"GPU {index}: nvidia-smi reports {' and '.join(unanswered)}; the GPU does not answer: "
                "look for `Xid` in the kernel log and reset the GPU or restart the node"
            )
        mig = row.get("mig.mode.current", "").lower() == "enabled"
        if mig:
            found["notes"].append(
                f"GPU {index}: MIG is enabled, programs see its slices and not the whole GPU "
                f"(disable it with `nvidia-smi -i {index} -mig 0`)"
            )
        memory, pci = number(row["memory.total"]), pci_address(row["pci.bus_id"])
        found["devices"].append(device(index, row["name"], uuid=uuid, memory_mib=memory, pci=pci, mig=mig))
        if not row["driver_version"].startswith("["):
            found["driver"] = row["driver_version"]
    found["devices"].sort(key=lambda device: device["index"])
    indexes = [device["index"] for device in found["devices"]]
    for index in sorted({index for index in indexes if indexes.count(index) > 1}):
        problems.append(f"nvidia-smi lists GPU {index} {indexes.count(index)} times")
    missing = first_missing(indexes)
    if missing:
        # nvidia-smi numbers the GPUs that it shows without gaps, in containers as well.
        listed = ", ".join(map(str, missing))
        problems.append(f"nvidia-smi lists no GPU {listed}, but later ones: run nvidia-smi on the node")
    if not indexes and not problems:
        problems.append("nvidia-smi printed nothing, expected a line for each GPU: run nvidia-smi on the node")
    return found


def nvidia_failure(status: int, output: str, on_the_bus: int) -> str:
    """Explain an nvidia-smi that failed; on_the_bus is the number of NVIDIA GPUs that PCI shows."""
    ended = f"nvidia-smi exited with status {status}: {excerpt(output)}"
    return f"{ended} (the PCI bus shows {on_the_bus} NVIDIA GPU(s)). {nvidia_advice(output)}"


def nvidia_advice(output: str) -> str:
    """Return what to do about an nvidia-smi that printed this instead of GPUs."""
    text = output.lower()
    if "version mismatch" in text:
        return "The driver was upgraded under a running kernel module: restart the node"
    if "couldn't communicate" in text:
        return "The kernel module is not loaded: check `dkms status`, `mokutil --sb-state` and `modprobe nvidia`"
    return "Run nvidia-smi on the node and look for `NVRM` in the kernel log"


def parse_npu_map(output: str) -> tuple[list[NpuChip], list[str]]:
    """Parse `npu-smi info -m` by its header, as the columns differ by driver."""
    labels = ("Chip Logic ID", "Chip Phy-ID", "Chip Name", "Chip ID", "NPU ID", "Slot ID")
    columns: list[str] = []
    chips: list[NpuChip] = []
    problems: list[str] = []
    for line in filter(str.strip, lines_of(output)):
        if not columns:
            header = line
            for label in labels:
                header = header.replace(label, label.replace(" ", "_"))
            columns = header.split()
            if not {"NPU_ID", "Chip_ID", "Chip_Name"} <= set(columns) or columns[-1] != "Chip_Name":
                columns = []
                problems.append(f"npu-smi info -m: no table header in: {excerpt(line)}")
            continue
        row = dict(zip(columns, line.split(None, len(columns) - 1)))
        # The newest drivers print only the physical id.
        logic_text = row.get("Chip_Logic_ID", row.get("Chip_Phy-ID", ""))
        if logic_text == "-" or row.get("Chip_Name", "").strip().lower() == "mcu":
            continue
        npu, chip, logic = (number(value) for value in (row.get("NPU_ID", ""), row.get("Chip_ID", ""), logic_text))
        if npu is None or chip is None or logic is None or "Chip_Name" not in row:
            problems.append(f"npu-smi info -m printed a line that is no chip: {excerpt(line)}")
            continue
        physical = number(row.get("Chip_Phy-ID", ""))
        chips.append({"npu": npu, "chip": chip, "logic": logic, "physical": physical, "name": row["Chip_Name"].strip()})
    return chips, problems


class _NpuRow(NamedTuple):
    """One chip of `npu-smi info`; `physical` is None where the table does not print it."""

    npu: int
    chip: int
    model: str
    health: str
    physical: int | None
    pci: str
    memory_mib: int | None


def _npu_rows(lines: Sequence[str]) -> tuple[list[_NpuRow], list[str], bool]:
    """Return the chips of the table, its problems, and whether it goes on to the list of processes."""
    rows: list[_NpuRow] = []
    problems: list[str] = []
    npu: int | None = None
    model = health = ""
    pending = ""  # the line of an NPU whose chip has not come yet
    complete = False
    for line in lines:
        if "Process id" in line:  # the second table repeats `<npu> <chip>` for each process
            complete = True
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.strip().startswith("|") or len(cells) < 3:
            continue
        first, numbers = cells[0].split(None, 1), [number(word) for word in cells[0].split()]
        pci = pci_address(cells[1])
        if pci is None and len(first) == 2 and numbers[0] is not None:
            if pending:
                problems.append(f"npu-smi info printed an NPU without its chip: {excerpt(pending)}")
            pending, npu, model, health = line, numbers[0], first[1], cells[1]
            if health != "OK":
                expected = f"expected `OK`; see `npu-smi info -t health -i {npu}`"
                problems.append(f"NPU {npu} ({model}): health is `{health}`, {expected}")
        if pci is None:
            continue
        if npu is None or not numbers or numbers[0] is None:
            problems.append(f"npu-smi info printed a chip without its NPU: {excerpt(line)}")
            continue
        pending = ""
        if any((row.npu, row.chip) == (npu, numbers[0]) for row in rows):
            text = f"twice, or the line of the NPU between is missing: {excerpt(line)}"
            problems.append(f"npu-smi info lists NPU {npu} chip {numbers[0]} {text}")
            continue
        # With one number in the cell the physical id equals the logic id on every known board.
        physical = numbers[1] if len(numbers) > 1 else None
        sizes = _USED_OF_TOTAL.findall(cells[2])
        memory = (int(sizes[-1][1]) if sizes else 0) or None
        rows.append(_NpuRow(npu, numbers[0], model, health, physical, pci, memory))
    if pending:
        problems.append(f"npu-smi info printed an NPU without its chip: {excerpt(pending)}")
    return rows, problems, complete


def parse_npu_info(table: str, mapping: str | None) -> Accelerators:
    """Parse `npu-smi info`, joined with `npu-smi info -m` (None when that failed) for the logic ids."""
    found = no_accelerators("ascend")
    problems = found["problems"]
    version = _NPU_VERSION.search(table)
    found["driver"] = version[1] if version else None
    chips, map_problems = parse_npu_map(mapping) if mapping is not None else ([], [])
    problems.extend(map_problems)
    by_place = {(chip["npu"], chip["chip"]): chip for chip in chips}
    if len(by_place) < len(chips) or len({chip["logic"] for chip in chips}) < len(chips):
        problems.append("npu-smi info -m lists a chip or a logic id twice: run `npu-smi info -m` on the node")
    if not chips:
        found["notes"].append("npu-smi info -m gave no logic ids: devices have the order of `npu-smi info`")
    lines = lines_of(table)
    rows, table_problems, complete = _npu_rows(lines)
    problems.extend(table_problems)
    for row in rows:
        chip = by_place.get((row.npu, row.chip))
        if chip is None and chips:
            named = f"NPU {row.npu} chip {row.chip}"
            problems.append(f"{named} is in `npu-smi info` but has no logic id in `npu-smi info -m`")
        else:
            found["devices"].append(_npu_device(row, chip, len(found["devices"])))
    if not chips:
        problems.extend(_cut(lines, found["driver"], complete))
    for npu, place in sorted(set(by_place) - {(row.npu, row.chip) for row in rows}):
        problems.append(f"NPU {npu} chip {place} is in `npu-smi info -m` but missing from `npu-smi info`")
    if not found["devices"]:
        problems.append(f"npu-smi info listed no NPU: {excerpt(table)}")
    found["devices"].sort(key=lambda device: device["index"])
    return found


def _npu_device(row: _NpuRow, chip: NpuChip | None, place: int) -> Device:
    """Return the device of a row; without its chip of `npu-smi info -m` it is numbered by its place."""
    index = chip["logic"] if chip else place
    physical = chip["physical"] if chip and chip["physical"] is not None else row.physical
    name = chip["name"] if chip else row.model
    return device(
        index,
        name if name.lower().startswith("ascend") else f"Ascend {name}",
        memory_mib=row.memory_mib,
        pci=row.pci,
        physical_id=physical if physical is not None else index,
        health=row.health,
        card=row.npu,
        chip=row.chip,
    )


def _cut(lines: Sequence[str], driver: str | None, ended: bool) -> Iterator[str]:
    """Yield problems of a table that was cut at its ends: without `npu-smi info -m` the number of NPUs is unknown."""
    if driver is None or not any("Bus-Id" in line for line in lines):
        yield "npu-smi info's table has no header: it begins in the middle, and NPUs may be missing"
    # Drivers before 22.0 print no list of processes.
    release = re.match(r"\d+", driver or "")
    if not ended and release and int(release[0]) >= 23:
        yield "npu-smi info's table has no list of processes: it may have been cut, and NPUs may be missing"


def npu_failure(status: int, output: str, on_the_bus: int) -> str:
    """Explain an npu-smi that failed; on_the_bus is the number of Ascend NPUs that PCI shows."""
    return (
        f"npu-smi exited with status {status}: {excerpt(output)} (the PCI bus shows {on_the_bus} Ascend NPU(s)). "
        "The user must belong to the driver's group (HwHiAiUser), and no other container may use the devices: "
        "run `npu-smi info` on the node"
    )


def missing_driver(vendor: str, addresses: list[str]) -> str:
    """Explain accelerators on the PCI bus without the vendor's tool."""
    tool, kind = ("nvidia-smi", "NVIDIA GPU") if vendor == "nvidia" else ("npu-smi", "Ascend NPU")
    return (
        f"the PCI bus shows {len(addresses)} {kind}(s) ({', '.join(addresses)}) but {tool} is not installed: "
        "install the driver, or nothing can use them"
    )
