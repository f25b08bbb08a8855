# SPDX-License-Identifier: Apache-2.0
"""Protect files and folders on the controller from other playbooks and other users."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock an existing file or folder; call `on_wait` before waiting for another process."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Closing is not enough: processes of connections may have inherited the descriptor.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextlib.contextmanager
def locked_secrets(folder: Path) -> Iterator[None]:
    """Create a folder of keys that only its owner may enter, and lock it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / ".lock").touch()
    with locked(folder / ".lock"):
        yield


def exposed(path: Path) -> str:
    """Return a message if others may read a private key, or ""."""
    mode = path.stat().st_mode & 0o777
    found = f"{path} can be read by others (mode {mode:o}); expected 600. Set it, and consider who may have read it"
    return found if mode & 0o077 else ""
