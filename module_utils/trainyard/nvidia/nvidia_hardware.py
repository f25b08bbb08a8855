# SPDX-License-Identifier: Apache-2.0
"""NVIDIA hardware and what a host offers it, read from files and tools that need no driver.

Device ids, names and the chip behind each id are those of the PCI ID database (pci.ids of August 2026), in which
the ids of one generation lie together. Sizes in MiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..software import system_packages

Gpu = Mapping[str, str]

# Oldest first, so that the order gives "up to Volta" or "from Turing on".
GENERATIONS = ("kepler", "maxwell", "pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")
UNKNOWN = "unknown"

# First and last device id. GPUs of desktops are in these ranges as well.
_RANGES = (
    (0x0FC0, 0x103F, "kepler"), (0x1180, 0x11FF, "kepler"), (0x1280, 0x130B, "kepler"), (0x1340, 0x1436, "maxwell"),
    (0x15C2, 0x15FF, "pascal"), (0x1613, 0x1676, "maxwell"), (0x1725, 0x172F, "pascal"), (0x174D, 0x17FD, "maxwell"),
    (0x1B00, 0x1D56, "pascal"), (0x1D81, 0x1DF6, "volta"), (0x1E02, 0x1FF9, "turing"), (0x2080, 0x20FF, "ampere"),
    (0x2182, 0x21D1, "turing"), (0x2200, 0x2291, "ampere"), (0x2302, 0x23FF, "hopper"), (0x2414, 0x25FF, "ampere"),
    (0x2681, 0x28FF, "ada"), (0x2900, 0x3340, "blackwell"),
)  # fmt: skip

# Models of servers and workstations. Others have a generation but no name here.
_NAMES = {
    0x1021: "K20Xm", 0x1028: "K20m", 0x1023: "K40m", 0x1024: "K40c", 0x1029: "K40s", 0x102A: "K40t", 0x102D: "K80",
    0x118F: "K10", 0x13BD: "M10", 0x13F2: "M60", 0x13F3: "M6", 0x1431: "M4", 0x17FD: "M40",
    0x15F7: "P100 PCIe 12GB", 0x15F8: "P100 PCIe 16GB", 0x15F9: "P100 SXM2 16GB", 0x15FC: "P100 DGXS 16GB",
    0x1B38: "P40", 0x1B39: "P10", 0x1BB3: "P4", 0x1BB4: "P6", 0x1B00: "TITAN X Pascal", 0x1B02: "TITAN Xp",
    0x1B06: "GeForce GTX 1080 Ti", 0x1B80: "GeForce GTX 1080",
    0x1D81: "TITAN V", 0x1DB1: "V100 SXM2 16GB", 0x1DB2: "V100 DGXS 16GB", 0x1DB3: "V100 FHHL 16GB",
    0x1DB4: "V100 PCIe 16GB", 0x1DB5: "V100 SXM2 32GB", 0x1DB6: "V100 PCIe 32GB", 0x1DB7: "V100 DGXS 32GB",
    0x1DB8: "V100 SXM3 32GB", 0x1DBA: "Quadro GV100", 0x1DF5: "V100 SXM2 16GB", 0x1DF6: "V100S PCIe 32GB",
    0x1E02: "TITAN RTX", 0x1E04: "GeForce RTX 2080 Ti", 0x1E07: "GeForce RTX 2080 Ti", 0x1E30: "Quadro RTX 6000/8000",
    0x1E36: "Quadro RTX 6000", 0x1E78: "Quadro RTX 6000/8000", 0x1EB0: "Quadro RTX 5000", 0x1EB1: "Quadro RTX 4000",
    0x1E37: "T10 16GB", 0x1E38: "T40 24GB", 0x1EB8: "T4",
    0x20B0: "A100 SXM4 40GB", 0x20B1: "A100 PCIe 40GB", 0x20B2: "A100 SXM4 80GB", 0x20B3: "A100 SXM 64GB",
    0x20B5: "A100 PCIe 80GB", 0x20F1: "A100 PCIe 40GB", 0x20B7: "A30", 0x20B8: "A100X", 0x20B9: "A30X",
    0x20BD: "A800 SXM4 40GB", 0x20F3: "A800 SXM4 80GB", 0x20F5: "A800 PCIe 80GB", 0x20F6: "A800 PCIe 40GB",
    0x2235: "A40", 0x2236: "A10", 0x2237: "A10G", 0x2238: "A10M", 0x25B6: "A2 / A16", 0x2230: "RTX A6000",
    0x2231: "RTX A5000", 0x2232: "RTX A4500", 0x2233: "RTX A5500", 0x24B0: "RTX A4000", 0x2531: "RTX A2000",
    0x2571: "RTX A2000 12GB", 0x2203: "GeForce RTX 3090 Ti", 0x2204: "GeForce RTX 3090", 0x2206: "GeForce RTX 3080",
    0x2208: "GeForce RTX 3080 Ti",
    0x2681: "RTX TITAN Ada", 0x2684: "GeForce RTX 4090", 0x2685: "GeForce RTX 4090 D", 0x2704: "GeForce RTX 4080",
    0x26B1: "RTX 6000 Ada", 0x26B2: "RTX 5000 Ada", 0x26B3: "RTX 5880 Ada", 0x26B5: "L40", 0x26B7: "L20",
    0x26BA: "L20", 0x26B8: "L40G", 0x26B9: "L40S", 0x27B0: "RTX 4000 SFF Ada", 0x27B1: "RTX 4500 Ada",
    0x27B2: "RTX 4000 Ada", 0x27B6: "L2", 0x27B8: "L4",
    0x230C: "H20 NVL16", 0x230E: "H20 NVL16", 0x2313: "H100 CNX", 0x2321: "H100 NVL 94GB", 0x2322: "H800 PCIe",
    0x2324: "H800 SXM5", 0x2328: "H20B", 0x2329: "H20", 0x232C: "H20 141GB", 0x2330: "H100 SXM5 80GB",
    0x2331: "H100 PCIe 80GB", 0x2335: "H200 SXM 141GB", 0x2336: "H100 SXM5", 0x2337: "H100 SXM5 64GB",
    0x2338: "H100 SXM5 96GB", 0x2339: "H100 SXM5 94GB", 0x233A: "H800 NVL 94GB", 0x233B: "H200 NVL",
    0x233D: "H100 96GB", 0x2342: "GH200 120GB / 480GB", 0x2345: "GH200", 0x2348: "GH200 144GB",
    0x2901: "B200", 0x2909: "B200 168GB", 0x2920: "B100", 0x29BC: "B100", 0x2941: "GB200", 0x3182: "B300",
    0x31C2: "GB300", 0x31C3: "GB300", 0x2E12: "GB10", 0x2B85: "GeForce RTX 5090", 0x2C02: "GeForce RTX 5080",
    0x2BB1: "RTX PRO 6000 Blackwell", 0x2BB3: "RTX PRO 5000 Blackwell", 0x2BB4: "RTX PRO 6000 Blackwell Max-Q",
    0x2BB5: "RTX PRO 6000 Blackwell Server", 0x2C31: "RTX PRO 4500 Blackwell", 0x2C34: "RTX PRO 4000 Blackwell",
}  # fmt: skip

# NVIDIA's bridges of that class (the GPUs' own are 0x03xx); A100's is 1af1, H100's 22a3.
NVSWITCH_CLASS = "0x0680"
# NVSwitches of the fifth NVLink are reached through an adapter port with this description.
SWITCH_ADAPTER = "SW_MNG"

_STATES = {"H": "half-installed", "U": "unpacked", "F": "half-configured"}


def gpu_of(device_id: str) -> tuple[str, str]:
    """Return name and generation of a GPU from the `device` file of its PCI function, `0x20b0`.

    The name is "" where only the generation is known, the generation UNKNOWN where not even that.
    """
    try:
        number = int(device_id, 16)
    except ValueError:
        return "", UNKNOWN
    generation = next((name for first, last, name in _RANGES if first <= number <= last), UNKNOWN)
    return _NAMES.get(number, ""), generation


def describe_gpus(gpus: Sequence[Gpu]) -> str:
    """Name the GPUs of a host, `8x A100 SXM4 80GB`, or `none`."""
    counts: dict[str, int] = {}
    for gpu in gpus:
        name = gpu["name"] or f"{gpu['generation']} GPU {gpu['device_id']}"
        counts[name] = counts.get(name, 0) + 1
    return " + ".join(f"{count}x {name}" for name, count in counts.items()) or "none"


def secure_boot(efi: bool, variable: str | None, mokutil: str | None) -> str:
    """Return enabled, disabled, unknown or (without EFI) none.

    `variable` is the EFI variable SecureBoot: four bytes of attributes and its value; `mokutil` what `--sb-state` says.
    """
    if not efi:
        return "none"
    if variable:
        return {"\x00": "disabled", "\x01": "enabled"}.get(variable[-1], "unknown")
    state = re.search(r"SecureBoot (enabled|disabled)", mokutil or "")
    return state[1] if state else "unknown"


def module_loaded(modules: str | None, name: str) -> bool:
    """Return whether a kernel module is in /proc/modules."""
    return any(line.split(" ", 1)[0] == name for line in (modules or "").splitlines())


def read_os(text: str | None) -> dict[str, str]:
    """Return `id`, `version` and `family` (debian, redhat, suse or the id itself) from /etc/os-release."""
    pairs = (line.partition("=") for line in (text or "").splitlines())
    fields = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    name = fields.get("ID", "")
    kind = system_packages.family(name, fields.get("ID_LIKE", ""))
    return {"id": name, "version": fields.get("VERSION_ID", ""), "family": kind}


def read_packages(output: str | None) -> dict[str, list[str]]:
    """Return `held` and `broken` packages from lines of dpkg-query: status abbreviation, name and version, by tabs.

    Broken are those that dpkg left half-way, which make apt refuse to install anything; each with its state.
    """
    held, broken = [], []
    for line in (output or "").splitlines():
        status, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if len(status) < 2 or not name:
            continue
        if status[0] == "h":
            held.append(name)
        if status[1] in _STATES or status[2:3] == "R":
            broken.append(f"{name} ({_STATES.get(status[1], 'to be reinstalled')})")
    return {"held": sorted(held), "broken": sorted(broken)}


def read_candidate(output: str | None) -> bool:
    """Tell from `apt-cache policy NAME` whether the package can be installed."""
    found = re.search(r"^\s*Candidate: (\S+)", output or "", re.MULTILINE)
    return bool(found) and found[1] != "(none)"  # type: ignore[index]


def read_free(folders: Iterable[str], output: str | None) -> dict[str, int]:
    """Return the free MiB of each folder from `df -Pk FOLDERS`, which answers in the order of its arguments."""
    lines = [line.split() for line in (output or "").splitlines()[1:]]
    free = [int(line[3]) // 1024 for line in lines if len(line) >= 6 and line[3].isdecimal()]
    names = list(folders)
    return dict(zip(names, free)) if len(free) == len(names) else {}


def number(version: str) -> tuple[int, ...]:
    """Return a version's numbers, for comparing: (470, 103, 1) of 470.103.01, (6, 1, 0, 41) of 6.1.0-41-amd64."""
    found = re.match(r"\d+(?:[.-]\d+)*", version)
    return tuple(int(part) for part in re.split(r"[.-]", found[0])) if found else ()


def first_version(output: str | None) -> str:
    """Return the first line of a tool's output if it is a version, else ""."""
    line = (output or "").strip().partition("\n")[0].strip()
    return line if re.fullmatch(r"\d+(\.\d+)*", line) else ""


def branch_of(version: str) -> str:
    """Return the branch of a driver's version: 550 of 550.127.08, "" of what has none."""
    found = re.match(r"\d{3}(?!\d)", version)
    return found[0] if found else ""


def described_os(host: Mapping[str, Any]) -> str:
    """Name a host's operating system: `debian 12`; releases of Debian and Red Hat's count by their first number."""
    system = host["os"]
    version = str(system["version"])
    return f"{system['id']} {version if system['id'] == 'ubuntu' else version.partition('.')[0]}".strip()
