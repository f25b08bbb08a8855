"""Parsing of nvidia-smi and npu-smi."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.hardware import accelerators
from ansible.module_utils.trainyard.hardware.tool_text import lines_of
from hypothesis import given
from hypothesis import strategies as st

GPU = "0, GPU-11111111-2222-3333-4444-555555555555, 81559, 00000000:1B:00.0, 550.90.07, Disabled, NVIDIA H100 80GB HBM3"


def test_one_gpu_is_read_completely():
    found = accelerators.parse_nvidia_query(GPU + "\n")
    (device,) = found.pop("devices")
    assert found == {"vendor": "nvidia", "driver": "550.90.07", "problems": [], "notes": []}
    assert device == {
        **{"index": 0, "uuid": "GPU-11111111-2222-3333-4444-555555555555", "model": "NVIDIA H100 80GB HBM3"},
        **{"memory_mib": 81559, "pci": "0000:1b:00.0", "mig": False, "physical_id": 0},
        **dict.fromkeys(("health", "card", "chip")),
    }


NAMES = ("index", "memory_mib", "pci", "mig")
LOST = "Unable to determine the device handle for GPU1: 0000:65:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("line", "values", "problem", "note"),
    [
        # Memory is shared with the CPU.
        ("0, GPU-1, [N/A], 0000000F:01:00.0, 580.95.05, [N/A], NVIDIA GB10", (0, None, "000f:01:00.0", False), "", ""),
        (GPU.replace("Disabled", "Enabled"), (0, 81559, "0000:1b:00.0", True), "", "GPU 0: MIG is enabled"),
        (f"3, {'[Unknown Error], ' * 3}550.90.07, [N/A], [N/A]", (3, None, None, False),
         "GPU 3: nvidia-smi reports `[Unknown Error]` instead of a UUID", ""),
        (GPU.replace("81559", "[GPU requires reset]"), (0, None, "0000:1b:00.0", False),
         "GPU 0: nvidia-smi reports memory.total `[GPU requires reset]`", ""),
        (f"{GPU}\n{LOST}", (0, 81559, "0000:1b:00.0", False), LOST, ""),
        (f"\ufeff{GPU}\r\n", (0, 81559, "0000:1b:00.0", False), "", ""),
    ],
)  # fmt: skip
def test_lines_of_nvidia_smi(line, values, problem, note):
    found = accelerators.parse_nvidia_query(line)
    (device,) = found["devices"]
    assert tuple(device[name] for name in NAMES) == values
    assert problem in "".join(found["problems"][:1]) and bool(found["problems"]) == bool(problem)
    assert note in "".join(found["notes"]) and bool(found["notes"]) == bool(note)


def test_driver_without_mig_has_one_field_less():
    line = "0, GPU-1, 32510, 00000000:06:00.0, 418.226.00, Tesla V100-SXM2-32GB"
    found = accelerators.parse_nvidia_query(line, accelerators.NVIDIA_FIELDS_BEFORE_MIG)
    assert (found["devices"][0]["model"], found["driver"]) == ("Tesla V100-SXM2-32GB", "418.226.00")
    assert found["problems"] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("No devices were found\n", "nvidia-smi found no GPU although the driver runs"),
        (f"{GPU}\n{GPU}", "lists GPU 0 2 times"),
        ("\n", "nvidia-smi printed nothing, expected a line for each GPU"),
        (f"{GPU}\n{GPU.replace('0, GPU-1', '3, GPU-3')}\n", "nvidia-smi lists no GPU 1, 2, but later ones"),
    ],
)
def test_a_wrong_number_of_gpus_is_a_problem(text, problem):
    (found,) = accelerators.parse_nvidia_query(text)["problems"]
    assert problem in found


def test_failures_say_what_to_do():
    assert "restart the node" in accelerators.nvidia_failure(
        18, "Failed to initialize NVML: Driver/library version mismatch", 8
    )
    message = accelerators.nvidia_failure(
        9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 2
    )
    assert message.startswith("nvidia-smi exited with status 9: NVIDIA-SMI has failed")
    assert "the PCI bus shows 2 NVIDIA GPU(s)" in message
    assert "dkms status" in message
    assert "(it printed nothing)" in accelerators.nvidia_failure(127, "", 0)


@pytest.mark.parametrize(
    ("function", "vendor"),
    [
        (("0x10de", "0x030200"), "nvidia"),
        (("0x10de", "0x030000"), "nvidia"),
        (("0x10de", "0x068000"), None),  # an NVSwitch
        (("0x10de", "0x040300"), None),  # the sound function of a GPU
        (("0x19e5", "0x120000"), "ascend"),
        (("0x19e5", "0x020000"), None),  # a Huawei network adapter
        (("0x19e5", "0x120000", "0xa250"), None),  # the ZIP engine of every Kunpeng
        (("0x19e5", "0x120000", "0xd802"), "ascend"),
    ],
)
def test_pci_functions_of_accelerators(function, vendor):
    assert accelerators.pci_accelerator_vendor(*function) == vendor


TABLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.0.rc1                 Version: 25.0.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 164.3       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3124 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | {health}            | -           37                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          59356/ 65536         |
+===========================+===============+====================================================+
"""
HEALTHY = TABLE.format(health="OK")
MAP = """\
\tNPU ID               Chip ID              Chip Logic ID        Chip Phy-ID          Chip Name
\t0                    0                    0                    8                    Ascend910
\t0                    1                    1                    9                    Ascend910
\t0                    2                    -                    -                    Mcu
"""


def test_two_chips_of_one_npu_are_two_devices():
    found = accelerators.parse_npu_info(HEALTHY, MAP)
    assert (found["problems"], found["driver"]) == ([], "25.0.rc1")
    devices = [(one["index"], one["physical_id"], one["pci"], one["memory_mib"]) for one in found["devices"]]
    assert devices == [(0, 8, "0000:9d:00.0", 65536), (1, 9, "0000:9f:00.0", 65536)]


EXTRA = "\t1                    0                    2                    10                   Ascend910\n"
ERROR = "dcmi module initialize failed. ret is -8005"


@pytest.mark.parametrize(
    ("table", "mapping", "problem"),
    [
        (TABLE.format(health="Alarm"), MAP, "NPU 0 (Ascend910): health is `Alarm`, expected `OK`"),
        (HEALTHY, MAP + EXTRA, "NPU 1 chip 0 is in `npu-smi info -m`"),
        (HEALTHY, "\n".join(MAP.splitlines()[:2]), "NPU 0 chip 1 is in `npu-smi info` but has no logic id"),
        (HEALTHY, MAP + MAP.splitlines()[1] + "\n", "npu-smi info -m lists a chip or a logic id twice"),
        (HEALTHY, None, "has no list of processes: it may have been cut"),
        (ERROR, "", "npu-smi info listed no NPU: dcmi module initialize failed"),
    ],
)
def test_problems_of_npus(table, mapping, problem):
    found = accelerators.parse_npu_info(table, mapping)
    assert problem in "".join(found["problems"]) and found["vendor"] == "ascend"
    if mapping == MAP:
        devices = [(device["card"], device["chip"], device["health"]) for device in found["devices"]]
        assert devices == [(0, 0, "OK"), (0, 1, "Alarm")]


def test_without_a_map_devices_are_counted_and_drivers_before_22_print_no_processes():
    found = accelerators.parse_npu_info(HEALTHY.replace("25.0.rc1", "21.0.4  "), None)
    assert ([device["index"] for device in found["devices"]], found["problems"]) == ([0, 1], [])
    assert "have the order of" in found["notes"][0]


WORDS = st.lists(
    st.sampled_from(["0", "1", "-", "|", ",", "/", ":", "OK", "0000:C1:00.0", "65536", "GPU-1", "Chip", "NPU ID", "\n"])
    | st.text(max_size=8),
    max_size=60,
).map(" ".join)


@given(WORDS)
def test_nvidia_garbage_is_reported_and_never_dropped(text):
    found = accelerators.parse_nvidia_query(text)
    lines = [line for line in lines_of(text) if line.strip()]
    assert len(found["devices"]) + len(found["problems"]) >= len(lines)


@given(WORDS, WORDS | st.none())
def test_npu_garbage_is_reported(table, mapping):
    found = accelerators.parse_npu_info(table, mapping)
    assert found["devices"] or found["problems"]


@given(st.text())
def test_pci_addresses_are_read_or_refused(text):
    address = accelerators.pci_address(text)
    assert address is None or accelerators.pci_address(address) == address


def test_an_index_of_any_size_costs_no_memory():
    """A line that lacks its first field begins with another number; all indexes below one of these fit no machine."""
    problems = accelerators.parse_nvidia_query(GPU.replace("0, GPU-1", f"{'9' * 30}, GPU-1"))["problems"]
    assert len(problems) == 1 and "lists no GPU 0, 1, 2, 3, 4, 5, 6, 7, but later ones" in problems[0]


def test_a_table_whose_lines_are_doubled_counts_no_npu_twice():
    lines = HEALTHY.splitlines()
    at = next(number for number, line in enumerate(lines) if "0000:9D:00.0" in line)
    doubled = "\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]])
    found = accelerators.parse_npu_info(doubled, MAP)
    assert found["devices"] == accelerators.parse_npu_info(HEALTHY, MAP)["devices"]
    assert "twice, or the line of the NPU between is missing" in found["problems"][0]


PROCESSES = "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |\n"
ALONE = HEALTHY + PROCESSES


def test_no_npu_vanishes_from_a_table_with_a_missing_row_or_a_cut_end():
    """Without `npu-smi info -m` the table itself has to show that it is whole."""
    right = accelerators.parse_npu_info(ALONE, None)
    assert right["problems"] == [] and len(right["devices"]) == 2
    lines = ALONE.splitlines(keepends=True)
    parts = [lines[:at] for at in range(len(lines))] + [lines[at:] for at in range(2, len(lines))]
    parts += [lines[:at] + lines[at + 1 :] for at in range(1, len(lines)) if "| 0" in lines[at] or "| 1" in lines[at]]
    for part in parts:
        found = accelerators.parse_npu_info("".join(part), None)
        fewer = [(each["card"], each["chip"]) for each in found["devices"]] != [(0, 0), (0, 1)]
        assert found["problems"] or not fewer, part


@pytest.mark.parametrize(("parse", "text"), [
    (accelerators.parse_nvidia_query, GPU + "\n"), (lambda text: accelerators.parse_npu_info(text, MAP), ALONE),
    (accelerators.parse_npu_map, MAP),
])  # fmt: skip
def test_colours_and_line_ends_change_nothing(parse, text):
    coloured = "".join(f"\x1b[1;32m{line}\x1b[0m\r\n" for line in text.splitlines())
    assert parse("\ufeff" + coloured) == parse(text)
