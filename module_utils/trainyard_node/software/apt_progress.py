# SPDX-License-Identifier: Apache-2.0
"""Read how far apt-get is on this machine: its files, and the logs that apt and dpkg write. Sizes are bytes.

apt-get downloads into a folder for files that are not complete, and moves them from there. When it calls dpkg, it
begins a stanza in its history, which names all packages. dpkg logs each step of each package.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.software.pip_progress import DOWNLOAD, SET_UP, UNPACK_PACKAGES
from ..machine import commands
from ..machine.json_files import end_of

PROC = Path("/proc")
HISTORY, DPKG_LOG = Path("/var/log/apt/history.log"), Path("/var/log/dpkg.log")
ARCHIVES, LISTS = Path("/var/cache/apt/archives"), Path("/var/lib/apt/lists")
# The name of a download in records, and seconds after which a file of the package lists is from an earlier update.
_PACKAGES, _OLD_S = "packages", 60.0
# Seconds for reading what apt-get would download.
_LIMIT_S = 15
_NAME = re.compile(r"[a-z0-9][a-z0-9+.:-]*(?:=[A-Za-z0-9.+:~-]+)?")
_NO_RECOMMENDS = {"--no-install-recommends", "APT::Install-Recommends=false", "APT::Install-Recommends=no"}
_PACKAGE = re.compile(r"([^\s:,]+)(?::\S+)? \(([^)]*)\)")
# The lines of the history that name packages to unpack, and the states of a package that are counted.
_NEW, _STATES = ("Install:", "Reinstall:", "Upgrade:", "Downgrade:"), ("unpacked", "installed")
_STATUS = re.compile(r"^([\d-]+ [\d:]+) status (unpacked|installed) ([^\s:]+)\S* (\S+)$", re.MULTILINE)
_STEP = re.compile(r"^[\d-]+ [\d:]+ (?:install|upgrade|configure|trigproc) ([^\s:]+)", re.MULTILINE)
_STARTUP = re.compile(r"^([\d-]+ [\d:]+) startup ", re.MULTILINE)
# Files that are downloaded, and not read where they are.
_URI = re.compile(r"^'(?!file:|copy:)[^']+' \S+ (\d+)", re.MULTILINE)


def read(last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how far it is (pip_progress.INSTALLING), None where none runs; `last` is the record before it."""
    argv, began = _running()
    if not argv:
        size = _size(LISTS.glob("partial/*"), time.time() - _OLD_S)
        return _record(DOWNLOAD, "package lists", size, 0, 0.0) if size else None
    return _installation(began) or _download(argv, began, last)


def _record(phase: int, file: str, done: int, total: int, seconds: float) -> dict[str, Any]:
    step = {"phase": phase, "file": file[:250], "number": 0, "done": done, "total": total}
    return {**step, "seconds": round(max(0.0, seconds), 1)}


def _running() -> tuple[list[str], float]:
    """Return the command of the apt-get of this user that installs, and when it began in seconds since 1970."""
    for process in PROC.glob("[0-9]*"):
        try:
            # Those of containers have other logs and folders.
            if (process / "ns/pid").readlink() != (PROC / "self/ns/pid").readlink():
                continue
            argv = (process / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
            installs = argv[0].rpartition("/")[2] == "apt-get" and "install" in argv
            if installs and not {"--simulate", "--print-uris"} & set(argv) and process.stat().st_uid == os.geteuid():
                ticks = int((process / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])
                boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
                return argv, boot + ticks / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError):
            continue
    return [], 0.0


def _seconds(stamp: str) -> float:
    """Return a local time of a log in seconds since 1970."""
    return time.mktime(time.strptime(stamp, "%Y-%m-%d %H:%M:%S"))


def _installation(began: float) -> dict[str, Any] | None:
    """Return how far dpkg is, None where apt-get has not called it yet."""
    stanza = end_of(HISTORY).rpartition("\nStart-Date: ")[2]
    first, _, text = stanza.partition("\n")
    # apt has two spaces in it, and dpkg one.
    start = " ".join(first.split())
    # Stamps have whole seconds.
    if "\nEnd-Date: " in stanza or not text or _seconds(start) < int(began) - 1:
        return None
    lines = [line for line in text.splitlines() if line.startswith(_NEW)]
    packages = {(name, _version(found)) for line in lines for name, found in _PACKAGE.findall(line)}
    log = end_of(DPKG_LOG)
    reached = [(status, (name, version)) for when, status, name, version in _STATUS.findall(log) if when >= start]
    unpacked, installed = (packages & {each for status, each in reached if status == wanted} for wanted in _STATES)
    file = (_STEP.findall(log) or [""])[-1]
    if len(unpacked) < len(packages):
        return _record(UNPACK_PACKAGES, file, len(unpacked), len(packages), time.time() - _seconds(start))
    begun = max([start, *_STARTUP.findall(log)[-1:]])
    return _record(SET_UP, file, len(installed), len(packages), time.time() - _seconds(begun))


def _version(found: str) -> str:
    """Return the new version of `1.0, automatic` or `1.0, 1.1`."""
    return [part for part in found.split(", ") if part != "automatic"][-1]


def _download(argv: list[str], began: float, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how much of all packages is there, None where nothing is downloaded."""
    complete, seconds = _size(ARCHIVES.glob("*.deb"), began), time.time() - began
    done = complete + _size(ARCHIVES.glob("partial/*"), began)
    if not done:
        return None
    if last and last["file"] == _PACKAGES and last["total"]:
        total = int(last["total"])
    else:
        # It locks nothing, and lists what is not complete in a few seconds. Other options could name any program.
        options = ["--print-uris", "--yes", *(["--no-install-recommends"] if _NO_RECOMMENDS & set(argv) else [])]
        names = [word for word in argv[argv.index("install") + 1 :] if _NAME.fullmatch(word)]
        output = commands.run(["apt-get", *options, "install", "--", *names], _LIMIT_S).output
        total = complete + sum(map(int, _URI.findall(output)))
    return _record(DOWNLOAD, _PACKAGES, done, total, seconds)


def _size(files: Iterable[Path], since: float) -> int:
    """Return the size of those files that have come since then. Their own times are those of the server."""
    size = 0
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        size += found.st_size if found.st_ctime >= since else 0
    return size
