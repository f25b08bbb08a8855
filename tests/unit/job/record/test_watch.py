"""How a job is watched: what is shown of it, and when its watcher gives up."""

import time as real_time

import pytest
from ansible.module_utils.trainyard_controller import watching

GONE = {"unreachable": True, "msg": "Failed to connect to the host via ssh: timed out"}


class Clock:
    """Time that passes only where somebody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(watching, "time", made)
    return made


class Says:
    """A job of which these answers come, one after the other; the last one again and again."""

    host, title, patience_s, then = "n1", "head node n1", 20.0, "then the others are asked"

    def __init__(self, *answers):
        self.answers = list(answers)

    def read(self, wait_s):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def runs(line, *told, state="running"):
    return {"state": state, "line": line, "told": told}


def followed(job):
    shown, forgotten = [], []
    return watching.follow(job, forgotten.append, shown.append), shown, forgotten


def test_progress_is_shown_each_time_and_why_a_job_waits_once(clock):
    waits = runs("waits: Priority", state="pending")
    over = runs("", "restart 1", "restart 2", state="failed")
    job = Says(waits, waits, runs("step 1"), runs("step 2", "restart 1"), over)
    lost, shown, _ = followed(job)
    assert (lost, shown) == ("", ["  waits: Priority", "  step 1", "  restart 1", "  step 2", "  restart 2"])


def test_lines_that_differ_in_their_time_alone_are_repeated_within_ten_seconds(in_time):
    lines = [runs(f"0:00:{second:02}   4/4 ranks running") for second in range(2, 30, 2)]
    _, shown, _ = followed(Says(*lines, runs("", state="over")))
    assert [line.split()[0] for line in shown] == ["0:00:02", "0:00:10", "0:00:18", "0:00:26"]


def test_a_silent_head_is_queried_until_patience_ends(clock):
    lost, shown, forgotten = followed(Says(GONE, GONE, runs("step 1"), GONE, runs("", state="over")))
    assert (lost, shown, forgotten) == ("", ["  step 1"], ["n1"] * 3)
    began = clock.now
    lost, shown, _ = followed(Says(GONE))
    assert (lost, shown) == ("timed out", []) and 20 < clock.now - began <= 22


def test_a_silent_head_is_named_less_and_less_often(clock):
    job = Says(*[GONE] * 100, runs("step 9"), GONE, runs("", state="over"))
    job.patience_s = 320.0
    _, shown, _ = followed(job)
    words = "ranks may still run. It is asked for up to"
    assert shown == [
        f"  head node n1 gave no answer for 22 s; {words} 298 s more; then the others are asked",
        f"  head node n1 gave no answer for 66 s; {words} 254 s more; then the others are asked",
        "  head node n1 answers again after 100 s",
        "  step 9",
    ]


def test_a_head_that_freezes_during_a_query_is_named(clock):
    job = Says(runs("", state="over"))
    at_once = job.read

    def read(wait_s):
        # As ssh does, whose connection stays open.
        while not shown:
            real_time.sleep(0.01)
        return at_once(wait_s)

    def interrupted():
        clock.now += 10
        return False

    job.read, shown = read, []
    assert watching.follow(job, lambda _: None, shown.append, interrupted=interrupted) == ""
    assert shown[0].startswith("  head node n1 gave no answer for 30 s; ranks may still run. It is asked for up to 2 s")


@pytest.fixture
def in_time(clock, monkeypatch):
    """Each poll takes as long as requested, and nothing of it runs beside the watcher."""

    def poll(job, wait_s, interrupted, meanwhile):
        clock.now += wait_s
        meanwhile()
        return job.read(wait_s)

    monkeypatch.setattr(watching, "_poll", poll)


def test_a_head_whose_monitor_reports_nothing_new_is_named_until_it_does(clock, in_time):
    """Its sshd answers all the while: the node is not given up for it, and the old line not shown again."""
    at_s = [0.0, 2.0, 4.0]
    answers = [*({**known(True), "cluster": {"end": None, "elapsed_s": each}} for each in (*at_s, *[4.0] * 31, 90.0))]
    answers.append(known(False, {"state": "succeeded"}))

    def ask(question, own, limit_s):
        return {"n1": {**answers.pop(0), "restarts": []}}

    lost, shown, forgotten = followed(watching.OverSsh(plan(), ask))
    assert (lost, forgotten) == ("", [])
    at = next(number for number, line in enumerate(shown) if line != "  l")
    first, second, again = shown[at : at + 3]
    assert first.startswith("  head node n1 answers, but its monitor reported nothing for 22 s; ranks may still run.")
    assert "reported nothing for 72 s" in second and again == "  head node n1 reports again after 99 s"
    assert set(shown[:at] + shown[at + 3 :]) == {"  l"}


def plan(max_restarts=0):
    head = {"host": "n1"}
    return {"job_id": "a", "job_dir": "/x/a", "head": head, "rejoin_s": 300, "max_restarts": max_restarts}


def known(alive, end=None, restarted=True):
    cluster = {"end": end} if alive or end else None
    lost = {} if alive else {"monitor_lost": {"restarted": restarted, "how": ""}}
    return {"known": True, "monitor_alive": alive, "cluster": cluster, "line": "l", "restarts": ["r"], **lost}


@pytest.mark.parametrize(("restarts", "over_after_s"), [(0, 0), (1, 300)])
def test_a_head_that_comes_back_is_waited_for_while_restarts_are_left(clock, restarts, over_after_s):
    answers = [known(True), known(False)]
    job = watching.OverSsh(plan(restarts), lambda question, own, limit_s: {"n1": answers[0]})
    assert job.read(2)["state"] == "running"
    answers.pop(0)
    began = clock.now
    while job.read(2)["state"] == "running":
        assert clock.now - began <= over_after_s
    assert clock.now - began == pytest.approx(over_after_s, abs=1)
    # One whose monitor was killed does not come back.
    answers[0] = known(True)
    assert job.read(2)["state"] == "running"
    answers[0] = known(False, restarted=False)
    assert job.read(2)["state"] == "over"
    answers[0] = known(True, {"state": "failed"})
    assert job.read(2)["state"] == "over"
    assert job.patience_s == watching.GIVE_UP_S + over_after_s


def test_a_scheduler_without_the_job_is_queried_once(clock, tmp_path, monkeypatch):
    answers = [{"state": "pending", "line": ""}, GONE, {"failed": True, "msg": "no such job"}]

    class Job:
        def state(self, *, waits):
            assert waits
            return answers.pop(0)

    monkeypatch.setattr(watching, "external_job", lambda *_: Job())
    job = watching.ExternalWatch({"engine": {"submit_host": "login"}}, tmp_path, None)
    lost, shown, forgotten = followed(job)
    assert (lost, shown, forgotten, answers) == ("no such job", [], ["login"], [])
