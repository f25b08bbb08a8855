# SPDX-License-Identifier: Apache-2.0
"""Make a bundle of a lock: fetch its files, write the repositories, sign all of it.

Everything is put together in a folder NAME.part, which gets its name when it is whole; a second call goes on there.
"""

from __future__ import annotations

import email.utils
import errno
import http.client
import json
import os
import re
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding, UnusableError
from ...trainyard.base.visible import one_line
from ...trainyard.bundle import contents, sbom, site_lock
from ...trainyard.bundle.contents import Item
from ...trainyard.bundle.locked_files import commit
from ...trainyard.bundle.systems import named
from ...trainyard.software.image_forms import ARCHIVE, REGISTRY
from ...trainyard.software.installed import share_text
from ...trainyard.software.requirements import without_password
from ...trainyard_node.machine import commands
from ...trainyard_node.software.dataset_files import sha256_of
from . import git_archives, logins

# Files at a time; bytes of a read; seconds without an answer; the shortest interval of lines of progress.
WORKERS, _BLOCK, _SILENT_S, _SHOW_S = 8, 1 << 20, 60, 5.0
# Answers of a server that wants a login, or that somebody pays or accepts a license first.
_LOGIN_CODES = (401, 402, 403, 451)
# Bound of the copy of one image, in seconds.
_IMAGE_S = 4 * 3600.0


@dataclass
class Progress:
    """How far the files are, shown now and then; several threads count."""

    items: Sequence[Item]
    show: Callable[[str], None]

    def __post_init__(self) -> None:
        """Begin at nothing."""
        self._lock, self._files, self._bytes = threading.Lock(), 0, 0
        self._begun = self._shown = time.monotonic()
        # Where the size of a file is not known, nor is the time left.
        self._total = sum(item.bytes for item in self.items) if all(item.bytes for item in self.items) else 0

    def add(self, size: int, files: int = 0) -> None:
        """Count bytes and files."""
        with self._lock:
            self._bytes, self._files = self._bytes + size, self._files + files
            if time.monotonic() - self._shown < _SHOW_S:
                return
            self._shown = time.monotonic()
        share = share_text(self._bytes, self._total, self._shown - self._begun)
        self.show(f"bundle: {self._files} of {len(self.items)} files, {share}")


def fetch(items: Sequence[Item], folder: Path, show: Callable[[str], None]) -> list[Finding]:
    """Bring all files into the folder; return findings on those that could not be had.

    A file that is there with its sum stays, as does the begin of one. One that wants a login is no finding if somebody
    may put it there later.
    """
    progress = Progress(items, show)

    def one(item: Item) -> Finding | None:
        try:
            _bring(item, folder / item.path, progress)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if item.may_follow and _wants_login(error):
                return _another_content(item, folder / item.path)
            return _finding(item, error)
        progress.add(0, files=1)
        return None

    with ThreadPoolExecutor(WORKERS) as pool:
        return [finding for finding in pool.map(one, items) if finding]


def refused(items: Sequence[Item], folder: Path) -> list[Item]:
    """Return the files that are not in the folder, as they want a login."""
    return [item for item in items if item.may_follow and not (folder / item.path).exists()]


def _wants_login(error: Exception) -> bool:
    return isinstance(error, urllib.error.HTTPError) and error.code in _LOGIN_CODES


def _another_content(item: Item, target: Path) -> Finding | None:
    """Return the finding where somebody put another file in the place of one that wants a login."""
    if not target.exists():
        return None
    found, expected = f"{target} has sha256 {sha256_of(target)}", f"the file with sha256 {item.sha256}"
    return Finding(item.what, found, expected, f"fetch {item.url}, and put it there; or remove the file")


def _finding(item: Item, error: Exception) -> Finding:
    text = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    found, expected = one_line(f"{item.url}: {text}", 300), f"the file with sha256 {item.sha256}"
    action = "run bundle.yml again, which goes on from here, or lock.yml where the mirror has a newer version now"
    if item.url.startswith(REGISTRY):
        found, expected = one_line(str(text), 300), "the image"
        action = "correct it, or the login (skopeo login), then run bundle.yml again"
    if _wants_login(error):
        action = (
            f"write the login for its host into {logins.path()}, then run bundle.yml again, which goes on from here"
        )
    if os.strerror(errno.ENOSPC).lower() in str(text).lower():
        action = "free space, or choose another folder with bundle_path; the next run goes on from here"
    return Finding(item.what, found, expected, action)


def _bring(item: Item, target: Path, progress: Progress) -> None:
    """Bring one file. Raises OSError, HTTPException, or ValueError for another content."""
    # An image has its name only when it is whole.
    if target.is_file() and item.sha256 in ("", sha256_of(target)):
        progress.add(target.stat().st_size)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    if item.url.startswith(REGISTRY):
        _copy_image(item, part)
        progress.add(part.stat().st_size)
        part.replace(target)
        return
    try:
        with part.open("ab") as output:
            for block in _blocks(item.url, output.tell(), lambda: output.truncate(0)):
                output.write(block)
                progress.add(len(block))
    except urllib.error.HTTPError:
        if not part.stat().st_size:
            part.unlink()
        raise
    got = sha256_of(part)
    if got != item.sha256:
        part.unlink()
        raise ValueError(f"the content has sha256 {got}")
    part.replace(target)


def _copy_image(item: Item, target: Path) -> None:
    """Write an image of a registry into an archive; skopeo checks its digests. Raises ValueError, or OSError."""
    target.unlink(missing_ok=True)
    argv = ["skopeo", "copy", "--quiet", "--override-os=linux", f"--override-arch={item.architecture}"]
    done = commands.run([*argv, item.url, f"{ARCHIVE}{target}"], _IMAGE_S)
    if done.status == commands.NOT_STARTED:
        raise ValueError("skopeo, which fetches images, is not installed here")
    if done.status:
        said = re.search(r'msg="((?:[^"\\]|\\.)*)"', done.output)
        raise ValueError((said[1] if said else done.output.strip()).rpartition(f"{item.url}: ")[2])


def _blocks_of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as source:
        while block := source.read(_BLOCK):
            yield block


def _blocks(url: str, begin: int, start_anew: Callable[[], Any]) -> Iterator[bytes]:
    """Yield what follows after the first `begin` bytes of a file; a server that cannot do that sends all of it."""
    of_git = commit(url)
    if of_git:
        start_anew()
        with git_archives.archive(*of_git) as made:
            yield from _blocks_of_file(made)
        return
    split = urllib.parse.urlsplit(url)
    if split.scheme in ("", "file"):
        start_anew()
        yield from _blocks_of_file(Path(urllib.parse.unquote(split.path)))
        return
    if split.scheme not in ("http", "https"):
        raise ValueError(f"no address that can be read: {without_password(url)}")
    try:
        answer = urllib.request.urlopen(_request(split, begin), timeout=_SILENT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        # All of it is there already, or another content.
        return
    with answer:
        if begin and answer.status != http.HTTPStatus.PARTIAL_CONTENT:
            start_anew()
        while block := answer.read(_BLOCK):
            yield block
        if answer.length:
            raise ConnectionError(f"the connection ended {answer.length} bytes too early")


def _request(address: urllib.parse.SplitResult, begin: int) -> urllib.request.Request:
    """Return the request for what follows the first `begin` bytes, with a login. Raises ValueError."""
    # An address of a lock may name a user, without the password.
    plain = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    request = urllib.request.Request(plain, headers={"Range": f"bytes={begin}-"} if begin else {})  # noqa: S310
    if login := logins.authorization(address.scheme, address.hostname or ""):
        # Another server to which this one points does not get it.
        request.add_unredirected_header("Authorization", login)
    return request


class SigningError(UnusableError):
    """A program of the bundle's signatures or repositories failed."""


class Key:
    """The key that signs bundles, in a folder that only its owner enters; it is made at the first use."""

    def __init__(self, home: Path) -> None:
        """Open the key. Raises SigningError."""
        self.home = home
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        home.chmod(0o700)
        if not self._fingerprints():
            self._gpg("--quick-generate-key", "trainyard bundles", "ed25519", "sign", "never")
        found = self._fingerprints()
        if not found:
            raise SigningError(f"gpg made no key in {home}")
        self.fingerprint = found[0]

    def _gpg(self, *argv: str) -> str:
        base = ["gpg", "--batch", "--yes", "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase-fd", "0"]
        # The address of the helper's socket, in this folder, must be shorter than 108 bytes.
        with tempfile.TemporaryDirectory() as short:
            home = Path(short, "key")
            home.symlink_to(self.home.absolute())
            done = commands.run([*base, "--homedir", str(home), *argv], 120)
            # Otherwise its helper would run on.
            commands.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], 30)
        if done.status:
            raise SigningError(f"gpg: {one_line(done.output.strip(), 300)}")
        return done.output

    def _fingerprints(self) -> list[str]:
        listed = self._gpg("--with-colons", "--list-secret-keys").splitlines()
        return [line.split(":")[9] for line in listed if line.startswith("fpr:")]

    def export(self, path: Path) -> None:
        """Write the public key."""
        self._gpg("--armor", "--output", str(path), "--export", self.fingerprint)

    def sign(self, path: Path) -> None:
        """Write the signature of a file beside it, with the suffix .asc."""
        self._gpg("--armor", "--local-user", self.fingerprint, "--output", f"{path}.asc", "--detach-sign", str(path))

    def sign_inside(self, path: Path, target: Path) -> None:
        """Write a text with its signature around it."""
        self._gpg("--local-user", self.fingerprint, "--output", str(target), "--clear-sign", str(path))


def finish(
    folder: Path, lock: Mapping[str, Any], items: Sequence[Item], older: Path | None, key: Key, version: str
) -> None:
    """Write all that is made of the files: repositories, requirements, bill of materials, sums, signatures.

    `items` are the files that lie in the folder; the lock's other ones, in `older`, are in the index and the sums, too.
    Raises SigningError or OSError.
    """
    lock_text, absent = site_lock.text(lock), refused(items, folder)
    texts = {
        **contents.texts(lock),
        "lock": lock_text,
        "missing.json": json.dumps(contents.missing(lock, absent), indent=1) + "\n",
        "sbom.cdx.json": sbom.text(sbom.sbom(lock, lock_text, version)),
    }
    # An earlier call may have left what is in the lock no more.
    known = {*texts, *(item.path for item in items)}
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in known:
            path.unlink()
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    everything = contents.items(lock)
    before = older_sums(older) if older else {}
    for label, system, parts in site_lock.parts_of(lock):
        listed = [item for item in everything if item.path.startswith(f"debs/{label}/")]
        # A controller without a lab needs no packages.
        if label == system or parts["packages"]["files"]:
            _repository(folder, older or folder, label, system, listed, key)
    key.export(folder / "key.asc")
    sums = {item.path: item.sha256 or before.get(item.path, "") for item in everything if item not in absent}
    sums |= {str(path.relative_to(folder)): sha256_of(path) for path in folder.rglob("*") if path.is_file()}
    (folder / contents.SUMS).write_text(contents.sums_text(sums))
    key.sign(folder / contents.SUMS)


def _repository(bundle: Path, older: Path, label: str, system: str, listed: Sequence[Item], key: Key) -> None:
    """Write the index of a system's packages, as apt reads it."""
    folder = bundle / "debs" / label
    folder.mkdir(parents=True, exist_ok=True)
    controls = []
    for item in listed:
        path = bundle / item.path if (bundle / item.path).exists() else older / item.path
        done = commands.run(["dpkg-deb", "--field", str(path)], 60)
        if done.status:
            raise SigningError(f"dpkg-deb: {one_line(done.output.strip(), 300)}")
        controls.append((done.output, path.name, path.stat().st_size, item.sha256))
    packages = contents.packages_text(controls).encode()
    (folder / "Packages").write_bytes(packages)
    found = named(system)
    release = folder / "Release"
    release.write_text(
        contents.release_text(
            system, found.architecture if found else "", packages, email.utils.formatdate(usegmt=True)
        )
    )
    key.sign_inside(release, folder / "InRelease")


def older_sums(older: Path) -> dict[str, str]:
    """Return the sums of an older bundle. Raises UnusableError."""
    try:
        return contents.read_sums((older / contents.SUMS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableError(f"bundle_since: {older} is no bundle: {error}") from error
