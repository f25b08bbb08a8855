"""The record of a run: what a later question changes in it, and what not; with the texts that go with it."""

import fcntl
import json
import math

import pytest
from ansible.module_utils.trainyard.job.record import run_record
from ansible.module_utils.trainyard.job.record.removable_jobs import KUBERNETES
from ansible.module_utils.trainyard_controller.job import cleaning, reporting
from job_samples import submitted, summary_of
from test_report import answer as of_node
from test_report import head_says, plan

NOTHING = {"known": False, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
WELL = {"exit_code": 0, "signal": None, "result": "success", "time": 1070.0}


def says(state=None, left=0, ended=WELL, metrics=None):
    """Return the answers of two nodes: the job runs, or has ended."""
    end = {"state": state, "finished": 1072.5, "failure": None} if state else None
    node = {"end": end, "left": left if end else 3, "alive": not end, "exits": (ended, ended) if end else ()}
    return {"n1": of_node(1, cluster=head_says(end, metrics, 0 if end else 4), **node), "n2": of_node(2, **node)}


def summary(results, unreachable=None, **asked):
    return summary_of(plan(), results, unreachable, **asked)


LOST = summary({"n1": NOTHING, "n2": NOTHING})
SILENT = summary({}, {"n1": "timed out", "n2": "timed out"})
RUNNING = summary(says())
ANSWERS = [LOST, SILENT, RUNNING, summary(says("succeeded")), summary(says("stopped")), summary({"n2": NOTHING})]


@pytest.mark.parametrize("state", sorted(run_record.FINAL))
def test_a_final_record_stays(state):
    final = summary(says(state))
    assert run_record.is_final(final)
    for answer in ANSWERS:
        assert run_record.settle(final, answer) == final


def test_other_records_follow_the_nodes():
    assert run_record.settle(None, RUNNING) == RUNNING
    for answer in ANSWERS:
        if answer["state"] != "lost":
            assert run_record.settle(RUNNING, answer) == answer
            assert run_record.settle(LOST, answer) == answer
    assert not run_record.is_final(None) and not run_record.is_final(RUNNING) and not run_record.is_final(LOST)


def test_a_lost_job_keeps_its_record():
    lost = run_record.settle(RUNNING, LOST)
    assert (lost["state"], lost["ranks_running"], lost["metrics"]) == ("lost", 0, {"step": 40.0, "loss": 0.25})
    assert lost["started"] == 1000.0 and [node["state"] for node in lost["nodes"]] == ["ended", "ended"]


def test_a_record_of_nodes_that_were_still_ending_gets_their_exits_and_nothing_else():
    early = summary(says("failed", left=2, ended=None))
    assert not run_record.is_final(early)
    assert run_record.settle(early, LOST)["state"] == "failed"
    late = run_record.settle(early, summary(says("stopped")))
    assert late == {**early, "nodes": summary(says("failed"))["nodes"]} and run_record.is_final(late)
    assert run_record.settle(early, SILENT) == early


def test_nodes_have_their_present_state():
    one = says("failed")
    one.pop("n2")
    final = summary(one, {"n2": "no route"})
    running = summary({"n1": NOTHING, "n2": {**NOTHING, "left": 2}})
    for answer, state in ((summary(says("failed")), "ended"), (running, "running"), (SILENT, "unreachable")):
        assert [node["state"] for node in run_record.with_nodes(final, answer)["nodes"]] == ["ended", state]
    assert run_record.with_nodes(final, SILENT)["nodes"][1]["why"] == "timed out"
    assert [node["state"] for node in final["nodes"]] == ["ended", "unreachable"]


def test_a_job_without_monitors_that_stop_has_ended_was_stopped():
    """A node still knows of the job, and stop has seen to it that nothing runs; a mere question is no such word."""
    alone = says()["n1"] | {"monitor_alive": False, "left": 0, "cluster": None}
    assert summary({"n1": alone, "n2": NOTHING}, by_stop=True)["state"] == "stopped"
    assert summary({"n1": alone, "n2": NOTHING})["state"] == "lost"
    assert summary({"n1": NOTHING, "n2": NOTHING}, by_stop=True)["state"] == "lost"


# ---- the modules that write it


def told(run_dir, answers, **more):
    return reporting.report(run_dir, answers, {}, **more)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "digits-1"
    (folder / "logs").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan()))
    (folder / "logs" / "rank_0.log").write_text("step 40/40 loss 0.25\n")
    return folder


def test_a_query_after_the_end_writes_nothing(run_dir):
    told(run_dir, says())
    nan = says("succeeded", metrics={"step": 40.0, "loss": math.nan})
    assert told(run_dir, nan).changed is True
    before = content(run_dir)
    (run_dir / "removed.json").write_text('{"hosts": {"n1": 1790000000.0}}')
    gone = {"n2": {"unreachable": True, "msg": "timed out"}}
    again = told(run_dir, {"n1": NOTHING, **gone})
    assert (again.changed, again.summary["state"], again.left) == (False, "succeeded", [])
    lines = again.text.splitlines()
    assert lines[1] == "  last progress: step 40   loss is not a number"
    assert lines[4] == "  what it had left was removed by playbooks/clean.yml on 2026-09-21 14:13:20 UTC: n1"
    after = content(run_dir)
    assert {name: after[name] for name in before} == before


def test_one_report_is_written_at_a_time(run_dir, monkeypatch):
    """Or a status.yml that asked before the end would write "running" over what launch.yml has just written."""

    def at_that_time(*_):
        with (run_dir / "plan.json").open() as plan, pytest.raises(BlockingIOError):
            fcntl.flock(plan, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return "alone"

    monkeypatch.setattr(reporting, "_report", at_that_time)
    assert told(run_dir, {}) == "alone"


def test_a_scheduler_that_does_not_answer_hides_no_record(run_dir):
    (run_dir / "plan.json").write_text(json.dumps({**plan(), "launcher": "slurm", **submitted(), "spares": []}))
    (run_dir / "summary.json").write_text(json.dumps(summary(says("succeeded"))))
    before = content(run_dir)
    failed = {"failed": True, "msg": "slurm_load_jobs error: Unable to contact slurm controller"}
    again = told(run_dir, {}, job_state=failed)
    assert again.summary["state"] == "succeeded" and content(run_dir)["summary.json"] == before["summary.json"]
    assert "  slurm could not be asked: slurm_load_jobs error: Unable to contact" in again.text


def test_removed_folders_are_noted_and_others_are_findings(tmp_path):
    for name in ("a-1", "b-1", "old-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan.json").write_text("{}")
    gone = {"known": False}
    stuck = {"failed": True, "msg": "processes of b-1 do not end: 7 sleep"}
    silent = {"unreachable": True, "msg": "timed out"}
    answers = {"n1": {"a-1": gone, "b-1": stuck, "elsewhere-1": gone}, "n2": {"a-1": silent}}
    findings = cleaning.note(tmp_path, answers, ["a-1", "old-1"], 1000.0)
    assert [(each.check, each.host, each.found) for each in findings] == [
        ("folder of b-1", "n1", "processes of b-1 do not end: 7 sleep"),
        ("folder of a-1", "n2", "timed out"),
    ]
    assert json.loads((tmp_path / "a-1" / "removed.json").read_text())["hosts"] == {"n1": 1000.0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1", "b-1"], "a-1 has something left on n2"
    held = {KUBERNETES: {"a-1": {"failed": True, "msg": "Job a-1 is still there"}}}
    (finding,) = cleaning.note(tmp_path, held, ["a-1"], 1001.0)
    assert (finding.check, finding.expected) == ("objects of a-1", "none in the cluster any more")
    assert (tmp_path / "a-1").is_dir(), "the record stays as long as something is left"
    assert cleaning.note(tmp_path, {"n2": {"a-1": gone}}, [], 1001.0) == []
    assert sorted(json.loads((tmp_path / "a-1" / "removed.json").read_text())["hosts"]) == ["n1", "n2"]
