"""Our own benchmark of collectives: numbers that show every mistake, a table that nccl-tests' reader reads, pairs."""

from __future__ import annotations

import math
import struct
from collections import Counter

import collectives
import pytest
import schedule
import table
import values
from ansible.module_utils.trainyard.nvidia.nccl_tests_output import Measured, parse
from hypothesis import given
from hypothesis import strategies as st


def test_the_sum_is_that_of_what_the_ranks_send():
    for first in (0, 1000):
        for ranks in (1, 2, 7):
            summed = [sum(of_ranks) for of_ranks in zip(*(values.sent(first, rank) for rank in range(ranks)))]
            assert values.summed(first, ranks) == summed


def test_floats_hold_all_numbers_exactly_up_to_4096_ranks():
    most = max(values.summed(0, 4096))
    assert struct.unpack("f", struct.pack("f", most)) == (most,)
    assert most < 1 << 24


def test_blocks_of_other_ranks_and_other_places_look_wrong():
    for shift in (1, 4, 1 << 10, 1 << 20):
        assert values.sent(shift, 3) != values.sent(0, 3)
    assert values.sent(0, 3) != values.sent(0, 4)
    assert values.NOTHING not in values.sent(0, 0)


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("collective", values.COLLECTIVES)
def test_every_rank_must_receive_what_the_others_send(collective, ranks):
    """The collectives as their definitions have them, over buffers of numbers."""
    count = 300
    length, received = values.lengths(collective, count, ranks)
    buffers = [
        [period[i % values.PERIOD] for i in range(length)] for period in (values.sent(0, r) for r in range(ranks))
    ]
    sums = [sum(column) for column in zip(*buffers)]
    for rank in range(ranks):
        part = slice(rank * count, (rank + 1) * count)
        right = {
            "all_reduce": sums,
            "all_gather": [number for buffer in buffers for number in buffer],
            "reduce_scatter": sums[part],
            "broadcast": buffers[0],
            "alltoall": [number for buffer in buffers for number in buffer[part]],
            "sendrecv": buffers[rank - 1],
        }[collective]
        blocks = values.result(collective, rank, ranks, count)
        expected = [period[i % values.PERIOD] for period, size in blocks for i in range(size)]
        assert expected == right and len(right) == received
        # Parts in the order of another rank are no right result.
        others = values.result(collective, (rank + 1) % ranks, ranks, count)
        assert (blocks == others) == (ranks == 1 or collective in ("all_reduce", "all_gather", "broadcast"))


@pytest.mark.parametrize(
    ("collective", "size", "ranks", "count"),
    [
        ("all_reduce", 1 << 20, 3, 1 << 18),
        ("broadcast", 6, 3, 1),
        ("all_gather", 1 << 20, 3, 87380),
        ("reduce_scatter", 1 << 20, 4, 1 << 16),
        ("alltoall", 1 << 20, 16, 1 << 14),
        ("sendrecv", 1 << 20, 16, 1 << 18),
        ("all_gather", 8, 3, 0),
    ],
)
def test_elements_are_counted_as_nccl_tests_do(collective, size, ranks, count):
    assert values.share(collective, size, ranks) == count


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("4K", 4096), ("32M", 32 << 20), ("1g", 1 << 30), (" 16 ", 16)])
def test_sizes(text, size):
    assert table.size(text) == size


@pytest.mark.parametrize("text", ["", "K", "4T", "-4K", "1.5M", "4 K"])
def test_a_wrong_size_is_rejected(text):
    with pytest.raises(ValueError, match="expected a number of bytes"):
        table.size(text)


@pytest.mark.parametrize(
    ("least", "most", "factor", "expected"),
    [(8, 64, 2, [8, 16, 32, 64]), (8, 100, 4, [8, 32]), (8, 8, 2, [8]), (8, 64, 1, [8]), (64, 8, 2, [64])],
)
def test_steps(least, most, factor, expected):
    assert table.sizes(least, most, factor) == expected


def text_of(collective, ranks, rows, backend="gloo", end=True):
    """The whole output: `rows` are (bytes, seconds out-of-place, in-place, wrong or None)."""
    places = [table.Place(rank, 4000 + rank, f"node{rank // 2}", "cpu", "eth0", "gloo") for rank in range(ranks)]
    text = table.header(f"{collective} over {backend}", "minBytes 8", places)
    speeds = []
    for size, outside, inside, wrong in rows:
        ways = [table.Outcome(seconds, wrong) for seconds in (outside, inside)[: len(values.ways(collective))]]
        text += table.row(collective, size, values.share(collective, size, ranks), ranks, ways)
        speeds += [table.bandwidth(collective, size, ranks, seconds)[1] for seconds in (outside, inside)]
    return text + (table.footer(sum(row[3] or 0 for row in rows), speeds) if end else "")


ROW = st.tuples(
    st.integers(4, 1 << 40), st.floats(1e-6, 1e4), st.floats(1e-6, 1e4), st.one_of(st.none(), st.integers(0, 1 << 40))
)


@given(st.sampled_from(values.COLLECTIVES), st.integers(2, 40), st.lists(ROW, min_size=1, max_size=5))
def test_the_reader_of_nccl_tests_reads_it(collective, ranks, rows):
    found = parse(text_of(collective, ranks, rows))
    assert (found.collective, found.backend, found.tables, found.problem) == (collective, "gloo", 1, "")
    assert [(rank.rank, rank.host) for rank in found.ranks] == [(rank, f"node{rank // 2}") for rank in range(ranks)]
    assert [row.bytes for row in found.rows] == [size for size, *_ in rows]
    for row, (size, outside, inside, wrong) in zip(found.rows, rows):
        if collective in ("alltoall", "sendrecv"):
            assert row.in_place == Measured(None, None, None, None)
        for half, seconds in ((row.out_of_place, outside), (row.in_place, inside))[: len(values.ways(collective))]:
            algbw, busbw = table.bandwidth(collective, size, ranks, seconds)
            assert half.wrong == wrong
            assert math.isclose(half.time_us, seconds * 1e6, abs_tol=0.006, rel_tol=1e-6)
            assert math.isclose(half.algbw, algbw, abs_tol=0.006, rel_tol=1e-6)
            assert math.isclose(half.busbw, busbw, abs_tol=0.006, rel_tol=1e-6)
    assert found.out_of_bounds == sum(row[3] or 0 for row in rows)


@pytest.mark.parametrize(
    ("backend", "sizes", "operations"),
    [
        *((backend, [1 << power for power in range(10, 27, 2)], (5, 1)) for backend in ("gloo", "mpi")),
        *((backend, [1 << power for power in range(10, 31)], (20, 5)) for backend in ("nccl", "hccl")),
    ],
)
def test_sizes_suit_what_the_ranks_run_on(monkeypatch, backend, sizes, operations):
    monkeypatch.setattr("sys.argv", ["collectives.py"])
    chosen = collectives.arguments()
    collectives.complete(chosen, backend)
    assert list(table.sizes(chosen.minbytes, chosen.maxbytes, chosen.stepfactor)) == sizes
    assert (chosen.iters, chosen.warmup_iters) == operations
    monkeypatch.setattr("sys.argv", ["collectives.py", "-b", "8", "-e", "8K", "-w", "0"])
    chosen = collectives.arguments()
    collectives.complete(chosen, backend)
    assert (chosen.minbytes, chosen.maxbytes, chosen.warmup_iters, chosen.iters) == (8, 8192, 0, operations[0])


def test_an_output_that_stops_has_no_footer():
    assert parse(text_of("all_reduce", 2, [(8, 1e-5, 1e-5, 0)])).footer_seen
    assert not parse(text_of("all_reduce", 2, [(8, 1e-5, 1e-5, 0)], end=False)).footer_seen


@pytest.mark.parametrize(
    ("collective", "ranks", "bus"),
    [
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("alltoall", 4, 0.75),
        ("broadcast", 4, 1.0),
        ("sendrecv", 4, 1.0),
    ],
)
def test_bandwidth_is_in_decimal_gigabytes(collective, ranks, bus):
    assert table.bandwidth(collective, 10**9, ranks, 0.5) == (2.0, 2.0 * bus)


SCHEDULE = {"hosts": ["n1", "n2", "n3"], "rounds": [[["n1", "n2"]], [["n2", "n3"]], [["n1", "n3"]]]}


def test_a_node_finds_its_pairs_and_may_sit_out():
    pairs = schedule.own_pairs(SCHEDULE, 1, 0)
    assert [(pair.round, pair.partner, pair.first) for pair in pairs] == [(0, "n1", False), (1, "n3", True)]
    assert schedule.own_pairs({"hosts": ["n1", "n2", "n3"], "rounds": [[["n1", "n2"]]]}, 2, 0) == []


def test_partners_meet_under_one_key_and_others_under_another():
    keys = [[pair.key for pair in schedule.own_pairs(SCHEDULE, node, rail)] for node in range(3) for rail in range(2)]
    met = Counter(key for each in keys for key in each)
    assert set(met.values()) == {2}
    assert len(met) == 6


def test_a_node_that_the_schedule_does_not_know():
    with pytest.raises(ValueError, match="3 hosts in the schedule, and this is node 3"):
        schedule.own_pairs(SCHEDULE, 3, 0)


FIRST = schedule.Pair(0, 0, ("n1", "n2"), True, 0)
SECOND = schedule.Pair(0, 0, ("n1", "n2"), False, 0)
RESULT = {"busbw": 11.5, "wrong": 0}


@pytest.mark.parametrize(
    ("pair", "told", "busbw", "error"),
    [
        (FIRST, [{"met": True}, RESULT], 11.5, ""),
        (FIRST, [{"met": True}, RESULT, {"error": "the partner left first"}], 11.5, ""),
        (FIRST, [], None, "n2 did not come within 30 s"),
        (FIRST, [{"error": "DistStoreError: wait timeout"}], None,
         "n2 did not come within 30 s (DistStoreError: wait timeout)"),
        (SECOND, [{"error": "refused"}], None, "n1 did not come within 30 s (refused)"),
        (FIRST, [{"met": True}], None, "the two met, and had no result within 30 s"),
        (SECOND, [{"met": True}, {"error": "RuntimeError: reset"}], None, "the two met, and then: RuntimeError: reset"),
    ],
)  # fmt: skip
def test_the_result_of_a_pair(pair, told, busbw, error):
    line = schedule.checked(pair, told, 30)
    assert (line["hosts"], line["round"], line["busbw"], line["error"]) == (["n1", "n2"], 0, busbw, error)


def test_the_second_of_two_leaves_the_line_to_the_first():
    assert schedule.checked(SECOND, [{"met": True}, {"done": True}], 30) is None
