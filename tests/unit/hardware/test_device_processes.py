"""The holders of devices, by the outputs of nvidia-smi (composed) and npu-smi (a composed node)."""

import pytest
from ansible.module_utils.trainyard.hardware import device_processes
from ansible.module_utils.trainyard.hardware.device_processes import Gpu, Use
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold

ALL = 143771
GPUS = (
    f"0, GPU-a, NVIDIA H200, 129000, {ALL}, Disabled\n1, GPU-b, NVIDIA H200, 4, {ALL}, [N/A]\n"
    f"2, GPU-c, NVIDIA H200, 70000, {ALL}, Enabled\n"
)
KNOWN = {"GPU-a": Gpu(0, 129000, ALL, False), "GPU-b": Gpu(1, 4, ALL, False), "GPU-c": Gpu(2, 70000, ALL, True)}


def test_gpus_and_their_processes_are_read():
    assert device_processes.gpus(GPUS) == KNOWN
    assert device_processes.gpus("0, GPU-a, X, [N/A], [N/A]\njunk\n, ,\n") == {"GPU-a": Gpu(0, None, None, False)}
    # The system keeps files in the memory of these.
    assert device_processes.gpus(f"0, GPU-a, NVIDIA GH200 480GB, 90000, {ALL}, Disabled")["GPU-a"].mib is None
    apps = "GPU-a, 4711, 129000, /usr/bin/python3\nGPU-x, 4712, [N/A], a, b\nGPU-a, [N/A], 1, x\nNo running\n"
    assert device_processes.compute_apps(apps, KNOWN) == [Use(0, 4711, "python3", 129000), Use(-1, 4712, "a, b", None)]


@pytest.mark.parametrize(
    ("use", "holds"),
    [
        (Use(0, 7, "python3", 500), True),
        (Use(0, 7, "python3", None), True),
        # A display, or a program that watches GPUs.
        (Use(0, 7, "Xorg", 40), False),
        (Use(0, 7, "nvidia-cuda-mps-server", 500), False),
        (Use(0, 7, "nv-hostengine", 500), False),
        (Use(0, 7, "telegraf", 500), False),
        # Another slice of MIG.
        (Use(2, 7, "python3", 500), False),
    ],
)
def test_a_program_that_computes_holds_its_device(use, holds):
    known = {"GPU-a": Gpu(0, None, ALL, False), "GPU-c": Gpu(2, 70000, ALL, True)}
    assert device_processes.holding([use], known, ["telegraf"]) == ([use] if holds else [])


def test_memory_of_no_listed_process_is_somebodys():
    assert device_processes.holding([], KNOWN) == [Use(0, 0, "", 129000)]
    assert device_processes.holding([Use(0, 7, "Xorg", 40)], KNOWN) == [Use(0, 0, "", 129000)]
    assert device_processes.holding([Use(0, 7, "python3", 500)], KNOWN) == [Use(0, 7, "python3", 500)]
    # The memory of a desktop is not listed.
    assert device_processes.holding([], {"GPU-a": Gpu(0, 3000, 8192, False)}) == []


def test_processes_of_npus_are_read_by_the_places_of_the_chips(tmp_path):
    tree = Tree(str(unfold("ascend8", tmp_path / "node")))
    table, mapping = (tree.text(f"commands/npu-smi.{name}.out") for name in ("info", "info-m"))
    assert device_processes.npu_processes(table, mapping) == [Use(0, 41823, "python3", 118)]
    moved = table.replace("| 0       0                 | 41823 ", "| 5       0                 | 41823 ")
    assert device_processes.npu_processes(moved, mapping) == [Use(5, 41823, "python3", 118)]
    assert device_processes.npu_processes("junk", None) == []


def test_memory_is_written_for_people():
    sizes = (118, 1500, 129000, None)
    assert [device_processes.size(mib) for mib in sizes] == [
        "118 MiB",
        "1.5 GiB",
        "126 GiB",
        "an unknown amount of memory",
    ]
