# SPDX-License-Identifier: Apache-2.0
"""Read the NCCL of a machine from the library itself, and make the home that programs are built on."""

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

from ...trainyard.nvidia import nccl

MARK = ".trainyard.json"
# A library that does not answer within this many seconds does not work.
_LOAD_TIMEOUT = 60
# In a process of its own: a broken library may end it.
_ASK = """
import ctypes, sys
number = ctypes.c_int()
status = ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number))
print(status, number.value)
"""


def ask(library: str) -> tuple[str, str]:
    """Return the version that a library answers to ncclGetVersion, and what is wrong if it does not."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, library], capture_output=True, text=True, timeout=_LOAD_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"{library} does not answer within {_LOAD_TIMEOUT} s"
    words = done.stdout.split()
    if done.returncode == 0 and len(words) == 2 and words[0] == "0":
        return nccl.version_text(int(words[1])), ""
    said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return "", f"{library} cannot be loaded: {said}"


def cuda_of(library: str) -> str:
    """Return the CUDA release that a library says it was built with."""
    with Path(library).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(b"NCCL version ")
        while at >= 0:
            found = nccl.built_with(content[at : at + 64])
            if found:
                return found
            at = content.find(b"NCCL version ", at + 1)
    return ""


def read_mark(home: Path) -> dict[str, Any] | None:
    """Return what a home was made from; None where it is not this role's."""
    try:
        return dict(json.loads((home / MARK).read_text()))
    except (OSError, ValueError):
        return None


def kind_of(home: Path) -> str:
    """Tell whether a home is `ours`, `foreign`, or there is `none`."""
    if not os.path.lexists(home):
        return "none"
    return "ours" if not home.is_symlink() and read_mark(home) is not None else "foreign"


def settings_of(user: str) -> dict[str, str]:
    """Return the files by which NCCL can be configured behind a job's back, by path."""
    paths = ["/etc/nccl.conf"]
    with contextlib.suppress(KeyError):
        paths.append(f"{pwd.getpwnam(user).pw_dir}/.nccl.conf")
    return {path: Path(path).read_text(errors="replace").strip() for path in paths if Path(path).is_file()}


def others(home: Path) -> list[dict[str, str]]:
    """Return further libraries, which a program without a search path of its own would load."""
    tool = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    if tool is None:
        return []
    listing = subprocess.run([tool, "-p"], capture_output=True, text=True, check=False).stdout
    own = (home / "lib/libnccl.so.2").resolve()
    paths = [path for path in nccl.libraries_in_cache(listing) if Path(path).resolve() != own]
    return [{"path": path, "version": ask(path)[0]} for path in paths]


def read_nccl(host: str, home: str, user: str, traces: Mapping[str, str]) -> dict[str, Any]:
    """Return what is at a home and what it says of itself. `traces`: by provider, what it leaves when it was used."""
    folder = Path(home)
    kind = kind_of(folder)
    state: dict[str, Any] = {
        "host": host,
        "home": home,
        "kind": kind,
        "record": read_mark(folder) or {},
        **dict.fromkeys(("version", "header", "cuda", "library", "error"), ""),
        "settings": settings_of(user),
        "others": others(folder),
        "left": [provider for provider, path in traces.items() if os.path.lexists(path)],
    }
    if kind != "ours":
        return state
    library = folder / "lib/libnccl.so"
    state["library"] = str(library.resolve())
    state["version"], state["error"] = ask(str(library))
    if not state["error"]:
        state["cuda"] = cuda_of(str(library))
    try:
        state["header"] = nccl.header_version((folder / "include/nccl.h").read_text(errors="replace"))
    except OSError as error:
        state["error"] = state["error"] or f"{folder}/include/nccl.h cannot be read: {error.strerror}"
    return state


def files_of_packages(packages: Sequence[str]) -> list[str]:
    """Return the files of installed packages. Raises ValueError where one is not installed."""
    done = subprocess.run(["dpkg-query", "--listfiles", *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(" ".join(done.stderr.split()))
    return done.stdout.splitlines()


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
    (beside / MARK).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    (beside / MARK).chmod(0o644)
    if home.exists():
        home.rename(old)
    beside.rename(home)
    shutil.rmtree(old, ignore_errors=True)
