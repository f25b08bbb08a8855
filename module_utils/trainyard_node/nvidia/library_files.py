# SPDX-License-Identifier: Apache-2.0
"""Read NCCL or cuDNN of a machine from the library itself, and make the home that programs are built on."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.nvidia.library import DRIVER, LIBRARIES, Library, cuda_text, nccl_built_with, remarks
from ..machine import commands, programs
from ..software.build_prefix import RECORD, read_record

# Time limit for loading a library and asking its version, in seconds.
_LOAD_TIMEOUT = 60
# Runs in a process of its own, because cuDNN 8 ends the process if it finds no cuBLAS or no NVRTC. Prints the status,
# the version, and the CUDA it was built with (0 where the library has no such function).
_QUERY = {
    "nccl": """
number = ctypes.c_int()
print(library.ncclGetVersion(ctypes.byref(number)), number.value, 0)
""",
    "cudnn": """
library.cudnnGetVersion.restype = library.cudnnGetCudartVersion.restype = ctypes.c_size_t
print(0, library.cudnnGetVersion(), library.cudnnGetCudartVersion())
""",
}
_LOAD = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
library = ctypes.CDLL(sys.argv[1])
"""


def query(name: str, library: str) -> tuple[str, str, str]:
    """Return the version and CUDA that a library reports, or why it reports none."""
    argv = [sys.executable, "-c", _LOAD + _QUERY[name], library]
    # To load it is to run it.
    rights = programs.settings(library)
    rights["env"] = programs.english(rights.get("env"))
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LOAD_TIMEOUT, check=False, **rights)
    except subprocess.TimeoutExpired:
        return "", "", f"{library} does not answer within {_LOAD_TIMEOUT} s"
    words = done.stdout.split()
    if done.returncode == 0 and len(words) == 3 and words[0] == "0":
        return LIBRARIES[name].version_text(int(words[1])), cuda_text(int(words[2])), ""
    message = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return "", "", f"{library} cannot be loaded: {message}"


def nccl_cuda(library: str) -> str:
    """Return the CUDA release that an NCCL reports to be built with."""
    with Path(library).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return nccl_built_with(content)


def kind_of(home: Path) -> str:
    """Return whether a home is `ours` or `foreign`, or `none` without one."""
    if not os.path.lexists(home):
        return "none"
    return "ours" if not home.is_symlink() and read_record(home) is not None else "foreign"


def _settings_of(user: str) -> list[str]:
    """Return the files that configure NCCL for every program of this user."""
    paths = ["/etc/nccl.conf"]
    with contextlib.suppress(KeyError):
        paths.append(f"{pwd.getpwnam(user).pw_dir}/.nccl.conf")
    return [path for path in paths if Path(path).is_file()]


def _others(library: Library, home: Path) -> list[str]:
    """Return further libraries, which a program without a search path of its own would load."""
    tool = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    listing = commands.run([tool, "-p"]).output if tool else ""
    own = (home / f"lib/lib{library.name}.so").resolve()
    return [path for path in library.in_cache(listing) if Path(path).resolve() != own]


def _header(library: Library, home: Path) -> str:
    """Return the version in the header. Raises OSError without a header."""
    there = [name for name in library.headers if (home / "include" / name).exists()]
    name = there[0] if there else library.headers[-1]
    return library.header_version((home / "include" / name).read_text(errors="replace"))


def read_library(name: str, home: str, user: str, traces: Mapping[str, str]) -> dict[str, Any]:
    """Return what is at a home and what the library reports. `traces`: by provider, a pattern of what it leaves."""
    library, folder = LIBRARIES[name], Path(home)
    state: dict[str, Any] = {
        "home": home,
        "kind": kind_of(folder),
        **dict.fromkeys(("version", "header", "cuda", "library", "error", "unloaded"), ""),
        "left": {
            provider: sorted(str(path) for path in Path(pattern).parent.glob(Path(pattern).name))
            for provider, pattern in traces.items()
        },
    }
    if state["kind"] == "ours":
        _read_home(library, folder, state)
    settings = _settings_of(user) if name == "nccl" else []
    state["remarks"] = remarks(library, home, settings, _others(library, folder), state["unloaded"])
    return state


def _read_home(library: Library, home: Path, state: dict[str, Any]) -> None:
    # Its real path: a wheel's library finds its neighbours from there.
    file = str((home / f"lib/lib{library.name}.so").resolve())
    state["library"] = file
    state["version"], state["cuda"], state["error"] = query(library.name, file)
    if DRIVER in state["error"]:
        state["unloaded"], state["error"] = state["error"], ""
    elif not state["error"] and library.name == "nccl":
        state["cuda"] = nccl_cuda(file)
    try:
        state["header"] = _header(library, home)
    except OSError as error:
        state["error"] = state["error"] or f"{home}/include/{library.name}.h cannot be read: {error.strerror}"


def files_of_packages(packages: Sequence[str]) -> list[str]:
    """Return the files of installed packages. Raises ValueError where one is not installed."""
    done = commands.run(["dpkg-query", "--listfiles", "--", *packages])
    if done.status:
        raise ValueError(" ".join(done.output.split()))
    return done.output.splitlines()


def files_of_prefix(prefix: str) -> list[str]:
    """Return headers and libraries of a prefix. Raises ValueError where it has none."""
    folder = Path(prefix)
    found = [*folder.glob("include/*"), *folder.glob("lib/*"), *folder.glob("lib64/*")]
    if not found:
        raise ValueError(f"{prefix} has neither headers nor libraries")
    return sorted(str(path) for path in found)


def links_in(home: Path) -> dict[str, str]:
    """Return the links that a home has."""
    found = [path for folder in ("include", "lib") for path in sorted((home / folder).glob("*")) if path.is_symlink()]
    return {str(path.relative_to(home)): str(path.readlink()) for path in found}


def make_home(home: Path, links: Mapping[str, str], record: Mapping[str, Any]) -> None:
    """Make a home of links beside the old one, then put it in its place."""
    beside, old = home.with_name(f".{home.name}.new"), home.with_name(f".{home.name}.old")
    for path in (beside, old):
        shutil.rmtree(path, ignore_errors=True)
    for folder in (beside, beside / "include", beside / "lib"):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    for name, target in links.items():
        (beside / name).symlink_to(target)
    (beside / RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    (beside / RECORD).chmod(0o644)
    if home.exists():
        home.rename(old)
    beside.rename(home)
    shutil.rmtree(old, ignore_errors=True)
