# SPDX-License-Identifier: Apache-2.0
"""The facts that are compared between nodes, with the groups in which they should be equal, and the actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Fact(NamedTuple):
    """How one fact is compared: its name in the report, among whom, what to do, the command that shows it."""

    name: str
    scope: str
    action: str
    command: str
    # Relative difference that is none: the firmware of equal machines keeps different amounts of memory for itself.
    tolerance: float = 0.0
    # Why no node of a kind has a value; without this text, a missing value is one that could not be read.
    unreadable: str = ""
    # Whether the fact is not reported if no node has it.
    optional: bool = False


# Why a single node is not checked.
ALONE = "there is one node, and nothing to compare it with"
_SAME_SYSTEM = "bring the odd ones to the others' version and restart them (site.yml does it where it manages packages)"
_FIRMWARE = "bring the firmware to the others' version, with the vendor's tool"
_GROUP = "declare them as groups of their own: verify_group"
_BASELINE = "run site.yml (role node_baseline)"
_ROLE = "run site.yml for all nodes, which installs one version everywhere"

FACTS: Mapping[str, Fact] = {
    "kernel": Fact("kernel", "hardware", _SAME_SYSTEM, "uname -r"),
    "os": Fact("operating system", "hardware", _SAME_SYSTEM, "cat /etc/os-release"),
    "machine": Fact("architecture", "cluster", "use nodes of one architecture", "uname -m", optional=True),
    "container": Fact("container engine", "hardware", "run nodes the same way", "systemd-detect-virt", optional=True),
    "product": Fact("machine model", "hardware", _GROUP, "cat /sys/class/dmi/id/product_name", optional=True),
    "cpu": Fact("CPU", "hardware", _GROUP, "lscpu", optional=True),
    "cpus": Fact("number of CPUs", "hardware", "look for offline CPUs, or SMT switched off in the BIOS", "lscpu"),
    "memory_mib": Fact("memory", "hardware", "look for a lost memory module (BIOS log, dmidecode)", "free -m", 0.03),
    "governor": Fact(
        "CPU governor",
        "hardware",
        "set the same one on all (cpupower frequency-set -g performance)",
        "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
        optional=True,
    ),
    "bios": Fact("BIOS", "hardware", _FIRMWARE, "cat /sys/class/dmi/id/bios_version", optional=True),
    "driver": Fact(
        "driver",
        "hardware",
        "run site.yml for the group nvidia (or ascend), then restart the odd ones",
        "nvidia-smi --query-gpu=driver_version --format=csv",
    ),
    "gpus": Fact("accelerators", "hardware", "look for one that fell off the bus (lspci, Xid)", "nvidia-smi -L"),
    "vbios": Fact(
        "GPU VBIOS", "hardware", _FIRMWARE, "nvidia-smi --query-gpu=vbios_version --format=csv", optional=True
    ),
    "npu_firmware": Fact("NPU firmware", "hardware", _FIRMWARE, "npu-smi info -t board -i 0", optional=True),
    "cann": Fact("CANN", "hardware", "run site.yml for the group ascend", "ls /usr/local/Ascend", optional=True),
    "cuda": Fact("CUDA", "hardware", "run site.yml for the group nvidia", "ls -d /usr/local/cuda-*"),
    "nccl": Fact("NCCL", "hardware", "run site.yml for the group nvidia", "ldconfig -p"),
    "nccl_settings": Fact(
        "NCCL settings in files",
        "cluster",
        "remove /etc/nccl.conf and ~/.nccl.conf, or make them equal: they override what a job sets",
        "cat /etc/nccl.conf",
        optional=True,
    ),
    "openmpi": Fact("Open MPI", "cluster", _ROLE, "mpirun --version"),
    "python": Fact("Python of the system", "hardware", _SAME_SYSTEM, "python3 --version"),
    "torch": Fact("PyTorch", "cluster", _ROLE, ""),
    "torch_npu": Fact("torch_npu", "cluster", _ROLE, "", optional=True),
    "mindspore": Fact("MindSpore", "cluster", _ROLE, ""),
    "oneflow": Fact("OneFlow", "cluster", _ROLE, ""),
    "nic_speed": Fact(
        "speed of the job's interface",
        "hardware",
        "look at cable, optical module and the switch port's speed",
        "ip -brief link",
        unreadable="the driver of this network card knows no speed, as in virtual machines",
    ),
    "mtu": Fact("MTU of the job's interface", "cluster", "set one MTU on all nodes and switch ports", "ip link"),
    "nic_firmware": Fact("NIC driver and firmware", "hardware", _FIRMWARE, "lspci -nn", optional=True),
    "hca_firmware": Fact(
        "RDMA firmware", "hardware", _FIRMWARE, "grep -r . /sys/class/infiniband/*/fw_ver", optional=True
    ),
    "memlock": Fact("memlock limit", "cluster", _BASELINE, "ulimit -H -l"),
    "nofile": Fact("limit of open files", "cluster", _BASELINE, "ulimit -H -n"),
}
