# SPDX-License-Identifier: Apache-2.0
"""How pictures become batches: cut out and mirrored at random, made larger, normalised, shared among the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore.dataset
import numpy as np
import releases

# Means and deviations of CIFAR-10's planes, in the order of MindSpore's own tutorials.
CIFAR_MEANS = (0.4465, 0.4822, 0.4914)
CIFAR_DEVIATIONS = (0.2010, 0.1994, 0.2023)


class _Labelled:
    """Pictures and labels, as MindSpore reads them: one by one, the planes last."""

    def __init__(self, pictures: np.ndarray, labels: np.ndarray) -> None:
        self.pictures, self.labels = pictures.transpose(0, 2, 3, 1), labels.astype(np.int32)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return np.ascontiguousarray(self.pictures[index]), self.labels[index]


def _operations(shape: tuple[int, int, int], pixels: int, augment: bool) -> list[Any]:
    channels, height, width = shape
    coloured = channels == len(CIFAR_MEANS)
    made: list[Any] = []
    if augment:
        margin = max(width // 8, 1)
        made += [
            releases.RandomCrop((height, width), (margin, margin, margin, margin)),
            releases.RandomHorizontalFlip(),
        ]
    if pixels:
        made.append(releases.Resize((pixels, pixels)))
    return [
        *made,
        releases.Rescale(1.0 / 255.0, 0.0),
        releases.Normalize(
            CIFAR_MEANS if coloured else (0.5,) * channels, CIFAR_DEVIATIONS if coloured else (0.25,) * channels
        ),
        releases.HWC2CHW(),
    ]


def training(
    pictures: np.ndarray, labels: np.ndarray, *, size: int, pixels: int, augment: bool, seed: int, rank: int, ranks: int
) -> Any:
    """Return this rank's batches of `size` pictures of `pixels` (0: as they are), what is left over dropped.

    `seed` is the same on all ranks: it deals the pictures out.
    """
    mindspore.dataset.config.set_seed(seed)
    each = mindspore.dataset.GeneratorDataset(
        _Labelled(pictures, labels),
        ["picture", "label"],
        shuffle=True,
        num_shards=ranks,
        shard_id=rank,
        num_parallel_workers=1,
    )
    # Small pictures are done at once; threads for them would only be in the way of the training.
    workers = None if pixels else 1
    ready = each.map(
        _operations(pictures.shape[1:], pixels, augment), input_columns=["picture"], num_parallel_workers=workers
    )
    return ready.batch(size, drop_remainder=True)


def testing(pictures: np.ndarray, labels: np.ndarray, *, size: int, pixels: int) -> Iterator[dict[str, np.ndarray]]:
    """Yield all pictures in their order, in batches with the keys `picture` and `label`; the last may be smaller."""
    each = mindspore.dataset.GeneratorDataset(
        _Labelled(pictures, labels), ["picture", "label"], shuffle=False, num_parallel_workers=1
    )
    ready = each.map(
        _operations(pictures.shape[1:], pixels, augment=False),
        input_columns=["picture"],
        num_parallel_workers=None if pixels else 1,
    )
    yield from ready.batch(size).create_dict_iterator(num_epochs=1, output_numpy=True)
