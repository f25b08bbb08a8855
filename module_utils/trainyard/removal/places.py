# SPDX-License-Identifier: Apache-2.0
"""Name the places on a node that the roles write, apart from packages and accounts.

A role that writes another place adds it here: playbooks/remove.yml undoes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..cluster.own_ssh_lines import AUTHORIZED, KNOWN

# How a place is undone.
# OWN: it goes, or what was there before is put back.
# LINES: a file of the system, of which only our lines go.
# FOLDER: a folder of software, of which only what trainyard put there goes.
# EMPTY: a folder that goes if nothing is left in it.
# WHOLE: a folder that goes if nobody uses it, and otherwise stays as it is.
# DATA: results of jobs and data sets, which stay unless the user wants them removed.
OWN, LINES, FOLDER, EMPTY, WHOLE, DATA = "own", "lines", "folder", "empty", "whole", "data"


class Settings(NamedTuple):
    """The variables of a host that decide where trainyard writes."""

    cluster: str = "trainyard"
    user: str = "train"
    root: str = "/opt/trainyard"
    state: str = "/var/lib/trainyard"
    records: str = "/var/lib/trainyard-root"
    ssh_folder: str = "/etc/trainyard/ssh"
    manage_system: bool = True
    # Further folders of software that variables of roles name, and the one of images of Podman, "" for none.
    folders: tuple[str, ...] = ()
    images: str = ""
    # The login's home where Ansible does not become root, otherwise empty.
    home: str = ""


class Place(NamedTuple):
    """A path, perhaps with wildcards, and how it is undone."""

    path: str
    use: str


def places(settings: Settings) -> list[Place]:
    """Return all places of a host, those that depend on others first."""
    return [*(_of_the_system(settings) if settings.manage_system else ()), *_of_software(settings)]


def _of_the_system(settings: Settings) -> list[Place]:
    cluster, user = settings.cluster, settings.user
    own = [
        # ssh_mesh: the settings go before the files that they name.
        f"/etc/ssh/sshd_config.d/60-{cluster}.conf",
        f"/etc/ssh/sshd_config.d/61-{cluster}-sessions.conf",
        f"/etc/ssh/ssh_config.d/60-{cluster}.conf",
        settings.ssh_folder,
        # node_baseline
        f"/etc/security/limits.d/60-{cluster}.conf",
        f"/etc/systemd/system.conf.d/60-{cluster}.conf",
        "/etc/apt/sources.list.d/trainyard-mirror.sources",
        "/etc/apt/sources.list",
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/apt/sources.list.d/ubuntu.sources",
        "/etc/apt/*.before-trainyard",
        # bundles and locks
        "/etc/apt/apt.conf.d/99trainyard-bundle",
        # openmpi, cuda_toolkit, cudnn, nccl
        f"/etc/systemd/system.conf.d/61-{cluster}-*.conf",
        f"/etc/profile.d/61-{cluster}-*.sh",
        f"/etc/ld.so.conf.d/61-{cluster}-*.conf",
        "/etc/ld.so.conf.d/trainyard-*.conf",
        # nvidia_driver, nvidia_repository
        "/etc/modprobe.d/trainyard-nouveau.conf",
        "/etc/modules-load.d/trainyard-nvidia-peermem.conf",
        "/etc/dkms/framework.conf.d/trainyard-mok.conf",
        "/etc/systemd/system/nvidia-persistenced.service.d/trainyard.conf",
        "/etc/trainyard/mok",
        "/etc/apt/sources.list.d/trainyard-*",
        "/etc/apt/preferences.d/trainyard-*",
        "/etc/apt/keyrings/trainyard-*",
        # container_runtime
        "/etc/containers/registries.conf.d/50-trainyard.conf",
        "/etc/cdi/nvidia.yaml",
        f"/var/lib/systemd/linger/{user}",
        # slurm: what its packages and the role leave
        "/etc/slurm",
        "/etc/munge",
        "/etc/trainyard-slurm-health.json",
        "/usr/local/sbin/trainyard-slurm-*",
        "/usr/local/lib/trainyard-slurm-health",
        "/var/lib/trainyard-slurm-health.json",
        "/var/lib/slurm",
        "/var/lib/munge",
        "/var/log/slurm",
        "/var/log/munge",
        # trainyard's agent, and Ansible's folder of temporary files
        "/var/cache/trainyard",
        "/root/.cache/trainyard",
    ]
    own += [f"{settings.images}/{user}"] if settings.images else []
    lines = ["/etc/hosts", "/etc/ssh/ssh_known_hosts", "/etc/subuid", "/etc/subgid"]
    empty = [
        "/etc/systemd/system/nvidia-persistenced.service.d",
        "/etc/systemd/system.conf.d",
        "/etc/containers/registries.conf.d",
        "/etc/containers",
        "/etc/dkms/framework.conf.d",
        "/etc/dkms",
        "/etc/cdi",
        "/etc/trainyard",
        "/root/.ansible/tmp",
        "/root/.ansible",
        "/root/.cache",
        "/root/.config",
        "/var/lib/containers",
    ]
    # What Podman makes when root asks it for its version.
    whole = ["/root/.config/cni", "/var/lib/containers/storage"]
    uses = ((own, OWN), (lines, LINES), (whole, WHOLE), (empty, EMPTY))
    return [Place(path, use) for paths, use in uses for path in paths]


def _of_software(settings: Settings) -> list[Place]:
    state = settings.state.rstrip("/")
    data = [f"{state}/{name}" for name in ("jobs", "data", "checkpoints")]
    folders = [settings.root, *settings.folders]
    # Where hosts may share the folder of jobs, each has a folder of records below this one.
    records = settings.records.rpartition("/")[0]
    own = [f"{settings.home}/.ssh/{name}" for name in (AUTHORIZED, KNOWN)] if settings.home else []
    return [
        # ssh_mesh, with the user's own key, which stays
        *(Place(path, LINES) for path in own),
        *(Place(folder, FOLDER) for folder in dict.fromkeys(folders)),
        *(Place(folder, DATA) for folder in data),
        *([Place(records, EMPTY)] if records.startswith(f"{state}/") else ()),
        Place(state, EMPTY),
    ]


def apart(folder: str, settings: Settings) -> list[str]:
    """Return the names of folders in a folder of software that are undone by themselves."""
    head = folder.rstrip("/") + "/"
    return [path.rstrip("/")[len(head) :] for path in (settings.state, settings.records) if path.startswith(head)]


def ours_by_name(path: str, cluster: str) -> bool:
    """Tell whether the name of a path says that it is trainyard's. Without a record nothing else is known of it."""
    names = path.strip("/").split("/")
    return any(name == "trainyard" or "trainyard-" in name or f"-{cluster}" in name for name in names) and bool(cluster)


def our_lines(path: str, text: str, settings: Settings) -> list[str]:
    """Return the lines of a file of the system that are marked as ours."""
    lines = text.splitlines()
    if path == "/etc/hosts":
        return _block(lines, f"# BEGIN trainyard {settings.cluster}", f"# END trainyard {settings.cluster}")
    if path == "/etc/ssh/ssh_known_hosts" or is_of_login(path, settings):
        return [line for line in lines if line.endswith(f" trainyard:{settings.cluster}")]
    return []


def is_of_login(path: str, settings: Settings) -> bool:
    """Tell whether a file is the login's own: only marked lines go there, and no line that its user removed returns."""
    return bool(settings.home) and path.startswith(f"{settings.home}/")


def _block(lines: Sequence[str], begin: str, end: str) -> list[str]:
    """Return the lines between two marks, and the marks; a block without its end has only its first line."""
    if begin not in lines:
        return []
    first = lines.index(begin)
    if end not in lines[first:]:
        return [begin]
    return list(lines[first : lines.index(end, first) + 1])


def without_ours(path: str, now: str, before: str, written: str | None, settings: Settings) -> str:
    """Return the text of a file of the system without what trainyard did to it.

    `before` is its text before trainyard, `written` the one that trainyard left, None where that is not known. Lines
    that others added since stay. Lines that trainyard removed come back behind the line that they followed.
    """
    if now in (before, written):
        return before
    old, left = before.splitlines(), None if written is None else written.splitlines()
    ours = set(our_lines(path, now, settings)) | (set(left) - set(old) if left is not None else set())
    kept = [line for line in now.splitlines() if line in old or line not in ours]
    taken = [line for line in old if line not in (left if left is not None else kept) and line not in kept]
    for line in taken:
        ahead = [each for each in old[: old.index(line)] if each in kept]
        kept.insert(kept.index(ahead[-1]) + 1 if ahead else 0, line)
    return "".join(f"{line}\n" for line in kept)


def settings_of(given: Mapping[str, object]) -> Settings:
    """Return settings from plain values."""
    known = {name: given[name] for name in Settings._fields if name in given}
    if "folders" in known:
        known["folders"] = tuple(str(folder) for folder in known["folders"] if folder)  # type: ignore[attr-defined]
    return Settings(**known)  # type: ignore[arg-type]
