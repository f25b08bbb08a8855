# SPDX-License-Identifier: Apache-2.0
"""The Open MPI of this machine."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from ...trainyard.software.openmpi import open_mpi_version
from ..machine.tree import Tree

# RHEL's package keeps its programs out of PATH until an environment module is loaded.
_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/lib64/openmpi/bin")
# Where another MPI is the system's `mpirun`, Debian's Open MPI has the second name.
_NAMES = ("mpirun", "mpirun.openmpi")
_ANSWER_SECONDS = 20


def read_mpi(tree: Tree, prefix: str | None) -> dict[str, str] | None:
    """Return version and path of the `mpirun` of Open MPI, or None: that of the prefix first, then that in PATH.

    A program that does not answer as Open MPI counts as none.
    """
    path = [] if tree.captured else os.environ.get("PATH", "").split(os.pathsep)
    folders = [*([f"{prefix}/bin"] if prefix else []), *filter(os.path.isabs, path), *_FOLDERS]
    found = (_read(tree, f"{folder}/{name}") for name in _NAMES for folder in dict.fromkeys(folders))
    return next((mpi for mpi in found if mpi), None)


def read_mpi_of(tree: Tree, prefix: str) -> dict[str, str] | None:
    """Return the Open MPI of a prefix and of no other place, or None."""
    return _read(tree, f"{prefix}/bin/mpirun") if prefix else None


def _read(tree: Tree, program: str) -> dict[str, str] | None:
    if not os.access(tree.path(program), os.X_OK):
        return None
    # Another node may have built the program, so root must not run it.
    outcome = tree.command("mpirun.version", [program, "--version"], _ANSWER_SECONDS, as_nobody=True)
    version = open_mpi_version(outcome.output) if outcome and outcome.status == 0 else None
    if not version:
        return None
    home = PurePosixPath(program).parent.parent
    # Red Hat's family and MLNX_OFED have libraries there.
    wide = tree.exists(f"{home}/lib64/libmpi.so") and not tree.exists(f"{home}/lib/libmpi.so")
    return {"version": version, "path": program, **({"lib": f"{home}/lib64"} if wide else {})}
