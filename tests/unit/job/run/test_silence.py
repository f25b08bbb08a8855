"""Nodes whose monitors do not report any more, ended without a word, or went down: what is said of them, and when."""

import asyncio
import signal
import subprocess
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.decide.orders import Inform
from ansible.module_utils.trainyard.job.run.lead.take_over import come_back
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run import job_life
from ansible.module_utils.trainyard_node.job.run.monitor import head_loop
from ansible.module_utils.trainyard_node.job.run.monitor import monitor as monitors
from ansible.module_utils.trainyard_node.job.run.ranks import units
from ansible.module_utils.trainyard_node.machine.json_files import read_object
from job_cluster import Cluster
from job_samples import summary_of
from test_report import DIR, RUN, answer, explained, head_says, plan

KILLED, RESTARTED = {"restarted": False, "how": "killed by SIGKILL"}, {"restarted": True, "how": ""}


FAILED = {"state": "failed", "finished": 1.0}
SILENT = [None, answer(2, alive=True), answer(2, end=FAILED), {**answer(2), "monitor": None}]


@pytest.mark.parametrize(
    ("of_n2", "first"),
    [
        ({**answer(2), "monitor_lost": KILLED}, "the monitor of n2 ended first, and ranks 2, 3 with it"),
        ({**answer(2), "monitor_lost": RESTARTED}, "node n2 with ranks 2, 3 shut down or restarted"),
        *((of_n2, "node n2 with ranks 2, 3 went silent") for of_n2 in SILENT),
    ],
)
def test_a_killed_monitor_is_distinguished_from_a_lost_node(of_n2, first):
    silent = {"kind": "silent", "host": "n2", "after_s": 16}
    results = {"n1": answer(1, cluster=head_says({"state": "failed", "finished": 1090.0, "failure": silent}))}
    if of_n2:
        results["n2"] = of_n2
    _, lines = explained(results, unreachable={} if of_n2 else {"n2": "no route"})
    assert lines[1].strip().startswith(first)
    if first.startswith("the monitor"):
        assert lines[2].strip() == "killed by SIGKILL; it sent nothing for 16 s, and the node answers"


@pytest.mark.parametrize(
    ("lost", "max_restarts", "kind", "first"),
    [
        (KILLED, 0, "gone", "the monitor of n1 ended first, and ranks 0, 1 with it"),
        (KILLED, 1, "gone", "the monitor of n1 ended first, and ranks 0, 1 with it"),
        (RESTARTED, 0, "rebooted", "node n1 with ranks 0, 1 shut down or restarted while the job ran"),
    ],
)
def test_a_head_whose_monitor_noted_no_end_is_the_cause(lost, max_restarts, kind, first):
    stopped = {"state": "stopped", "finished": 1090.0}
    results = {"n1": {**answer(1, cluster=head_says(None)), "monitor_lost": lost}, "n2": answer(2, end=stopped)}
    planned = {**plan(), "max_restarts": max_restarts}
    summary = summary_of(planned, results)
    assert (summary["state"], summary["failure"]["kind"], summary["finished"]) == ("failed", kind, 1072.5)
    lines = job_text.explain(summary, RUN, DIR, ()).splitlines()
    assert lines[1].strip() == first
    if lost is KILLED:
        assert lines[2].strip().startswith("killed by SIGKILL; it was the monitor of the head node")
    # A head that restarted may be about to come back; the user who stopped a job knows why.
    back = summary_of({**plan(), "max_restarts": 1}, {**results, "n1": {**results["n1"], "monitor_lost": RESTARTED}})
    assert back["state"] == "stopped"


def test_a_node_reports_how_its_monitor_ended_or_that_it_restarted(cluster, monkeypatch):
    job = cluster(["wait"]).start()
    assert "monitor_lost" not in job_life.status(job.head.dir, job.head.job_id)
    job.head.signal(signal.SIGKILL)
    job.head.monitor.wait()
    found = job_life.status(job.head.dir, job.head.job_id)
    assert found["monitor_lost"] == {"restarted": False, "how": ""}, "nobody else knows how where there are no units"
    assert not misfit(found, answers.STATUS)
    said = "trainyard-x.service: Main process exited, code=killed, status=9/KILL"
    with monkeypatch.context() as systemd:
        systemd.setattr(job_life, "has_systemd", lambda: True)
        systemd.setattr(units, "journal", lambda job_id: said)
        assert job_life._lost(job.head.job_id, found["monitor"]["started"]) == KILLED
    started = job_life.process_table.began(1)
    assert started < found["monitor"]["started"]
    assert job_life._lost(job.head.job_id, started - 1) == RESTARTED


SYSTEMD = {"unit": "trainyard-test.service"}


def going_down(tmp_path, monkeypatch, node, **settings):
    """The monitor of a node that shuts down; its units are stopped before it."""
    monkeypatch.setattr(units, "node_goes_down", lambda: True)
    systemd = dict.fromkeys(("n1", "n2"), SYSTEMD)
    job = Cluster(tmp_path, ["wait"], ["wait"], **systemd, **settings)
    return monitors.Monitor(job.nodes[node].dir)


DOWN = {"kind": "rebooted", "host": "n2"}
ENDED = {"exit_code": None, "signal": signal.SIGTERM, "result": "signal", "time": 1.0}


def test_a_node_that_shuts_down_has_not_stopped_the_job(tmp_path, monkeypatch):
    """Ranks that end with their node have not failed either."""
    for ends in ("monitor", "rank"):
        node = going_down(tmp_path / ends, monkeypatch, 1)
        if ends == "monitor":
            node.stop()
        else:
            node.runner.supervisor.exits = lambda: {"rank1": ENDED}
            node.inspect()
        assert (node.runner.end["state"], node.runner.end["failure"]) == ("failed", DOWN)


def test_a_pod_that_the_cluster_ends_leaves_the_job_that_goes_on(tmp_path):
    """It has no unit: the first process of the pod says so."""
    stop = {"signal": "TERM", "grace_s": 30}
    job = Cluster(tmp_path, ["wait"], ["wait"], max_restarts=1, stop=stop)
    left, stopped = (monitors.Monitor(job.nodes[1].dir) for _ in range(2))
    left.go_down()
    stopped.stop()
    assert left.leaving and left.goes_down and not left.runner.end
    assert stopped.runner.end["state"] == "stopped" and not stopped.goes_down


def test_with_restarts_a_head_leaves_with_its_node_before_it_counts_one(tmp_path, monkeypatch):
    head = going_down(tmp_path, monkeypatch, 0, max_restarts=1)
    head.runner.supervisor.exits = lambda: {"rank0": {**ENDED, "attempt": 0}}
    asyncio.run(head.loop.run())
    assert head.leaving and not head.runner.end and head.loop.state.restarts.history == []


def test_with_restarts_a_head_that_shuts_down_begins_the_next_attempt_for_which_all_save(tmp_path, monkeypatch):
    stop = {"signal": "TERM", "grace_s": 30}
    head = going_down(tmp_path, monkeypatch, 0, max_restarts=1, stop=stop)
    head.stop()
    head.loop.state.receive("n2", {"report": {"host": "n2", "left": True, "attempts": {"": 0}}}, head_loop.now())
    asyncio.run(head.loop.run())
    assert head.leaving and not head.runner.end
    (restart,) = head.loop.state.restarts.history
    assert restart["failure"] == {"kind": "rebooted", "host": "n1"}
    assert head.runner.next.attempts == {"": 0} and not (head.job_dir / "attempts.json").exists()
    # Once it is back it goes on with that.
    head = monitors.Monitor(head.job_dir)
    come_back(head.loop.state, read_object(head.job_dir / "cluster.json"), restart["failure"], head_loop.now())
    assert head.loop.state.saving_known and not head.loop.state.restarts.go
    assert head.loop.state.decide(head_loop.now()) == [Inform()] and len(head.loop.state.restarts.history) == 1


def test_a_head_that_shuts_down_has_the_others_choose_a_new_one(tmp_path, monkeypatch):
    head, sent = going_down(tmp_path, monkeypatch, 0, max_restarts=1, spares=1), []
    line = SimpleNamespace(update=sent.append, send=sent.append, close=lambda: None)
    head.loop.server.connections["n2"] = line
    head.stop()
    asyncio.run(head.loop.run())
    assert head.leaving and sent[-1] == {"resigns": True}
    # The next head goes on with this restart.
    (copy,) = [each["copy"] for each in sent if "copy" in each][-1:]
    assert copy["restarts"]["gathering"] and copy["restarts"]["history"][0]["failure"]["kind"] == "rebooted"
    assert head.seat.copy == copy


def test_without_a_restart_that_is_left_a_head_that_shuts_down_ends_the_job(tmp_path, monkeypatch):
    head = going_down(tmp_path, monkeypatch, 0, max_restarts=1, stop={"signal": "TERM", "grace_s": 30})
    head.loop.state.restarts.history = [{"step": 1, "failure": {"kind": "exit"}}]
    head.stop()

    async def run():
        await head.seat.open()
        await head.loop.run()

    asyncio.run(run())
    assert not head.leaving and head.runner.end["failure"]["kind"] == "rebooted"


def test_a_node_that_shuts_down_stays_while_ranks_of_the_job_may_save(tmp_path, monkeypatch):
    node = going_down(tmp_path, monkeypatch, 1, max_restarts=1, stop={"signal": "TERM", "grace_s": 30})
    node.stop()
    assert node.leaving and not node.ranks_may_save()
    orders = {"attempts": {"": 1}, "go": False, "stacks": 0}
    # The head has not answered; then ranks of others may save.
    for message in ({}, {**orders, "saving": True}, {}):
        node.runner.follow(message)
        assert not node.loop._leaves_alone()
    node.runner.follow(orders)
    assert node.loop._leaves_alone()
    # Nothing starts there.
    node.runner.follow({**orders, "go": True})
    node.inspect()
    assert node.runner.report["ready_for"] is None and node.runner.next.attempts == {"": 0}
    node.end({"state": "failed", "finished": 1.0, "failure": {"kind": "replaced", "host": "n2", "by": "n3"}})
    assert not node.leaving and node.loop._leaves_alone()


GOES_DOWN = [("stopping", False), ("", True), ("unknown", True)]


@pytest.mark.parametrize(("state", "no_login"), [*GOES_DOWN, ("running", True), ("", False)])
def test_a_node_goes_down_also_where_its_bus_has_ended_already(state, no_login, tmp_path, monkeypatch):
    """As a user sees it on the lab: stopping, and a second later no answer."""
    done = subprocess.CompletedProcess([], 1, f"{state}\n", "")
    monkeypatch.setattr(units.subprocess, "run", lambda argv, **_: done)
    monkeypatch.setattr(units, "NO_LOGIN", tmp_path / "nologin")
    if no_login:
        units.NO_LOGIN.touch()
    assert units.node_goes_down() == ((state, no_login) in GOES_DOWN)
