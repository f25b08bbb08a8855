"""The ranks that MindSpore's scheduler and msrun name in real logs (tests/fixtures/mindspore), and the user's text."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs import failures
from ansible.module_utils.trainyard.report import job_text, log_end
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, summary_of

LOGS = Path(__file__).resolve().parents[3] / "fixtures" / "mindspore"
JOINED = "The new node: {}(role: MS_WORKER), rank id: {}, hostname: n1, ip: 10.0.0.1. expected node number: {}\n"
GAVE_UP = "[ERROR] cluster_context.cc:94] Initialize] Building networking for MS_SCHED failed.\n"


def captured(name):
    return (LOGS / f"{name}.txt").read_text(encoding="utf-8")


def test_a_worker_that_never_joined_is_named():
    cause = failures.root_cause(captured("not-joined-scheduler"))
    assert (cause["kind"], cause["rank"], cause["who"]) == ("not_joined", 1, "rank 1")


def test_a_silent_worker_is_named():
    cause = failures.root_cause(captured("frozen-scheduler"))
    assert cause["rank"] == 1
    assert cause["reason"] == "the scheduler had not heard rank 1 for job_heartbeat_timeout: frozen, or cut off"


@pytest.mark.parametrize(
    ("joined", "expected", "who"), [([0], 3, "ranks 1, 2"), ([3, 1, 0], 4, "rank 2"), ([0], 16, "ranks 1 to 15")]
)
def test_all_that_are_missing_are_named(joined, expected, who):
    log = "".join(JOINED.format(rank, rank, expected) for rank in joined)
    assert failures.scheduler_root_cause(log + GAVE_UP)["who"] == who
    # While the scheduler still waits, no rank is missing.
    assert failures.scheduler_root_cause(log) is None


def test_a_scheduler_without_workers_names_no_rank():
    cause = failures.scheduler_root_cause(GAVE_UP)
    assert (cause["rank"], cause["reason"]) == (None, "no worker joined it within job_join_timeout")
    assert failures.scheduler_root_cause(JOINED.format(0, 0, 1) + GAVE_UP) is None


def test_msrun_names_the_worker_and_how_it_ended():
    cause = failures.root_cause(captured("killed-msrun"))
    assert (cause["rank"], cause["exit_code"], cause["signal"]) == (1, None, 9)
    # The agent itself ended with 1, a moment later.
    assert failures.exit_text({"exit_code": 1, **cause}) == "killed by SIGKILL"


def test_msrun_names_no_worker_without_its_rank():
    log = captured("killed-msrun")
    assert failures.msrun_root_cause(log.replace("rank id: 1", "rank id: ?")) is None
    assert failures.msrun_root_cause(log.replace(" Error code: -9.", "")) is None
    assert failures.msrun_root_cause(log.replace("code: -9.", "code: 7."))["exit_code"] == 7


@given(st.text())
def test_any_text_is_harmless(text):
    failures.scheduler_root_cause("The new node: " + text + GAVE_UP)


def test_the_user_reads_who_is_missing_and_the_end_of_its_log():
    plan = make_plan(make_job(launcher="mindspore"), [member(0), member(1)]).as_dict()
    record = {"kind": "exit", "host": "n1", "process": "scheduler", "ranks": [], "exit_code": 1, "time": 1020.0}
    failure = {**record, **failures.root_cause(captured("not-joined-scheduler"))}
    assert failures.failure_text(failure) == "rank 1 never joined"
    end = {"state": "failed", "finished": 1020.0, "failure": failure}
    cluster = {"started": 1000.0, "elapsed_s": 20.0, "ranks_running": 2, "world_size": 2, "metrics": {}, "end": end}
    answer = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "left": 0}
    results = {"n1": {**answer, "cluster": cluster}, "n2": {**answer, "cluster": None}}
    summary = summary_of(plan, results)
    assert log_end.telling_log(summary) == "worker_1.log"
    lines = job_text.explain(summary, "runs/x", plan["job_dir"], ["waiting"]).splitlines()
    assert lines[1:5] == [
        "  rank 1 never joined the cluster: the scheduler waited for job_join_timeout",
        "  a worker that waits before it calls init(), is slow (a longer job_join_timeout), or does not reach the "
        "scheduler on n1",
        f"  last lines of {plan['job_dir'].replace('@trainyard-host@', 'n2')}/logs/worker_1.log on n2:",
        "    | waiting",
    ]
