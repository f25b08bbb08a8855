# SPDX-License-Identifier: Apache-2.0
"""Check a bundle on the controller, and pack what nodes get of it."""

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ...trainyard.base.findings import Finding, UnusableError
from ...trainyard.base.visible import one_line
from ...trainyard.bundle import contents, locked_files, site_lock, use
from ...trainyard.bundle.systems import System
from ...trainyard_node.machine import commands
from ...trainyard_node.machine.json_files import open_regular
from ...trainyard_node.machine.private import Place, others_write, weak_place
from .bundling import SigningError

# Upper bound for sums, signature, key and lock, in bytes, and bytes of a read.
_MAX_BYTES, _BLOCK = 256 << 20, 1 << 20
_UNTRUSTED = (
    "so nothing of this bundle is trusted: somebody, or a damaged disk, has changed it. Fetch it again. Nothing was "
    "changed."
)


class Bundle:
    """A bundle whose sums are signed: `fingerprint` is that of the key, `made` when it signed, in seconds since 1970.

    Others may be able to write in its folder. So what decides is read once, and each file that travels is compared with
    its signed sum while it is read for the nodes.
    """

    def __init__(self, folder: Path) -> None:
        """Open a bundle, and verify the signature of its sums. Raises UnusableError."""
        self.folder = folder
        self._weak: list[Place] = []
        sums, signature, key, lock = map(self._content, (contents.SUMS, f"{contents.SUMS}.asc", "key.asc", "lock"))
        self.fingerprint, self.made = _signed(folder, {"key.asc": key, "sums": sums, "sums.asc": signature})
        self.stamp = hashlib.sha256(sums).hexdigest()
        try:
            self.sums = contents.read_sums(sums.decode())
        except ValueError as error:
            raise UnusableError(f"{folder / contents.SUMS}: {error}") from error
        if hashlib.sha256(lock).hexdigest() != self.sums.get("lock"):
            raise UnusableError(f"{folder}/lock is not the one that was signed, {_UNTRUSTED}")
        try:
            self.lock = site_lock.read(lock.decode())
        except ValueError as error:
            raise UnusableError(f"{folder}/lock is no lock: {error}. Make another bundle.") from error

    def _content(self, name: str) -> bytes:
        """Return a small file, and note whether others can write it. Raises UnusableError."""
        path = self.folder / name
        try:
            with open_regular(path) as file:
                state, content = os.fstat(file.fileno()), file.read(_MAX_BYTES)
        except FileNotFoundError:
            raise UnusableError(f"{self.folder} is no bundle: it has no {name}. Correct trainyard_bundle.") from None
        except OSError as error:
            raise UnusableError(
                f"{path} cannot be read: {error.strerror or error}. Correct trainyard_bundle."
            ) from error
        user = os.geteuid()
        if state.st_uid not in (0, user) or others_write(state, user):
            self._weak.append(Place(path, state.st_uid, state.st_mode))
        return content

    def findings(self, expected_key: str) -> list[Finding]:
        """Return findings on the key, the folder, and files that are not as they were signed."""
        found = []
        if not expected_key:
            found += self._open_to_others()
        elif expected_key.replace(" ", "").upper() != self.fingerprint:
            action = "take a bundle from where this key is, or correct trainyard_bundle_key"
            found.append(Finding("bundle", f"signed by the key {self.fingerprint}", expected_key, action))
        there = {path: _sum(self.folder / path) for path in self.sums}
        return found + use.changed_files(self.sums, there, str(self.folder))

    def _open_to_others(self) -> list[Finding]:
        """Return the finding where somebody else could have put another bundle into its place."""
        place = weak_place(self.folder.absolute(), os.geteuid()) or next(iter(self._weak), None)
        if place is None:
            return []
        found = f"{place} can be changed by others, and no key is expected"
        expected = "the key that signed it, or a bundle that only you and root can change"
        action = (
            "set trainyard_bundle_key to the fingerprint that bundle.yml printed, or copy the bundle to a folder of "
            "your own and take the rights of others away (chmod -R go-w)"
        )
        return [Finding("bundle", found, expected, action)]

    def refused(self, requests: Mapping[str, locked_files.Requests]) -> list[Finding]:
        """Return findings on files that wanted a login: the sums do not name them, the signed lock does."""
        later = [path for path in locked_files.paths(self.lock["files"]).values() if path not in self.sums]
        there = {path: _sum(self.folder / path) for path in later}
        return use.refused_files(self.lock, requests, there, str(self.folder))

    def paths(self, system: System) -> list[str]:
        """Return the files that a node of a system gets."""
        return use.paths(self.lock, system, self.sums)

    def kib(self, system: System) -> int:
        """Return the KiB that they take on a node."""
        return sum(-(-(self.folder / path).stat().st_size // 1024) for path in self.paths(system))

    def files(self) -> dict[str, str]:
        """Return the files that roles copy from here, by sum or commit."""
        return locked_files.here(self.lock["files"], str(self.folder.absolute()))

    def pack(self, system: System, target: Path) -> None:
        """Write the files of a system into an archive, as files of root; no archive if one is not the signed one.

        Raises UnusableError and OSError.
        """
        try:
            with tarfile.open(target, "w") as archive:
                for name in self.paths(system):
                    self._add(name, archive)
        except BaseException:
            target.unlink(missing_ok=True)
            raise

    def _add(self, name: str, archive: tarfile.TarFile) -> None:
        path = self.folder / name
        member = tarfile.TarInfo(name)
        member.uname = member.gname = "root"
        member.mode = 0o644
        try:
            with open_regular(path) as file:
                state, content = os.fstat(file.fileno()), _Summed(file)
                member.size, member.mtime = state.st_size, int(state.st_mtime)
                archive.addfile(member, content)
        except OSError as error:
            raise UnusableError(f"{path} cannot be packed: {error}") from error
        if content.sha256.hexdigest() != self.sums[name]:
            raise UnusableError(
                f"{path} was exchanged after it was checked: it has sha256 {content.sha256.hexdigest()}, expected "
                f"{self.sums[name]}. See who can write in this folder. No host was changed."
            )


class _Summed:
    """A file that is hashed while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.sha256 = file, hashlib.sha256()

    def read(self, most: int = -1) -> bytes:
        block = self.file.read(most)
        self.sha256.update(block)
        return block


def _sum(path: Path) -> str | None:
    """Return the SHA-256 of a file, None where there is no regular file that can be read."""
    try:
        with open_regular(path) as file:
            content = _Summed(file)
            while content.read(_BLOCK):
                pass
    except OSError:
        return None
    return content.sha256.hexdigest()


def _signed(folder: Path, files: Mapping[str, bytes]) -> tuple[str, int]:
    """Return the fingerprint of the key that signed the sums, and when. Raises UnusableError."""
    with tempfile.TemporaryDirectory() as name:
        # What gpg reads is what was read from the bundle, whatever lies there by now.
        for file, content in files.items():
            Path(name, file).write_bytes(content)
        gpg = ["gpg", "--batch", "--no-tty", "--homedir", name]
        imported = commands.run([*gpg, "--quiet", "--import", f"{name}/key.asc"], 60)
        if imported.status:
            raise SigningError(f"{folder}/key.asc cannot be read: {one_line(imported.output.strip(), 200)}")
        done = commands.run([*gpg, "--status-fd", "1", "--verify", f"{name}/sums.asc", f"{name}/sums"], 60)
        valid = re.search(r"^\[GNUPG:\] VALIDSIG ([0-9A-F]{40}) \S+ (\d{1,11}) ", done.output, re.MULTILINE)
        if done.status or valid is None:
            raise SigningError(f"{folder / contents.SUMS} is not signed by {folder}/key.asc, {_UNTRUSTED}")
        return valid[1], int(valid[2])
