# SPDX-License-Identifier: Apache-2.0
"""The shapes of what hosts answer about software, as far as rules read it (base/received.py)."""

from __future__ import annotations

import re
from typing import Any

from ..base.shapes import MAYBE_INT, NOTHING, OWN, Each, Is, Raw, Text, Whole

# Upper bound for a size in MB or GiB.
_MAX_SIZE = 1 << 40


def version(value: Any) -> None:
    """a version"""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9][A-Za-z0-9.+~:_-]{0,99}", value):
        raise ValueError(value)


def path(value: Any) -> None:
    """the full path of a file"""
    if not isinstance(value, str) or not re.fullmatch(r"/[^\0-\x1f\x7f]{0,4095}", value):
        raise ValueError(value)


def host_name(value: Any) -> None:
    """a host name"""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?", value):
        raise ValueError(value)


# Where something is built or copied to (trainyard_node/software/build_prefix.py).
PLACE = {
    "host": OWN,
    "platform": Text(200),
    "free_mb": Whole(_MAX_SIZE),
    "record": (Each(object), NOTHING),
    "prefix_kind": Is(("none", "built", "foreign")),
}
# Whether the requested build is in its place (built_folder).
BUILT = {"host": OWN, "there": bool}
_MPI = ({"version": version, "path": path, "?lib": path}, NOTHING)
_FOLDER = (Is(("",)), path)
OPENMPI = {
    **PLACE,
    "hostname": host_name,
    **dict.fromkeys(("mpi", "in_prefix"), _MPI),
    "link": path,
    "link_kind": Is(("none", "link", "foreign")),
    **dict.fromkeys(("cuda", "ucx"), _FOLDER),
}
# The output of openmpi, step verify, on the first node, and the host names of all nodes.
OPENMPI_RANKS = {
    "__openmpi_state": {"state": {"hostname": host_name}},
    "?__openmpi_ran": {"status": int, "output": Raw(1 << 22)},
}
_SYSCTLS = Each(int)
CONTAINERS = {
    "host": OWN,
    **dict.fromkeys(("name", "package_manager", "podman", "range_fault"), str),
    "user": ({"uid": int}, NOTHING),
    "candidates": Each(str),
    "sysctls": _SYSCTLS,
    "foreign": [str],
    "storage": {
        **dict.fromkeys(("?path", "?file_system", "?owner", "?unsafe"), str),
        "?free_gib": MAYBE_INT,
        "?needed_gib": int,
    },
}
# Exit status and output.
_RAN = [(int, Raw(1 << 20))]
CONTAINER_PROBE = {
    "host": OWN,
    **dict.fromkeys(("user", "fault"), str),
    "devices": [str],
    "?sysctls": _SYSCTLS,
    "?unranged": [str],
    **dict.fromkeys(("?import", "?run"), _RAN),
    "?written_by": MAYBE_INT,
    "?expected": Each(str),
    "?apptainer": ({"run": _RAN, "written_by": MAYBE_INT}, NOTHING),
}
CONTAINER_GPUS = {
    "host": OWN,
    **dict.fromkeys(("path", "driver", "driver_output", "toolkit"), str),
    **dict.fromkeys(("exists", "due"), bool),
    "listed": [str],
}
# A complete Python environment, and what its verification printed (python_environment).
ENVIRONMENT = {
    "python_runtime_result": {"?version": version, "?packages": Each(Text(200)), "?verified": (Each(object), NOTHING)}
}
# The digests of scripts by their paths.
DIGESTS = Each(Text(64))


def python_release(value: Any) -> None:
    """a release of Python such as 3.11, perhaps with a C library such as glibc 2.34, or nothing"""
    if not isinstance(value, str) or not re.fullmatch(r"(3\.\d{1,2}( glibc 2\.\d{1,2})?)?", value):
        raise ValueError(value)


# The system of a host as Ansible's setup found it, the release of its python3 and its C library
# (playbooks/tasks/python.yml).
_FACTS = ("distribution", "distribution_version", "distribution_major_version", "architecture")
SYSTEM = {
    "?ansible_facts": {f"?{name}": Text(40) for name in _FACTS},
    "?trainyard_python3": {"?stdout": python_release},
}
