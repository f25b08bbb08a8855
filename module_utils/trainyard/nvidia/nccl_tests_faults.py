# SPDX-License-Identifier: Apache-2.0
"""Find errors in an output of nccl-tests, whatever speed is expected. Pure."""

from __future__ import annotations

from collections import Counter

from ..base.findings import counted, host_list
from .nccl_tests_output import Output


def values(output: Output) -> list[str]:
    """Return the wrong results of the table and of the footer's count."""
    outside = f"{counted(output.out_of_bounds, 'value')} out of bounds" if output.out_of_bounds else ""
    return [text for text in (_wrong(output), outside) if text]


def _wrong(output: Output) -> str:
    bad = [
        (row, half)
        for row in output.rows
        for half in (row.out_of_place, row.in_place)
        if half is not None and half.wrong
    ]
    if not bad:
        return ""
    row, half = bad[0]
    sizes = len({row.bytes for row, _ in bad})
    more = f", and at {counted(sizes - 1, 'more size')}" if sizes > 1 else ""
    ranks = list(dict.fromkeys(output.wrong_ranks))
    where = f" ({host_list(ranks)})" if ranks else ""
    return f"wrong results: {counted(half.wrong or 0, 'element')} at {row.bytes} bytes{more}{where}"


def _worlds(output: Output) -> str:
    zeros = sum(rank.rank == 0 for rank in output.ranks)
    if zeros > 1 or len({rank.rank for rank in output.ranks}) < len(output.ranks):
        return (
            f"{output.tables} tables of results, and rank 0 is listed {zeros} times: processes that each were a world "
            "of their own, as with programs that were built without MPI, or several runs in one file"
        )
    return f"{output.tables} tables of results, expected one: give each run a file of its own"


def ranks(output: Output, requested: int | None) -> str:
    """Return how the ranks differ from the requested number (None: any number); "" if they do not."""
    if output.tables > 1:
        return _worlds(output)
    listed = Counter(rank.rank for rank in output.ranks)
    twice = sorted(rank for rank, count in listed.items() if count > 1)
    if twice:
        times = f"rank {twice[0]} is listed {listed[twice[0]]} times"
        return f"{times}: processes that each were a world of their own, as with programs that were built without MPI"
    if requested is not None and output.tables and len(output.ranks) != requested:
        return f"{counted(len(output.ranks), 'rank')} took part, expected {requested}"
    return ""


def ending(output: Output) -> str:
    """Return how a table is cut off; "" for a complete one or none."""
    if not output.tables:
        return ""
    if output.broken_rows:
        return f"the table has {counted(output.broken_rows, 'row')} without all values: the output was cut off"
    if not output.rows:
        return "the table has no rows: the benchmark ended before it measured anything"
    return "" if output.footer_seen else "the output ends without its footer: the benchmark did not end well"
