"""Reading what nccl-tests print: old and new text, JSON, marks of mpirun and srun, interruptions, sudden ends."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.nvidia.nccl_tests_output import Measured, parse, parse_json, parse_text, streams
from hypothesis import given
from hypothesis import strategies as st

OUTPUTS = Path(__file__).parents[2] / "fixtures/nccl_tests_output"
NCCL = "gpu-01:81234:81300 [0] NCCL INFO "


def read(name):
    return (OUTPUTS / name).read_text()


def found(name):
    return parse(read(name))


def size(output, size):
    return next(row for row in output.rows if row.bytes == size)


OLD, TEXT = "nccl-tests text (before 2.13)", "nccl-tests text"
GPUS = ["gpu-01", "gpu-02"]


@pytest.mark.parametrize(
    ("name", "collective", "ranks", "hosts", "rows", "form"),
    [
        ("2.10-all_reduce-8-v100.txt", "", 8, ["v100-1"], 3, OLD),
        ("2.10-all_gather-8-v100.txt", "", 8, ["v100-1"], 3, OLD),
        ("2.10-alltoall-8-v100.txt", "", 8, ["v100-1"], 3, OLD),
        ("2.10-broadcast-8-v100-unchecked.txt", "", 8, ["v100-1"], 3, OLD),
        ("2.13-all_gather-16-a100.txt", "", 16, ["dgx1", "dgx2"], 4, TEXT),
        ("2.17-all_reduce-16-h100-tagged.txt", "all_reduce", 16, ["gpu-1", "gpu-2"], 6, TEXT),
        ("2.19-all_reduce-16-h100.txt", "all_reduce", 16, GPUS, 17, TEXT),
        ("2.19-all_reduce-16-h100-srun.txt", "all_reduce", 16, GPUS, 11, TEXT),
        ("2.19-all_reduce-16-h100-openmpi5.txt", "all_reduce", 16, GPUS, 3, TEXT),
        ("2.19-all_reduce-16-h100.json", "all_reduce", 16, GPUS, 11, "nccl-tests json"),
        ("2.19-all_reduce-2-processes-of-8.json", "all_reduce", 16, GPUS, 5, "nccl-tests json"),
        ("2.19-alltoall-16-h100.txt", "alltoall", 16, GPUS, 3, TEXT),
        ("2.19-all_reduce-per-iteration.txt", "all_reduce", 16, GPUS, 3, TEXT),
        ("2.19-all_reduce-timestamps.txt", "all_reduce", 16, GPUS, 3, TEXT),
        ("2.19-all_reduce-tcp.txt", "all_reduce", 16, GPUS, 6, TEXT),
        ("trainyard-all_reduce-gloo.txt", "all_reduce", 4, ["n1", "n2"], 8, "trainyard text"),
    ],
)
def test_complete_outputs_of_all_versions(name, collective, ranks, hosts, rows, form):
    output = found(name)
    assert (output.collective, output.format, output.problem) == (collective, form, "")
    assert [rank.rank for rank in output.ranks] == list(range(ranks))
    assert list(dict.fromkeys(rank.host for rank in output.ranks)) == hosts
    assert (output.tables, len(output.rows), output.broken_rows) == (1, rows, 0)
    assert output.footer_seen and output.out_of_bounds == 0 and not output.errors
    assert all(row.out_of_place.busbw is not None and row.in_place.busbw is not None for row in output.rows)
    # The average of the footer is that of all halves: no number comes from another column.
    halves = [half.busbw for row in output.rows for half in (row.out_of_place, row.in_place)]
    assert sum(halves) / len(halves) == pytest.approx(output.average, abs=0.01, rel=0.01)


def test_one_row_of_each_layout():
    new = size(found("2.19-all_reduce-16-h100-srun.txt"), 1 << 30)
    assert new.out_of_place == Measured(5305.5, 202.38, 379.47, 0)
    assert new.in_place == Measured(5277.7, 203.45, 381.47, 0)
    # The same numbers among further columns, and before a date.
    assert size(found("2.19-all_reduce-per-iteration.txt"), 1 << 30) == new
    assert size(found("2.19-all_reduce-timestamps.txt"), 1 << 30) == new
    # Older versions print the largest deviation, which is no number of wrong elements.
    assert size(found("2.10-alltoall-8-v100.txt"), 1 << 20).out_of_place == Measured(42.65, 24.59, 21.51, None)
    assert size(found("2.13-all_gather-16-a100.txt"), 1 << 20).in_place == Measured(45.76, 22.91, 21.48, 0)
    assert size(found("2.19-all_reduce-tcp.txt"), 1 << 36).out_of_place == Measured(2.8e7, 2.46, 4.6, 0)


def test_tags_and_nccl_lines_inside_rows_take_nothing_away():
    text = read("2.17-all_reduce-16-h100-tagged.txt")
    output = parse_text(text)
    assert size(output, 1 << 20).out_of_place == Measured(45.13, 23.23, 43.56, 0)
    assert size(output, 1 << 23).in_place.busbw == pytest.approx(size(output, 1 << 23).out_of_place.busbw, rel=0.02)
    assert len([line for line in output.nccl_lines if "via NET/IB" in line]) == 5
    assert any("NCCL WARN NET/IB : Got async event" in line for line in output.nccl_lines)
    assert "[1," not in "".join(streams(text).values())


def test_json_and_text_of_one_run_are_equal():
    text, data = found("2.19-all_reduce-16-h100-srun.txt"), found("2.19-all_reduce-16-h100.json")
    assert [row.bytes for row in text.rows] == [row.bytes for row in data.rows]
    for mine, other in zip(text.rows, data.rows):
        assert mine.out_of_place.busbw == pytest.approx(other.out_of_place.busbw, abs=0.006)
    assert [(rank.rank, rank.host) for rank in text.ranks] == [(rank.rank, rank.host) for rank in data.ranks]
    assert data.average == pytest.approx(text.average, abs=0.001)
    assert (text.version, data.version) == ("2.19.6", "NCCL 2.28.9")


def test_the_environment_in_json_is_not_kept():
    assert "stands-for-a-secret" in read("2.19-all_reduce-16-h100.json")
    assert "stands-for-a-secret" not in repr(found("2.19-all_reduce-16-h100.json"))


UNCHECKED = {
    "2.10-broadcast-8-v100-unchecked.txt": 3,
    "2.13-all_reduce-16-a100-unchecked.txt": 4,
    "2.19-all_reduce-unchecked.json": 5,
    "2.10-all_reduce-8-v100.txt": 0,
    # One half of each row is enough: the other one is never checked.
    "2.19-alltoall-16-h100.txt": 0,
}


@pytest.mark.parametrize("name", UNCHECKED)
def test_unchecked_results(name):
    output = found(name)
    assert (output.unchecked_rows, output.out_of_bounds) == (UNCHECKED[name], 0), "the footer says OK in either case"


def test_wrong_and_infinite_results():
    output = found("2.19-all_reduce-wrong.txt")
    assert [row.out_of_place.wrong for row in output.rows] == [0] * 3 + [131072, 262144, 524288] + [1250000] * 3
    assert output.out_of_bounds == 12
    # Numbers of JSON that are not finite.
    nan = found("2.19-all_reduce-nan.json")
    assert nan.rows[-1].out_of_place.busbw is None and math.isnan(nan.average)
    inf = found("2.19-all_reduce-inf.json")
    assert inf.rows[0].in_place.algbw is None and len(inf.rows) == 5 and not inf.problem


@pytest.mark.parametrize(
    ("name", "rows", "broken", "footer"),
    [
        ("2.19-all_reduce-killed.txt", 3, 1, False),
        ("2.19-all_reduce-nccl-failure.txt", 3, 1, False),
        ("2.19-all_reduce-ended-early.json", 4, 0, False),
        ("2.19-all_reduce-killed.json", 0, 0, False),
    ],
)
def test_ends_in_the_middle(name, rows, broken, footer):
    output = found(name)
    assert (len(output.rows), output.broken_rows, output.footer_seen) == (rows, broken, footer)


def test_a_row_without_its_end_before_the_next_one_is_missed():
    lines = PLAIN.splitlines()
    lines[ROWS[3]] = "  ".join(lines[ROWS[3]].split()[:8])
    output = parse_text("\n".join(lines))
    assert output.broken_rows == 1 and len(output.rows) == len(ROWS) - 1 and output.footer_seen


def test_errors_printed_by_the_program():
    errors = found("2.19-all_reduce-nccl-failure.txt").errors
    assert errors[0].startswith("gpu-01: Test NCCL failure common.cu:312 'remote process exited")
    assert errors[1] == "gpu-01 pid 81234: Test failure common.cu:611"
    assert "before it closed the file" in found("2.19-all_reduce-killed.json").problem


def test_a_collective_is_taken_from_a_command_line_only_when_there_is_one():
    text = read("2.10-all_reduce-8-v100.txt")
    assert parse_text(f"$ ./build/all_reduce_perf -b 8 -e 1G -f 2 -g 8\n{text}").collective == "all_reduce"
    assert parse_text(f"$ ./build/reduce_perf\n{text}").collective == "reduce"
    assert parse_text(f"ls build: all_reduce_perf all_gather_perf\n{text}").collective == ""


def test_groups_and_reduced_sizes():
    text = read("2.19-all_reduce-16-h100.txt").replace("Rank  1 Group  0", "Rank  1 Group  1")
    text = text.replace("# Using", "# Reducing maxBytes to 28991029248 due to memory limitation\n# Using")
    output = parse_text(text)
    assert {rank.rank: rank.group for rank in output.ranks if rank.group} == {1: 1}
    assert output.notes == ["Reducing maxBytes to 28991029248 due to memory limitation"]
    assert found("2.19-all_reduce-without-mpi.txt").tables == 2, "separate worlds"


def test_an_out_of_place_half_that_is_blank_is_not_the_in_place_one():
    text = read("2.19-all_reduce-16-h100.txt")
    row = next(line for line in text.splitlines() if line.startswith("     1048576 "))
    start = row.index("-1") + 2
    half = (len(row) - start) // 2
    blank = row[:start] + " " * 32 + row[start + half :]
    read_back = size(parse_text(text.replace(row, blank)), 1 << 20)
    assert read_back.out_of_place is None
    assert read_back.in_place == size(parse_text(text), 1 << 20).in_place


PLAIN = read("2.19-all_reduce-16-h100-srun.txt").replace(" 0: ", "").replace(" 1: slurmstepd", "slurmstepd")
ROWS = [index for index, line in enumerate(PLAIN.splitlines()) if line.lstrip()[:1].isdigit()]


TAG = "[1,0]<stdout>:"
# Text that cuts a row: NCCL's lines, a tag, or another rank.
CUTS = (
    f"{NCCL}Channel 00/0\n{TAG}",
    f"  {NCCL}Channel 00/0\n{TAG}",
    f"\n{TAG}[2026-11-21 20:00:00] {NCCL}x\n{TAG}",
    TAG,
    f"[1,7]<stdout>:{NCCL}Connected all rings\n{TAG}",
)


@given(st.dictionaries(st.sampled_from(ROWS), st.tuples(st.integers(5, 12), st.sampled_from(CUTS)), max_size=12))
def test_any_interruption_between_the_columns_changes_nothing(cuts):
    """A row may be cut after any column that is printed by itself."""
    lines = PLAIN.splitlines()
    for index, (column, cut) in cuts.items():
        words = lines[index].split()
        lines[index] = "  ".join(words[:column]) + cut + "  " + "  ".join(words[column:])
    output = parse_text("".join(f"{TAG}{line}\n" for line in lines))
    assert output.rows == parse_text(PLAIN).rows
    assert output.footer_seen and not output.broken_rows


@pytest.mark.parametrize("name", sorted(path.name for path in OUTPUTS.glob("[0-9t]*.txt")))
def test_a_log_without_comment_marks_is_read(name):
    """Pages that render `# ` as a heading remove the marks."""
    text = read(name)
    with_marks, without = parse(text), parse(text.replace("#", ""))
    for output in (with_marks, without):
        output.notes = [note for note in output.notes if not note.startswith("NCCL's last error")]
    assert without == with_marks


@given(st.text(alphabet='#: \n0123456789.-+efloatsumN/A[],<>stdoutRankonGroupPid"{}', max_size=300), st.booleans())
def test_no_text_stops_the_parser(text, append):
    parse(f"{PLAIN}\n{text}" if append else text)
    parse_json(text)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"results": 3}', '{"config": [], "results": [1, {"size": "x"}]}'])
def test_other_text_has_no_rows(text):
    output = parse(text)
    assert not output.rows and not output.footer_seen
