#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a network on labelled pictures with MindSpore, in graph mode, on one process or many.

Runs under trainyard's launchers `mindspore`, `msrun` and (on GPU and Ascend) `mpirun`, or alone. Every rank prints
`epoch: 1 step: 1, loss is 2.3` of its own pictures and, at the end, the checksum of its parameters, which must be equal
on all ranks; rank 0 prints the test accuracy. Every rank keeps checkpoints of its own; a run goes on from the newest
epoch that all ranks have.

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

import cluster
import mindspore
import mindspore.dataset
import numpy as np
import pictures
import rank_checkpoints
from checksum import checksum
from mindspore import Tensor, nn
from mindspore.train import Model
from mindspore.train.callback import Callback, CheckpointConfig, LossMonitor, ModelCheckpoint
from networks import ResNet50, perceptron

WRONG_INPUT, DIFFERENT_PARAMETERS = 2, 3
# By option: each rank trains on its share of every batch, or MindSpore also divides the network's own operators.
PARALLEL = {"data": "data_parallel", "auto": "auto_parallel"}
TEST_BATCH = 120


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
    options = parser.parse_args()
    if min(options.epochs, options.batch_size, options.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every are at least 1")
    if options.keep_checkpoints < 2:
        parser.error("--keep-checkpoints is at least 2: one rank may be an epoch ahead of the others")
    if options.checkpoints is None and "TRAINYARD_JOB_DIR" in os.environ:
        options.checkpoints = Path(os.environ["TRAINYARD_JOB_DIR"], "checkpoints")
    return options


def normalised(batch: np.ndarray) -> np.ndarray:
    """Return pictures of bytes as numbers around 0."""
    return (batch.astype(np.float32) - 128) / 64


def augmented(picture: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the picture, shifted by up to an eighth of its width, and mirrored half of the times."""
    margin = max(picture.shape[-1] // 8, 1)
    down, right = generator.integers(0, 2 * margin + 1, 2)
    padded = np.pad(picture, ((0, 0), (margin, margin), (margin, margin)))
    picture = padded[:, down : down + picture.shape[1], right : right + picture.shape[2]]
    return picture[:, :, ::-1] if generator.random() < 0.5 else picture


class Training:
    """The training pictures of this rank, as MindSpore reads them: one by one."""

    def __init__(self, data: pictures.Pictures, augment: bool, seed: int) -> None:
        """Take the data set."""
        self.pictures, self.labels = data.train, data.train_labels.astype(np.int32)
        self.augment, self.generator = augment, np.random.default_rng(seed)

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a picture and its label."""
        picture = self.pictures[index]
        if self.augment:
            picture = augmented(picture, self.generator)
        return normalised(picture), self.labels[index]


def batches(options: argparse.Namespace, data: pictures.Pictures, rank: int, ranks: int, last: int) -> Any:
    """Return this rank's batches; the order of a resumed run goes on with other random numbers than it began with."""
    mindspore.dataset.config.set_seed(options.seed + last)
    each = mindspore.dataset.GeneratorDataset(
        Training(data, options.augment, options.seed + last + 1000 * rank),
        ["picture", "label"],
        shuffle=True,
        num_shards=ranks,
        shard_id=rank,
        num_parallel_workers=1,
    )
    made = each.batch(options.batch_size, drop_remainder=True)
    if made.get_dataset_size() == 0:
        raise InputError(
            f"--batch-size {options.batch_size} on {ranks} ranks is more than the {len(data.train)} training pictures: "
            "lower --batch-size"
        )
    return made


class EpochCheckpoints(Callback):
    """Writes the state of network and optimizer after each epoch."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Take the folder of this rank."""
        super().__init__()
        self.folder, self.keep = folder, keep

    def on_train_epoch_end(self, run_context: Any) -> None:
        """Write a checkpoint."""
        state = run_context.original_args()
        rank_checkpoints.write(
            self.folder,
            state.cur_epoch_num,
            lambda file: mindspore.save_checkpoint(state.train_network, str(file)),
            self.keep,
        )


def resume(options: argparse.Namespace, folder: Path, model: Model, rank: int, ranks: int) -> int:
    """Bring this rank to the newest epoch that all ranks have and return it, 0 without any."""
    mine = rank_checkpoints.epochs(folder)[: options.keep_checkpoints]
    padded = mine + [0] * (options.keep_checkpoints - len(mine))
    last = rank_checkpoints.newest_common(cluster.gather(padded, ranks))
    if last == 0:
        say(f"rank {rank}: no epoch of which all ranks have a checkpoint: training starts at epoch 1")
        return 0
    file = folder / rank_checkpoints.name(last)
    network = model.train_network
    try:
        missing = mindspore.load_param_into_net(network, mindspore.load_checkpoint(str(file)), strict_load=True)
    except (ValueError, RuntimeError, TypeError) as error:
        raise InputError(f"{file} does not fit --model {options.model}: {error}; give other --checkpoints") from error
    del missing
    say(f"rank {rank}: resumed from {file} after epoch {last}")
    return last


def build(options: argparse.Namespace, data: pictures.Pictures) -> nn.Cell:
    """Return the network for the pictures of the data set."""
    channels, height, width = data.shape
    if options.model == "resnet50":
        return ResNet50(channels, data.classes)
    return perceptron(channels * height * width, data.classes)


def test_accuracy(network: nn.Cell, data: pictures.Pictures) -> float:
    """Return the share of test pictures recognised, in per cent."""
    network.set_train(False)
    right = 0
    for start in range(0, len(data.test), TEST_BATCH):
        batch = normalised(data.test[start : start + TEST_BATCH])
        # All batches of one size: each new one would be compiled anew.
        padded = np.concatenate([batch, np.zeros((TEST_BATCH - len(batch), *batch.shape[1:]), np.float32)])
        answers = network(Tensor(padded)).asnumpy()[: len(batch)].argmax(1)
        right += int((answers == data.test_labels[start : start + TEST_BATCH]).sum())
    return 100.0 * right / len(data.test)


def callbacks(options: argparse.Namespace, folder: Path | None, steps: int) -> list[Callback]:
    """Return what is done after steps and epochs."""
    each: list[Callback] = [LossMonitor(options.log_every)]
    if folder is not None:
        each.append(EpochCheckpoints(folder, options.keep_checkpoints))
        if os.environ.get("MS_ENABLE_RECOVERY") == "1" and options.sink:
            # From these MindSpore itself brings back a single worker that died.
            kept = CheckpointConfig(save_checkpoint_steps=steps, keep_checkpoint_max=options.keep_checkpoints)
            each.append(ModelCheckpoint("recovery", str(folder / "recovery"), kept))
    return each


def run(options: argparse.Namespace) -> int:
    """Train as one rank of the job and return the exit status."""
    if options.parallel == "auto" and cluster.device_target() == "CPU":
        raise InputError("--parallel auto is for GPU and Ascend, MindSpore refuses it on the CPU: use --parallel data")
    data = pictures.read(options.dataset, options.data, options.random_size)
    rank, ranks = cluster.join()
    mindspore.set_seed(options.seed)  # before the network is made: all ranks start from the same parameters
    if ranks > 1:
        # Alone there is nobody to average gradients with, and MindSpore dies of trying.
        mindspore.set_auto_parallel_context(
            parallel_mode=PARALLEL[options.parallel], gradients_mean=True, device_num=ranks
        )
    network = build(options, data)
    optimizer = nn.Momentum(
        network.trainable_params(), options.learning_rate, options.momentum, weight_decay=options.weight_decay
    )
    model = Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), optimizer)
    folder = None if options.checkpoints is None else options.checkpoints / f"rank_{rank}"
    last = 0 if folder is None else resume(options, folder, model, rank, ranks)
    made = batches(options, data, rank, ranks, last)
    steps = made.get_dataset_size()
    if rank == 0:
        say(
            f"{options.model} on {options.dataset}: {len(data.train)} training and {len(data.test)} test pictures, "
            f"{ranks} rank(s) on {cluster.device_target()}, {steps} steps an epoch, {options.batch_size} per rank"
        )
    if last < options.epochs:
        model.train(
            options.epochs,
            made,
            callbacks=callbacks(options, folder, steps),
            dataset_sink_mode=options.sink,
            initial_epoch=last,
        )
    # Not the running means of batch normalisation, which every rank keeps of its own pictures.
    digest = checksum((parameter.name, parameter.asnumpy()) for parameter in network.trainable_params())
    say(f"rank {rank} parameters sha256 {digest}")
    rows = cluster.gather(list(bytes.fromhex(digest)), ranks)
    odd = [str(other) for other, row in enumerate(rows) if row != rows[0]]
    if odd:
        if rank == 0:
            say(f"the ranks have different parameters: rank(s) {', '.join(odd)} differ from rank 0")
        return DIFFERENT_PARAMETERS
    if rank == 0:
        say(f"final test accuracy {test_accuracy(network, data):.2f} %")
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
