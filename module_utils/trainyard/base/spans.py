# SPDX-License-Identifier: Apache-2.0
"""Write numbers, such as ranks, as stretches of successive ones."""

from __future__ import annotations

from collections.abc import Iterable


def stretches(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last number of each stretch of successive numbers, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers as Slurm and options write them: `0-3,7`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in stretches(numbers))


def numbers(text: str) -> set[int]:
    """Return the numbers of such a text. Raises ValueError."""
    ends = [[int(end) for end in span.split("-")] for span in text.split(",")]
    return {number for first, *_, last in (each * 2 for each in ends) for number in range(first, last + 1)}


def spans(numbers: Iterable[int], most: int = 12) -> str:
    """Format numbers for people: `0 to 3, 7`."""
    texts = [
        str(first) if first == last else f"{first} to {last}" if last > first + 1 else f"{first}, {last}"
        for first, last in stretches(numbers)
    ]
    return ", ".join(texts[:most]) + (" ..." if len(texts) > most else "")


def named_ranks(ranks: Iterable[int]) -> str:
    """Name ranks: `rank 3`, `ranks 0 to 3, 7`."""
    numbers = set(ranks)
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {spans(numbers)}"
