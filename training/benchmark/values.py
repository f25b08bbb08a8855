# SPDX-License-Identifier: Apache-2.0
"""What every rank sends and must receive: numbers that a float holds exactly, and that differ by rank and by place.

Element i of rank r is (i mod 251) + r. 251 is prime: a block that lands at a wrong place of a buffer, whose size is a
power of two, does not look right. Sums over 4,096 ranks stay below 2^24, where floats stop to count in ones.
"""

from __future__ import annotations

PERIOD = 251
ELEMENT_BYTES = 4
# Content of a buffer before a collective writes into it: no rank sends it.
NOTHING = -1.0
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
# Collectives in which each rank sends or receives a part for each rank.
OF_PARTS = ("all_gather", "reduce_scatter", "alltoall")


def sent(first: int, rank: int) -> list[float]:
    """Return one period of what a rank sends, beginning at element `first` of its buffer."""
    return [float((first + i) % PERIOD + rank) for i in range(PERIOD)]


def summed(first: int, ranks: int) -> list[float]:
    """Return one period of the sum over all ranks, beginning at element `first` of their buffers."""
    return [float(ranks * ((first + i) % PERIOD) + ranks * (ranks - 1) // 2) for i in range(PERIOD)]


def share(collective: str, size: int, ranks: int) -> int:
    """Return the elements that nccl-tests counts for a message of `size` bytes; 0 where it is too small for a rank.

    For the collectives of parts the size is that of all parts together, each a multiple of 16 bytes; otherwise it is
    that of each rank's buffer.
    """
    elements = size // ELEMENT_BYTES
    return elements // ranks & -4 if collective in OF_PARTS else elements


def lengths(collective: str, count: int, ranks: int) -> tuple[int, int]:
    """Return the elements of the buffers that are sent and received."""
    whole = count * ranks
    return {"all_gather": (count, whole), "reduce_scatter": (whole, count), "alltoall": (whole, whole)}.get(
        collective, (count, count)
    )


def result(collective: str, rank: int, ranks: int, count: int) -> list[tuple[list[float], int]]:
    """Return what a rank must receive: blocks, each as one period and its length."""
    if collective in ("all_gather", "alltoall"):
        first = rank * count if collective == "alltoall" else 0
        return [(sent(first, other), count) for other in range(ranks)]
    if collective == "sendrecv":
        return [(sent(0, (rank - 1) % ranks), count)]
    if collective == "broadcast":
        return [(sent(0, 0), count)]
    return [(summed(rank * count if collective == "reduce_scatter" else 0, ranks), count)]


def ways(collective: str) -> tuple[bool, ...]:
    """Return the ways of running it, as "in place": out-of-place first. Exchanges have no other."""
    return (False,) if collective in ("alltoall", "sendrecv") else (False, True)


def bus_factor(collective: str, ranks: int) -> float:
    """Return by what to multiply the bandwidth of the algorithm to compare it with that of the hardware."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in OF_PARTS else 1.0
