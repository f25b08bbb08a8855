# SPDX-License-Identifier: Apache-2.0
"""Find which hosts share a folder, from what each host answers about it (trainyard_node/machine/shared_folders.py).

A file system of one kernel is known by that kernel and the numbers of the folder. On any other, such as NFS, the first
host that visits the folder leaves a token there, and the others read it. A token is a random number, so no host can
claim a folder that it does not see. Where nothing may be written, hosts share a folder if they name the same server,
path and number of it; otherwise it is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import grouped, host_list
from ..base.shapes import Each, Text

Answer = Mapping[str, Any]
# File systems of one kernel: two hosts share a folder there only if both are containers of that kernel.
LOCAL = frozenset((
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuse.fuse-overlayfs", "iso9660", "jfs",
    "nilfs2", "ntfs3", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs", "tmpfs", "ubifs", "vfat", "xfs", "zfs",
))  # fmt: skip
# Upper bounds: folders of one question, and the length of a path.
MAX_FOLDERS, _MAX_PATH = 32, 4096
TOKEN = re.compile(r"[0-9a-f]{32}")
UNKNOWN = "unknown whether it is shared"


def number(value: Any) -> None:
    """nothing, or 32 hexadecimal digits"""
    if not isinstance(value, str) or (value and not TOKEN.fullmatch(value)):
        raise ValueError(value)


# Whether the folder is on a file system of one `kernel`, the digest of its `place`, the `token` that is there, and
# whether this host `wrote` it. Place and token are empty where they are not known.
ANSWER = {"kernel": bool, "place": number, "token": number, "wrote": bool}
FOLDERS = Each(ANSWER, Text(_MAX_PATH), MAX_FOLDERS)


class Sharing(NamedTuple):
    """The hosts of a folder: those of a group see the same one, those of two groups surely do not."""

    groups: Sequence[Sequence[str]]
    unknown: Sequence[str] = ()

    @property
    def shared(self) -> list[Sequence[str]]:
        """The groups with more than one host."""
        return [group for group in self.groups if len(group) > 1]

    def apart_from(self, host: str) -> list[str]:
        """Return the hosts that surely do not see the folder of `host`."""
        if host in self.unknown:
            return []
        return [other for group in self.groups if host not in group for other in group]

    def text(self) -> str:
        """Write who shares the folder: `shared by all`, `local`, `shared by gpu1, gpu2; local on gpu3`."""
        shared, alone = self.shared, [group[0] for group in self.groups if len(group) == 1]
        if not self.groups:
            return UNKNOWN
        if len(self.groups) == 1 and shared and not self.unknown:
            return "shared by all"
        parts = [f"shared by {host_list(group)}" for group in shared]
        if alone:
            parts.append(f"local on {host_list(alone)}" if shared or self.unknown else "local")
        return "; ".join([*parts, *([f"unknown on {host_list(self.unknown)}"] if self.unknown else [])])


def sharing(hosts: Iterable[str], answers: Mapping[str, Answer]) -> Sharing:
    """Return which of `hosts` share a folder; `answers` has what each says, without those that say nothing."""
    hosts = [*hosts]
    if len(hosts) == 1:
        return Sharing([hosts])
    keys = {host: _key(answers.get(host) or {}) for host in hosts}
    groups = grouped((key, host) for host, key in keys.items() if key)
    # A host without a token joins those with one if all of them name the same place: of two that a liar names, none.
    places = grouped((key, answers[host]["place"]) for host, key in keys.items() if key and key[0] == "token")
    for host, key in keys.items():
        if key and key[0] == "server":
            fitting = [token for token, named in places.items() if set(named) == {key[1]}]
            if len(fitting) == 1:
                keys[host] = fitting[0]
    groups = grouped((key, host) for host, key in keys.items() if key)
    known = {key: group for key, group in groups.items() if key[0] != "server" or len(group) > 1}
    seen = {host for group in known.values() for host in group}
    return Sharing([*known.values()], [host for host in keys if host not in seen])


def of_folders(
    hosts: Collection[str], folders: Iterable[str], answers: Mapping[str, Mapping[str, Answer]]
) -> dict[str, Sharing]:
    """Return the sharing of each folder; `answers` has those of each host by folder."""
    return {
        folder: sharing(hosts, {host: of_host[folder] for host, of_host in answers.items() if folder in of_host})
        for folder in folders
    }


def writers(answers: Mapping[str, Mapping[str, Answer]]) -> dict[str, list[str]]:
    """Return the folders in which each host left a token, which it has to remove."""
    wrote = {host: [folder for folder, each in of_host.items() if each["wrote"]] for host, of_host in answers.items()}
    return {host: folders for host, folders in wrote.items() if folders}


def _key(answer: Answer) -> tuple[str, str] | None:
    """Return what hosts have in common that share the folder; None where nothing is known."""
    if not answer.get("place") and not answer.get("token"):
        return None
    if answer["kernel"]:
        return "kernel", answer["place"]
    return ("token", answer["token"]) if answer["token"] else ("server", answer["place"])
