"""A witness that no longer reports: in the head's state, the progress line, the summary and the report."""

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.decide.attempt_watch import JOIN_S
from ansible.module_utils.trainyard.job.run.decide.head_state import cluster_state
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard.job.run.wire.answers import CLUSTER, checked, of_job
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.report.job_text import explain
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run import job_life
from job_samples import make_job, make_plan, member
from simulated_job import SimulatedJob
from test_leader import WELL, head, node

LOST = {"host": "w", "silent_s": 40}
LINE = "no report from the witness w for 40 s"
TEXT = (
    f"  {LINE}: without it, one more lost host may cost the job its majority; check w, and its connection to the nodes"
)


def lost(job):
    state = cluster_state(job.state, job.time())
    assert misfit(state, CLUSTER) == ""
    return state["witness_lost"]


def simulated():
    return SimulatedJob(max_restarts=1, witness="w", candidates=[["n1", "a"], ["n2", "b"]])


def reports(job):
    message = {"report": {**job.report("n2"), "host": "w", "ranks_running": 0, "idle": True}}
    messages.check_from_node(message, "w", 2, 1)
    job.state.receive("w", message, job.time())


def test_the_head_notes_a_witness_that_no_longer_reports():
    job = simulated().run(1)
    reports(job)
    assert lost(job.run(14)) is None
    assert lost(job.run(6)) == {"host": "w", "silent_s": 20}
    reports(job)
    assert lost(job.run(1)) is None
    # Its silence after the end of the job is no finding.
    job.changes = {host: {"done": True, "ranks_running": 0} for host in ("n1", "n2")}
    job.run(60)
    assert job.end["state"] == "succeeded" and lost(job) is None


def test_a_witness_has_as_long_as_a_node_to_report_for_the_first_time():
    job = simulated()
    assert lost(job.run(JOIN_S - 1)) is None
    assert lost(job.run(3))["host"] == "w"
    assert lost(SimulatedJob(max_restarts=1).run(JOIN_S + 3)) is None


@pytest.mark.parametrize(("end", "shown"), [(None, True), (WELL, False)])
def test_the_progress_line_has_it_while_the_job_runs(monkeypatch, tmp_path, end, shown):
    answer = head(end=end)
    answer["cluster"]["witness_lost"] = LOST
    monkeypatch.setattr(job_life, "wait", lambda *_: None)
    monkeypatch.setattr(job_life, "status", lambda *_: answer)
    assert (LINE in agent.state(job_id="a", job_dir=str(tmp_path))["line"]) is shown


@pytest.mark.parametrize("end", [None, WELL])
def test_the_report_says_it_once(end):
    plan = make_plan(make_job(launcher="direct", max_restarts=1, witness="w"), [member(0), member(1)]).as_dict()
    led = head(end=end)
    led["cluster"].update(witness_lost=LOST, restarts={"history": [], "replaced": {}})
    answers = {"n1": led, "n2": node(end=end)}
    answers = {host: {"processes": [], "left": int(end is None), **answer} for host, answer in answers.items()}
    summary = schedulers.summarize(plan, ssh.state(plan, answers, {}, {}))
    assert summary["witness_lost"] == LOST
    assert explain(summary, "runs/r", "", []).splitlines().count(TEXT) == 1
    led["cluster"]["witness_lost"] = None
    summary = schedulers.summarize(plan, ssh.state(plan, answers, {}, {}))
    assert summary["witness_lost"] is None and "witness" not in explain(summary, "runs/r", "", [])


@pytest.mark.parametrize(("host", "usable"), [("w", True), ("n9", False)])
def test_a_node_names_no_witness_outside_of_the_plan(host, usable):
    plan = make_plan(make_job(launcher="direct", max_restarts=1, witness="w"), [member(0), member(1)]).as_dict()
    answer = {"changed": False, "processes": [], "left": 0, "logs": {}, **head(end=WELL)}
    answer["cluster"].update(world_size=2, witness_lost={**LOST, "host": host})
    found = of_job(plan, checked("collect", answer, "n1"))
    assert ("failed" not in found) is usable, found
