# SPDX-License-Identifier: Apache-2.0
"""Collectives of torch.distributed: gloo on CPUs, nccl on NVIDIA GPUs, hccl on Ascend NPUs (by torch_npu)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import values

# Torch 2.13 has new names for them, and warns of the old ones.
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def choose(backend: str) -> str:
    """Return the backend for what this process sees: `auto` takes the devices' own, where there are any."""
    if backend != "auto":
        return backend
    if torch.cuda.is_available():
        return "nccl"
    return "hccl" if _npu() is not None else "gloo"


def _npu() -> Any:
    """Return torch.npu, or None where there is no NPU or nothing that drives it."""
    try:
        import torch_npu  # noqa: F401 - it adds torch.npu
    except ImportError:
        return None
    npu = torch.npu
    return npu if npu.is_available() else None


def device_of(backend: str, local_rank: int) -> torch.device:
    """Return this rank's device, and make it the current one. Raises RuntimeError where there is none."""
    if backend == "gloo":
        return torch.device("cpu")
    kind, runtime = ("cuda", torch.cuda) if backend == "nccl" else ("npu", _npu())
    count = runtime.device_count() if runtime is not None else 0
    if count == 0:
        raise RuntimeError(f"no device for {backend}, expected one for each rank; --backend gloo measures on CPUs")
    # A launcher that shows each rank only its own device numbers it 0 for all of them.
    device = torch.device(kind, 0 if count == 1 else local_rank)
    runtime.set_device(device)
    return device


class Exchange:
    """One collective with buffers of one size.

    torch.distributed sums and broadcasts in place only: out-of-place includes the copy that keeps what was sent.
    """

    def __init__(self, group: Group, collective: str, count: int) -> None:
        """Take the buffers."""
        self._group, self.collective, self.count = group, collective, count
        sent, received = values.lengths(collective, count, group.ranks)
        self.nbytes = max(sent, received) * values.ELEMENT_BYTES
        self._sent = torch.empty(sent, dtype=torch.float32, device=group.device)
        self._received = torch.empty(received, dtype=torch.float32, device=group.device)
        # In place, the smaller buffer is this rank's part of the larger one.
        larger = self._received if collective == "all_gather" else self._sent
        self._own = larger[group.rank * count : (group.rank + 1) * count] if len(larger) > count else larger

    def _repeat(self, period: Sequence[float], length: int) -> torch.Tensor:
        block = torch.tensor(period, dtype=torch.float32, device=self._group.device)
        return block.repeat(length // values.PERIOD + 1)[:length]

    def fill(self, in_place: bool) -> None:
        """Put into the buffers what this rank sends."""
        rank = self._group.rank
        self._received.fill_(values.NOTHING)
        if self.collective == "broadcast" and rank:
            self._sent.fill_(values.NOTHING)
            return
        pattern = self._repeat(values.sent(0, rank), len(self._sent))
        self._sent.copy_(pattern)
        if in_place and self.collective == "all_gather":
            self._own.copy_(pattern)

    def run(self, in_place: bool) -> None:
        """Run the collective once; on devices it may still run when this returns."""
        process_group = self._group.process_group
        if self.collective in ("all_reduce", "broadcast"):
            buffer = self._sent if in_place else self._received
            if not in_place:
                buffer.copy_(self._sent)
            if self.collective == "all_reduce":
                dist.all_reduce(buffer, group=process_group)
            else:
                dist.broadcast(buffer, 0, group=process_group)
        elif self.collective == "all_gather":
            _ALL_GATHER(self._received, self._own if in_place else self._sent, group=process_group)
        elif self.collective == "reduce_scatter":
            _REDUCE_SCATTER(self._own if in_place else self._received, self._sent, group=process_group)
        elif self.collective == "alltoall":
            dist.all_to_all_single(self._received, self._sent, group=process_group)
        elif self._group.ranks == 1:
            self._received.copy_(self._sent)
        else:
            rank, ranks = self._group.rank, self._group.ranks
            both = ((dist.isend, self._sent, rank + 1), (dist.irecv, self._received, rank - 1))
            for work in dist.batch_isend_irecv([dist.P2POp(what, of, to % ranks) for what, of, to in both]):
                work.wait()

    def wrong(self, in_place: bool) -> int:
        """Return how many elements of this rank's result are wrong."""
        group = self._group
        got = self._received
        if in_place and self.collective != "all_gather":
            got = self._own if self.collective == "reduce_scatter" else self._sent
        blocks = values.result(self.collective, group.rank, group.ranks, self.count)
        expected = torch.cat([self._repeat(period, length) for period, length in blocks])
        # A NaN differs from everything, itself too.
        return int((got != expected).sum())


class Group:
    """The ranks that take part, met through a store, and their collectives."""

    def __init__(self, backend: str, store: Any, rank: int, ranks: int, local_rank: int, timeout_s: float) -> None:
        """Join the others. Raises RuntimeError where they do not come, or there is no device."""
        self.backend, self.rank, self.ranks = backend, rank, ranks
        self.device = device_of(backend, local_rank)
        self._store = dist.PrefixStore("benchmark", store)
        self._round = 0
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout_s))
        self.process_group = dist.group.WORLD

    def device_name(self) -> tuple[str, str, str]:
        """Return number, bus (of a CPU: the interface) and name of this rank's device."""
        if self.device.type == "cpu":
            return "cpu", os.environ.get("GLOO_SOCKET_IFNAME") or "-", self.backend
        runtime = torch.cuda if self.device.type == "cuda" else torch.npu
        properties = runtime.get_device_properties(self.device)
        bus = getattr(properties, "pci_bus_id", None)
        where = "-" if bus is None else f"{properties.pci_domain_id:04x}:{bus:02x}:{properties.pci_device_id:02x}"
        return str(self.device.index), where, str(properties.name)

    def exchange(self, collective: str, count: int) -> Exchange:
        """Return the collective with buffers for `count` elements."""
        return Exchange(self, collective, count)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type != "cpu":
            (torch.cuda if self.device.type == "cuda" else torch.npu).synchronize()

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        dist.barrier()
        self.synchronize()

    def collect(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, [] on the others.

        By way of the store: the collectives are what is examined here.
        """
        self._round += 1
        self._store.set(f"{self._round}/{self.rank}", json.dumps(value))
        if self.rank:
            return []
        return [json.loads(self._store.get(f"{self._round}/{rank}")) for rank in range(self.ranks)]

    def decide(self, value: Any) -> Any:
        """Return rank 0's value on all ranks."""
        self._round += 1
        if self.rank == 0:
            self._store.set(str(self._round), json.dumps(value))
            return value
        return json.loads(self._store.get(str(self._round)))

    def leave(self) -> None:
        """End the group, when all ranks are ready to."""
        dist.barrier()
        dist.destroy_process_group()
