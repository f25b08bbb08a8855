# SPDX-License-Identifier: Apache-2.0
"""The shapes of what hosts answer about NVIDIA's software, as far as rules read it (base/received.py).

What stands there as `object` comes from the inventory: the controller puts it beside what the host answered.
"""

from __future__ import annotations

import re
from typing import Any

from ..base.shapes import NOTHING, OWN, Each, Exact, Is, Raw, Text, Whole
from ..software.software_answers import PLACE, host_name, path, version

# Upper bounds: MiB or a number of devices; the file with the packages of a driver, in characters.
_MAX_SIZE, _MAX_RECORD = 1 << 40, 1 << 20


def numbers(value: Any) -> None:
    """numbers with dots between them, or nothing"""
    _expect(value, r"([0-9]{1,9}(\.[0-9]{1,9}){0,9})?")


def nvcc(value: Any) -> None:
    """the three numbers of a version of nvcc, or nothing"""
    _expect(value, r"([0-9]{1,9}(\.[0-9]{1,9}){2})?")


def package(value: Any) -> None:
    """the name of a package"""
    _expect(value, r"[A-Za-z0-9][A-Za-z0-9+._:~-]{0,199}")


def gxx(value: Any) -> None:
    """a package such as g++-12"""
    _expect(value, r"g\+\+-[0-9]{1,9}")


def _expect(value: Any, pattern: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(value)


# A version or the number of a kernel; its numbers are compared.
_SHORT = Text(200)
_SETTINGS = Each(object)
_NOTHING_THERE = Is(("",))
GPU = dict.fromkeys(("device_id", "name", "generation"), _SHORT)
# Answers of library/nvidia_driver, step host.
FACTS = {
    "host": OWN,
    "os": dict.fromkeys(("id", "version", "family"), _SHORT),
    **dict.fromkeys(("arch", "virtual", "secure_boot"), _SHORT),
    "kernel": {"running": _SHORT, "headers": [_SHORT], "headers_available": (bool, NOTHING)},
    "gpus": [GPU],
    "nvswitches": Whole(_MAX_SIZE),
    "nouveau": bool,
    "gcc": numbers,
    "apt": {"held": [package], "broken": [_SHORT], "kept": [_SHORT]},
    "cuda": [_SHORT],
    "free_mib": Each(Whole(_MAX_SIZE)),
}
# Answers of library/nvidia_driver, step read.
DRIVER = {
    "host": OWN,
    "provider": Is(("none", "distro", "network_repo", "runfile", "unknown")),
    **dict.fromkeys(("kernel", "version", "runfile", "loaded", "fabric_manager"), _SHORT),
    "flavour": Is(("", "open", "proprietary")),
    "userspace": str,
    "headers": [_SHORT],
    "packages": Each(_SHORT, package),
    **{name: [package] for name in ("broken", "held")},
    "smi": {"problem": str},
    "dkms": [dict.fromkeys(("module", "version", "kernel", "state"), _SHORT)],
    "modules": Each({"version": _SHORT}),
    "builds": Each(str),
    "nouveau": bool,
    "reboot_due": [str],
}
DRIVER_NODE = {"facts": FACTS, "driver": DRIVER, "settings": _SETTINGS}
STACK_NODE = {**DRIVER_NODE, "stack": object, "overrides": object}
# Nothing is compared on a node without a driver on purpose.
COMPARED = ({"driver": DRIVER, "expected": _SETTINGS}, Exact({}))
UPGRADE_NODE = {
    "driver": DRIVER,
    **dict.fromkeys(("plan", "settings", "expected"), _SETTINGS),
    "uses": [str],
    "slurm": (_NOTHING_THERE, host_name),
    "kubernetes": bool,
    "missing": [_SHORT],
}
# The entry of a node in the table of an upgrade. `before` may be one that an earlier run has left there.
UPGRADE_ENTRY = {
    "host": OWN,
    **dict.fromkeys(("state", "why"), str),
    "?target": Each(_SHORT),
    "?before": {
        **{name: DRIVER[name] for name in ("provider", "version", "flavour", "packages", "held", "runfile")},
        "?record": Raw(_MAX_RECORD),
        "?parts": Each(str),
    },
}
# Answers of library/nvidia_library.
_LIBRARY = {
    "host": OWN,
    "home": path,
    "kind": Is(("none", "ours", "foreign")),
    **dict.fromkeys(("version", "header", "cuda"), (_NOTHING_THERE, version)),
    **dict.fromkeys(("library", "error", "unloaded"), str),
}
LIBRARY_NODE = ({"state": _LIBRARY, "request": _SETTINGS}, Exact({}))
_TOOLKIT = {
    "nvcc": nvcc,
    "newest_gcc": numbers,
    **dict.fromkeys(("cuda", "kind", "named"), _SHORT),
    "record": {"?sha256": object},
}
# Answers of library/cuda_toolkit.
TOOLKITS = {
    "host": OWN,
    **dict.fromkeys(("os", "family"), _SHORT),
    "root": path,
    "toolkits": Each(_TOOLKIT, path),
    "default": str,
    "default_kind": Is(("none", "link", "foreign")),
    "compiler": {"name": str, "version": numbers, "installed": bool},
    "compilers": [gxx],
    "free_mib": Each(Whole(_MAX_SIZE)),
    "session": ({"?PATH": str}, NOTHING),
}
TOOLKITS_NODE = {"state": TOOLKITS, **dict.fromkeys(("records", "default", "absent"), object)}
_PART = {
    "home": (_NOTHING_THERE, path),
    "version": numbers,
    "library": bool,
    "folders": [path],
    **dict.fromkeys(("marker", "library_name"), str),
    "searched": [str],
}
# The sources of a build, as .trainyard.json of the prefix has it.
_BUILD = ({**dict.fromkeys(("?source", "?platform", "?CUDA", "?NCCL", "?Open MPI"), str), "?make": [str]}, NOTHING)
# Answers of library/nccl_tests, step read, with the GPUs.
NCCL_TESTS = {
    **PLACE,
    "record": _BUILD,
    "cuda": {**_PART, "version": nvcc, "?exchangeable": str},
    **dict.fromkeys(("nccl", "mpi"), _PART),
    "missing": [str],
    "gpus": [GPU],
}
_PROGRAM = {**dict.fromkeys(("exists", "mpi"), bool), "missing": [str], "status": int, "said": str, "flags": Each(str)}
# Answers of library/nccl_tests, step probe.
NCCL_TESTS_PROBE = {
    "host": OWN,
    "record": _BUILD,
    "prefix": path,
    "prefix_kind": Is(("none", "built", "foreign")),
    "bin": path,
    "programs": Each(_PROGRAM),
    "gpus": Whole(_MAX_SIZE),
    "run": ({"status": int, "output": Raw(_MAX_RECORD), **dict.fromkeys(("name", "said"), str)}, NOTHING),
}
