# SPDX-License-Identifier: Apache-2.0
"""What MindSpore's releases from 1.7 on call differently, under one name for all of them.

`tests/unit/training/test_mindspore_api.py` compares every call of this folder with the signatures of 1.7.0, 2.0.0 and
2.10.0.
"""

from __future__ import annotations

import inspect
from typing import Any

import mindspore
from mindspore.train import Model

try:
    from mindspore.dataset.vision import HWC2CHW, Normalize, RandomCrop, RandomHorizontalFlip, Rescale, Resize
except ImportError:  # before 1.8
    from mindspore.dataset.vision.c_transforms import (
        HWC2CHW,
        Normalize,
        RandomCrop,
        RandomHorizontalFlip,
        Rescale,
        Resize,
    )

__all__ = ["HWC2CHW", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Rescale", "Resize"]

# Before 1.8 a training always counts its epochs from 1.
COUNTS_ON = "initial_epoch" in inspect.signature(Model.train).parameters


def use_device(target: str) -> None:
    """Train in graph mode on this device: `CPU`, `GPU` or `Ascend`."""
    if hasattr(mindspore, "set_device"):  # from 2.5 on
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
        mindspore.set_device(target)
    else:
        mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target=target)


def train(model: Model, epochs: int, done: int, batches: Any, callbacks: list[Any], sink: bool) -> None:
    """Train up to epoch `epochs`, `done` of which are behind the model."""
    if COUNTS_ON:
        model.train(epochs, batches, callbacks=callbacks, dataset_sink_mode=sink, initial_epoch=done)
    else:
        model.train(epochs - done, batches, callbacks=callbacks, dataset_sink_mode=sink)


def not_counted(done: int) -> int:
    """Return how many epochs are missing in what callbacks are told, when `done` are behind the model."""
    return 0 if COUNTS_ON else done
