# SPDX-License-Identifier: Apache-2.0
"""Place a complete data set in a folder, and check later that it is unchanged.

It is made in a folder beside its own and takes its name only when it is complete, with `manifest.json`: its source, and
size and sha256 of every file. ansible.builtin.unarchive knows nothing of that. Sizes are bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base.shapes import Each, misfit, path_inside
from ...trainyard.base.state_format import loads
from ...trainyard.software import datasets
from ..machine import install_lock
from ..machine.as_user import JobError, Owner, named, run
from ..machine.private import only_root_changes

MANIFEST = datasets.MANIFEST
_BLOCK = 1 << 20


_MANIFEST = {
    "dataset": str,
    "source": Each(object),
    "files": Each({"size": int, "sha256": str}, path_inside),
    "?links": Each(str, path_inside),
}


class DatasetFailure(JobError):
    """The data set cannot be placed; the text says what was found and what to do."""


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def identity(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the manifest says of the data set's source."""
    if params["kind"] == "cifar10":
        folder = datasets.layout(params["format"]).folder
        return {"format": params["format"], "sha256": params["sha256"].lower(), "folder": folder}
    if params["kind"] == "digits":
        return {"sha256": datasets.DIGITS_SHA256}
    return {name: params[name] for name in ("seed", "train_records", "test_records")}


def check(folder: Path, owner: str, params: Mapping[str, Any], limit_s: float) -> list[str]:
    """Return why a data set must be placed (again), with the rights that place it."""
    owner = "" if os.geteuid() else owner
    rights = whose_rights(folder, owner)
    reasons: list[str] = run(rights, examine, folder, params["kind"], identity(params), owner, limit_s=limit_s)
    return reasons


def examine(folder: Path, kind: str, source: dict[str, Any], owner: str) -> list[str]:
    """Return in words why the data set must be placed (again); nothing when it is as it should be."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return ["it is not there yet"]
    try:
        manifest = loads((folder / MANIFEST).read_bytes())
        wrong_shape = misfit(manifest, _MANIFEST)
    except (OSError, ValueError) as error:
        manifest, wrong_shape = {}, str(error)
    if wrong_shape:
        if (folder / MANIFEST).exists():
            return [f"{MANIFEST} is damaged: {wrong_shape}"]
        found = f"{folder} is there and was not placed by trainyard (it has no {MANIFEST})"
        raise DatasetFailure(f"{found}; move it away, or give the data set another name")
    files, links = manifest["files"], manifest.get("links", {})
    if (manifest["dataset"], manifest["source"]) != (kind, source):
        return ["it comes from another source"]
    wrong = [problem for name, entry in files.items() if (problem := _damage(folder / name, entry))]
    now = {name: str((folder / name).readlink()) for name in links if (folder / name).is_symlink()}
    wrong += [f"{name} is gone" for name, target in links.items() if now.get(name) != target]
    if owner and not wrong and (folder / MANIFEST).stat().st_uid != account(owner).pw_uid:
        wrong.append(f"it does not belong to {owner}")
    return wrong


def _damage(file: Path, entry: dict[str, Any]) -> str:
    if not file.is_file():
        return f"{file.name} is gone"
    size = file.stat().st_size
    if size != entry["size"]:
        return f"{file.name} has {size} bytes instead of {entry['size']}"
    return "" if sha256_of(file) == entry["sha256"] else f"{file.name} was altered"


def account(owner: str) -> pwd.struct_passwd:
    """Return the account of the owner."""
    try:
        return pwd.getpwnam(owner)
    except KeyError:
        found = f"the data set is to belong to user {owner!r}, which this host does not have"
        raise DatasetFailure(f"{found}; create the user first (role node_baseline) or name another owner") from None


def whose_rights(folder: Path, owner: str) -> Owner:
    """Return with whose rights root places a data set: the owner's where others could exchange what root makes."""
    there = next(parent for parent in folder.parents if parent.exists())
    return named(owner) if owner and not only_root_changes(there) else Owner(0, 0, [])


def give(paths: Iterable[Path], owner: str) -> None:
    """Give files, folders and links to the owner, where root has made them."""
    if owner and os.geteuid() == 0:
        user = account(owner)
        for path in paths:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def place(folder: Path, kind: str, source: dict[str, Any], owner: str, fill: Callable[[Path], None]) -> None:
    """Have `fill` write the files into a new folder, and give it the name and the place of `folder`.

    The caller has the lock of the folder, for which it has made the folders above.
    """
    lock = install_lock.path_of(folder)
    for left in folder.parent.glob(f".{folder.name}.*"):  # of an interrupted run
        if left != lock:
            shutil.rmtree(left)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        fill(fresh)
        made = {str(path.relative_to(fresh)): path for path in sorted(fresh.rglob("*"))}
        links = {name: str(path.readlink()) for name, path in made.items() if path.is_symlink()}
        files = {
            name: {"size": path.stat().st_size, "sha256": sha256_of(path)}
            for name, path in made.items()
            if name not in links and path.is_file()
        }
        manifest = {"dataset": kind, "source": source, "files": files, "links": links}
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        for path in (fresh, *fresh.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() else 0o644)
        give((fresh, *fresh.rglob("*")), owner)
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            folder.rename(old / "old")
            fresh.rename(folder)
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def check_sha256(file: Path, expected: str) -> None:
    """Refuse a file that is not the expected one."""
    found = sha256_of(file)
    if found != expected.lower():
        raise DatasetFailure(
            f"{file.name} has sha256 {found}, expected {expected.lower()}: the download is damaged or another file; "
            "nothing was unpacked. Fetch it again, or correct the sha256"
        )


def unpack_cifar10(archive: Path, archive_format: str, folder: Path) -> None:
    """Unpack from CIFAR-10's archive the files that belong to it.

    Programs expect them in the archive's own folder or above it: the first has the files, the second a link to each.
    """
    layout = datasets.layout(archive_format)
    problems = []
    inner = folder / layout.folder
    inner.mkdir()
    try:
        with tarfile.open(archive) as tar:
            members = {member.name: member for member in tar if member.isfile()}
            for name in (*layout.needed, *layout.optional):
                member = members.get(f"{layout.folder}/{name}")
                stream = tar.extractfile(member) if member else None
                if stream is not None:
                    _write(inner / name, stream)
                    (folder / name).symlink_to(f"{layout.folder}/{name}")
                    problems.append(datasets.wrong_size(archive_format, name, (inner / name).stat().st_size))
                elif name in layout.needed:
                    problems.append(f"{layout.folder}/{name} is not in it")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DatasetFailure(f"{archive.name} cannot be unpacked: {error}; fetch it again") from error
    found = "; ".join(filter(None, problems))
    if found:
        raise DatasetFailure(f"{archive.name} is not CIFAR-10 in the {archive_format} format: {found}")


def take_digits(source: Path, folder: Path) -> None:
    """Take the digits out of scikit-learn's wheel, or from a copy of the file itself."""
    file = folder / datasets.DIGITS_FILE
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            if datasets.DIGITS_MEMBER not in wheel.namelist():
                raise DatasetFailure(f"{source.name} holds no {datasets.DIGITS_MEMBER}: give scikit-learn's wheel")
            with wheel.open(datasets.DIGITS_MEMBER) as stream:
                _write(file, stream)
    else:
        shutil.copyfile(source, file)
    check_sha256(file, datasets.DIGITS_SHA256)


def generate(seed: int, train_records: int, test_records: int, folder: Path) -> None:
    """Write made-up records in CIFAR-10's binary format."""
    for name, count in datasets.generated_files(train_records, test_records).items():
        with (folder / name).open("wb") as stream:
            for record in datasets.generated_records(seed, name, count):
                stream.write(record)


def _write(file: Path, stream: Any) -> None:
    with file.open("wb") as target:
        shutil.copyfileobj(stream, target, _BLOCK)
