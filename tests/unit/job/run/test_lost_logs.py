"""Logs of ranks that shrink, are removed or replaced while the job runs, and logs with much left to read at its end."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run.evidence import log_tail, open_log
from ansible.module_utils.trainyard_node.job.run.evidence.log_tail import RankTails
from job_cluster import PATIENCE_S, wait_for
from job_samples import summary_of
from test_report import answer, head_says, plan

PLAN = {"world_size": 8, "rank_log": "rank_{rank}.log", "progress_pattern": r"step (?P<step>\d+)"}


class Logs:
    """The logs of a node's ranks: a rank appends to the file that it has open, whatever its name is."""

    def __init__(self, job_dir):
        (job_dir / "logs").mkdir()
        self.dir, self.open = job_dir / "logs", {}
        self.tails = RankTails(job_dir, PLAN, ())

    def path(self, rank=0):
        return self.dir / f"rank_{rank}.log"

    def write(self, text, rank=0):
        if rank not in self.open:
            self.open[rank] = os.open(self.path(rank), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self.open[rank], text.encode())
        return self.read()

    def read(self, *ended, well=True, over=False):
        self.tails.read(1.0, dict.fromkeys(ended, well), over)
        return self.tails.shown.last.get("step")


@pytest.fixture
def logs(tmp_path):
    made = Logs(tmp_path)
    yield made
    for descriptor in made.open.values():
        os.close(descriptor)


@pytest.mark.parametrize("size", [0, 8])
def test_a_log_that_shrinks_is_read_from_its_new_begin(logs, size):
    assert logs.write("step 11\nstep 12\n") == 12
    os.truncate(logs.path(), size)
    assert logs.read() in (12, 11)
    assert logs.write("step 13\n") == 13
    assert logs.tails.loss == "rank_0.log was cut: 16 B that were read are gone from it"
    os.truncate(logs.path(), 0)
    # Meanwhile it has become longer than it was.
    assert logs.write(f"{'x' * 99}\nstep 14\n") == 14
    assert logs.tails.loss.startswith("rank_0.log was cut 2 times: ")


def test_a_removed_log_is_read_on_and_put_back_once_its_rank_has_ended(logs):
    logs.write("step 11\n")
    logs.path().unlink()
    assert logs.write("step 12\n") == 12 and not logs.path().exists()
    assert logs.tails.loss.startswith("rank_0.log was removed: its rank writes on into the removed file")
    assert logs.read(0) == 12
    assert logs.path().read_text() == "step 11\nstep 12\n"
    assert logs.tails.loss == "rank_0.log was removed: the monitor put all 16 B of it back"
    # The next attempt writes there.
    with logs.path().open("a") as again:
        again.write("step 13\n")
    assert logs.read() == 13 and logs.tails.shown.points == 3


def test_only_the_end_of_a_long_removed_log_is_put_back(logs, monkeypatch):
    monkeypatch.setattr(open_log, "RESTORED", 8)
    logs.write("step 11\nstep 12\n")
    logs.path().unlink()
    assert logs.read(0) == 12
    assert logs.path().read_text() == "step 12\n"
    assert logs.tails.loss == "rank_0.log was removed: the monitor put the last 8 B of it back, 8 B are lost"


def test_a_log_that_nobody_has_open_any_more_is_not_put_back_over_another_one(logs):
    logs.write("step 11\n")
    logs.path().rename(logs.dir / "rank_0.log.1")
    logs.path().touch()
    # logrotate makes a new one, and the rank writes into the old one.
    assert logs.write("step 12\n") == 12
    logs.path().write_text("step 1\n")
    assert logs.read(0) == 1
    assert logs.path().read_text() == "step 1\n"
    assert logs.tails.loss == "rank_0.log was replaced by another file: 16 B that were read are gone"


def test_a_log_that_is_a_pipe_or_a_link_holds_nobody_up(logs):
    os.mkfifo(logs.path())
    logs.path(1).symlink_to("/dev/zero")
    assert logs.read(0, 1) is None and logs.tails.loss == ""


@pytest.fixture
def small(monkeypatch):
    """Less is read at once, so that little text is much; a busy machine has its time for it."""
    monkeypatch.setattr(log_tail, "READ_AT_ONCE", 4096)
    monkeypatch.setattr(log_tail, "DRAIN_S", PATIENCE_S)


STEPS = [f"step {step}\n" for step in range(12, 40)]
NOISE = "x" * 99 + "\n"


@pytest.mark.parametrize("after", [0, 7, 40, 41, 2000])
def test_the_log_of_a_rank_that_has_ended_is_read_to_its_end(logs, small, after):
    logs.write("step 11\n")
    assert logs.write("".join(step + NOISE * 100 for step in STEPS) + NOISE * after) < 39
    assert logs.read(0) == 39
    assert logs.tails.shown.points == 29 and logs.tails.shown.log.behind() == 0


@pytest.mark.parametrize("after", [0, 7, 40, 41, 2000])
def test_where_that_takes_too_long_its_last_step_is_found_from_the_end(logs, small, monkeypatch, after):
    logs.write("step 11\n")
    logs.write("".join(step + NOISE * 500 for step in STEPS) + NOISE * after)
    # No time is left to read on.
    clock = iter([0.0, *[log_tail.DRAIN_S + 0.1] * 999])
    monkeypatch.setattr(log_tail, "time", SimpleNamespace(monotonic=lambda: next(clock), time=time.time))
    assert logs.read(over=True) == 39
    assert logs.tails.shown.points < 5 and logs.tails.shown.log.behind() == 0


def test_a_search_without_an_end_is_given_up(logs, small, monkeypatch, capsys):
    logs.write("step 11\n")
    logs.write("step 12\n" + NOISE * 5000)
    monkeypatch.setattr(log_tail, "DRAIN_S", 0.0)
    assert logs.read(0) in (11, 12)
    assert "more was not read" in capsys.readouterr().out and logs.tails.shown.log.behind() == 0


@pytest.mark.parametrize("well", [True, False])
def test_a_last_line_without_an_end_counts_if_its_rank_ended_well(logs, well):
    """A progress bar has none; a rank that was killed may have written half of a number."""
    logs.write("step 38\nstep 39")
    assert logs.read(0, well=well) == (39 if well else 38)


def test_of_very_much_text_not_even_the_begin_of_a_line_is_taken_for_one(logs):
    logs.write("step 1\n")
    text = "step 7 " * 20000
    assert logs.write(f"{text}\nother\n", rank=3) == 1
    assert logs.tails._tails[3].points == 0


# ---- real monitors


def opened(node, log):
    """Whether the monitor of a node has this log open."""
    return log.resolve() in [link.resolve() for link in Path(f"/proc/{node.monitor.pid}/fd").iterdir()]


def test_a_job_without_a_limit_has_its_removed_log(cluster):
    job = cluster(["train"]).start()
    log = job.head.dir / "logs" / "rank_0.log"
    wait_for(lambda: opened(job.head, log), "the monitor to open the log")
    log.unlink()
    job.head.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert job.head.read("monitor.json")["lost_logs"].startswith("rank_0.log was removed: ")
    assert log.read_text().splitlines()[-1].startswith("step 5/5 ") and job.state()["metrics"]["step"] == 5
    assert len((job.head.dir / "metrics.jsonl").read_text().splitlines()) == 5


def test_the_report_names_what_was_lost():
    lost = "rank_0.log was cut: 16 B that were read are gone from it"
    results = {"n1": answer(1, cluster=head_says({"state": "succeeded", "finished": 1090.0})), "n2": answer(2)}
    results["n1"]["monitor"] = {**results["n1"]["monitor"], "lost_logs": lost}
    summary = summary_of(plan(), results)
    assert json.loads(json.dumps(summary))["nodes"][0]["lost_logs"] == lost
    assert f"  n1: {lost}" in job_text.explain(summary, "/runs/x", "/jobs/x", ()).splitlines()
