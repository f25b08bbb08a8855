# SPDX-License-Identifier: Apache-2.0
"""Name, write and find the checkpoints of one rank, and the newest one that all ranks have.

A checkpoint is `epoch-0007.ckpt`, the state after epoch 7 (epochs count from 1), or `epoch-0007-00300.ckpt`, that after
300 steps of the next one. It appears under that name only when it is complete.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Epochs that are done, and steps of the next one. Python 3.8 could not run this line.
    Done = tuple[int, int]

START: Done = (0, 0)
_NAME = re.compile(r"epoch-(\d{4,})(?:-(\d{5,}))?\.ckpt")


def name(done: Done) -> str:
    """Name a checkpoint."""
    epochs, steps = done
    return f"epoch-{epochs:04d}-{steps:05d}.ckpt" if steps else f"epoch-{epochs:04d}.ckpt"


def there(folder: Path) -> list[Done]:
    """Return which checkpoints there are, the newest first."""
    matches = [_NAME.fullmatch(file.name) for file in folder.glob("*")]
    return sorted(((int(match[1]), int(match[2] or 0)) for match in matches if match), reverse=True)


def newest_common(of_ranks: Iterable[Iterable[Done]]) -> Done:
    """Return the newest checkpoint that every rank has, START when there is none."""
    return max(set.intersection(*map(set, of_ranks)), default=START)


def write(folder: Path, done: Done, save: Callable[[Path], Any], keep: int) -> Path:
    """Write a checkpoint by `save`, then drop all but the newest `keep` of those up to it.

    A later one is what other ranks did not reach before a restart: it must not push out what is common.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # MindSpore adds the suffix to any other name, and leaves its files read-only.
    partial, final = folder / "partial.ckpt", folder / name(done)
    # Python 3.7 has no missing_ok.
    with contextlib.suppress(FileNotFoundError):
        partial.unlink()
    save(partial)
    # A rename may reach the disk before the data does: after a power cut the name would hold nothing.
    descriptor = os.open(partial, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    partial.replace(final)
    for old in [other for other in there(folder) if other <= done][keep:]:
        (folder / name(old)).unlink()
    return final
