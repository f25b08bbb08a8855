# SPDX-License-Identifier: Apache-2.0
"""The present user's own key for ssh, and the lines of ours in ~/.ssh. Several hosts may share this folder."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.cluster.own_ssh_lines import with_lines
from ..machine.tree import Tree
from .ssh_keys import keygen, public_key

_HOST_KEYS = "ssh_host_*_key.pub"


def read(*, mark: str, make: bool) -> dict[str, Any]:
    """Return the user's public key and this host's; with `make`, make a key where there is none, and tell of it.

    `host_keys` are those that sshd has beside its private ones, which anybody may read.
    """
    if not os.geteuid():
        # Logins of root among hosts are nobody's need.
        return {"changed": False, "user_key": "", "host_keys": []}
    path = Path.home() / ".ssh" / "id_ed25519"
    missing = not path.exists()
    if missing and make:
        _make(path, mark)
    key = public_key(Path(f"{path}.pub"))
    if not key and path.exists():
        # The public half has gone, or another host is about to write it.
        key = keygen(Tree("/"), ["-y", "-P", "", "-f", str(path)])
    host_keys = sorted(public_key(each) for each in Path("/etc/ssh").glob(_HOST_KEYS))
    return {"changed": missing, "user_key": key, "host_keys": host_keys}


def _make(path: Path, comment: str) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".trainyard-", dir=path.parent) as name:
        fresh = Path(name) / "key"
        keygen(Tree("/"), ["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(fresh)])
        # A key that is there already, perhaps of a host that shares the folder, is never replaced.
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
            Path(f"{fresh}.pub").replace(f"{path}.pub")


def trust(files: Mapping[str, Sequence[str]], *, check: bool) -> dict[str, Any]:
    """Write lines of ours into files of ~/.ssh, where some are missing; return `changed` and a diff."""
    folder = Path.home() / ".ssh"
    before, after = {}, {}
    for name, own in files.items():
        # A link leads to the file that is meant.
        path = (folder / name).resolve()
        text = path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""
        new = with_lines(text, own)
        if new == text:
            continue
        before[name], after[name] = text, new
        if not check:
            _write(path, new)
    changes = [{"before": before[name], "after": after[name], "before_header": name} for name in before]
    return {"changed": bool(before), "diff": changes}


def _write(path: Path, text: str) -> None:
    """Replace a file at once: another host that shares it writes the same lines."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o600
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    with _removed_on_error(name):
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)


@contextlib.contextmanager
def _removed_on_error(name: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        Path(name).unlink()
        raise
