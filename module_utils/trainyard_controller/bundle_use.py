# SPDX-License-Identifier: Apache-2.0
"""Check a bundle on the controller, and pack what nodes get of it."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..trainyard.bundle import contents, files, use
from ..trainyard.bundle.systems import System
from ..trainyard.findings.findings import Finding, UnusableError
from ..trainyard.findings.visible import one_line
from ..trainyard_node.machine import commands
from .bundling import SigningError
from .file_sources import sha256
from .site_locking import read


class Bundle:
    """A bundle whose sums are signed; `fingerprint` is that of the key."""

    def __init__(self, folder: Path) -> None:
        """Open a bundle, and verify the signature of its sums. Raises UnusableError."""
        self.folder = folder
        if not (folder / contents.SUMS).is_file():
            raise UnusableError(f"{folder} is no bundle: it has no {contents.SUMS}. Correct trainyard_bundle.")
        self.fingerprint = _signer(folder)
        try:
            self.sums = contents.read_sums((folder / contents.SUMS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnusableError(f"{folder / contents.SUMS}: {error}") from error
        lock = read(folder / "lock")
        if lock is None:
            raise UnusableError(f"{folder} is no bundle: it has no lock. Correct trainyard_bundle.")
        self.lock = lock

    @property
    def stamp(self) -> str:
        """Return what tells this bundle from others."""
        return str(sha256(self.folder / contents.SUMS))

    def findings(self, expected_key: str) -> list[Finding]:
        """Return findings on the key and on files that are not as they were signed."""
        found = []
        if expected_key and expected_key.replace(" ", "").upper() != self.fingerprint:
            action = "take a bundle from where this key is, or correct trainyard_bundle_key"
            found.append(Finding("bundle", f"signed by the key {self.fingerprint}", expected_key, action))
        there = {path: sha256(self.folder / path) for path in self.sums}
        return found + use.changed_files(self.sums, there, str(self.folder))

    def refused(self, requests: Mapping[str, files.Requests]) -> list[Finding]:
        """Return findings on files that wanted a login: the sums do not name them, the signed lock does."""
        later = [path for path in files.paths(self.lock["files"]).values() if path not in self.sums]
        there = {path: sha256(self.folder / path) for path in later}
        return use.refused_files(self.lock, requests, there, str(self.folder))

    def paths(self, system: System) -> list[str]:
        """Return the files that a node of a system gets."""
        return use.paths(self.lock, system, self.sums)

    def kib(self, system: System) -> int:
        """Return the KiB that they take on a node."""
        return sum(-(-(self.folder / path).stat().st_size // 1024) for path in self.paths(system))

    def files(self) -> dict[str, str]:
        """Return the files that roles copy from here, by sum or commit."""
        return files.here(self.lock["files"], str(self.folder.absolute()))

    def pack(self, system: System, target: Path) -> None:
        """Write the files of a system into an archive, as files of root."""

        def of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mode = 0o755 if info.isdir() else 0o644
            return info

        with tarfile.open(target, "w", dereference=True) as archive:
            for name in self.paths(system):
                archive.add(self.folder / name, name, recursive=False, filter=of_root)


def _signer(folder: Path) -> str:
    """Return the fingerprint of the key that signed the sums. Raises UnusableError."""
    with tempfile.TemporaryDirectory() as home:
        gpg = ["gpg", "--batch", "--no-tty", "--homedir", home]
        imported = commands.run([*gpg, "--quiet", "--import", str(folder / "key.asc")], 60)
        if imported.status:
            raise SigningError(f"{folder}/key.asc cannot be read: {one_line(imported.output.strip(), 200)}")
        sums = folder / contents.SUMS
        done = commands.run([*gpg, "--status-fd", "1", "--verify", f"{sums}.asc", str(sums)], 60)
        valid = re.search(r"^\[GNUPG:\] VALIDSIG ([0-9A-F]{40})\b", done.output, re.MULTILINE)
        if done.status or valid is None:
            raise SigningError(
                f"{sums} is not signed by {folder}/key.asc, so nothing of this bundle is trusted: somebody, or a "
                "damaged disk, has changed it. Fetch it again. Nothing was changed."
            )
        return valid[1]
