# SPDX-License-Identifier: Apache-2.0
"""Read what a node has: packages, accounts, units, and the places that trainyard writes."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import pwd
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.removal import history
from ...trainyard.removal.places import LINES, Place
from ...trainyard.software import apt
from ..job.run.ranks import process_table
from ..machine import commands
from ..machine.private import PrivateError, opened

# Services that a role may start and enable though they were there before.
UNITS = ("systemd-timesyncd.service", "chrony.service", "chronyd.service", "nvidia-persistenced.service")
# The group of Ascend's devices, of which the training user becomes a member.
GROUPS = ("HwHiAiUser",)
APT_LOG, STATES = Path("/var/log/apt"), Path("/var/lib/apt/extended_states")
# Upper bounds: entries of a folder, bytes of a file whose content counts, older logs of apt.
_MAX_ENTRIES, MAX_FILE, _MAX_LOGS = 20_000, 16 << 20, 6
_DEPTH = 2
# Processes that systemd and Podman keep for a user who is logged in or lingers.
OF_PODMAN = ("catatonit", "podman", "podman pause")
_KEPT = (*OF_PODMAN, "systemd", "(sd-pam)", "dbus-daemon", "dbus-broker", "dbus-broker-lau")
# Names in a home that useradd, trainyard, Ansible or the frameworks make without the user.
_MADE = (".bash_logout", ".bashrc", ".profile", ".cache", ".ansible", ".triton", ".nv")
# Podman's settings and images, which container_runtime puts there.
_CONTAINERS = {".config": {"containers", "cni"}, ".local": {"share", "share/containers"}}


def packages() -> dict[str, Any]:
    """Return versions of the packages, and which are automatic, held, or only left over; empty without dpkg."""
    fields = "${Package}\t${Version}\t${db:Status-Status}\t${db:Status-Want}\n"
    listed = commands.run(["dpkg-query", "--show", f"--showformat={fields}"], 120.0)
    if listed.status:
        return {"packages": {}, "leftover": [], "automatic": [], "held": []}
    lines = [line.split("\t") for line in listed.output.splitlines()]
    there = {name: version for name, version, status, _ in lines if status == "installed"}
    automatic = history.read_automatic(_text(STATES))
    return {
        "packages": there,
        "leftover": [name for name, _, status, _ in lines if status == "config-files"],
        "automatic": sorted(automatic & set(there)),
        "held": [name for name, _, _, selection in lines if selection == "hold"],
    }


def _text(path: Path) -> str:
    """Return the text of a file of the system, "" without one."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def dependencies() -> dict[str, history.Package]:
    """Return what installed packages depend on."""
    names = ("Package", "Depends", "Pre-Depends", "Provides", "Essential", "Priority")
    fields = "\t".join(f"${{{name}}}" for name in names)
    listed = commands.run(["dpkg-query", "--show", f"--showformat=${{db:Status-Status}}\t{fields}\n"], 120.0)
    lines = [] if listed.status else listed.output.splitlines()
    return history.read_packages("\n".join(line[10:] for line in lines if line.startswith("installed\t")))


def added(folder: Path) -> list[str]:
    """Return the packages that the roles of NVIDIA installed, as their records in this folder say."""
    found: set[str] = set()
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, PrivateError, ValueError), opened(path) as file:
            found.update(name for name, entry in apt.read_record(file.read()).items() if entry["added"])
    return sorted(found)


def apt_history() -> str:
    """Return apt's log, the oldest part first."""
    older = sorted(APT_LOG.glob("history.log.*.gz"), key=lambda path: path.stat().st_mtime)[-_MAX_LOGS:]
    texts = []
    for path in older:
        with gzip.open(path) as file:
            texts.append(file.read(MAX_FILE).decode("utf-8", "replace"))
    now = APT_LOG / "history.log"
    if now.is_file():
        texts.append(now.read_bytes()[-MAX_FILE:].decode("utf-8", "replace"))
    return "\n\n".join(texts)


def accounts(user: str) -> dict[str, Any]:
    """Return the users and groups of this machine's own files, and the groups of the training user."""
    users = {fields[0]: int(fields[2]) for fields in _table("/etc/passwd", 7)}
    gids = {fields[0]: int(fields[3]) for fields in _table("/etc/passwd", 7)}
    groups = {fields[0]: (int(fields[2]), fields[3].split(",")) for fields in _table("/etc/group", 4)}
    return {
        "users": users,
        "groups": {name: number for name, (number, _) in groups.items()},
        "user_gid": gids.get(user, -1),
        "user_groups": [name for name, (_, members) in groups.items() if user in members],
        "members": {name: list(filter(None, groups[name][1])) if name in groups else [] for name in GROUPS},
    }


def _table(path: str, columns: int) -> Iterable[list[str]]:
    with Path(path).open(encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(":")
            if len(fields) == columns and fields[2].isdecimal():
                yield fields


def units(names: Sequence[str] = UNITS) -> dict[str, list[str]]:
    """Return whether these services are enabled, and whether they run, for those that the node has."""
    argv = ["systemctl", "show", "--property=Id,UnitFileState,ActiveState", *names]
    shown = commands.run(argv, 60.0)
    found = {}
    for block in shown.output.split("\n\n") if shown.status == 0 else ():
        fields = dict(line.partition("=")[::2] for line in block.splitlines())
        if fields.get("UnitFileState"):
            found[fields["Id"]] = [fields["UnitFileState"], fields["ActiveState"]]
    return found


def place(path: str) -> dict[str, Any]:
    """Return what is at a path: its kind, rights, and content, which is a sum, a target, or the names in a folder."""
    try:
        state = os.lstat(path)
    except OSError:
        return {"kind": "absent"}
    found: dict[str, Any] = {"mode": stat.S_IMODE(state.st_mode), "uid": state.st_uid, "gid": state.st_gid}
    if stat.S_ISLNK(state.st_mode):
        return {"kind": "link", **found, "content": os.readlink(path)}  # noqa: PTH115 (younger than Python 3.9)
    if stat.S_ISDIR(state.st_mode):
        return {"kind": "folder", **found, "content": sorted(_entries(path, _DEPTH))[:_MAX_ENTRIES]}
    if stat.S_ISREG(state.st_mode) and state.st_size <= MAX_FILE:
        return {"kind": "file", **found, "content": hashlib.sha256(content(path)).hexdigest()}
    return {"kind": "other", **found, "content": ""}


def content(path: str) -> bytes:
    """Return the content of a regular file that is no link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return file.read(MAX_FILE)


def _entries(folder: str, depth: int) -> Iterable[str]:
    """Return the paths in a folder and in its folders, relative to it; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return
    for name, is_folder in found:
        yield name
        if is_folder and depth > 1:
            for each in _entries(f"{folder}/{name}", depth - 1):
                yield f"{name}/{each}"


def find(places: Sequence[Place]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return by place what is at its path, or at each path that matches it."""
    found = {}
    for each in places:
        paths = sorted(map(str, Path("/").glob(each.path.lstrip("/")))) if "*" in each.path else [each.path]
        found[each.path] = {path: place(path) for path in paths}
    return found


def texts(places: Sequence[Place]) -> dict[str, str]:
    """Return the texts of the files of the system that have lines of ours; a surrogate stands for a strange byte."""
    found = {}
    for each in places:
        if each.use == LINES and place(each.path)["kind"] == "file":
            found[each.path] = content(each.path).decode("utf-8", "surrogateescape")
    return found


def home(user: str) -> dict[str, Any]:
    """Return the folder of a user, and the names in it that are the user's own."""
    try:
        path = pwd.getpwnam(user).pw_dir
    except KeyError:
        return {"path": "", "own": []}
    if not Path(path).is_dir() or Path(path).is_symlink() or path.count("/") < 2:
        return {"path": "", "own": []}
    own = [name for name in _entries(path, 1) if name not in _MADE]
    return {"path": path, "own": sorted(name for name in own if not _of_containers(path, name))}


def _of_containers(home_path: str, name: str) -> bool:
    """Tell whether a folder in a home has nothing but what containers need."""
    known = _CONTAINERS.get(name, set())
    return bool(known) and set(_entries(f"{home_path}/{name}", max(each.count("/") + 1 for each in known))) <= known


def processes(user: str, *, kept: bool = False) -> dict[int, str]:
    """Return the names of a user's processes by number, by default without those that systemd and Podman keep."""
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return {}
    found = {}
    for pid in process_table.pids():
        try:
            if Path(f"/proc/{pid}").stat().st_uid == uid:
                name = process_table.name(pid)
                if kept or name not in _KEPT:
                    found[pid] = name
        except OSError:
            continue
    return found
