"""The policy of restarts: what counts as getting further, how long the next attempt waits, and when it is enough."""

import json

from ansible.module_utils.trainyard.job.run.decide.restarts import (
    MAX_FRUITLESS,
    PAUSE_S,
    SHORT_S,
    Restarts,
    gave_up,
    restart_text,
    went_on_text,
)
from hypothesis import given
from hypothesis import strategies as st

KILLED = {"kind": "exit", "host": "n2", "process": "rank1", "rank": 1, "ranks": [1], "signal": 9, "time": 1.0}
SCHEDULER = {"kind": "exit", "host": "n1", "process": "scheduler", "rank": None, "ranks": [], "signal": 9, "time": 1.0}


def lives(steps, *, budget=100, every_s=60.0):
    """A job whose attempts die with these steps printed last; what was answered each time, and the book."""
    book = Restarts(budget, 300.0)
    answers = []
    for number, step in enumerate(steps, start=1):
        elapsed_s = number * every_s
        answers.append(book.take([KILLED], elapsed_s, elapsed_s, {} if step is None else {"step": step, "loss": None}))
        # As a head that went down and came back reads it.
        book = Restarts(budget, 300.0, json.loads(json.dumps(book.as_dict())))
    return answers, book


def test_attempts_that_get_further_are_answered_as_long_as_the_budget_lasts():
    assert lives([10, 20, 30, 40, 50], budget=4)[0] == [True, True, True, True, False]
    assert [entry["wait_s"] for entry in lives([10, 20, 30])[1].history] == [0, 0, 0]


def test_three_attempts_in_a_row_without_progress_are_enough():
    answers, book = lives([120, 120, 110, 120])
    assert answers == [True, True, True, False]
    assert [entry["fruitless"] for entry in book.history] == [0, 1, 2]
    assert [entry["wait_s"] for entry in book.history] == [0, 0, PAUSE_S]
    assert book.fruitless == MAX_FRUITLESS
    # An attempt that gets further resets the count.
    assert lives([120, 120, 120, 121, 121, 121, 122])[0] == [True] * 7


def test_short_attempts_that_never_reach_a_step_are_fruitless_long_ones_may_print_none():
    assert lives([None] * 3, every_s=20)[0] == [True, True, False]
    assert lives([None] * 9, every_s=SHORT_S + 60)[0] == [True] * 9
    # Steps within an epoch begin again with each, and not every script prints its epoch.
    assert lives([120] * 9, every_s=SHORT_S + 60)[0] == [True] * 9


def test_a_step_of_a_later_epoch_is_further():
    book = Restarts(100, 300.0)
    for number, epoch in enumerate(range(6), start=1):
        assert book.take([KILLED], 60.0 * number, 60.0 * number, {"step": 4, "epoch": epoch})
    assert book.fruitless == 0
    # A process that is started again alone is no attempt.
    book = Restarts(100, 300.0)
    for now in (1.0, 2.0, 3.0, 4.0):
        assert book.take([{**SCHEDULER, "recover_after_s": 1}], now, now, {"step": 3})
    assert book.fruitless == 0


def test_all_start_together_when_the_wait_is_over():
    book = Restarts(9, 300.0)
    for now in (1.0, 2.0, 3.0):
        before = book.fruitless
        assert book.take([KILLED], now, now) == (before < MAX_FRUITLESS - 1)
        ready = {"n1": {"attempts": {"": -1}, "ready_for": book.attempts("n1")}}
        if before == 1:
            assert book.gather(["n1"], ready, now + PAUSE_S - 0.1) == [] and not book.go
            assert book.gather(["n1"], ready, now + PAUSE_S) == [] and book.go


@given(st.lists(st.none() | st.integers(0, 5), max_size=30), st.integers(0, 10))
def test_a_job_never_starts_more_often_than_allowed(steps, budget):
    answers, book = lives(steps, budget=budget)
    assert sum(answers) == len(book.history) <= budget
    if False in answers:
        stopped = answers.index(False)
        fruitless = lives(steps[: stopped + 1], budget=budget)[1].fruitless
        assert stopped == budget or fruitless == MAX_FRUITLESS


def test_epochs_count_where_a_program_prints_no_steps():
    book = Restarts(100, 300.0)
    answers = [book.take([KILLED], 60.0 * n, 60.0 * n, {"epoch": epoch}) for n, epoch in enumerate([2, 6, 6, 5, 6], 1)]
    assert answers == [True, True, True, True, False]
    assert restart_text(book.history[-1]).endswith("starts again in 5 s (no further than epoch 6)")
    summary = {"failure": {**KILLED, "fruitless": book.fruitless}, "restarts": book.history, "max_restarts": 100}
    assert gave_up(summary)[0].startswith("not started again: none of the last 3 attempts came further than epoch 6;")


def test_texts_of_restarts():
    book = lives([120, 120, 119, 118])[1]
    assert [restart_text(entry) for entry in book.history] == [
        "0:01:00   rank 1 on n2: killed by SIGKILL, so the whole job starts again (after step 120)",
        "0:02:00   rank 1 on n2: killed by SIGKILL, so the whole job starts again (no further than step 120)",
        "0:03:00   rank 1 on n2: killed by SIGKILL, so the whole job starts again in 5 s (no further than step 120)",
    ]
    summary = {"failure": {**KILLED, "fruitless": book.fruitless}, "restarts": book.history, "max_restarts": 100}
    (line,) = gave_up(summary)
    assert line.startswith("not started again: none of the last 3 attempts came further than step 120;")
    assert gave_up({**summary, "max_restarts": 3}) == []
    assert gave_up({**summary, "failure": KILLED}) == []
    assert gave_up({**summary, "failure": None}) == []


def checkpoint(step, time=1.0):
    return {"name": f"step_{step}.pt", "step": step, "epoch": None, "time": time, "size": 1}


def test_each_restart_knows_how_long_it_took():
    book = Restarts(100, 300.0)
    book.keep_pace({**pace(5.0, 5.0), "first": 1.0, "first_s": 1.0, "lines": 5}, 5.0)
    book.take([KILLED], 10.0, 10.0, {"step": 5}, time_s=KILLED["time"] + 0.4)
    ready = {"n1": {"attempts": {"": 0}, "ready_for": book.attempts("n1")}}
    book.gather(["n1"], ready, 11.0)
    book.gather(["n1"], {"n1": {"attempts": book.attempts("n1")}}, 13.5)
    book.keep_pace(None, 14.0)
    book.keep_pace(pace(4.0), 16.0)
    (entry,) = book.as_dict()["history"]
    assert (entry["detect_s"], entry["restart_s"], entry["step_s"]) == (0.4, 3.5, 2.5)
    assert (entry["lost_steps"], entry["lost_s"]) == (2.0, 12.0)
    # 4 s of steps 1 to 5 (the first has begun one before), 1 s of steps lost again, of 16 s.
    assert book.goodput(16.0) == {"share": 0.25, "productive_s": 4.0, "steps": 4.0, "lost_steps": 2.0}
    # The first step may be there before the last node has said that its ranks run.
    early = Restarts(9, 300.0)
    early.take([KILLED], 1.0, 1.0)
    early.gather(["n1"], {"n1": {"attempts": {"": 0}, "ready_for": early.attempts("n1")}}, 2.0)
    early.keep_pace({**book._paces[-1]}, 2.5)
    early.gather(["n1"], {"n1": {"attempts": early.attempts("n1")}}, 3.0)
    assert (early.history[0]["restart_s"], early.history[0]["step_s"]) == (2.0, 0.0)
    # A node that was silent: for as long as nobody heard it.
    book.take([{"kind": "silent", "host": "n2", "after_s": 15}], 20.0, 20.0)
    assert book.history[-1]["detect_s"] == 15
    # A head that went down and came back has a clock that begins anew.
    assert Restarts(100, 300.0, json.loads(json.dumps(book.as_dict()))).goodput(30.0) is None


def test_a_new_checkpoint_is_further_one_that_was_there_is_not():
    book = Restarts(100, 300.0)
    for number in range(1, 3):
        book.note_checkpoint(checkpoint(10))
        assert book.take([KILLED], float(number), float(number))
    assert book.fruitless == 2
    book.note_checkpoint(checkpoint(20))
    book = Restarts(100, 300.0, json.loads(json.dumps(book.as_dict())))
    # The same step saved again is no further.
    book.note_checkpoint(checkpoint(20, time=9.0))
    assert book.take([KILLED], 3.0, 3.0) and book.fruitless == 0
    assert book.history[-1]["checkpoint"] == "step_20.pt"
    assert restart_text(book.history[-1]).endswith("; newest checkpoint at the restart: step_20.pt")
    book.note_checkpoint(checkpoint(20, time=19.0))
    assert book.take([KILLED], 4.0, 4.0) and book.fruitless == 1


def pace(step, at=16.0):
    return {"first": step, "first_s": at, "first_epoch": None, "last": step, "last_s": at, "last_epoch": None,
            "lines": 1, "rising": True, "over": False}  # fmt: skip


def test_a_restart_names_the_checkpoint_that_the_program_loaded():
    book = Restarts(100, 300.0)
    book.note_checkpoint(checkpoint(20))
    book.take([KILLED], 1.0, 1.0)
    assert went_on_text(book.history[0]) == ""
    book.keep_pace(None, 2.0, "=> loaded checkpoint 'step_10.pt'")
    assert went_on_text(book.history[0]) == "the program then printed: => loaded checkpoint 'step_10.pt'"
    book.keep_pace(pace(11.0), 3.0, "=> loaded checkpoint 'step_10.pt'")
    book.keep_pace(pace(11.0), 4.0, "another line")
    first = "the program then printed: => loaded checkpoint 'step_10.pt'; its first step was 11"
    assert went_on_text(book.history[0]) == first
    # As a head that went down and came back reads it; and the next attempt says nothing of what it loads.
    book = Restarts(100, 300.0, json.loads(json.dumps(book.as_dict())))
    book.take([KILLED], 5.0, 5.0, {"step": 15})
    book.keep_pace(pace(1.0), 6.0)
    assert went_on_text(book.history[0]) == first
    text = "the program went on: its first step was 1, and no line before it named a checkpoint"
    assert went_on_text(book.history[1]) == text
    assert went_on_text({**book.history[1], "checkpoint": None}) == "the program went on: its first step was 1"
