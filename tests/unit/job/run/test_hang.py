"""When a job counts as hung: the limits in turn, what a run's own steps make of them, what is said, and bad input."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.decide.hang_watch import HangWatch
from ansible.module_utils.trainyard.job.run.decide.orders import Now
from ansible.module_utils.trainyard.job.run.logs import hang
from ansible.module_utils.trainyard.job.run.logs.failures import failure_text
from ansible.module_utils.trainyard.job.run.logs.progress import DEFAULT_PATTERN
from ansible.module_utils.trainyard_node.job.run.evidence import log_tail
from job_samples import job_file, make_job
from simulated_job import SimulatedJob

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
        # auto: ten times the longest step, at least 60 s.
        (AUTO, [(10, 1, 0, False)], (111, hang.FIRST)),
        (AUTO, [(10, 1, 1, False)], (71, hang.STEP)),
        (AUTO, [(50 * at, at, at, False) for at in range(1, 8)], (851, hang.STEP)),
        # A pause makes no step longer.
        (AUTO, [*((at, at, at, False) for at in range(1, 8)), (8, 8, 7, True), (60, 9, 8, False)], (121, hang.STEP)),
        (None, [(1, 1, 1, False)], None),
    ],
)
def test_the_limits_hold_in_turn(settings, seen, expected):
    watch = run(settings, *seen)
    begin = int(seen[-1][0]) if seen else 0
    assert overdue_from(watch, begin, begin + 2000) == expected


def test_a_finished_checkpoint_is_progress_and_ends_the_pause_of_its_save():
    """A job was ended as hung with a checkpoint that was 0 s old; another one was silent for half an hour."""
    watch = run(FIXED, (10, 1, 1, False))
    watch.finish_save(25)
    assert overdue_from(watch, 25, 100) == (46, hang.STEP)
    watch.see(2, 1, True, 40, saves=1)
    assert overdue_from(watch, 40, 200) == (101, hang.PAUSE)
    watch.finish_save(50)
    assert overdue_from(watch, 50, 200) == (71, hang.STEP)
    # The next save is a pause again, and so is an evaluation, which no checkpoint ends.
    watch.see(4, 2, False, 60)
    watch.see(5, 2, True, 61, saves=2)
    assert watch.limit() == (60.0, hang.PAUSE)
    watch.see(6, 2, True, 62, saves=0)
    watch.finish_save(63)
    assert watch.limit() == (60.0, hang.PAUSE)
    # In the next attempt another rank may count, which has announced as many saves.
    watch.see(7, 3, True, 64, saves=3)
    watch.finish_save(65)
    watch.begin(70)
    watch.see(8, 4, True, 71, saves=3)
    assert watch.limit() == (60.0, hang.PAUSE)


def report(host, rank, points, **progress):
    """A node's report of its progress."""
    progress = {"lines": points, "points": points, "changes": 0, "pausing": False, "last": "", **progress}
    return {"host": host, "progress": progress, "progress_rank": rank if points else None}


def test_a_step_of_any_rank_is_progress():
    """The log of rank 0 was removed: its steps came no more, and those of the others did not count."""
    job = HangWatch({"host": "n1", "world_size": 4, "hang": FIXED}, 0.0)

    def ends(now, of_rank_1, of_rank_3):
        reports = [report("n1", 0, 9, steps=9 + of_rank_1), report("n2", 3, of_rank_3)]
        return job.decide(reports, ("n1", "n2"), Now(now, now)) or job.number

    assert [ends(now, 0, 0) for now in (1.0, 20.0)] == [0, 0]
    assert [ends(20.0 + 10 * step, step, 0) for step in range(1, 9)] == [0] * 8
    assert [ends(100.0 + 10 * step, 8, step) for step in range(1, 5)] == [0] * 4
    assert ends(200.0, 8, 4) == 1


def test_a_node_that_is_not_there_for_a_moment_has_made_no_step():
    job, gone = HangWatch({"host": "n1", "world_size": 4, "hang": FIXED}, 0.0), report("n2", 3, 5)
    for now, reports in ((1.0, [gone]), (15.0, []), (19.0, [gone])):
        assert job.decide([report("n1", 0, 9), *reports], ("n1", "n2"), Now(now, now)) is None
    job.decide([report("n1", 0, 9), gone], ("n1", "n2"), Now(22.0, 22.0))
    assert job.number == 1


def test_steps_that_were_read_after_an_attempt_are_none_of_the_next():
    """Otherwise the limit of a step would hold while the program loads."""
    job = SimulatedJob(max_restarts=1, hang={**FIXED, "first_s": 1000})
    for points in (5, 6):
        job.changes["n1"] = {"progress": report("n1", 0, points)["progress"], "progress_rank": 0}
        job.step()
    job.kill()
    job.step()
    job.changes["n1"]["progress"]["points"] = 7
    job.changes["n2"] = {}
    job.run(15)
    assert job.starts == [1]
    job.run(100)
    assert job.state.end == {} and job.state.hang.number == 0


CHANGES = [("iter 10: ppl 20.1", "iter 20: ppl 19.3"), ("[10:00:01] it 5", "[10:00:09] it 6")]
NO_CHANGES = [
    ("it 5 took 12 ms", "it 5 took 13 ms"),
    ("2026-11-24 10:00:01,123 alive", "2026-11-24 10:00:11,456 alive"),
    ("gpu 0: 10240 MiB, 97 %", "gpu 0: 10241 MiB, 98 %"),
    ("waiting for rank 3 (attempt 5)", "waiting for rank 3 (attempt 6)"),
    ("still here since 1764025985.12", "still here since 1764025995.34"),
    *(("nothing to count", "nothing to count"), ("it 5", "it 5"), ("it 5", "other 6")),
]


@pytest.mark.parametrize(("before", "after"), [*CHANGES, *NO_CHANGES])
def test_lines_that_come_again_with_other_numbers(before, after):
    changes = hang.Changes()
    assert not changes.add(before)
    assert changes.add(after) == ((before, after) in CHANGES)


def test_only_some_kinds_of_lines_are_remembered():
    changes = hang.Changes()
    changes.add("it 1")
    for kind in range(hang.MAX_KINDS):
        changes.add(f"{'x' * (kind + 1)} 1")
    assert [changes.add("it 2"), changes.add("it 3"), changes.most] == [False, True, 1]
    changes.forget()
    assert [changes.add(f"it {at}") for at in range(5)] == [True] * 5 and changes.most == 5


def test_a_job_that_prints_lines_with_other_numbers_is_not_hung():
    """nanoGPT's first line was read and no later one: with a limit of 20 s it was ended as hung."""
    watch = hang.Watch(FIXED, 0.0)
    watch.see(1, 1, False, 10)
    for at in range(11, 200):
        watch.see(at, 1, False, at, changes=at - 10, alike=at - 10)
        assert watch.overdue(at) is None
    assert watch.unread(199)
    # Once it prints nothing new, it is.
    assert overdue_from(watch, 200, 400) == (220, hang.STEP)
    watch.see(300, 2, False, 230, changes=189)
    assert not watch.unread(230)
    watch.begin(260)
    assert overdue_from(watch, 260, 600) == (361, hang.FIRST)
    # Programs load for seconds, so it takes a minute and ten lines of one form.
    watch = run(FIXED, (1, 1, 0, False))
    for alike in (9, 10):
        watch.see(2, 0, False, 5, changes=30, alike=alike)
        assert [watch.unread(at) for at in (5, 60, 61)] == [False, False, alike == 10]


@pytest.mark.parametrize(
    ("settings", "seen", "counts_from"),
    [
        # 10 s, or half of a shorter limit.
        (FIXED, [(50, 1, 1, False)], 60),
        ({**FIXED, "after_s": 6}, [(50, 1, 1, False)], 53),
        ({**FIXED, "after_s": 600}, [(50, 1, 1, False)], 60),
        # Not while a step takes twice as long as before.
        ({**FIXED, "after_s": 600}, [(at, at, at, False) for at in range(0, 200, 40)], 160 + 80),
        # auto: from when it is unusual; an announced pause until its own limit.
        (AUTO, [(50, 1, 1, False)], 110),
        (AUTO, [(0, 1, 0, False)], 60),
        ({**AUTO, "pause_s": 100}, [(50, 1, 1, True)], 150),
        (None, [(50, 1, 1, False)], None),
    ],
)
def test_a_silence_counts_once_it_is_unusual(settings, seen, counts_from):
    watch, begin = run(settings, *seen), seen[-1][0]
    counted = [now for now in range(begin, begin + 300) if watch.silence(now)]
    assert counted == (list(range(counts_from, begin + 300)) if counts_from else [])


def test_words_for_the_limit():
    # YAML reads a bare off as false.
    assert not any(make_job(hang_timeout=given).hang for given in ("off", False))
    assert [make_job(hang_timeout=given).hang.after_s for given in (None, "auto", 20, "20")] == [None, None, 20, 20]
    # Where no monitor looks, the default is no finding.
    assert not schedulers.parse({**job_file(), "job_scheduler": "slurm", "job_hang_timeout": "auto"})[1]


def test_a_silence_that_ends_nothing_is_noted_once_with_the_stacks():
    watch = HangWatch({"host": "n1", "world_size": 1, "hang": AUTO}, 0.0)
    report = {"host": "n1", "ranks_running": 1}
    report["progress"] = {"lines": 1, "points": 1, "changes": 0, "pausing": False, "last": ""}

    def decide(now):
        return watch.decide([report], ["n1"], Now(now, 1000.0 + now))

    rank = {"rank": 0, "frames": [["load_batch", "train.py", 8, "own"]], "state": "S", "wchan": "", "problem": ""}
    rank |= {"device": "", "pid": 7, "cpu_percent": 0, "looks": 3, "waited": 0, "calls": [], "ras": [], "recorder": ""}
    assert decide(1.0) is None and decide(60.0) is None and not watch.number
    assert watch.silence(60.0, restarts=False) == ""
    assert decide(62.0) is None and watch.order("n1") == 1
    assert watch.silence(62.0, restarts=False) == "no new step for 61 s, taking the stacks of all ranks"
    watch.receive("n1", 1, [rank])
    assert decide(71.0) is None and not watch.number
    assert watch.silence(71.0, restarts=False) == "no new step for 1:10"
    text = "no new progress for 70 s (job_hang_timeout: auto, so the job goes on): "
    text += "rank 0 on n1 is in load_batch (train.py:8)"
    assert hang.noted_text(watch.noted) == text
    # It stays so for as long as nothing comes, and is new after a step.
    assert decide(5000.0) is None and not watch.number and hang.noted_text(watch.noted) == text
    report["progress"] = {**report["progress"], "points": 2}
    assert decide(5001.0) is None and watch.noted is None
    # That step took long, so the next may.
    assert decide(5001.0 + 9 * 5000) is None and not watch.number
    # A time that is up ends the job all the same.
    assert watch.decide([report], ["n1"], Now(60000.0, 1.0), time_up=True) is None
    watch.receive("n1", watch.number, [rank])
    assert watch.decide([report], ["n1"], Now(60001.0, 1.0), time_up=True)["kind"] == "timed_out"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"job_hang_timeout": 4}, "off or auto or a whole number from 5 to 86400"),
        ({"job_hang_timeout": "soon"}, "off or auto or a whole number"),
        ({"job_hang_timeout": True}, "off or auto or a whole number"),
        ({"job_hang_pause": "auto"}, "a whole number from 5"),
        ({"job_hang_first_step": -1}, "a whole number from 5"),
        ({"job_hang_pause_pattern": "("}, "one that finds the line before a pause"),
        (
            {"job_hang_timeout": 20, "job_scheduler": "kubernetes", "job_launcher": "mpirun"},
            "or a plain Job, whose monitors watch the ranks",
        ),
    ],
)
def test_other_limits_are_refused(given, expected):
    (finding,) = schedulers.parse({**job_file(), **given})[1]
    assert expected in finding.expected
    assert finding.check in given


def test_texts_of_a_hang():
    groups = ["3 ranks (0, 1, 3) wait in all_reduce", "rank 2 on n3 is in load_batch (train.py:88)"]
    failure = {"kind": "hung", "host": "n3", "rank": 2, "after_s": 21, "limit": hang.STEP, "step": 5}
    failure.update(groups=groups, reason=groups[1])
    assert failure_text(failure) == f"no new progress for 21 s: {groups[1]}"
    first, *rest = hang.cause(failure)
    assert first.startswith("hung: no new progress for 21 s since step 5 (") and rest[:2] == groups
    first, action, *_ = hang.cause({**failure, "limit": hang.FIRST, "step": None})
    assert "since its start" in first and "job_hang_first_step" in first and "job_progress_pattern" in action
    assert hang.printing_text("it 5: ppl 2", True) == "printing, but no progress is read: it 5: ppl 2"
    assert hang.printing_text("Loading data", False) == "rank 0 printed: Loading data"


@pytest.fixture
def tail(tmp_path):
    """Make a function that appends text to rank 0's log, reads it and returns the tail."""
    log = tmp_path / "logs" / "rank_0.log"
    log.parent.mkdir()

    def made(pattern, pause=hang.DEFAULT_PAUSE):
        follower = log_tail.Tail(tmp_path, log.name, pattern, pause)

        def read(text):
            with log.open("a") as more:
                more.write(text)
            follower.read(1.0)
            return follower

        return read

    return made


MINDSPORE = (Path(__file__).resolve().parents[3] / "fixtures/mindspore/succeeded-worker.txt").read_text().splitlines()


def test_mindspores_own_log_is_shown_in_short_and_is_no_progress(tail):
    read = tail(DEFAULT_PATTERN)
    begin = [line for line in MINDSPORE if line.startswith("[WARNING] D")]
    assert len(begin) > 5
    found = read("\n".join(begin) + "\n")
    assert (found.lines, found.points, found.changes) == (len(begin), 0, 0)
    assert found.last_line == "WARNING: TcpConnection is constructed! fd is 23"
    # A program's own lines, logged by MindSpore's function, are as before.
    own = "[INFO] ME(2932:1403,MainProcess):2026-11-25-19:02:49.890.000 [train.py:9] "
    assert read(f"{own}ppl 7\n{own}ppl 6\n").changes == 1 and found.last_line == f"{own}ppl 6"


PAUSES = {"Evaluating on 5000 samples": 0, "running validation": 0, "checkpoint 5 next": 0, "Saving checkpoint to x": 1}


@pytest.mark.parametrize("line", PAUSES)
def test_lines_that_often_announce_a_pause(line, tail):
    read = tail(r"step (?P<step>\d+)")
    found = read(f"step 1\n{line}\n")
    assert (found.lines, found.points, found.pausing) == (2, 1, True)
    assert found.report()["saves"] == PAUSES[line]
    found = read("step 2\n")
    assert (found.lines, found.points, found.pausing) == (3, 2, False)


def test_a_save_that_is_over_announces_no_pause(tail):
    """Megatron-LM prints such a line after each save."""
    read = tail(r"step (?P<step>\d+)")
    assert not read("step 1\nsuccessfully saved checkpoint at iteration 1\n").pausing
    # Nor is it another pause than that of its save, which a finished checkpoint ends.
    found = read("saving checkpoint at iteration 1\nsuccessfully saved checkpoint at iteration 1\n")
    assert (found.pausing, found.report()["saves"]) == (True, 1)
    assert read("step 2\nsaving checkpoint\n").report()["saves"] == 2
    assert read("evaluating\n").report()["saves"] == 0


def test_a_pause_may_follow_the_last_step(tail):
    read = tail(r"step (?P<step>\d+)/(?P<steps>\d+)")
    assert not read("step 9/10\n").pausing
    assert read("step 10/10\n").pausing


def test_any_line_counts_once_a_pattern_took_too_long(tail, monkeypatch, capsys):
    """Otherwise a job that trains well would count as hung."""
    monkeypatch.setattr(log_tail, "PARSE_S", 0.05)
    read = tail(r"(?P<step>\d+) (?:a+)+$", "x+y")
    before = read("1 aaa\n2 " + "a" * 40 + "b\n").points
    assert "job_progress_pattern or job_hang_pause_pattern took" in capsys.readouterr().out
    assert read("3 aaa\nanything\n").points == before + 2
