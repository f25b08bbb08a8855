# SPDX-License-Identifier: Apache-2.0
"""Parse outputs of nvidia-smi that somebody saved: the table without options, and `nvidia-smi -L`.

Memory in MiB. Tables of drivers 418 to 590: two rows for a GPU, from 450 on a third one for MIG. Nodes use --query-gpu
(accelerators.py), which is exact; here names may be cut, and only one of the forms has UUIDs. Unknown values are None.
"""

from __future__ import annotations

import re

from ..base.spans import spans
from .accelerators import Accelerators, Device, device, first_missing, no_accelerators, nvidia_advice, pci_address
from .tool_text import excerpt, lines_of

ROW = re.compile(
    r"\|\s+(?P<index>\d{1,3})\s+(?P<name>\S.*?)\s+(?:On|Off|N/A)\s*\|\s*(?P<pci>[0-9A-Fa-f]{4,8}(?::[0-9A-Fa-f]{2}){2}\.\d)"
)
# Printed instead of the table.
FAILED = re.compile(r"\s*(?:Failed to initialize NVML|NVIDIA-SMI has failed because|No devices were found)")
HEAD = re.compile(r"NVIDIA-SMI\s+\d.*Driver Version:\s*(?P<driver>\S+)")
LISTED = re.compile(r"GPU (?P<index>\d{1,3}): (?P<name>.+?) \(UUID: (?P<uuid>[^)]*)\)")
# The first cell of a GPU's own row has its temperature or an error, that of a slice of MIG numbers or nothing.
_MEMORY = re.compile(r"\|(?=[^|]*[^|\d\s])[^|]*\|\s*\d+MiB\s*/\s*(?P<total>\d{1,9})MiB\s*\|")
_MIG_MODE = re.compile(r"\|[^|]*\|[^|]*\|\s*(Enabled|Disabled|N/A)\*?\s*\|")
_MIG_ROW = re.compile(r"\|\s+(?P<index>\d{1,3})(?:\s+\d{1,3}){3}\s*\|\s*\d+MiB")
_MIG_SLICE = re.compile(r"\s+MIG \S+\s+Device\s+\d+:")
_MUTE = ("ERR!", "Unknown Error", "GPU is lost", "Unable to determine the device handle", "GPU requires reset")


def parse_table(output: str) -> Accelerators:
    """Parse the table that `nvidia-smi` prints without options."""
    found = no_accelerators("nvidia")
    gpu: Device | None = None
    head = ended = False
    for line in lines_of(output):
        matched, row = HEAD.search(line), ROW.search(line)
        if matched:
            head, found["driver"] = True, matched["driver"]
        elif "Processes:" in line:
            ended = True
            break
        elif row:
            _memory_missing(found, gpu)
            gpu = device(int(row["index"]), row["name"], pci=pci_address(row["pci"]))
            found["devices"].append(gpu)
        elif gpu is not None:
            slice_of = _MIG_ROW.search(line)
            for each in found["devices"]:
                each["mig"] = each["mig"] or bool(slice_of and int(slice_of["index"]) == each["index"])
            memory, mode = _MEMORY.search(line), _MIG_MODE.search(line)
            if memory and gpu["memory_mib"] is None:
                gpu["memory_mib"] = int(memory["total"])
            elif mode:
                gpu["mig"] = mode[1] == "Enabled"
        if any(word in line for word in _MUTE):
            named = f"GPU {gpu['index']}" if gpu else "a GPU"
            found["problems"].append(
                f"{named} does not answer: nvidia-smi printed {excerpt(line)}; look for `Xid` in the kernel log"
            )
    _memory_missing(found, gpu)
    if not found["devices"]:
        found["problems"].append(f"nvidia-smi's table lists no GPU: {excerpt(output)}. {nvidia_advice(output)}")
    elif not head:
        found["problems"].append("nvidia-smi's table has no head: it begins in the middle, and GPUs may be missing")
    elif not ended:
        found["problems"].append("nvidia-smi's table has no list of processes: it may have been cut")
    _counted(found, "nvidia-smi's table")
    for each in found["devices"]:
        if each["model"].endswith("..."):
            found["notes"].append(f"GPU {each['index']}: nvidia-smi's table cuts the name `{each['model']}`")
    return found


def _memory_missing(found: Accelerators, gpu: Device | None) -> None:
    if gpu is not None and gpu["memory_mib"] is None:
        found["problems"].append(f"GPU {gpu['index']}: nvidia-smi's table has no memory of it")


def parse_list(output: str) -> Accelerators:
    """Parse `nvidia-smi -L`."""
    found = no_accelerators("nvidia")
    for line in lines_of(output):
        row = LISTED.search(line)
        if row:
            uuid = row["uuid"] if row["uuid"].startswith("GPU-") else None
            found["devices"].append(device(int(row["index"]), row["name"], uuid=uuid))
            if uuid is None:
                found["problems"].append(f"GPU {row['index']}: nvidia-smi -L has `{row['uuid']}` instead of a UUID")
        elif _MIG_SLICE.match(line) and found["devices"]:
            found["devices"][-1]["mig"] = True
        elif any(word in line for word in _MUTE):
            found["problems"].append(f"a GPU does not answer: nvidia-smi -L printed {excerpt(line)}")
    if not found["devices"]:
        found["problems"].append(f"nvidia-smi -L lists no GPU: {excerpt(output)}")
    _counted(found, "nvidia-smi -L")
    return found


def _counted(found: Accelerators, source: str) -> None:
    indexes = [gpu["index"] for gpu in found["devices"]]
    twice = sorted({index for index in indexes if indexes.count(index) > 1})
    if twice:
        found["problems"].append(f"{source} has GPU {spans(twice)} more than once: give the output of one machine")
    missing = first_missing(indexes)
    if missing:
        found["problems"].append(f"{source} has no GPU {spans(missing)}, but later ones")
