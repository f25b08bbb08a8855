"""When a job counts as hung: the limits in turn, what a run's own steps make of them, what is said, and bad input."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run import hang
from ansible.module_utils.trainyard.job.run.failure import text
from job_samples import job_file, make_job

FIXED = {"after_s": 20, "first_s": 100, "pause_s": 60, "pause_pattern": hang.DEFAULT_PAUSE}
AUTO = {**FIXED, "after_s": None}


def run(settings, *seen):
    """A watch that saw (time, lines, points, pausing) in turn."""
    watch = hang.Watch(settings, 0.0)
    for at, lines, points, pausing in seen:
        watch.see(lines, points, pausing, at)
    return watch


def overdue_from(watch, begin, end):
    """The first second at which it is overdue, with the limit that says so."""
    for now in range(begin, end):
        found = watch.overdue(now)
        if found:
            return now, found["limit"]
    return None


@pytest.mark.parametrize(
    ("settings", "seen", "expected"),
    [
        # Nothing was ever printed; a line that is no progress is a sign of life before the first step, not after it.
        (FIXED, [], (101, hang.FIRST)),
        (FIXED, [(50, 1, 0, False)], (151, hang.FIRST)),
        (FIXED, [(50, 1, 1, False)], (71, hang.STEP)),
        (FIXED, [(50, 1, 1, False), (60, 5, 1, False)], (71, hang.STEP)),
        # A pause that was announced has its own limit from there on, until the next progress.
        (FIXED, [(50, 1, 1, False), (60, 2, 1, True)], (121, hang.PAUSE)),
        (FIXED, [(50, 1, 1, False), (60, 2, 1, True), (90, 3, 2, False)], (111, hang.STEP)),
        # auto: until enough is known the limit of the first step; then ten times the longest one, at least 300 s.
        (AUTO, [(10, 1, 1, False)], (311, hang.FIRST)),
        (AUTO, [(at, at, at, False) for at in range(1, 8)], (308, hang.STEP)),
        (AUTO, [(50 * at, at, at, False) for at in range(1, 8)], (851, hang.STEP)),
        # A pause makes no step longer.
        (AUTO, [*((at, at, at, False) for at in range(1, 8)), (8, 8, 7, True), (60, 9, 8, False)], (361, hang.STEP)),
        (None, [(1, 1, 1, False)], None),
    ],
)
def test_the_limits_hold_in_turn(settings, seen, expected):
    watch = run(settings, *seen)
    begin = int(seen[-1][0]) if seen else 0
    assert overdue_from(watch, begin, begin + 2000) == expected


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("iter 10: ppl 20.1", "iter 20: ppl 19.3", True),
        ("[10:00:01] it 5", "[10:00:09] it 6", True),
        ("it 5 took 12 ms", "it 5 took 13 ms", False),
        ("2026-11-24 10:00:01,123 alive", "2026-11-24 10:00:11,456 alive", False),
        ("gpu 0: 10240 MiB, 97 %", "gpu 0: 10241 MiB, 98 %", False),
        ("waiting for rank 3 (attempt 5)", "waiting for rank 3 (attempt 6)", False),
        ("still here since 1764025985.12", "still here since 1764025995.34", False),
        ("nothing to count", "nothing to count", False),
        ("it 5", "it 5", False),
        ("it 5", "other 6", False),
    ],
)
def test_lines_that_come_again_with_other_numbers(before, after, changed):
    changes = hang.Changes()
    assert not changes.add(before)
    assert changes.add(after) == changed


def test_of_lines_only_some_kinds_are_remembered():
    changes = hang.Changes()
    changes.add("it 1")
    for kind in range(hang.MOST_KINDS):
        changes.add(f"{'x' * (kind + 1)} 1")
    assert not changes.add("it 2")
    assert changes.add("it 3")


def test_a_job_that_prints_lines_with_other_numbers_is_not_hung():
    """nanoGPT's first line was read and no later one: with a limit of 20 s it was ended as hung."""
    watch = hang.Watch(FIXED, 0.0)
    watch.see(1, 1, False, 10)
    for at in range(11, 200):
        watch.see(at, 1, False, at, changes=at - 10)
        assert watch.overdue(at) is None
    assert watch.unread(199)
    # Once it prints nothing new, it is.
    assert overdue_from(watch, 200, 400) == (220, hang.STEP)
    watch.see(300, 2, False, 230, changes=189)
    assert not watch.unread(230)


def test_what_is_printed_is_shown_until_progress_is_read():
    watch = run(FIXED, (1, 1, 0, False))
    assert not watch.unread(1)
    for at in range(2, 6):
        watch.see(at, 0, False, at, changes=at - 1)
    assert watch.unread(5)
    assert hang.printing_text("it 5: ppl 2", True) == "printing, but no progress is read: it 5: ppl 2"
    assert hang.printing_text("Loading data", False) == "rank 0 printed: Loading data"


def test_a_new_attempt_begins_anew():
    watch = run(FIXED, (50, 1, 1, False))
    watch.begin(60)
    assert overdue_from(watch, 60, 400) == (161, hang.FIRST)


@pytest.mark.parametrize(
    ("given", "after_s"), [("off", "off"), (False, "off"), ("auto", None), (20, 20), ("20", 20), (None, "off")]
)
def test_yaml_reads_off_as_false(given, after_s):
    job = make_job(hang_timeout=given)
    assert (job.hang.after_s if job.hang else "off") == after_s


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"job_hang_timeout": 4}, "off or auto or whole seconds from 5 to 86400"),
        ({"job_hang_timeout": "soon"}, "off or auto or whole seconds"),
        ({"job_hang_timeout": True}, "off or auto or whole seconds"),
        ({"job_hang_pause": "auto"}, "whole seconds from 5"),
        ({"job_hang_first_step": -1}, "whole seconds from 5"),
        ({"job_hang_pause_pattern": "("}, "one that finds the line before a pause"),
        ({"job_hang_timeout": 20, "job_scheduler": "slurm"}, "ssh, whose monitors watch the ranks"),
    ],
)
def test_what_is_no_limit_is_said(given, said):
    (finding,) = schedulers.parse({**job_file(), **given})[1]
    assert said in finding.expected
    assert finding.check in given


def failure(**changes):
    return {"kind": "hung", "host": "n3", "rank": 2, "after_s": 21, "limit": hang.STEP, "step": 5,
            "groups": ["3 ranks (0, 1, 3) wait in all_reduce", "rank 2 on n3 is in load_batch (train.py:88)"],
            "reason": "rank 2 on n3 is in load_batch (train.py:88)", **changes}  # fmt: skip


def test_what_is_said_of_it():
    assert text(failure()) == "no new progress for 21 s: rank 2 on n3 is in load_batch (train.py:88)"
    assert hang.cause(failure())[0] == "hung: no new progress for 21 s since step 5 (job_hang_timeout)"
    assert hang.cause(failure())[1:3] == failure()["groups"]
    first = hang.cause(failure(limit=hang.FIRST, step=None))
    assert first[0] == "hung: no new progress for 21 s since its start (job_hang_timeout; job_hang_first_step)"
    assert "job_progress_pattern" in first[1]


@pytest.mark.parametrize("line", ["Evaluating on 5000 samples", "running validation", "Saving checkpoint to x"])
def test_lines_that_often_announce_a_pause(line, tmp_path):
    from ansible.module_utils.trainyard_node.job.run.log_tail import Tail

    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/rank_0.log"
    tail = Tail(tmp_path, log.name, r"step (?P<step>\d+)", hang.DEFAULT_PAUSE)
    log.write_text(f"step 1\n{line}\n")
    tail.read(1.0)
    assert (tail.lines, tail.points, tail.pausing) == (2, 1, True)
    log.write_text(f"step 1\n{line}\nstep 2\n")
    tail.read(2.0)
    assert (tail.lines, tail.points, tail.pausing) == (3, 2, False)


def test_after_the_last_step_a_pause_is_to_be_expected(tmp_path):
    from ansible.module_utils.trainyard_node.job.run.log_tail import Tail

    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs/rank_0.log"
    tail = Tail(tmp_path, log.name, r"step (?P<step>\d+)/(?P<steps>\d+)", hang.DEFAULT_PAUSE)
    log.write_text("step 9/10\n")
    tail.read(1.0)
    assert not tail.pausing
    log.write_text("step 9/10\nstep 10/10\n")
    tail.read(2.0)
    assert tail.pausing


def test_where_progress_is_read_no_more_any_line_is_a_sign_of_life(tmp_path, monkeypatch, capsys):
    from ansible.module_utils.trainyard_node.job.run import log_tail as tails

    monkeypatch.setattr(tails, "PARSE_S", 0.05)
    log = tmp_path / "logs" / "rank_0.log"
    log.parent.mkdir()
    tail = tails.Tail(tmp_path, log.name, r"(?P<step>\d+) (?:a+)+$", "x+y")
    log.write_text("1 aaa\n2 " + "a" * 40 + "b\n")
    tail.read(1.0)
    assert "job_progress_pattern or job_hang_pause_pattern took" in capsys.readouterr().out
    before = tail.points
    with log.open("a") as more:
        more.write("3 aaa\nanything\n")
    tail.read(2.0)
    # Or a job that trains well would be taken for one that hangs.
    assert tail.points == before + 2
