# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of one rank: names, order and life of the files, and the epoch from which all ranks can go on.

A checkpoint is `epoch-0007.ckpt`: the state after epoch 7 (epochs count from 1). It appears under that name only when
it is complete. No training framework needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_NAME = re.compile(r"epoch-(\d{4,})\.ckpt")
# With its suffix, as MindSpore adds that to any other name.
_PARTIAL = "partial.ckpt"


def name(epoch: int) -> str:
    """Name the checkpoint of an epoch."""
    return f"epoch-{epoch:04d}.ckpt"


def epochs(folder: Path) -> list[int]:
    """Return the epochs of which there is a checkpoint, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((int(match[1]) for file in folder.iterdir() if (match := _NAME.fullmatch(file.name))), reverse=True)


def newest_common(of_ranks: Iterable[Iterable[int]]) -> int:
    """Return the newest epoch of which every rank has a checkpoint, 0 when there is none."""
    common = set.intersection(*map(set, of_ranks))
    return max(common, default=0)


def write(folder: Path, epoch: int, save: Callable[[Path], Any], keep: int) -> Path:
    """Write the checkpoint of `epoch` by `save`, then drop all but the newest `keep` of those up to it.

    A later epoch is one that other ranks did not reach before a restart: it must not push out what is common.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial, final = folder / _PARTIAL, folder / name(epoch)
    # MindSpore leaves its files read-only.
    partial.unlink(missing_ok=True)
    save(partial)
    # A rename may reach the disk before the data does: after a power cut the name would hold nothing.
    descriptor = os.open(partial, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    partial.replace(final)
    for old in [number for number in epochs(folder) if number <= epoch][keep:]:
        (folder / name(old)).unlink()
    return final
