# SPDX-License-Identifier: Apache-2.0
"""Rootless containers of the training user: ranges of ids, file systems, and the check of a container like a job's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..base.findings import Finding
from .requirements import setting_finding

# The log driver passthrough came with Podman 4.0, devices by specifications (CDI) with 4.1.
MIN_PODMAN = (4, 1)
# The first line of files that the role wrote, which it may change and remove.
MARK = "# Written by trainyard, role container_runtime."

# Ids that a user's containers get, and where ranges of ids lie by default (SUB_UID_MIN and SUB_UID_MAX of login.defs).
RANGE = 65536
_FIRST, _LAST = 100_000, 600_100_000
# Rootless overlay needs a local file system: these do not know the ids of a user namespace, or are an overlay already.
_NOT_FOR_IMAGES = re.compile(r"nfs4?|cifs|smb3|lustre|gpfs|beegfs|ceph|glusterfs|9p|overlay|aufs|fuse\..*")
# Folders in which all users must be able to write.
_OF_ALL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_NAMESPACES = {"net": "the host's network", "uts": "the host's name", "ipc": "the host's IPC", "pid": "the host's pids"}
# Kernel settings that must not be 0, and their usual values. Containers take several user namespaces.
_USUAL_SETTINGS = {"user.max_user_namespaces": 28633, "kernel.unprivileged_userns_clone": 1}
_MAX_TEXT = 300
_REGISTRY = re.compile(r"[\w*.-]+(:\d+)?(/[\w./-]+)?")


class NoRangeError(Exception):
    """No range of ids is free; the text says where."""


def ranges(text: str) -> list[tuple[str, int, int]]:
    """Return owner (name or number), first id and count of the lines of /etc/subuid or /etc/subgid that are valid."""
    found = (re.fullmatch(r"([^:\s]+):(\d+):(\d+)", line.strip()) for line in text.splitlines())
    return [(match[1], int(match[2]), int(match[3])) for match in found if match]


def with_range(text: str, user: str, uid: int, used: Iterable[int] = ()) -> str:
    """Return the text of /etc/subuid or /etc/subgid in which the user has a range; unchanged if there is one.

    `used` are ids of real users or groups, which no container may get. Raises NoRangeError.
    """
    known = ranges(text)
    if any(owner in (user, str(uid)) and count >= RANGE for owner, _, count in known):
        return text
    taken = [(first, first + count) for _, first, count in known] + [(each, each + 1) for each in {uid, *used}]
    start = _FIRST
    for first, end in sorted(taken):
        if end > start and first < start + RANGE:
            start = end
    if start + RANGE > _LAST:
        raise NoRangeError(f"no {RANGE} ids in a row are free from {_FIRST} to {_LAST}")
    before = text if not text or text.endswith("\n") else f"{text}\n"
    return f"{before}{user}:{start}:{RANGE}\n"


def file_system(mounts: str, path: str) -> str:
    """Return the type of the file system that holds a path, from /proc/self/mounts; "" if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
        if (f"{path}/".startswith(f"{point.rstrip('/')}/")) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def podman_version(text: str) -> tuple[int, int] | None:
    """Return major and minor of `podman version 4.3.1` or of a package's version; None without a version."""
    match = re.search(r"(?:^|version\s+|\s)(?:\d+:)?(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else None


def candidates(text: str, packages: Iterable[str]) -> dict[str, str]:
    """Return the version that apt would install of each package, from `apt-cache policy` in English; "" for none.

    Packages that apt does not know are not in its output.
    """
    names = re.finditer(r"^(\S+):\n\s+Installed: .*\n\s+Candidate: (\S+)", text, re.M)
    offered = {match[1]: "" if match[2] == "(none)" else match[2] for match in names}
    return {name: offered.get(name, "") for name in packages}


def input_findings(settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the role container_runtime, by their names without the role's."""
    wrong = partial(setting_finding, "container_runtime", settings)
    if settings["storage"] and not re.fullmatch(r"(/[^/\0\s\"\\]+)+", settings["storage"]):
        yield wrong("storage", "the full path of a folder such as /data/containers, or '' for the user's home")
    if str(settings["nvidia"]).lower() not in ("auto", "true", "false"):
        yield wrong("nvidia", "auto, true or false")
    if not re.fullmatch(r"(\d+(\.\d+)+-\d+)?", settings["nvidia_toolkit_version"]):
        yield wrong("nvidia_toolkit_version", "the version of a package such as 1.17.8-1, or '' for the one in place")
    for entry in settings["registries"]:
        unknown = [str(key) for key in entry if key not in ("location", "mirror", "insecure")]
        texts = [entry.get("location"), *([entry["mirror"]] if entry.get("mirror") else [])]
        if unknown or not all(isinstance(text, str) and _REGISTRY.fullmatch(text) for text in texts):
            found = f"container_runtime_registries has the entry {dict(entry)!r}"
            expected = "location, and perhaps mirror and insecure, such as {location: docker.io, mirror: m.example.org}"
            yield Finding("input of container_runtime", found, expected, "correct it")


def state_findings(states: Sequence[Mapping[str, Any]], storage: str, manage_system: bool) -> list[Finding]:
    """Find what prevents containers on the nodes, in the states that the step `read` of container_runtime returned.

    `storage` is the value of container_runtime_storage; `manage_system` says whether the role may change the nodes.
    """
    return [finding.on(str(state["host"])) for state in states for finding in _of_state(state, storage, manage_system)]


def _of_state(state: Mapping[str, Any], storage: str, manage_system: bool) -> Iterator[Finding]:
    if manage_system and state["package_manager"] != "apt":
        found, expected = f"a system with {state['package_manager']}", "Debian or Ubuntu, whose packages the role knows"
        action = "install Podman, newuidmap and crun by hand, and set container_runtime_manage_system to false"
        yield Finding("operating system", found, expected, action)
    if state["user"] is None:
        found, expected = f"no user {state['name']}", "the training user, who runs the containers"
        action = "run site.yml (role node_baseline) there, or correct container_runtime_user"
        yield Finding("user", found, expected, action)
        return
    yield from _podman_findings(state)
    for name, value in _USUAL_SETTINGS.items():
        if state["sysctls"].get(name) == 0:
            action = (
                f"remove the setting from /etc/sysctl.d and run sysctl -w {name}={value}, or leave container_runtime "
                "out of trainyard_frameworks"
            )
            yield Finding("user namespaces", f"{name} is 0", "user namespaces for ordinary users", action)
    if state["range_fault"]:
        own = f"give {state['name']} {RANGE} ids by hand"
        action = f"remove users who are gone from /etc/subuid and /etc/subgid, or {own}"
        yield Finding("ids of containers", state["range_fault"], f"a range of {RANGE} ids", action)
    for path in state["foreign"]:
        action = f"move it away, or begin it with the line '{MARK}' to let the role replace it"
        yield Finding("settings of the user", f"{path}, which this role did not write", "no such file", action)
    yield from _storage_findings(state, storage)


def _podman_findings(state: Mapping[str, Any]) -> Iterator[Finding]:
    there = podman_version(state["podman"])
    version = there or podman_version(state["candidates"].get("podman", ""))
    if version and version < MIN_PODMAN:
        found = f"Podman {version[0]}.{version[1]}, the one of this system"
        # The role replaces no Podman that is there.
        action = "use Debian 12, Ubuntu 24.04 or newer, or " + (
            "install a newer Podman by hand" if there else "give apt a source whose newer Podman it prefers (a pin)"
        )
        yield Finding("Podman", found, f"Podman {MIN_PODMAN[0]}.{MIN_PODMAN[1]} or newer", action)
    # Without any candidate apt has no lists yet; the installation fetches them.
    if any(state["candidates"].values()):
        for name in (name for name, candidate in state["candidates"].items() if not candidate):
            other = (
                "set container_runtime_apptainer: false"
                if name in ("apptainer", "squashfuse")
                else "name others in container_runtime_packages"
            )
            action = f"give apt a source that has it (backports, a mirror), or {other}"
            yield Finding(f"package {name}", "apt offers none", f"the package {name}", action)


def _storage_findings(state: Mapping[str, Any], storage: str) -> Iterator[Finding]:
    place, kind = state["storage"]["path"], state["storage"]["file_system"]
    if _NOT_FOR_IMAGES.fullmatch(kind):
        where = "" if storage else ", the user's home,"
        action = "set container_runtime_storage to a folder on a local disk"
        yield Finding("storage", f"{place}{where} is on {kind}", "a local file system (ext4, xfs, btrfs)", action)
    if state["storage"]["unsafe"]:
        above, action = state["storage"]["unsafe"], "set container_runtime_storage to another folder"
        if above not in _OF_ALL:
            action = f"give {above} to root (chown root, chmod go-w), or {action}"
        found = f"{above} can be changed by other users"
        yield Finding("storage", found, "a folder that only root can change", action)
    if state["storage"]["owner"] not in ("", state["name"]):
        found = f"{place} belongs to {state['storage']['owner']}"
        action = "move it away, or set container_runtime_storage to another folder"
        yield Finding("storage", found, f"a folder of {state['name']}", action)
    free, needed = state["storage"]["free_gib"], state["storage"]["needed_gib"]
    if free is not None and free < needed:
        action = "make room, set container_runtime_storage to another disk, or lower container_runtime_free_gib"
        yield Finding("storage", f"{free} GiB are free for {place}", f"{needed} GiB for images", action)


# Without it, the role changes nothing, and running it again does not help.
_SET_UP = "run site.yml with container_runtime_manage_system: true"
_DESCRIBE_GPUS = f"{_SET_UP}, or run there: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_GIVE_IDS = f"{_SET_UP}, or give the user {RANGE} ids by hand in /etc/subuid and /etc/subgid"
# What Podman prints, what that means, and what to do. The first one that matches counts.
_FAULTS: tuple[tuple[str, str, str], ...] = (
    (r"no space left on device|disk quota exceeded", "the disk is full",
     "make room (podman system prune as that user), or set container_runtime_storage to another disk"),
    (r'exec: "new[ug]idmap"', "newuidmap is missing",
     f"{_SET_UP}, or install the package uidmap by hand"),
    (r"no sub[ug]id ranges found|cannot find (UID|GID) mappings|insufficient (UIDs|GIDs)|not enough (uids|gids)",
     "the user has no range of ids", _GIVE_IDS),
    (r"new[ug]idmap: .*not allowed|write to [ug]id_map failed|should have setuid or have filecaps",
     "newuidmap may not give the user its ids",
     "compare /etc/subuid and /etc/subgid with the user; newuidmap needs its setuid bit or the capability cap_setuid, "
     "and a container as node the capability SYS_ADMIN"),
    (r"not supported over overlayfs|is not supported over \S+ at|kernel does not support overlay|mounting overlay"
     r"|backing file system is unsupported|mount program|fuse-overlayfs",
     "overlay cannot use the file system of the storage", "set container_runtime_storage to a folder on a local disk"),
    (r"cannot clone|user namespaces are not enabled|error creating user namespace|CLONE_NEWUSER|cannot re-exec process",
     "the kernel lets this user have no user namespace",
     "see the settings user.max_user_namespaces, kernel.unprivileged_userns_clone and, on Ubuntu, "
     "kernel.apparmor_restrict_unprivileged_userns"),
    (r"XDG_RUNTIME_DIR|/run/user/\d+", "the user has no folder in /run/user",
     f"{_SET_UP}, or run there: loginctl enable-linger USER"),
    (r"unresolvable CDI devices|CDI (device|registry)", "Podman does not find the GPUs",
     _DESCRIBE_GPUS),
)  # fmt: skip


def probe_findings(probes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Find what is wrong with the containers that the step `verify` of container_runtime started on the nodes."""
    return [finding.on(str(probe["host"])) for probe in probes for finding in _of_probe(probe)]


def _of_probe(probe: Mapping[str, Any]) -> Iterator[Finding]:
    if probe["fault"]:
        found, expected = probe["fault"], f"Podman for the user {probe['user']}"
        yield Finding("container", found, expected, f"{_SET_UP}, or install Podman by hand")
        return
    for path in probe["unranged"]:
        found, expected = f"no range for {probe['user']} in {path}", f"a range of {RANGE} ids"
        yield Finding("ids of containers", found, expected, _GIVE_IDS)
    for step, what in (("import", "a small image was not stored"), ("run", "a container did not start")):
        status, output = probe[step]
        if status:
            yield _failed(what, status, output, probe["sysctls"])
            return
    action = "see what changes Podman's settings: podman info as that user, /etc/containers, ~/.config/containers"
    yield from _of_answer(probe, probe, action)
    inside = read_answer(probe["run"][1])
    missing = [name for name in probe["devices"] if name not in inside.get("devices", "").split()]
    if missing:
        yield Finding("GPUs in the container", f"no {', '.join(missing)}", "the host's GPUs", _DESCRIBE_GPUS)
    if probe.get("apptainer"):
        yield from _of_apptainer(probe, probe["apptainer"])


def _of_apptainer(probe: Mapping[str, Any], run: Mapping[str, Any]) -> Iterator[Finding]:
    status, output = run["run"]
    if status:
        lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", output).splitlines() if "FATAL" in line]
        text = re.sub(r"^FATAL:\s*", "", (lines or [output.strip() or f"exit status {status}"])[-1])[:_MAX_TEXT]
        remedies = (each for pattern, each in _APPTAINER_FAULTS if re.search(pattern, output))
        found = f"Apptainer runs no SIF file: {text}"
        yield Finding(
            "Apptainer", found, "a container with the flags of jobs", next(remedies, "see Apptainer's message")
        )
        return
    if "Converting SIF file" in output:
        action = "install squashfuse (package squashfuse), which mounts images"
        yield Finding("Apptainer", "it unpacks the whole image at each start", "images that are mounted", action)
    yield from _of_answer(probe, run, "see what changes Apptainer's settings: /etc/apptainer/apptainer.conf")


# What Apptainer prints where it cannot start an image, and what to do.
_APPTAINER_FAULTS: tuple[tuple[str, str], ...] = (
    (r"Failed to execute|executable file not found|No such file|is not installed", "install the package apptainer"),
    (r"fuse: device not found|/dev/fuse",
     "run modprobe fuse there; a container as node needs the device /dev/fuse (podman run --device /dev/fuse)"),
    (r"can't mount proc filesystem",
     "install squashfuse: without it, images are unpacked, which no container with a hidden part of /proc can"),
    (r"user namespace|userns|CLONE_NEWUSER|unshare",
     "see the settings user.max_user_namespaces, kernel.unprivileged_userns_clone and, on Ubuntu, "
     "kernel.apparmor_restrict_unprivileged_userns"),
)  # fmt: skip


def _of_answer(probe: Mapping[str, Any], run: Mapping[str, Any], action: str) -> Iterator[Finding]:
    """Yield how a container differs from what jobs expect; `run` is one run of a container program."""
    inside, outside = read_answer(run["run"][1]), probe["expected"]
    if inside.get("uid") != outside["uid"]:
        found = f"the user has uid {inside.get('uid', '?')} in the container"
        yield Finding("user in the container", found, f"its own uid {outside['uid']}", action)
    for name, what in _NAMESPACES.items():
        if inside.get(name) != outside[name]:
            found = f"{inside.get(name, 'none')} as namespace {name}"
            yield Finding("namespaces of the container", found, f"{what}, {outside[name]}", action)
    if inside.get("nofile") != outside["nofile"]:
        found = f"{inside.get('nofile', '?')} open files in the container"
        yield Finding("limits of the container", found, f"{outside['nofile']}, as outside", action)
    if run["written_by"] != int(outside["uid"]):
        found = "no file" if run["written_by"] is None else f"a file of uid {run['written_by']}"
        written = f"in a mounted folder the file that the container wrote, of uid {outside['uid']}"
        yield Finding("folder in the container", found, written, action)


def read_answer(output: str) -> dict[str, str]:
    """Return the lines `trainyard NAME=VALUE` that the check prints in the container."""
    return dict(re.findall(r"^trainyard (\w+)=(.*)$", output, re.M))


def _failed(what: str, status: int, output: str, sysctls: Mapping[str, int]) -> Finding:
    output = output.replace('\\"', '"')
    # Podman prints its progress as well.
    lines = re.findall(r'^(?:time=\S+ level=(?:error|fatal) msg="(.*)"|Error: (.*))$', output, re.M)
    text = "; ".join("".join(line) for line in lines) or output.strip() or f"exit status {status}"
    text = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
    meaning, action = "", "see Podman's message"
    for pattern, means, remedy in _FAULTS:
        if re.search(pattern, output, re.I):
            meaning, action = f"{means}: ", remedy
            break
    restricted = sysctls.get("kernel.apparmor_restrict_unprivileged_userns")
    hint = " (kernel.apparmor_restrict_unprivileged_userns is 1)" if restricted and "namespace" in meaning else ""
    return Finding("container", f"{what}: {meaning}{text}{hint}", "a container with the flags of jobs", action)
