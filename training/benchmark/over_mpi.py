# SPDX-License-Identifier: Apache-2.0
"""Collectives of Open MPI 4 and 5 by their C interface: needs no package on the nodes but Open MPI itself."""

from __future__ import annotations

import ctypes
import json
from array import array
from collections.abc import Sequence
from typing import Any

import values

LIBRARY = "libmpi.so.40"
# MPI counts in int, and this is MPI_IN_PLACE of Open MPI's mpi.h.
MOST = (1 << 31) - 1
IN_PLACE = ctypes.c_void_p(1)


def _repeat(period: Sequence[float], length: int) -> bytes:
    block = array("f", period).tobytes()
    return (block * (length // values.PERIOD + 1))[: length * values.ELEMENT_BYTES]


class Exchange:
    """One collective with buffers of one size."""

    def __init__(self, group: Group, collective: str, count: int) -> None:
        """Take the buffers."""
        self._group, self.collective, self.count = group, collective, count
        lengths = values.lengths(collective, count, group.ranks)
        self.nbytes = max(lengths) * values.ELEMENT_BYTES
        if max(lengths) > MOST:
            raise ValueError(f"{self.nbytes} bytes, of which MPI counts at most {MOST} elements")
        self._sent, self._received = (bytearray(length * values.ELEMENT_BYTES) for length in lengths)

    def fill(self, in_place: bool) -> None:
        """Put into the buffers what this rank sends."""
        rank = self._group.rank
        nothing = [values.NOTHING] * values.PERIOD
        self._received[:] = _repeat(nothing, len(self._received) // values.ELEMENT_BYTES)
        length = len(self._sent) // values.ELEMENT_BYTES
        if self.collective == "broadcast" and rank:
            self._sent[:] = _repeat(nothing, length)
            return
        pattern = _repeat(values.sent(0, rank), length)
        self._sent[:] = pattern
        if in_place and self.collective == "all_gather":
            self._received[rank * len(pattern) : (rank + 1) * len(pattern)] = pattern

    def run(self, in_place: bool) -> None:
        """Run the collective once."""
        group, count = self._group, self.count
        mpi, world, real, total = group.mpi, group.world, group.real, group.total
        sent, received = (
            ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(buffer)))
            for buffer in (self._sent, self._received)
        )
        if self.collective == "all_reduce":
            # In place, the buffer that is received is the one that was sent.
            send, receive = (IN_PLACE, sent) if in_place else (sent, received)
            mpi.MPI_Allreduce(send, receive, count, real, total, world)
        elif self.collective == "all_gather":
            mpi.MPI_Allgather(IN_PLACE if in_place else sent, count, real, received, count, real, world)
        elif self.collective == "reduce_scatter":
            send, receive = (IN_PLACE, sent) if in_place else (sent, received)
            mpi.MPI_Reduce_scatter_block(send, receive, count, real, total, world)
        elif self.collective == "alltoall":
            mpi.MPI_Alltoall(sent, count, real, received, count, real, world)
        elif self.collective == "sendrecv":
            to, source = (group.rank + 1) % group.ranks, (group.rank - 1) % group.ranks
            mpi.MPI_Sendrecv(sent, count, real, to, 0, received, count, real, source, 0, world, None)
        else:
            if not in_place:
                self._received[:] = self._sent
            mpi.MPI_Bcast(sent if in_place else received, count, real, 0, world)

    def wrong(self, in_place: bool) -> int:
        """Return how many elements of this rank's result are wrong."""
        blocks = values.result(self.collective, self._group.rank, self._group.ranks, self.count)
        expected = b"".join(_repeat(period, length) for period, length in blocks)
        in_sent = in_place and self.collective != "all_gather"
        got = memoryview(self._sent if in_sent else self._received)[: len(expected)]
        if bytes(got) == expected:
            return 0
        pairs = zip(got.cast("f"), memoryview(expected).cast("f"))
        return sum(1 for found, right in pairs if found != right)


class Group:
    """The ranks of MPI_COMM_WORLD, and their collectives."""

    backend = "mpi"

    def __init__(self) -> None:
        """Join the others. Raises OSError where there is no Open MPI."""
        self.mpi = mpi = ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
        self.world, self.real, self.total, self._byte = (
            # Handles are addresses of these symbols.
            ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
            for name in ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum", "ompi_mpi_byte")
        )
        rank, ranks = ctypes.c_int(), ctypes.c_int()
        mpi.MPI_Init(None, None)
        mpi.MPI_Comm_rank(self.world, ctypes.byref(rank))
        mpi.MPI_Comm_size(self.world, ctypes.byref(ranks))
        self.rank, self.ranks = rank.value, ranks.value

    def device_name(self) -> tuple[str, str, str]:
        """Return number, bus and name of this rank's device: MPI uses the memory of the CPU."""
        version, length = ctypes.create_string_buffer(4096), ctypes.c_int()
        self.mpi.MPI_Get_library_version(version, ctypes.byref(length))
        return "cpu", "-", version.value.decode("ascii", "replace").split(",")[0]

    def exchange(self, collective: str, count: int) -> Exchange:
        """Return the collective with buffers for `count` elements."""
        return Exchange(self, collective, count)

    def synchronize(self) -> None:
        """Nothing runs behind the caller's back."""

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.mpi.MPI_Barrier(self.world)

    def collect(self, value: Any) -> list[Any]:
        """Return every rank's value on rank 0, [] on the others. At most 1000 bytes of JSON each."""
        each = 1000
        text = json.dumps(value).encode().ljust(each)
        if len(text) > each:
            raise ValueError(f"{len(text)} bytes of JSON, expected at most {each}")
        everything = ctypes.create_string_buffer(each * self.ranks)
        self.mpi.MPI_Gather(text, each, self._byte, everything, each, self._byte, 0, self.world)
        if self.rank:
            return []
        return [json.loads(everything.raw[rank * each : (rank + 1) * each]) for rank in range(self.ranks)]

    def all_gather(self, number: int) -> list[int]:
        """Return every rank's number, on every rank."""
        integer = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(self.mpi, "ompi_mpi_int")))
        own, received = ctypes.c_int(number), (ctypes.c_int * self.ranks)(*[-1] * self.ranks)
        self.mpi.MPI_Allgather(ctypes.byref(own), 1, integer, received, 1, integer, self.world)
        return list(received)

    def leave(self) -> None:
        """End MPI, when all ranks are ready to."""
        self.barrier()
        self.mpi.MPI_Finalize()
