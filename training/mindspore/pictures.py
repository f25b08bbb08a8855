# SPDX-License-Identifier: Apache-2.0
"""Read labelled pictures: CIFAR-10 (binary and python format), scikit-learn's digits, or random ones in memory.

Pictures are uint8 arrays of shape (count, channels, height, width), labels int64 of shape (count). A CIFAR-10 record is
one label byte and 3 x 32 x 32 bytes, red, green, blue; a line of the digits is 64 values of 0 to 16 and the label.
"""

from __future__ import annotations

import gzip
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes
CLASSES = 10
# Every fifth digit is a test picture: a split that no version of a random generator can change.
DIGITS_TEST_EVERY = 5
DATASETS = ("cifar10", "digits", "generated", "random")


class DataError(Exception):
    """The data set cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Pictures:
    """A data set in memory."""

    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    classes: int = CLASSES

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of a picture."""
        channels, height, width = self.train.shape[1:]
        return int(channels), int(height), int(width)


def read(dataset: str, path: Path, random_size: int = 2048) -> Pictures:
    """Return the data set `dataset` in the folder `path` (`random` needs none)."""
    if dataset == "random":
        return random_pictures(random_size)
    if not path.is_dir():
        raise DataError(f"data set {dataset}: no folder {path}; place it with the role dataset, or correct --data")
    return read_digits(path) if dataset == "digits" else read_cifar(path, complete=dataset == "cifar10")


def random_pictures(count: int) -> Pictures:
    """Return `count` random training pictures in CIFAR-10's shape, to measure speed without any file."""
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (count, *CIFAR_SHAPE), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, count, dtype=np.int64)
    tests = max(count // 8, 1)
    return Pictures(pictures, labels, pictures[:tests], labels[:tests])


def read_digits(folder: Path) -> Pictures:
    """Return the handwritten digits of `digits.csv.gz`, 8 x 8, scaled from 0..16 to 0..255."""
    file = folder / "digits.csv.gz"
    try:
        with gzip.open(file, "rt", encoding="ascii") as lines:
            table = np.loadtxt(lines, delimiter=",", dtype=np.float32, ndmin=2)
    except (OSError, EOFError, ValueError) as error:
        raise _damaged(file, f"cannot be read ({error})") from error
    if table.shape[0] < DIGITS_TEST_EVERY or table.shape[1] != 65:
        raise _damaged(file, f"is a table of {table.shape[0]} x {table.shape[1]}, expected 1797 x 65")
    pictures = np.minimum(table[:, :64] * 16, 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = _checked_labels(table[:, 64].astype(np.int64), file)
    tests = np.arange(len(labels)) % DIGITS_TEST_EVERY == 0
    return Pictures(pictures[~tests], labels[~tests], pictures[tests], labels[tests])


def read_cifar(folder: Path, complete: bool = True) -> Pictures:
    """Return the pictures of `folder`, or of the folder that CIFAR-10's own archives make in it.

    `complete`: expect exactly the five training files of CIFAR-10; otherwise any number of `data_batch_*.bin`.
    """
    for place in (folder, folder / "cifar-10-batches-bin", folder / "cifar-10-batches-py"):
        suffix = ".bin" if (place / "test_batch.bin").is_file() else ""
        if suffix or (place / "test_batch").is_file():
            break
    else:
        raise _damaged(folder, "holds neither test_batch.bin (binary format) nor test_batch (python format)")
    read_file = _read_cifar_binary if suffix else _read_cifar_python
    names = [f"data_batch_{number}{suffix}" for number in range(1, 6)]
    if not complete:
        names = sorted(file.name for file in place.glob(f"data_batch_*{suffix}")) or names[:1]
    missing = [name for name in names if not (place / name).is_file()]
    if missing:
        raise _damaged(place, f"lacks {', '.join(missing)}")
    pictures, labels = zip(*(read_file(place / name) for name in names))
    return Pictures(np.concatenate(pictures), np.concatenate(labels), *read_file(place / f"test_batch{suffix}"))


def _read_cifar_binary(file: Path) -> tuple[np.ndarray, np.ndarray]:
    size = file.stat().st_size
    if size == 0 or size % CIFAR_RECORD:
        raise _damaged(file, f"has {size} bytes, expected a multiple of {CIFAR_RECORD} (one record)")
    records = np.fromfile(file, dtype=np.uint8).reshape(-1, CIFAR_RECORD)
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE), _checked_labels(records[:, 0].astype(np.int64), file)


class _ArrayUnpickler(pickle.Unpickler):
    """Make arrays and lists only, as in CIFAR-10's python files: an ordinary pickle can run any code."""

    allowed = frozenset(
        (module, name)
        for module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("ndarray", "dtype", "_reconstruct")
    ) | {("_codecs", "encode")}

    def find_class(self, module: str, name: str) -> Any:
        """Return the few constructors of an array, and refuse everything else."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR-10 file needs")
        return super().find_class(module, name)


def _read_cifar_python(file: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        # The files were written by Python 2: `bytes` keeps their keys as they are.
        batch = _ArrayUnpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        pictures = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, *CIFAR_SHAPE)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, ImportError, IndexError) as error:
        raise _damaged(file, f"is not in CIFAR-10's python format ({error})") from error
    if len(pictures) != len(labels) or len(labels) == 0:
        raise _damaged(file, f"has {len(pictures)} pictures and {len(labels)} labels")
    return pictures, _checked_labels(labels, file)


def _checked_labels(labels: np.ndarray, file: Path) -> np.ndarray:
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise _damaged(file, f"has labels from {labels.min()} to {labels.max()}, expected 0 to {CLASSES - 1}")
    return labels


def _damaged(path: Path, found: str) -> DataError:
    return DataError(f"{path} {found}; place the data set again with the role dataset, or correct --data")
