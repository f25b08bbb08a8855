# SPDX-License-Identifier: Apache-2.0
"""Rootless containers on this machine: what is there for the training user, and a container like a job's."""

from __future__ import annotations

import os
import pwd
import re
import resource
import secrets
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.software import containers
from ...trainyard.software.container_flags import APPTAINER, PODMAN
from ..machine import as_user, commands
from ..machine.files import read_files
from ..machine.packages import missing_packages
from ..machine.private import expect_safe, only_root_changes
from ..machine.tree import Outcome, Tree, open_file
from ..machine.users import user_name

_SYSCTLS = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)
_RANGES = ("/etc/subuid", "/etc/subgid")
# Limit of each command of the check, in seconds, and of a file in the user's home, in bytes.
_SECONDS, _MAX_BYTES = 60, 1 << 20
# The image of the check: these programs and their libraries, as the machine has them.
_PROGRAMS = ("/bin/sh", "/usr/bin/id", "/usr/bin/readlink")
_SCRIPT = """
echo trainyard uid=$(id -u)
for name in net uts ipc pid; do echo trainyard $name=$(readlink /proc/self/ns/$name); done
echo trainyard nofile=$(ulimit -Hn)
echo trainyard devices=$(echo /dev/nvidia*)
echo written >/trainyard/written
"""


def read_sysctls(tree: Tree) -> dict[str, int]:
    """Return the kernel's settings on user namespaces; those that a kernel does not have are omitted."""
    values = {name: tree.number("/proc/sys/" + name.replace(".", "/")) for name in _SYSCTLS}
    return {name: value for name, value in values.items() if value is not None}


def _account(user: str) -> dict[str, Any] | None:
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return None
    return {"uid": entry.pw_uid, "gid": entry.pw_gid, "home": entry.pw_dir}


def _range_texts(tree: Tree, user: str, uid: int) -> tuple[dict[str, str], str]:
    """Return by path the complete new text of the files in which the user lacks a range, and why there is none."""
    texts: dict[str, str] = {}
    columns = {"/etc/subuid": "/etc/passwd", "/etc/subgid": "/etc/group"}
    for path in _RANGES:
        before = tree.text(path) or ""
        before += "\n" if before else ""
        fields = [line.split(":") for line in (tree.text(columns[path]) or "").splitlines()]
        used = [int(each[2]) for each in fields if len(each) > 2 and each[2].isdigit()]
        try:
            after = containers.with_range(before, user, uid, used)
        except containers.NoRangeError as error:
            return {}, f"{path}: {error}"
        if after != before:
            texts[path] = after
    return texts, ""


def read_user_files(home: str, names: Iterable[str]) -> dict[str, str | None]:
    """Return the texts of files in the user's ~/.config/containers, None for those that do not exist."""
    folder = Path(home, ".config/containers")
    found: dict[str, str | None] = {}
    for name in names:
        try:
            with open_file(folder / name) as file:
                found[name] = file.read(_MAX_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            found[name] = None
    return found


def write_user_files(home: str, texts: Mapping[str, str | None]) -> None:
    """Write files in the user's ~/.config/containers, or remove those without a text."""
    folder = Path(home, ".config/containers")
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, text in texts.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
            continue
        handle, path = tempfile.mkstemp(dir=folder, prefix=f".{name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(path).chmod(0o644)
        Path(path).replace(folder / name)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def read_storage(user: str, home: str, storage: str, needed_gib: int) -> dict[str, Any]:
    """Return the place of the images: path, file system, free GiB (None where it exists), owner, and what is unsafe."""
    path = Path(storage, user) if storage else Path(home, ".local/share/containers")
    exists, there = path.exists(), _existing(path)
    # Root makes the folder, so no one else may exchange those above.
    above = _existing(path.parent)
    safe = exists or not storage or (only_root_changes(above) and not above.stat().st_mode & stat.S_IWOTH)
    owner = path.lstat().st_uid if exists else None
    return {
        "path": str(path),
        "exists": exists,
        "file_system": containers.file_system(Tree().text("/proc/self/mounts") or "", str(there.resolve())),
        "free_gib": None if exists else shutil.disk_usage(there).free >> 30,
        "needed_gib": needed_gib,
        "owner": "" if owner is None else user_name(owner) or str(owner),
        "unsafe": "" if safe else str(above),
    }


def read_state(tree: Tree, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a node; `request` has the options of the step `read` of container_runtime."""
    user, account = request["user"], _account(request["user"])
    missing = missing_packages(tree, request["package_manager"], request["packages"])
    policy = tree.output("apt-cache.policy", ["apt-cache", "policy", *missing]) if missing else ""
    state: dict[str, Any] = {
        **{"host": request["host"], "name": user, "user": account, "package_manager": request["package_manager"]},
        "missing_packages": missing,
        "candidates": containers.candidates(policy or "", missing),
        "podman": "" if "podman" in missing else tree.output("podman.version", ["podman", "--version"]) or "",
        "files": read_files(request["files"]),
        "linger": tree.exists(f"/var/lib/systemd/linger/{user}"),
        "sysctls": read_sysctls(tree),
        **{"ranges": {}, "range_fault": "", "foreign": [], "user_files": [], "storage": {}},
    }
    if account is None:
        return state
    state["ranges"], state["range_fault"] = _range_texts(tree, user, account["uid"])
    owner, home = as_user.named(user), account["home"]
    texts = as_user.run(owner, read_user_files, home, list(request["user_files"]))
    folder = f"{home}/.config/containers"
    differing = {name: text for name, text in texts.items() if text != request["user_files"][name]}
    # A file that should not exist is removed only if the role wrote it; a user's own is not in its way.
    state["user_files"] = [name for name, text in differing.items() if request["user_files"][name] or _ours(text)]
    state["foreign"] = [
        f"{folder}/{name}"
        for name, text in differing.items()
        if text is not None and not _ours(text) and request["user_files"][name]
    ]
    state["storage"] = as_user.run(owner, read_storage, user, home, request["storage"], request["free_gib"])
    return state


def _ours(text: str | None) -> bool:
    return (text or "").startswith(containers.MARK)


def make_storage(user: str, path: str) -> None:
    """Make the folder of the user's images below folders that only root can change; raise PrivateError or OSError."""
    account, folder = pwd.getpwnam(user), Path(path)
    for parent in reversed([parent for parent in folder.parents if not parent.exists()]):
        parent.mkdir(mode=0o755)
        parent.chmod(0o755)
    expect_safe(folder.parent)
    folder.mkdir(mode=0o700)
    os.chown(folder, account.pw_uid, account.pw_gid)


def probe(
    user: str, host: str, devices: Sequence[str], options: Sequence[str] = (), apptainer: bool = False
) -> dict[str, Any]:
    """Start a container like a job's as the user, and return what the step `verify` of container_runtime documents."""
    answer: dict[str, Any] = {"host": host, "user": user, "fault": "", "devices": list(devices)}
    account = _account(user)
    if account is None or shutil.which("podman") is None:
        missing = f"no user {user}" if account is None else "no program podman"
        return {**answer, "fault": missing}
    answer |= {"sysctls": read_sysctls(Tree()), "unranged": list(_range_texts(Tree(), user, account["uid"])[0])}
    try:
        owner, limit_s = as_user.named(user), _SECONDS * 4.0
        made = as_user.run(owner, _run, user, account, list(options), limit_s=limit_s)
        other = as_user.run(owner, _run_apptainer, user, account, limit_s=limit_s) if apptainer else None
    except as_user.JobError as error:
        return {**answer, "fault": str(error)}
    return {**answer, **made, "apptainer": other}


def _environment(user: str, account: Mapping[str, Any]) -> dict[str, str]:
    return {
        **{"HOME": account["home"], "USER": user, "LOGNAME": user, "LC_ALL": "C"},
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "XDG_RUNTIME_DIR": f"/run/user/{account['uid']}",
    }


def _run_apptainer(user: str, account: Mapping[str, Any]) -> dict[str, Any]:
    """Make a SIF file of the machine's own shell, and run it; the output has Apptainer's own notes."""
    with tempfile.TemporaryDirectory(prefix="trainyard-container-") as folder:
        settings: dict[str, Any] = {"timeout": _SECONDS, "env": _environment(user, account), "cwd": folder}
        archive, tree, image, mounted = (Path(folder, name) for name in ("image.tar", "tree", "image.sif", "mounted"))
        for each in (mounted, tree, tree / "trainyard"):
            each.mkdir()
        done = _pack(archive, settings)
        bind = ["--bind", f"{mounted}:/trainyard"]
        for argv in (
            ["tar", "-xf", str(archive), "-C", str(tree)],
            ["apptainer", "build", str(image), str(tree)],
            ["apptainer", *APPTAINER, *bind, str(image), "/bin/sh", "-c", _SCRIPT],
        ):
            done = done if done.status else commands.run(argv, **settings)
        written = mounted / "written"
        return {"run": list(done), "written_by": written.stat().st_uid if written.exists() else None}


def _run(user: str, account: Mapping[str, Any], options: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="trainyard-container-") as folder:
        settings: dict[str, Any] = {"timeout": _SECONDS, "env": _environment(user, account), "cwd": folder}
        archive, mounted = Path(folder, "image.tar"), Path(folder, "mounted")
        mounted.mkdir()
        image = f"localhost/trainyard-check:{secrets.token_hex(8)}"
        made = _pack(archive, settings)
        if made.status == 0:
            made = commands.run(["podman", "import", str(archive), image], **settings)
        answer: dict[str, Any] = {"import": list(made), "run": [0, ""], "written_by": None, "expected": _outside()}
        if made.status == 0:
            volume = ["--volume", f"{mounted}:/trainyard"]
            argv = ["podman", "run", "--rm", *PODMAN, *volume, *options, image, "/bin/sh", "-c", _SCRIPT]
            answer["run"] = list(commands.run(argv, **settings))
            commands.run(["podman", "rmi", "--force", image], **settings)
        written = mounted / "written"
        answer["written_by"] = written.stat().st_uid if written.exists() else None
    return answer


def _outside() -> dict[str, str]:
    """Return what the container must see: it shares namespaces and limits with this process."""
    spaces = {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("net", "uts", "ipc", "pid")}
    # The hard limit, as Podman raises its soft one to it.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    nofile = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    return {**spaces, "uid": str(os.getuid()), "nofile": nofile}


def _pack(archive: Path, settings: Mapping[str, Any]) -> Outcome:
    """Make an image of the machine's own shell, so that no registry is needed."""
    found = commands.run(["ldd", *_PROGRAMS], **settings)
    if found.status:
        return found
    libraries = re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", found.output, re.M)
    with tarfile.open(archive, "w", dereference=True) as tar:
        for path in dict.fromkeys((*_PROGRAMS, *libraries)):
            tar.add(path, arcname=path.lstrip("/"))
    return Outcome(0, "")
