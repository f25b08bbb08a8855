"""Where ranks are, out of what py-spy and /proc say of them: which are odd, and what is said."""

import json
import random
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.logs import stacks
from hypothesis import given
from hypothesis import strategies as st

CAPTURED = Path(__file__).resolve().parents[3] / "fixtures/py_spy"
CALLED = "called by train (cap.py:"


def main_thread(name):
    return stacks.read_dump((CAPTURED / f"{name}.json").read_text())["MainThread"]


def record(rank, name="", **changes):
    frames = main_thread(name) if name else []
    return {"rank": rank, "pid": 100 + rank, "device": "", "state": "S", "wchan": "futex_do_wait", "cpu_percent": 0,
            "frames": frames, "problem": "", "recorder": "", "calls": [], "ras": [],
            "looks": 3, "waited": 0, **changes}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("torch_all_reduce", f"waits in all_reduce, {CALLED}18)"),
        ("torch_barrier", f"waits in barrier, {CALLED}19)"),
        ("torch_backward", f"is in backward, {CALLED}20)"),
        ("torch_data_loader", "is in the data loader, called by read_data (cap.py:9)"),
        ("sleeps", "is in load_batch (cap.py:7)"),
    ],
)
def test_what_real_ranks_wait_for(name, text):
    assert stacks.place(record(0, name)) == text
    assert stacks.waits(record(0, name)) == text.startswith("waits")
    assert misfit(record(0, name), stacks.rank_shape(400)) == ""


def test_frames_and_states_that_mean_waiting():
    whose = [(each[1], each[3]) for each in main_thread("torch_data_loader")]
    assert whose[0] == ("selectors.py", "python") and whose[-1] == ("cap.py", "own")
    assert ("torch/utils/data/dataloader.py", "package") in whose
    # A rank that sleeps in native code may wait there; one that runs computes.
    for name, state, waits in (
        ("torch_backward", "S", True),
        ("torch_backward", "R", False),
        ("torch_all_reduce", "R", True),
        ("torch_all_reduce", "T", False),
        ("sleeps", "S", False),
    ):
        assert stacks.waiting(main_thread(name), state) == waits


def lines(*found, world_size=None, silent=None):
    """Return the lines on nodes with these ranks."""
    by_host = {f"n{number}": of for number, of in enumerate(found, 1)}
    return stacks.lines(by_host, world_size or sum(map(len, found)), silent or {})


def test_odd_ranks_are_named():
    waiting = [record(rank, "torch_all_reduce") for rank in range(4)]
    odd = record(2, "sleeps", device="5")
    assert lines(waiting[:2], [odd, waiting[3]]) == [
        f"3 ranks (0, 1, 3) wait in all_reduce, {CALLED}18)",
        "rank 2 on n2, device 5, is in load_batch (cap.py:7)",
    ]
    assert stacks.odd_one(stacks.groups({"n1": waiting[:2], "n2": [odd, waiting[3]]})) == ("n2", 2)
    assert stacks.odd_one(stacks.groups({"n1": [*waiting[:3], record(3, "torch_barrier")]})) == ("n1", 3)
    stopped = lines([*waiting[:3], record(3, "torch_all_reduce", state="T")])
    assert stopped[-1] == f"rank 3 on n1 is stopped (by SIGSTOP) and waits in all_reduce, {CALLED}18)"
    silent = {"n2": "no answer within 20 s"}
    assert lines(waiting[:1], world_size=3)[-1] == "no process was found of ranks 1, 2"
    assert lines(waiting[:1], world_size=3, silent=silent)[-1] == "n2 did not report: no answer within 20 s"


def test_the_record_has_the_odd_group_first_and_few_groups():
    waiting = [record(rank, "torch_all_reduce") for rank in range(4)]
    found = {"n1": waiting[:2], "n2": [record(2, "sleeps"), waiting[3]]}
    made = stacks.recorded(stacks.groups(found), 5.0)
    odd, others = made["groups"]
    assert misfit(made, stacks.STACKS) == "" and (made["time"], made["more"]) == (5.0, 0)
    assert (odd["odd"], odd["ranks"], odd["hosts"]) == (True, [2], ["n2"])
    assert odd["frames"][0] == ["load_batch", "cap.py", 7, "own"]
    assert (others["odd"], others["ranks"], others["hosts"]) == (False, [0, 1, 3], ["n1", "n2"])
    # The text is the line that the terminal shows.
    assert {odd["text"], others["text"]} <= set(stacks.lines(found, 4, {}))
    many = [record(rank, wchan=f"wait_{rank}") for rank in range(20)]
    made = stacks.recorded(stacks.groups({"n1": many}), 5.0)
    assert (len(made["groups"]), made["more"]) == (stacks.MAX_LINES, 8)
    assert stacks.more_text(8) in stacks.lines({"n1": many}, 20, {})


@pytest.mark.parametrize(
    ("first", "second", "odd"),
    [
        ("torch_all_reduce", "sleeps", 1),
        ("torch_backward", "torch_data_loader", 1),
        ("torch_all_reduce", "torch_backward", 1),
        ("torch_all_reduce", "torch_barrier", None),
        ("sleeps", "torch_data_loader", None),
        ("torch_all_reduce", "torch_all_reduce", None),
    ],
)
def test_of_two_ranks_the_one_that_waits_is_not_to_blame(first, second, odd):
    found = {"n1": [record(0, first)], "n2": [record(1, second)]}
    assert stacks.odd_one(stacks.groups(found))[1] == odd
    assert (stacks.lines(found, 2, {})[-1].startswith("no rank stands out")) == (odd is None)


# Read from ranks of MindSpore 2.10.0 (CPU) that waited for another one in a step of a data parallel training.
MINDSPORE = [
    ("_CellGraphExecutor._exec_pip", "mindspore/graph/api.py", 2432),
    ("_wrap_func.<locals>.wrapper", "mindspore/graph/api.py", 256),
    ("_CellGraphExecutor.run", "mindspore/graph/api.py", 2452),
    ("_CellGraphExecutor.__call__", "mindspore/graph/api.py", 2401),
    ("Cell.compile_and_run", "mindspore/nn/cell.py", 1807),
    ("Cell.__call__", "mindspore/nn/cell.py", 1409),
]


def test_ranks_of_mindspore_wait_in_its_own_code():
    root = "/opt/trainyard/venvs/mindspore/lib/python3.11/site-packages/"
    frames = [stacks.frame(name, root + file, line) for name, file, line in MINDSPORE]
    waiting = record(0, frames=[*frames, stacks.frame("train", "/srv/train/cap.py", 20)])
    assert stacks.place(waiting) == "is in MindSpore, called by train (cap.py:20)"
    # Also where the one that waits is not among many.
    assert [group.text() for group in stacks.groups({"n1": [waiting, record(1, "sleeps")]}) if group.odd] == [
        "rank 1 on n1 is in load_batch (cap.py:7)"
    ]


def left(rank, time_s, number=3):
    return {"host": f"n{number}", "process": "agent", "ranks": [rank], "rank": rank, "time": time_s}


WAIT = [record(rank, "torch_all_reduce") for rank in (0, 1)]


def test_the_first_rank_that_left():
    """A rank 1 that left was started again: a process of it is there."""
    for other in (left(3, 7.0, 4), left(None, 4.0), left(1, 4.0)):
        assert stacks.left_early({"n1": WAIT}, [other, left(2, 5.0)])["rank"] == 2
    assert not stacks.left_early({"n1": WAIT}, [left(1, 4.0)]) and not stacks.left_early({"n1": WAIT}, [])


@pytest.mark.parametrize(
    # A rank in backward may compute or wait; one that sleeps may save its model when the others are done.
    ("last", "waits"),
    [("torch_barrier", ": the others wait for it"), ("torch_backward", ""), ("sleeps", "")],
)
def test_the_lines_of_a_rank_that_left(last, waits):
    told = stacks.lines({"n1": [record(0, last)]}, 3, {}, left(2, 5.0))
    assert told[1:] == [f"rank 2 on n3 ended before, with exit code 0{waits}", "no process was found of rank 1"]


def test_without_stacks_the_states_of_the_kernel_are_shown():
    why = "py-spy is not installed"
    most = [record(rank, problem=why) for rank in range(3)]
    assert lines(most, [record(3, wchan="wait_for_partner", state="D", problem=why)]) == [
        "3 ranks (0 to 2) each sleeps in the kernel's futex_do_wait",
        "rank 3 on n2 waits for a device or disk in the kernel's wait_for_partner",
        f"no Python stack of 0 to 3: {why}",
    ]


def test_a_loop_that_moves_has_its_common_frames():
    outer = [["train", "t.py", 9, "own"], ["<module>", "t.py", 20, "own"]]
    samples = [[["a", "t.py", 1, "own"], ["spin", "t.py", 3, "own"], *outer], [["spin", "t.py", 4, "own"], *outer]]
    assert stacks.common_frames(samples) == [["spin", "t.py", 0, "own"], *outer]
    assert stacks.place(record(0, frames=stacks.common_frames(samples))) == "is in spin (t.py)"


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.sampled_from("RSDT")), min_size=1, unique=True))
def test_every_rank_is_in_one_group_and_stopped_ones_never_with_others(drawn):
    records = [record(n, frames=[[f, "a.py", 1, "own"]], state=state) for n, (_, f, state) in enumerate(drawn)]
    groups = stacks.groups({"n1": records})
    assert sorted(each["rank"] for group in groups for _, each in group.of) == list(range(len(records)))
    for group in groups:
        assert len({each["state"] == "T" for _, each in group.of}) == 1


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"frames": []}]', '[{"os_thread_id": 1, "pid": 1}]', "[" * 9999])
def test_a_dump_of_another_form_is_refused(text):
    with pytest.raises(ValueError):
        stacks.read_dump(text)


def test_the_full_text_has_each_thread_once_unless_it_moved():
    dump = stacks.read_dump((CAPTURED / "torch_data_loader.json").read_text())
    text = stacks.full_text(record(1, "torch_data_loader"), [dump, dump], "[<0>] futex_wait+0x1")
    assert text.count("MainThread") == 1
    assert "    read_data (cap.py:9)" in text
    assert text.endswith("  kernel\n    [<0>] futex_wait+0x1")
    assert json.dumps(dump).count("QueueFeederThread") == text.count("QueueFeederThread")


@pytest.mark.parametrize("frame", [["f", "a.py", 1], ["f", 2, 1, "own"], ["f", "a.py", "1", "own"], "fa1o", [[]] * 4])
def test_a_frame_of_another_form_is_refused(frame):
    assert "expected a frame" in misfit(record(0, frames=[frame]), stacks.rank_shape(400))


def looked(*waited, looks=60):
    """What one look a second told of ranks that were found waiting so often."""
    return {"n1": [record(rank, "torch_all_reduce", looks=looks, waited=each) for rank, each in enumerate(waited)]}


@pytest.mark.parametrize(
    ("waited", "slow"),
    [
        *(((30, 28, 2, 33), [2]), ((60, 60, 60, 40), [3]), ((31, 1, 0, 29), [1, 2]), ((30, 2), [1])),
        *((equal, []) for equal in ((30, 28, 25, 33), (0, 0, 0, 0), (10, 0, 12, 11))),
    ],
)
def test_the_rank_for_which_the_others_wait_is_slow(waited, slow):
    assert [each["rank"] for _, each in stacks.slow(looked(*waited))[0]] == slow
    assert stacks.slow(looked(*waited, looks=19))[0] == []
    slow_lines = stacks.slow_lines(looked(*waited))
    assert [line.split(" is slow: ")[0] for line in slow_lines[: len(slow)]] == [f"rank {rank} on n1" for rank in slow]
    assert slow or all(line.startswith("no rank is slower") for line in slow_lines)


@given(st.integers(0, 60), st.integers(2, 64), st.integers(0, 1 << 32))
def test_ranks_that_wait_equally_often_have_no_slow_one_among_them(mean, ranks, seed):
    of_seed = random.Random(seed)  # noqa: S311 (numbers of a test)
    drawn = [sum(of_seed.random() < mean / 60 for _ in range(60)) for _ in range(ranks)]
    assert stacks.slow(looked(*drawn))[0] == []


def test_ranks_that_a_job_has_no_more_are_not_missed():
    found = {"n1": [record(0, "sleeps")], "n3": [record(1, "sleeps")]}
    assert stacks.rank_count({"world_size": 3}, found) == 3
    assert stacks.rank_count({"world_size": 3, "min_nodes": 2}, found) == 2
