#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a network on labelled pictures with DistributedDataParallel, on one or many processes.

Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun and trainyard's direct launcher set them;
without them it runs as one process. Uses CUDA devices with NCCL where there are any, else the CPU with gloo.

Rank 0 prints `step 40/200 epoch 2 loss 0.1234 rate 5123.4 samples/s` (loss: mean over the ranks; rate: all ranks
together) and, after each epoch, `epoch 2 test accuracy 96.43 %`. At the end every rank prints the checksum of its
parameters and buffers, which must be equal on all ranks.

Exit status: 0 done, 1 failed while training, 2 wrong input, 3 the ranks ended with different parameters.
"""

from __future__ import annotations

import argparse
import os
import pickle
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import checkpoints
import pictures
import torch
import torch.distributed as dist
from checksum import checksum
from resnet import perceptron, resnet18
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

WRONG_INPUT, DIFFERENT_PARAMETERS = 2, 3


class InputError(Exception):
    """Something that the user gave cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Place:
    """Where this process stands among the ranks of the job."""

    rank: int
    ranks: int
    local_rank: int
    device: torch.device

    def say(self, line: str) -> None:
        """Print one line as a whole and at once: a launcher reads the progress from it."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def say_first(self, line: str) -> None:
        """Print the line on rank 0 only."""
        if self.rank == 0:
            self.say(line)


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description="Distributed training of a network on labelled pictures.")
    parser.add_argument("--dataset", choices=pictures.DATASETS, required=True)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the data set")
    parser.add_argument("--random-size", type=int, default=2048, help="pictures of the data set `random`")
    parser.add_argument("--model", choices=("resnet18", "mlp"), default="resnet18")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32, help="pictures per rank and step")
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--augment", action="store_true", help="shift and mirror the training pictures")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-every", type=int, default=10, help="steps between two progress lines")
    parser.add_argument("--checkpoint-dir", type=Path, help="where rank 0 keeps a checkpoint per epoch")
    parser.add_argument("--keep-checkpoints", type=int, default=2)
    parser.add_argument("--resume", choices=("auto", "never"), default="auto")
    parser.add_argument("--timeout", type=int, default=300, help="seconds to wait for the other ranks")
    options = parser.parse_args()
    for name in ("random_size", "epochs", "batch_size", "log_every", "keep_checkpoints", "timeout"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(options, name)}, expected 1 or more")
    return options


def find_place() -> Place:
    """Return this process's place, from the environment that the launcher set."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in names if name not in os.environ]
    if missing and len(missing) < len(names):
        raise InputError(f"{', '.join(missing)} not set: the launcher must set all of {', '.join(names)}, or none")
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if not torch.cuda.is_available():
        return Place(rank, ranks, local_rank, torch.device("cpu"))
    devices = torch.cuda.device_count()
    # A launcher that shows each rank only its own device numbers it 0 for all of them.
    index = 0 if devices == 1 else local_rank
    if index >= devices:
        raise InputError(f"local rank {local_rank} has no device, the node has {devices}: ask for fewer ranks per node")
    return Place(rank, ranks, local_rank, torch.device("cuda", index))


def join(place: Place, timeout: timedelta) -> None:
    """Meet the other ranks."""
    backend = "nccl" if place.device.type == "cuda" else "gloo"
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    if "RANK" in os.environ:
        dist.init_process_group(backend, timeout=timeout)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)


class Batches:
    """The data set on the device, cut into this rank's batches."""

    def __init__(self, data: pictures.Pictures, place: Place, batch_size: int, augment: bool, seed: int) -> None:
        """Load the data to the device; the pictures stay bytes there, a batch is made a float tensor when used."""
        share = len(data.train) // place.ranks
        if batch_size > share:
            raise InputError(
                f"--batch-size {batch_size} is larger than a rank's share of the data: "
                f"{len(data.train)} training pictures over {place.ranks} ranks are {share} each; give a smaller one"
            )
        self.place, self.batch_size, self.augment, self.seed = place, batch_size, augment, seed
        self.train = torch.from_numpy(data.train).to(place.device)
        self.train_labels = torch.from_numpy(data.train_labels).to(place.device)
        self.test = torch.from_numpy(data.test).to(place.device)
        self.test_labels = torch.from_numpy(data.test_labels).to(place.device)
        spread = data.train.std(axis=(0, 2, 3), dtype="float64")
        shape = (1, -1, 1, 1)
        self.mean = torch.tensor(data.train.mean(axis=(0, 2, 3), dtype="float64"), dtype=torch.float32).view(shape)
        self.spread = torch.tensor(spread.clip(min=1.0), dtype=torch.float32).view(shape)
        self.mean, self.spread = self.mean.to(place.device), self.spread.to(place.device)
        self.sampler: DistributedSampler[Any] = DistributedSampler(
            range(len(data.train)), place.ranks, place.rank, shuffle=True, seed=seed, drop_last=True
        )
        self.steps = share // batch_size

    def of_epoch(self, epoch: int):
        """Yield pictures and labels of the epoch: other ones on every rank, another order in every epoch."""
        self.sampler.set_epoch(epoch)
        # Depends on seed, epoch and rank alone, so a resumed run draws what the uninterrupted one would have drawn.
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) * 65_537 + self.place.rank)
        order = torch.tensor(list(self.sampler), device=self.place.device)
        for step in range(self.steps):
            chosen = order[step * self.batch_size : (step + 1) * self.batch_size]
            batch = self.train[chosen]
            if self.augment:
                batch = self._augmented(batch, generator)
            yield self._normalised(batch), self.train_labels[chosen]

    def of_test(self, size: int = 256):
        """Yield this rank's part of the test pictures."""
        for start in range(self.place.rank * size, len(self.test), self.place.ranks * size):
            yield self._normalised(self.test[start : start + size]), self.test_labels[start : start + size]

    def _normalised(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch.float() - self.mean) / self.spread

    def _augmented(self, batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        margin = max(batch.shape[-1] // 8, 1)
        down, right = (int(torch.randint(2 * margin + 1, (), generator=generator)) for _ in range(2))
        padded = nn.functional.pad(batch, (margin,) * 4)
        batch = padded[:, :, down : down + batch.shape[2], right : right + batch.shape[3]]
        mirrored = (torch.rand(len(batch), generator=generator) < 0.5).to(batch.device)
        return torch.where(mirrored.view(-1, 1, 1, 1), batch.flip(3), batch)


def build(model: str, data: pictures.Pictures) -> nn.Module:
    """Return the network for the pictures of the data set."""
    channels, height, width = data.shape
    if model == "resnet18":
        return resnet18(channels, data.classes)
    return perceptron(channels * height * width, data.classes)


def checksum_of(state: dict[str, torch.Tensor]) -> str:
    """Return the checksum of a network's parameters and buffers."""
    return checksum((name, tensor.detach().cpu().numpy()) for name, tensor in state.items())


def load_checkpoint(file: Path) -> dict[str, Any]:
    """Read a checkpoint and prove that its parameters are those that were written."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        intact = checksum_of(state["network"]) == state["checksum"]
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise checkpoints.UnreadableError(f"{type(error).__name__}: {str(error).splitlines()[0][:160]}") from error
    if not intact:
        raise checkpoints.UnreadableError("its parameters do not match its checksum")
    return state


def resume(options: argparse.Namespace, place: Place, network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bring all ranks to the newest checkpoint of rank 0 and return its epoch, 0 without any.

    Rank 0 reads and sends it to the others: they need no common file system and cannot disagree.
    """
    message: list[dict[str, Any] | None] = [None]
    folder = options.checkpoint_dir
    if place.rank == 0 and folder is not None:
        if options.resume == "never" and checkpoints.newest_first(folder):
            # Two runs in one folder: a later resume would take the newest epoch, whichever run it is of.
            message[0] = {"refused": f"--resume never, but {folder} holds checkpoints of a run: give another folder"}
        else:
            found = checkpoints.newest_readable(folder, load_checkpoint, place.say)
            if found:
                message[0] = {"file": str(found[0]), **found[1]}
            else:
                place.say(f"no checkpoint in {folder} on {socket.gethostname()}: training starts at epoch 1")
    dist.broadcast_object_list(message, src=0, device=place.device)
    state = message[0]
    if state is None:
        return 0
    if "refused" in state:
        raise InputError(state["refused"])
    if (state["model"], state["dataset"]) != (options.model, options.dataset):
        raise InputError(
            f"checkpoint {state['file']} is of --model {state['model']} --dataset {state['dataset']}, this run has "
            f"--model {options.model} --dataset {options.dataset}: give another --checkpoint-dir"
        )
    network.load_state_dict(state["network"])
    optimizer.load_state_dict(state["optimizer"])
    place.say_first(f"resumed from {state['file']} after epoch {state['epoch']}")
    return int(state["epoch"])


def save_checkpoint(
    options: argparse.Namespace, epoch: int, network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Write the state after `epoch`. Sampler and random numbers need no state: they follow from seed and epoch."""
    state = {
        "model": options.model,
        "dataset": options.dataset,
        "epoch": epoch,
        "network": network.state_dict(),
        "optimizer": optimizer.state_dict(),
        "checksum": checksum_of(network.state_dict()),
    }
    checkpoints.write(options.checkpoint_dir, epoch, partial(torch.save, state), options.keep_checkpoints)


def share_buffers(network: nn.Module) -> None:
    """Give all ranks rank 0's buffers: batch normalisation keeps other running means on every rank."""
    for buffer in network.buffers():
        dist.broadcast(buffer, src=0)


def test_accuracy(network: nn.Module, batches: Batches, place: Place) -> float:
    """Return the share of test pictures recognised, in per cent, over all ranks."""
    counts = torch.zeros(2, dtype=torch.int64, device=place.device)
    network.eval()
    with torch.no_grad():
        for batch, labels in batches.of_test():
            counts[0] += (network(batch).argmax(1) == labels).sum()
            counts[1] += len(labels)
    network.train()
    dist.all_reduce(counts)
    return 100.0 * counts[0].item() / counts[1].item()


def train(options: argparse.Namespace, place: Place, network: nn.Module, batches: Batches) -> float:
    """Train to the last epoch and return the test accuracy."""
    optimizer = torch.optim.SGD(
        network.parameters(), options.learning_rate, options.momentum, weight_decay=options.weight_decay
    )
    last = resume(options, place, network, optimizer)
    parallel = DistributedDataParallel(network, device_ids=[place.device] if place.device.type == "cuda" else None)
    step, steps = last * batches.steps, options.epochs * batches.steps
    since, steps_since = time.perf_counter(), 0
    accuracy = None
    for epoch in range(last + 1, options.epochs + 1):
        for batch, labels in batches.of_epoch(epoch):
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(parallel(batch), labels)
            loss.backward()
            optimizer.step()
            step, steps_since = step + 1, steps_since + 1
            # The first step tells the watcher that the ranks have met.
            if step % options.log_every == 0 or step == steps or step == last * batches.steps + 1:
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                mean_loss = mean.item() / place.ranks
                now = time.perf_counter()
                rate = steps_since * options.batch_size * place.ranks / (now - since)
                place.say_first(f"step {step}/{steps} epoch {epoch} loss {mean_loss:.4f} rate {rate:.1f} samples/s")
                since, steps_since = time.perf_counter(), 0
        pause = time.perf_counter()
        share_buffers(network)
        accuracy = test_accuracy(network, batches, place)
        place.say_first(f"epoch {epoch} test accuracy {accuracy:.2f} %")
        if place.rank == 0 and options.checkpoint_dir is not None:
            save_checkpoint(options, epoch, network, optimizer)
        since += time.perf_counter() - pause  # the rate is that of training alone
    return test_accuracy(network, batches, place) if accuracy is None else accuracy


def run(options: argparse.Namespace) -> int:
    """Train as one rank of the job and return the exit status."""
    place = find_place()
    data = pictures.read(options.dataset, options.data, options.random_size)
    torch.manual_seed(options.seed)  # before the network is made: all ranks start from the same parameters
    batches = Batches(data, place, options.batch_size, options.augment, options.seed)
    join(place, timedelta(seconds=options.timeout))
    place.say_first(
        f"{options.model} on {options.dataset}: {len(data.train)} training and {len(data.test)} test pictures, "
        f"{place.ranks} rank(s) on {place.device.type}, {batches.steps} steps an epoch, {options.batch_size} per rank"
    )
    network = build(options.model, data).to(place.device)
    accuracy = train(options, place, network, batches)
    digest = checksum_of(network.state_dict())
    place.say(f"rank {place.rank} parameters sha256 {digest}")
    checksums: list[str] = [""] * place.ranks
    dist.all_gather_object(checksums, digest)
    dist.destroy_process_group()
    if len(set(checksums)) > 1:
        odd = [str(rank) for rank, other in enumerate(checksums) if other != checksums[0]]
        place.say_first(f"the ranks have different parameters: rank(s) {', '.join(odd)} differ from rank 0")
        return DIFFERENT_PARAMETERS
    place.say_first(f"final test accuracy {accuracy:.2f} %")
    return 0


def leave(status: int) -> NoReturn:
    """End the process without the interpreter's own exit.

    After distributed training under load that exit now and then aborts (SIGABRT, `terminate called without an active
    exception`): threads of the process group are still alive while it unloads. Everything is written by now.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> NoReturn:
    """Run and leave with the right status."""
    name = f"rank {os.environ.get('RANK', '0')} on {socket.gethostname()}"
    try:
        status = run(arguments())
    except (InputError, pictures.DataError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        status = WRONG_INPUT
    except Exception:
        traceback.print_exc()
        print(f"{name}: training failed, see above", file=sys.stderr)
        status = 1
    leave(status)


if __name__ == "__main__":
    main()
