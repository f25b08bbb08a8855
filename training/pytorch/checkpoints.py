# SPDX-License-Identifier: Apache-2.0
"""Names, order and life of checkpoint files. No training framework needed.

A checkpoint is `epoch-0007.pt`: the state after epoch 7 (epochs count from 1). It appears under that name only when it
is complete; an interrupted write leaves a `.partial` file, which nothing ever reads and the next write replaces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

State = TypeVar("State")
_NAME = re.compile(r"epoch-(\d{4,})\.pt")


class UnreadableError(Exception):
    """A checkpoint is damaged; the text says how."""


def newest_first(folder: Path) -> list[tuple[int, Path]]:
    """Return epoch and path of every checkpoint in `folder`, the newest first."""
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(file.name), file) for file in folder.iterdir()]
    return sorted(((int(match[1]), file) for match, file in matches if match), reverse=True)


def newest_readable(
    folder: Path, load: Callable[[Path], State], report: Callable[[str], None]
) -> tuple[Path, State] | None:
    """Return the newest checkpoint that `load` can read, with what it read; tell of those passed over."""
    for _, file in newest_first(folder):
        try:
            return file, load(file)
        except UnreadableError as error:
            report(f"checkpoint {file} is passed over: {error}")
    return None


def write(folder: Path, epoch: int, save: Callable[[BinaryIO], Any], keep: int) -> Path:
    """Write the checkpoint of `epoch` by `save`, then drop all but the newest `keep` of those up to it.

    A later epoch can only be an unreadable one that was passed over: it must not push out what is good.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"epoch-{epoch:04d}.pt"
    partial = final.with_suffix(".partial")
    with partial.open("wb") as stream:
        save(stream)
        stream.flush()
        # A rename may reach the disk before the data does: after a power cut the name would hold nothing.
        os.fsync(stream.fileno())
    partial.replace(final)
    for old in [file for number, file in newest_first(folder) if number <= epoch][keep:]:
        old.unlink()
    return final
