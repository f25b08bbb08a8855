# SPDX-License-Identifier: Apache-2.0
"""What nccl-tests are built with on this machine, and what the built programs say of themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...trainyard.nvidia.cuda import nvcc_version
from ...trainyard.nvidia.cuda_verify import last_lines
from ...trainyard.nvidia.library import LIBRARIES
from ...trainyard.nvidia.nccl_tests import header_version
from ...trainyard.nvidia.nccl_tests_verify import RUN_OPTIONS, missing_libraries, needs_mpi, parse_flags
from ..machine import commands, programs
from ..machine.tree import Tree


class _Part(NamedTuple):
    """A part that nccl-tests are built with.

    `link` is what the roles of this project leave, and `places` are searched after it; `marker` is a file of a home,
    `defines` has the names of the version's numbers in that header.
    """

    link: str
    places: tuple[str, ...]
    marker: str
    library: str
    defines: tuple[str, ...] = ()


# Debian's Open MPI keeps headers and libraries below one folder, which is what MPI_HOME has to be; RHEL's libraries lie
# in the second.
_MPI_PLACES = ("/usr/lib/{machine}-linux-gnu/openmpi", "/usr/lib64/openmpi")
_OMPI = ("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION")
_PARTS = {
    "cuda": _Part("cuda", ("/usr/local/cuda", "/usr"), "bin/nvcc", "libcudart.so"),
    "nccl": _Part("nccl", ("/usr",), "include/nccl.h", "libnccl.so", LIBRARIES["nccl"].numbers),
    "mpi": _Part("openmpi", _MPI_PLACES, "include/mpi.h", "libmpi.so", _OMPI),
}
# Without a persistence daemon each start initialises every GPU: many seconds on eight of them.
_RUN_SECONDS = 120
_ANSWER_SECONDS = 30


def _of_system(tree: Tree, library: str) -> bool:
    """Return whether the linker finds a library in the system's own folders."""
    folders = ["/usr/lib64", "/usr/lib", *(f"/usr/lib/{name}" for name in tree.names("/usr/lib") if "-linux-" in name)]
    return any(tree.exists(f"{folder}/{library}") for folder in folders)


def read_part(tree: Tree, name: str, root: str, place: str, machine: str) -> dict[str, Any]:
    """Return home, version and libraries of cuda, nccl or mpi; home is "" where there is none.

    `place` is the only place to search, unless it is empty.
    """
    part = _PARTS[name]
    places = [f"{root}/{part.link}", *(each.format(machine=machine) for each in part.places)]
    searched = [place.rstrip("/")] if place else places
    marker, library = part.marker, part.library
    home = next((each for each in searched if tree.path(f"{each}/{marker}").exists()), "")
    version = exchangeable = ""
    if home and name == "cuda":
        exchangeable = "" if tree.captured else str(programs.weak(f"{home}/{marker}") or "")
        version = nvcc_version(tree.output("nvcc.version", [f"{home}/{marker}", "--version"], _ANSWER_SECONDS) or "")
    elif home:
        version = header_version(tree.text(f"{home}/{marker}") or "", part.defines)
    own = home not in ("", "/usr")
    folders = [f"{home}/{lib}" for lib in ("lib64", "lib") if own and tree.path(f"{home}/{lib}").is_dir()]
    with_library = [folder for folder in folders if tree.exists(f"{folder}/{library}")]
    return {
        "home": home,
        "version": version,
        # What of its compiler others than root can exchange.
        "exchangeable": exchangeable,
        "library": bool(with_library) or (home == "/usr" and _of_system(tree, library)),
        # Where a program finds it when it runs.
        "folders": with_library[:1],
        "marker": marker,
        "library_name": library,
        "searched": searched,
    }


def probe_program(program: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return exists, missing (libraries), mpi, status, said and flags of a program; `settings` are subprocess's."""
    if not os.access(program, os.X_OK):
        return {"exists": False, "missing": [], "mpi": False, "status": 127, "said": "", "flags": {}}
    linked = commands.run(["ldd", program], _ANSWER_SECONDS, **settings).output
    answer = commands.run([program, "--help"], _ANSWER_SECONDS, **settings)
    return {
        "exists": True,
        "missing": missing_libraries(linked),
        "mpi": needs_mpi(linked),
        "status": answer.status,
        "said": last_lines(answer.output, 4)[-400:],
        "flags": parse_flags(answer.output),
    }


def run_program(program: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run one rank over as few bytes as there can be, and return name, status, output and said."""
    done = commands.run([program, *RUN_OPTIONS], _RUN_SECONDS, **settings)
    return {
        "name": Path(program).name,
        "status": done.status,
        "output": done.output,
        "said": last_lines(done.output, 4)[-400:],
    }


def gpu_nodes(tree: Tree) -> int:
    """Return how many GPUs the driver offers to programs here, by their device files."""
    return sum(1 for name in tree.names("/dev") if re.fullmatch(r"nvidia\d+", name))
