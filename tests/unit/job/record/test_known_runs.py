"""Which run is meant by a name where several may run: what runs comes first, and nothing is stopped by a guess."""

import json
import os

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard_controller.job import run_choice as known_runs
from job_samples import saved_plan, saved_record, submitted

GONE = {"unreachable": True, "msg": "Failed to connect to the host via ssh: timed out"}
LINE = "0:01:00   2/2 ranks running   step 7"


class Site:
    """Runs on this controller, oldest first; `running` are those that run, and heads that are `silent` are down."""

    def __init__(self, folder):
        self.runs, self.asked = folder / "runs", []
        self.running, self.silent = {}, set()

    def add(self, job_id, head="n1", name="digits", ended=False, **more):
        folder = self.runs / job_id
        folder.mkdir(parents=True)
        ranks = {head: [0], "n2": [1]} if head != "n2" else {"n2": [0], "n3": [1]}
        plan = saved_plan(job_id, ranks, job_name=name, job_dir=f"/jobs/{job_id}", **more)
        (folder / "plan.json").write_text(json.dumps(plan))
        os.utime(folder / "plan.json", (len(list(self.runs.iterdir())),) * 2)
        if ended:
            (folder / "summary.json").write_text(json.dumps(saved_record(job_id)))

    def ask(self, question, own, *, limit_s=120.0):
        assert question == "running"
        self.asked.append({host: [job["job_id"] for job in about["jobs"]] for host, about in own.items()})
        answers = {
            host: {"running": dict.fromkeys({*jobs} & {*self.running}, LINE)} for host, jobs in self.asked[-1].items()
        }
        return {host: GONE if host in self.silent else answer for host, answer in answers.items()}

    def find(self, **named):
        return known_runs.find(self.runs, ask=self.ask, **named)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.parametrize("must_name", [True, False])
def test_an_older_run_that_runs_comes_before_a_newer_one_that_has_ended(site, must_name):
    site.add("r1")
    site.add("r2", ended=True)
    site.running = {"r1"}
    found = site.find(job_name="digits", must_name=must_name)
    assert (found["job_id"], found["note"], site.asked) == ("r1", "", [{"n1": ["r1"]}])
    assert site.find(job_name="digits", job_id="r2", must_name=must_name)["job_id"] == "r2"


def test_no_node_is_queried_where_only_the_newest_may_run(site):
    for number in range(300):
        site.add(f"old{number:03}", ended=True)
    site.add("r1")
    assert site.find(job_name="digits", must_name=True)["job_id"] == "r1"
    assert site.asked == []


def test_several_that_run_are_listed_and_none_is_stopped(site):
    for number in (1, 2, 3):
        site.add(f"r{number}")
    site.running = {"r1", "r2"}
    with pytest.raises(UnusableError) as refused:
        site.find(job_name="digits", must_name=True)
    lines = str(refused.value).splitlines()
    since = "since 2026-11-20T10:15:00+0000 on n1, n2, 0:01:00 2/2 ranks running step 7"
    assert lines[3:5] == [f"     found     r1 runs {since}", f"               r2 runs {since}"]
    found = site.find(job_name="digits")
    assert found["job_id"] == "r2"
    assert found["note"].splitlines()[1:] == [f"  r1 runs {since}", f"  r2 runs {since}"]


def test_nothing_is_stopped_while_it_is_unknown_what_runs(site):
    site.add("r1", head="n9")
    site.add("r2", ended=True)
    site.silent = {"n9"}
    with pytest.raises(UnusableError) as refused:
        site.find(job_name="digits", must_name=True)
    assert "found     it is not known whether r1 runs: n9: timed out" in str(refused.value)
    # A user who only asks for the status gets the newest run.
    assert site.find(job_name="digits")["job_id"] == "r2"
    site.add("r3")
    site.running = {"r3"}
    assert site.find(job_name="digits", must_name=True)["job_id"] == "r3"


def test_a_schedulers_job_that_runs_comes_first(site, monkeypatch):
    class Job:
        def state(self, *, waits):
            assert not waits
            return {"state": "pending", "line": "waits: Priority"}

    monkeypatch.setattr(known_runs, "external_job", lambda *_: Job())
    site.add("r1", **submitted())
    site.add("r2", ended=True)
    assert site.find(job_name="digits", must_name=True)["job_id"] == "r1"
    assert site.asked == []
