"""Nodes whose monitors do not report any more, ended without a word, or went down: what is said of them, and when."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from types import SimpleNamespace
from unittest import mock

import pytest
from ansible.module_utils.trainyard.job.run import answers, messages
from ansible.module_utils.trainyard.job.run.failure import text as failure_text
from ansible.module_utils.trainyard.job.run.shapes import misfit
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run import head as head_part
from ansible.module_utils.trainyard_node.job.run import job as node_job
from ansible.module_utils.trainyard_node.job.run import monitor as monitors
from ansible.module_utils.trainyard_node.job.run import units
from job_cluster import Cluster
from job_samples import summary_of
from test_report import DIR, RUN, answer, explained, head_says, plan

KILLED, RESTARTED = {"restarted": False, "how": "killed by SIGKILL"}, {"restarted": True, "how": ""}


def test_nodes_that_freeze_together_are_all_named_and_shown_before_they_are_given_up(tmp_path):
    job = Cluster(tmp_path, *[["wait"]] * 5, silent_after_s=15)
    head = monitors.Monitor(job.head.dir)
    head.report = {"host": "n1", "ranks_running": 1, "done": False, "failures": [], "metrics": {}}
    now = head.started + 100
    # Nodes report once a second, and freeze one after the other; n4 is only slow.
    for host, since in (("n2", 14.2), ("n3", 14.9), ("n4", 3.0), ("n5", 15.2)):
        head.reports[host], head.seen[host] = {**head.report, "host": host}, now - since
    with mock.patch.object(head_part.time, "monotonic", lambda: now - 1):
        assert head.save_cluster()["held"] == "no report from n2, n3, n5 for 13 to 14 s"
    head.judge(now)
    assert head.end_record["failure"] == {
        "kind": "silent", "host": "n5", "after_s": 15, "hosts": ["n2", "n3", "n5"], "least_s": 14, "ranks_running": 1
    }  # fmt: skip
    assert failure_text(head.end_record["failure"]) == "nodes n2, n3, n5: no word for 14 to 15 s"
    message = {"end": head.end_record}
    messages.check_from_head(message, [], 0)


@pytest.mark.parametrize(
    ("of_n2", "first"),
    [
        ({**answer(2), "monitor_lost": KILLED}, "the monitor of n2 ended first, and ranks 2, 3 with it"),
        ({**answer(2), "monitor_lost": RESTARTED}, "node n2 with ranks 2, 3 shut down or restarted"),
        (None, "node n2 with ranks 2, 3 went silent"),
        (answer(2, alive=True), "node n2 with ranks 2, 3 went silent"),
        (answer(2, end={"state": "failed", "finished": 1.0}), "node n2 with ranks 2, 3 went silent"),
        ({**answer(2), "monitor": None}, "node n2 with ranks 2, 3 went silent"),
    ],
)
def test_a_monitor_that_was_killed_is_told_from_a_node_that_was_lost(of_n2, first):
    silent = {"kind": "silent", "host": "n2", "after_s": 16}
    results = {"n1": answer(1, cluster=head_says({"state": "failed", "finished": 1090.0, "failure": silent}))}
    if of_n2:
        results["n2"] = of_n2
    _, lines = explained(results, unreachable={} if of_n2 else {"n2": "no route"})
    assert lines[1].strip().startswith(first)
    if first.startswith("the monitor"):
        assert lines[2].strip() == "killed by SIGKILL; no word came from it for 16 s, and the node answers"


@pytest.mark.parametrize(
    ("lost", "max_restarts", "kind", "first"),
    [
        (KILLED, 0, "gone", "the monitor of n1 ended first, and ranks 0, 1 with it"),
        (KILLED, 1, "gone", "the monitor of n1 ended first, and ranks 0, 1 with it"),
        (RESTARTED, 0, "rebooted", "node n1 with ranks 0, 1 shut down or restarted while the job ran"),
    ],
)
def test_a_head_whose_monitor_noted_no_end_is_the_cause_whatever_others_say(lost, max_restarts, kind, first):
    stopped = {"state": "stopped", "finished": 1090.0}
    results = {"n1": {**answer(1, cluster=head_says(None)), "monitor_lost": lost}, "n2": answer(2, end=stopped)}
    planned = {**plan(), "max_restarts": max_restarts}
    summary = summary_of(planned, results)
    assert (summary["state"], summary["failure"]["kind"], summary["finished"]) == ("failed", kind, 1072.5)
    lines = job_text.explain(summary, RUN, DIR, ()).splitlines()
    assert lines[1].strip() == first
    if lost is KILLED:
        reason = "killed by SIGKILL; it was the head's: without it the job neither goes on nor starts again"
        assert lines[2].strip() == reason
    # One that restarted may be about to come back; and who stopped a job knows why.
    back = summary_of({**plan(), "max_restarts": 1}, {**results, "n1": {**results["n1"], "monitor_lost": RESTARTED}})
    assert back["state"] == "stopped"


def test_a_node_tells_how_its_monitor_ended_or_that_it_restarted_meanwhile(cluster, monkeypatch):
    job = cluster(["wait"]).start()
    assert "monitor_lost" not in node_job.status(job.head.dir, job.head.job_id)
    job.head.signal(signal.SIGKILL)
    job.head.monitor.wait()
    found = node_job.status(job.head.dir, job.head.job_id)
    assert found["monitor_lost"] == {"restarted": False, "how": ""}, "nobody else knows how where there are no units"
    assert not misfit(found, answers.STATUS)
    said = "trainyard-x-monitor.service: Main process exited, code=killed, status=9/KILL"
    with monkeypatch.context() as systemd:
        systemd.setattr(node_job, "supervision", lambda: "systemd")
        systemd.setattr(units, "journal", lambda job_id, name: said)
        assert node_job._lost(job.head.job_id, found["monitor"]["started"]) == KILLED
    started = node_job.processes.node_started()
    assert started < found["monitor"]["started"]
    assert node_job._lost(job.head.job_id, started - 1) == RESTARTED


def going_down(tmp_path, monkeypatch, node, **settings):
    """The monitor of a node that shuts down; its units are stopped before it."""
    monkeypatch.setattr(units, "node_goes_down", lambda: True)
    job = Cluster(
        tmp_path, ["wait"], ["wait"], n1={"supervision": "systemd"}, n2={"supervision": "systemd"}, **settings
    )
    return monitors.Monitor(job.nodes[node].dir)


DOWN = {"kind": "rebooted", "host": "n2"}


def test_a_node_that_shuts_down_is_the_cause_and_not_who_stopped_the_job(tmp_path, monkeypatch):
    node = going_down(tmp_path, monkeypatch, 1)
    node._told_to_end()
    assert (node.end_record["state"], node.end_record["failure"]) == ("failed", DOWN)
    assert failure_text(DOWN) == "node n2: shut down or restarted"


ENDED = {"exit_code": None, "signal": signal.SIGTERM, "result": "signal", "time": 1.0}


def test_nor_have_ranks_failed_that_were_ended_with_it(tmp_path, monkeypatch):
    node = going_down(tmp_path, monkeypatch, 1)
    node.supervisor.exits = lambda: {"rank1": ENDED}
    node.look()
    assert (node.end_record["state"], node.end_record["failure"]) == ("failed", DOWN)


def test_with_restarts_a_head_leaves_with_its_node_before_it_counts_one(tmp_path, monkeypatch):
    head = going_down(tmp_path, monkeypatch, 0, max_restarts=1)
    head.supervisor.exits = lambda: {"rank0": {**ENDED, "attempt": 0}}
    asyncio.run(head.run_head(SimpleNamespace(lines={})))
    assert head.leaving and not head.end_record and head.restarts.history == []


def test_the_head_is_told_and_names_the_node(tmp_path, monkeypatch):
    head = going_down(tmp_path, monkeypatch, 0)
    said = []
    head.hear_node(SimpleNamespace(host="n2", tell=said.append), {"stopped": True, "goes_down": True})
    assert (head.end_record["state"], head.end_record["failure"]) == ("failed", DOWN)
    assert said == [{"end": head.end_record}]


@pytest.mark.parametrize(
    ("state", "no_login", "down"),
    [
        ("stopping", False, True),
        ("", True, True),
        ("unknown", True, True),
        ("running", True, False),
        ("", False, False),
    ],
)
def test_a_node_goes_down_also_where_its_bus_has_ended_already(state, no_login, down, tmp_path, monkeypatch):
    # As a user sees it on the lab: stopping, and a second later no answer.
    done = subprocess.CompletedProcess([], 1, f"{state}\n", "")
    monkeypatch.setattr(units.subprocess, "run", lambda argv, **_: done)
    monkeypatch.setattr(units, "NO_LOGIN", tmp_path / "nologin")
    if no_login:
        units.NO_LOGIN.touch()
    assert units.node_goes_down() == down
