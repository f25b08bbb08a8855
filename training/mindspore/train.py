#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a network on labelled pictures with MindSpore, in graph mode, on one process or many.

Runs under trainyard's launchers `mindspore`, `msrun` and (on GPU and Ascend) `mpirun`, or alone. Every rank prints
`epoch: 1 step: 1, loss is 2.3` of its own pictures and, at the end, the checksum of its parameters, which must be equal
on all ranks (in auto parallel: of those that are not divided among them); rank 0 prints the test accuracy. Every rank
keeps checkpoints of its own; a run goes on from the newest one that all ranks have.

Exit status: 0 done, 1 failed while training, 2 wrong input, 3 the ranks ended with different parameters.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

import batches
import cluster
import mindspore
import numpy as np
import pictures
import rank_checkpoints
import releases
import whole
from checksum import checksum
from mindspore import Tensor, nn
from mindspore.train import Model
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint
from networks import CrossEntropy, ResNet50, perceptron

WRONG_INPUT, DIFFERENT_PARAMETERS = 2, 3
# By option: each rank trains on its share of every batch, or MindSpore also divides the network's own operators.
PARALLEL = {"data": "data_parallel", "auto": "auto_parallel"}


class InputError(Exception):
    """Something that the user gave cannot be used; the text says what to do."""


def say(line: str) -> None:
    """Print one line as a whole and at once: a launcher reads the progress from it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dataset", choices=pictures.DATASETS, default="digits")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the data set, not needed for random")
    parser.add_argument("--random-size", type=int, default=2048, help="pictures of the data set random")
    parser.add_argument("--model", choices=("mlp", "resnet50"), default="mlp")
    parser.add_argument("--pixels", type=int, default=0, help="height and width to which pictures are resized")
    parser.add_argument("--parallel", choices=PARALLEL, default="data")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--augment", action="store_true", help="shift and mirror the training pictures at random")
    parser.add_argument("--sink", action="store_true", help="data sink mode, for GPU and Ascend")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=1, help="steps between two progress lines")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        help="folder with a folder rank_R for each rank; by default checkpoints in the job's own folder, where only a "
        "job that trainyard starts again finds them",
    )
    parser.add_argument("--keep-checkpoints", type=int, default=2)
    parser.add_argument("--checkpoint-steps", type=int, default=0, help="one after so many steps, too, not with --sink")
    options = parser.parse_args()
    if min(options.epochs, options.batch_size, options.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every are at least 1")
    if min(options.pixels, options.checkpoint_steps) < 0:
        parser.error("--pixels and --checkpoint-steps are at least 0")
    if options.keep_checkpoints < 2:
        parser.error("--keep-checkpoints is at least 2: one rank may be a checkpoint ahead of the others")
    if options.checkpoints is None and "TRAINYARD_JOB_DIR" in os.environ:
        options.checkpoints = Path(os.environ["TRAINYARD_JOB_DIR"], "checkpoints")
    return options


class Checkpoints(Callback):
    """Writes the state of network and optimizer after each epoch, and also after every so many steps of it."""

    def __init__(self, folder: Path, keep: int, every: int, done: int) -> None:
        """Take the folder of this rank, how many to keep, `every` (0: epochs only), and the epochs behind the model."""
        super().__init__()
        self.folder, self.keep, self.every = folder, keep, every
        self.more = releases.not_counted(done)

    def step_end(self, run_context: Any) -> None:
        """Write a checkpoint where it is time for one. With a data sink this is called at the end of an epoch only."""
        state = run_context.original_args()
        steps = (state.cur_step_num - 1) % state.batch_num + 1
        if self.every and steps % self.every == 0 and steps < state.batch_num:
            self._write((state.cur_epoch_num - 1 + self.more, steps), state.train_network)

    def epoch_end(self, run_context: Any) -> None:
        """Write a checkpoint."""
        state = run_context.original_args()
        self._write((state.cur_epoch_num + self.more, 0), state.train_network)

    def _write(self, done: tuple[int, int], network: nn.Cell) -> None:
        # In auto parallel all ranks write at the same step, and MindSpore puts the slices together: each file is whole.
        rank_checkpoints.write(self.folder, done, lambda file: mindspore.save_checkpoint(network, str(file)), self.keep)


def resume(options: argparse.Namespace, folder: Path, network: nn.Cell, rank: int, ranks: int) -> int:
    """Bring this rank to the newest checkpoint that all ranks have; return how many epochs are done, 0 without any."""
    mine = rank_checkpoints.there(folder)[: options.keep_checkpoints]
    padded = mine + [rank_checkpoints.START] * (options.keep_checkpoints - len(mine))
    rows = cluster.gather([number for done in padded for number in done], ranks)
    last = rank_checkpoints.newest_common(zip(row[::2], row[1::2]) for row in rows)
    if last == rank_checkpoints.START:
        say(f"rank {rank}: no checkpoint that all ranks have: training starts at epoch 1")
        return 0
    file = folder / rank_checkpoints.name(last)
    try:
        mindspore.load_param_into_net(network, mindspore.load_checkpoint(str(file)), strict_load=True)
    except (ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"{file} does not fit --model {options.model}: {error}; give other --checkpoints") from error
    epochs, steps = last
    again = f" and {steps} steps of the next, which begins anew" if steps else ""
    say(f"rank {rank}: resumed from {file} after epoch {epochs}{again}")
    return epochs


def build(options: argparse.Namespace, data: pictures.Pictures) -> nn.Cell:
    """Return the network for the pictures of the data set."""
    channels, height, width = data.shape
    if options.model == "resnet50":
        return ResNet50(channels, options.pixels or width, data.classes)
    return perceptron(channels * (options.pixels**2 or height * width), data.classes)


def test_accuracy(network: nn.Cell, data: pictures.Pictures, size: int, pixels: int) -> float:
    """Return the share of test pictures recognised, in per cent."""
    network.set_train(False)
    right = 0
    for batch in batches.testing(data.test, data.test_labels, size=size, pixels=pixels):
        shown, labels = batch["picture"], batch["label"]
        # All batches of one size: each new one would be compiled anew.
        padded = np.concatenate([shown, np.zeros((size - len(shown), *shown.shape[1:]), np.float32)])
        right += int((network(Tensor(padded)).asnumpy()[: len(shown)].argmax(1) == labels).sum())
    return 100.0 * right / len(data.test)


def callbacks(options: argparse.Namespace, folder: Path | None, done: int, steps: int) -> list[Callback]:
    """Return what is done after steps and epochs."""
    each: list[Callback] = [LossMonitor(options.log_every)]
    if folder is not None:
        each.append(Checkpoints(folder, options.keep_checkpoints, options.checkpoint_steps, done))
        if os.environ.get("MS_ENABLE_RECOVERY") == "1" and options.sink:
            # From these MindSpore itself brings back a single worker that died.
            kept = CheckpointConfig(
                save_checkpoint_steps=options.checkpoint_steps or steps, keep_checkpoint_max=options.keep_checkpoints
            )
            each.append(ModelCheckpoint("train", str(folder / "recovery"), kept))
    return each


def agree(arrays: list[tuple[str, np.ndarray]], shapes: dict[str, tuple[int, ...]], rank: int, ranks: int) -> bool:
    """Say what this rank's parameters are and return whether all ranks have the same ones, as far as each has them."""
    equal, slices = whole.parted(arrays, shapes)
    digest = checksum(equal)
    say(f"rank {rank} parameters sha256 {digest}" + (f" without {len(slices)} divided among the ranks" * bool(slices)))
    rows = cluster.gather(list(bytes.fromhex(digest)), ranks)
    odd = [str(other) for other, row in enumerate(rows) if row != rows[0]]
    if odd and rank == 0:
        say(f"the ranks have different parameters: rank(s) {', '.join(odd)} differ from rank 0")
    return not odd


def run(options: argparse.Namespace) -> int:
    """Train as one rank of the job and return the exit status."""
    if options.parallel == "auto" and cluster.device_target() == "CPU":
        raise InputError("--parallel auto is for GPU and Ascend, MindSpore refuses it on the CPU: use --parallel data")
    data = pictures.read(options.dataset, options.data, options.random_size)
    came_back = cluster.came_back()
    rank, ranks = cluster.join()
    mindspore.set_seed(options.seed)  # before the network is made: all ranks start from the same parameters
    if ranks > 1:
        # Alone there is nobody to average gradients with, and MindSpore dies of trying.
        mindspore.set_auto_parallel_context(
            parallel_mode=PARALLEL[options.parallel], gradients_mean=True, device_num=ranks
        )
    network = build(options, data)
    shapes = {parameter.name: tuple(parameter.shape) for parameter in network.trainable_params()}
    optimizer = nn.Momentum(
        network.trainable_params(), options.learning_rate, options.momentum, weight_decay=options.weight_decay
    )
    model = Model(network, CrossEntropy(data.classes), optimizer)
    folder = None if options.checkpoints is None else options.checkpoints / f"rank_{rank}"
    done = 0 if folder is None or came_back else resume(options, folder, model.train_network, rank, ranks)
    made = batches.training(
        data.train,
        data.train_labels,
        size=options.batch_size,
        pixels=options.pixels,
        augment=options.augment,
        # The order of a resumed run goes on with other random numbers than it began with.
        seed=options.seed + done,
        rank=rank,
        ranks=ranks,
    )
    steps = made.get_dataset_size()
    if steps == 0:
        raise InputError(
            f"--batch-size {options.batch_size} on {ranks} ranks is more than the {len(data.train)} training pictures: "
            "lower --batch-size"
        )
    if rank == 0:
        say(
            f"{options.model} on {options.dataset}: {len(data.train)} training and {len(data.test)} test pictures, "
            f"{ranks} rank(s) on {cluster.device_target()}, {steps} steps an epoch, {options.batch_size} per rank"
        )
    if done < options.epochs:
        releases.train(model, options.epochs, done, made, callbacks(options, folder, done, steps), options.sink)
    # Not the running means of batch normalisation, which every rank keeps of its own pictures.
    arrays = [(parameter.name, parameter.asnumpy()) for parameter in network.trainable_params()]
    lost = whole.not_finite(arrays)
    if lost:
        raise ArithmeticError(f"parameters that are no numbers any more: {', '.join(lost[:3])}; lower --learning-rate")
    if not agree(arrays, shapes, rank, ranks):
        return DIFFERENT_PARAMETERS
    if options.parallel == "auto":
        # The network of each rank is a part of one: rank 0 alone could not use it.
        return 0
    if rank == 0:
        say(f"final test accuracy {test_accuracy(network, data, options.batch_size, options.pixels):.2f} %")
    return 0


def main() -> None:
    """Run and leave with the right status."""
    name = f"rank {os.environ.get('MS_NODE_ID', '0')} on {socket.gethostname()}"
    try:
        sys.exit(run(arguments()))
    except (InputError, pictures.DataError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = WRONG_INPUT
    except Exception:
        traceback.print_exc()
        print(f"{name}: training failed, see above", file=sys.stderr)
        status = 1
    # The interpreter's own exit would wait for the other ranks.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
