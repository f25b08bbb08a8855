#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a perceptron as OneFlow's first guide does: a global function over all devices of all machines.

For OneFlow 0.1.10 to 0.4.0, with job_oneflow_style: address_list: one process on each machine, which drives all its
devices. The first machine builds the graph, feeds it, prints and saves; on the others the first call of the function
serves the master, and ends the process when that has ended.

Exit status: 0 done, 1 failed while training, 2 wrong input.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pictures
from place import PlaceError, machines

WRONG_INPUT = 2


class InputError(Exception):
    """Something that the user gave cannot be used; the text says what to do."""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dataset", choices=pictures.DATASETS, default="digits")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the data set, not needed for random")
    parser.add_argument("--random-size", type=int, default=2048, help="pictures of the data set random")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=100, help="pictures of a step, over all devices together")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--log-every", type=int, default=10, help="steps between two progress lines")
    parser.add_argument("--save", type=Path, help="folder for the parameters, on the first machine")
    options = parser.parse_args(given)
    if min(options.epochs, options.batch_size, options.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every are at least 1")
    return options


def configure(flow: Any, addresses: list[str], port: int, devices: int) -> None:
    """Tell OneFlow its cluster, before anything of it starts."""
    if not hasattr(flow, "global_function"):
        raise InputError(
            f"OneFlow {flow.__version__} has no global functions, which ended with 0.4: use train.py, or an older one"
        )
    flow.config.gpu_device_num(devices)
    if len(addresses) > 1:
        flow.env.ctrl_port(port)
        flow.env.machine([{"addr": address} for address in addresses])


def function(flow: Any, typing: Any, shape: tuple[int, ...], classes: int, options: argparse.Namespace) -> Callable:
    """Return the training step: from a batch of pictures and labels to its losses."""
    pictures_of_step = (options.batch_size, *shape)

    # Its types are looked at when it is defined, so they may not stay text.
    def train_job(images: Any, labels: Any) -> Any:
        start = flow.random_normal_initializer(stddev=0.1)
        hidden = flow.reshape(images, [options.batch_size, -1])
        hidden = flow.layers.dense(hidden, 256, activation=flow.nn.relu, kernel_initializer=start, name="dense1")
        answers = flow.layers.dense(hidden, classes, kernel_initializer=start, name="dense2")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, answers)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [options.learning_rate])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    train_job.__annotations__ = {
        "images": typing.Numpy.Placeholder(pictures_of_step, dtype=flow.float),
        "labels": typing.Numpy.Placeholder((options.batch_size,), dtype=flow.int32),
        "return": typing.Numpy,
    }
    made: Callable = flow.global_function(type="train")(train_job)
    return made


def batches(
    data: pictures.Pictures, options: argparse.Namespace, epoch: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the epoch's batches, in another order in every epoch."""
    order = np.random.default_rng([1, epoch]).permutation(len(data.train))
    for first in range(0, len(order) - options.batch_size + 1, options.batch_size):
        chosen = order[first : first + options.batch_size]
        yield (data.train[chosen].astype(np.float32) - 128) / 64, data.train_labels[chosen].astype(np.int32)


def train(flow: Any, typing: Any, data: pictures.Pictures, options: argparse.Namespace) -> None:
    """Train to the last epoch, and keep the parameters."""
    if len(data.train) < options.batch_size:
        raise InputError(f"--batch-size {options.batch_size} is larger than the {len(data.train)} training pictures")
    step_of = function(flow, typing, data.shape, data.classes, options)
    parameters = flow.checkpoint if hasattr(flow, "checkpoint") else flow.train.CheckPoint()
    if hasattr(parameters, "init"):
        parameters.init()  # since 0.3 they are set when they are first needed
    steps = options.epochs * (len(data.train) // options.batch_size)
    step = 0
    for epoch in range(1, options.epochs + 1):
        for images, labels in batches(data, options, epoch):
            loss = float(step_of(images, labels).mean())
            step += 1
            if step % options.log_every == 0 or step in (1, steps):
                print(f"step {step}/{steps} epoch {epoch} loss {loss:.4f}", flush=True)
    if options.save:
        parameters.save(str(options.save))
        print(f"parameters saved in {options.save}", flush=True)


def main() -> int:
    """Run as the process of one machine and return the exit status."""
    try:
        options = arguments()
        place = machines(os.environ)
        data = pictures.read(options.dataset, options.data, options.random_size)
        import oneflow as flow  # not before: what is wrong until here needs no framework

        configure(flow, *place)
        from oneflow import typing

        train(flow, typing, data, options)
    except (InputError, PlaceError, pictures.DataError) as error:
        print(f"{socket.gethostname()}: {error}", file=sys.stderr)
        return WRONG_INPUT
    return 0


if __name__ == "__main__":
    sys.exit(main())
