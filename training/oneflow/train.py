#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a perceptron on labelled pictures with OneFlow's DistributedDataParallel, on one or many processes.

Runs under trainyard's launcher `oneflow` in both of its styles, under `direct`, or alone. As OneFlow's users expect,
only the first rank prints and saves: `step 40/200 epoch 2 loss 0.1234 rate 5123.4 samples/s` (loss: mean over the
ranks; rate: all ranks together), after each epoch `epoch 2 test accuracy 96.43 %`, and at the end the checksum of
every rank's parameters, which must be equal. What goes wrong is told by the rank it went wrong on. With --checkpoints
every rank keeps its state after each epoch, and goes on from the newest epoch of which all ranks have one.

Exit status: 0 done, 1 failed while training, 2 wrong input, 3 the ranks ended with different parameters.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from zipfile import BadZipFile

import numpy as np
import pictures
import rank_checkpoints
from checksum import checksum
from place import PlaceError, place

WRONG_INPUT, DIFFERENT_PARAMETERS = 2, 3


class InputError(Exception):
    """Something that the user gave cannot be used; the text says what to do."""


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dataset", choices=pictures.DATASETS, default="digits")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the data set, not needed for random")
    parser.add_argument("--random-size", type=int, default=2048, help="pictures of the data set random")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=10, help="steps between two progress lines")
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints; each rank has one of its own in it")
    parser.add_argument("--keep-checkpoints", type=int, default=2, help="how many each rank keeps, at least 2")
    parser.add_argument("--save", type=Path, help="folder for the parameters, made by the first rank")
    options = parser.parse_args()
    if min(options.epochs, options.batch_size, options.log_every) < 1:
        parser.error("--epochs, --batch-size and --log-every are at least 1")
    if options.keep_checkpoints < 2:
        # Where ranks end at different epochs, none of them may have dropped what the others still have.
        parser.error("--keep-checkpoints is at least 2")
    if options.save is None and "TRAINYARD_JOB_DIR" in os.environ:
        options.save = Path(os.environ["TRAINYARD_JOB_DIR"], "parameters")
    return options


def say(line: str) -> None:
    """Print one line as a whole and at once: a launcher reads the progress from it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Training:
    """One rank's part of the training."""

    def __init__(self, flow: Any, options: argparse.Namespace, data: pictures.Pictures) -> None:
        """Take OneFlow, which has joined its cluster, and make the network, equal on all ranks."""
        self.flow, self.options, self.data = flow, options, data
        self.rank, self.ranks = flow.env.get_rank(), flow.env.get_world_size()
        on_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self.device = flow.device("cuda", flow.env.get_local_rank()) if on_gpu else flow.device("cpu")
        share = len(data.train) // self.ranks
        self.steps = share // options.batch_size
        if not self.steps:
            raise InputError(
                f"--batch-size {options.batch_size} is larger than a rank's share of the data: {len(data.train)} "
                f"training pictures over {self.ranks} ranks are {share} each; give a smaller one"
            )
        flow.manual_seed(options.seed)
        channels, height, width = data.shape
        hidden = 256
        self.network = flow.nn.Sequential(
            flow.nn.Flatten(),
            flow.nn.Linear(channels * height * width, hidden),
            flow.nn.ReLU(),
            flow.nn.Linear(hidden, hidden),
            flow.nn.ReLU(),
            flow.nn.Linear(hidden, data.classes),
        ).to(self.device)
        self.parallel = self.network
        if self.ranks > 1:
            # It gives all ranks the first one's parameters, and averages gradients. There are no buffers.
            self.parallel = flow.nn.parallel.DistributedDataParallel(self.network, broadcast_buffers=False)

        self.optimizer = flow.optim.SGD(self.network.parameters(), options.learning_rate, momentum=options.momentum)

    def tensor(self, values: np.ndarray) -> Any:
        """Return an array on this rank's device."""
        return self.flow.tensor(values, device=self.device)

    def pictures_of(self, values: np.ndarray) -> Any:
        """Return pictures of bytes as numbers around 0."""
        return self.tensor((values.astype(np.float32) - 128) / 64)

    def batches(self, epoch: int) -> Iterator[tuple[Any, Any]]:
        """Yield the epoch's batches: other pictures on every rank, another order in every epoch."""
        order = np.random.default_rng([self.options.seed, epoch]).permutation(len(self.data.train))
        mine = order[self.rank :: self.ranks]
        for step in range(self.steps):
            chosen = mine[step * self.options.batch_size : (step + 1) * self.options.batch_size]
            yield self.pictures_of(self.data.train[chosen]), self.tensor(self.data.train_labels[chosen])

    def sum_over_ranks(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of all ranks' arrays."""
        if self.ranks == 1:
            return values
        total = self.tensor(values)
        self.flow.comm.all_reduce(total)  # in place
        return total.numpy()

    def test_accuracy(self) -> float:
        """Return the share of test pictures recognised, in per cent."""
        with self.flow.no_grad():
            answers = self.network(self.pictures_of(self.data.test)).numpy().argmax(1)
        return 100.0 * float((answers == self.data.test_labels).mean())

    def resume(self, folder: Path) -> int:
        """Bring this rank to the newest epoch that all ranks have and return it, 0 without any."""
        mine = [epochs for epochs, _ in rank_checkpoints.there(folder)][: self.options.keep_checkpoints]
        table = np.zeros((self.ranks, self.options.keep_checkpoints), np.float32)
        table[self.rank, : len(mine)] = mine
        rows = self.sum_over_ranks(table)
        last, _ = rank_checkpoints.newest_common([(int(epochs), 0) for epochs in row] for row in rows)
        if last:
            self.restore(folder / rank_checkpoints.name((last, 0)))
            self.first(f"resumed after epoch {last} from {folder}, as all ranks")
        return last

    def restore(self, file: Path) -> None:
        """Take parameters and momentum from a checkpoint."""
        try:
            with np.load(file, allow_pickle=False) as saved:
                state = {name: self.tensor(saved[name]) for name in saved.files}
            self.network.load_state_dict({name: state[f"parameter {name}"] for name in self.network.state_dict()})
            whole = self.optimizer.state_dict()
            momentum = {number: {"momentum_buf": state[f"momentum {number}"]} for number in self.numbers()}
            self.optimizer.load_state_dict({**whole, "state": {**whole["state"], **momentum}})
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, RuntimeError) as error:
            raise InputError(f"{file} is no checkpoint of this network: {error}; give other --checkpoints") from error

    def numbers(self) -> range:
        """Return the numbers by which the optimizer knows the parameters."""
        return range(len(list(self.network.parameters())))

    def keep(self, folder: Path, epoch: int) -> None:
        """Write a checkpoint of this rank."""
        buffers = self.optimizer.state_dict()["state"]
        state = {f"parameter {name}": tensor.numpy() for name, tensor in self.network.state_dict().items()}
        state.update({f"momentum {number}": buffers[number]["momentum_buf"].numpy() for number in self.numbers()})

        def save(file: Path) -> None:
            # By its name numpy would give the file another one.
            with file.open("wb") as stream:
                np.savez(stream, **state)

        rank_checkpoints.write(folder, (epoch, 0), save, self.options.keep_checkpoints)

    def train(self) -> None:
        """Train to the last epoch."""
        options, all_steps = self.options, self.options.epochs * self.steps
        folder = options.checkpoints and options.checkpoints / f"rank_{self.rank}"
        last = self.resume(folder) if folder else 0
        judge = self.flow.nn.CrossEntropyLoss()
        step, since, steps_since = last * self.steps, time.perf_counter(), 0
        for epoch in range(last + 1, options.epochs + 1):
            for batch, labels in self.batches(epoch):
                loss = judge(self.parallel(batch), labels)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                step, steps_since = step + 1, steps_since + 1
                # The first step tells the watcher that the ranks have met.
                if step % options.log_every == 0 or step in (last * self.steps + 1, all_steps):
                    mean = float(self.sum_over_ranks(loss.numpy().reshape(1))[0]) / self.ranks
                    now = time.perf_counter()
                    rate = steps_since * options.batch_size * self.ranks / (now - since)
                    self.first(f"step {step}/{all_steps} epoch {epoch} loss {mean:.4f} rate {rate:.1f} samples/s")
                    since, steps_since = now, 0
            if self.rank == 0:
                pause = time.perf_counter()
                say(f"epoch {epoch} test accuracy {self.test_accuracy():.2f} %")
                since += time.perf_counter() - pause  # the rate is that of training alone
            if folder:
                self.keep(folder, epoch)

    def first(self, line: str) -> None:
        """Print a line on the first rank."""
        if self.rank == 0:
            say(line)

    def checksums(self) -> list[str]:
        """Return the checksums of all ranks' parameters."""
        parameters = {name: tensor.numpy() for name, tensor in self.network.state_dict().items()}
        table = np.zeros((self.ranks, 32), np.float32)
        table[self.rank] = list(bytes.fromhex(checksum(parameters.items())))
        return [bytes(int(value) for value in row).hex() for row in self.sum_over_ranks(table)]

    def save(self, folder: Path) -> None:
        """Keep the parameters. OneFlow writes a folder, and none that is there already."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        self.flow.save(self.network.state_dict(), str(folder))
        say(f"parameters saved in {folder}")


def run(options: argparse.Namespace) -> int:
    """Train as one rank of the job and return the exit status."""
    data = pictures.read(options.dataset, options.data, options.random_size)
    if options.save is not None and options.save.exists():
        raise InputError(f"--save {options.save} is there already: remove it, or give another folder")
    os.environ.update(place(os.environ))
    import oneflow as flow  # not before: the import joins the cluster

    training = Training(flow, options, data)
    training.first(
        f"mlp on {options.dataset}: {len(data.train)} training and {len(data.test)} test pictures, {training.ranks} "
        f"rank(s) on {training.device.type}, {training.steps} steps an epoch, {options.batch_size} per rank"
    )
    training.train()
    sums = training.checksums()
    for rank, digest in enumerate(sums):
        training.first(f"rank {rank} parameters sha256 {digest}")
    odd = [str(rank) for rank, digest in enumerate(sums) if digest != sums[0]]
    if odd:
        training.first(f"the ranks have different parameters: rank(s) {', '.join(odd)} differ from rank 0")
        return DIFFERENT_PARAMETERS
    if training.rank == 0:
        if options.save is not None:
            training.save(options.save)
        say(f"final test accuracy {training.test_accuracy():.2f} %")
    return 0


def main() -> NoReturn:
    """Run and leave with the right status."""
    name = f"rank {os.environ.get('RANK') or os.environ.get('ONEFLOW_MACHINE_ID', '0')} on {socket.gethostname()}"
    try:
        status = run(arguments())
    except (InputError, PlaceError, pictures.DataError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = WRONG_INPUT
    except Exception:
        traceback.print_exc()
        print(f"{name}: training failed, see above", file=sys.stderr)
        status = 1
    if status == 0:
        sys.exit(0)
    # OneFlow's own exit would wait for the other ranks, which wait for this one.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
