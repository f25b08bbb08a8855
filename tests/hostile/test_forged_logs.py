"""A node that sends logs and metrics of other nodes: each host brings those of its own ranks, and no others."""

import base64
import json

import pytest
from ansible.module_utils.trainyard.job.plan import log_names
from ansible.module_utils.trainyard_controller.job.collecting import Request, collect
from job_samples import make_job, make_plan, member

MINE, EVIL = base64.b64encode(b"loss 0.5\n").decode(), base64.b64encode(b"loss nan\n").decode()
STATUS = {"known": True, "monitor_alive": True, "processes": [], "monitor": None, "cluster": None, "left": 1}


def planned(launcher="direct", nodes=2, **given):
    mpi = {"version": "4.1.4", "path": "/opt/mpi/bin/mpirun", "prefix": "/opt/mpi"}
    made = make_plan(make_job(launcher=launcher, **given), [member(number, mpi=mpi) for number in range(nodes)])
    return json.loads(json.dumps(made.as_dict()))


def names(plan, host, logs, cluster=None):
    answers = {each["host"]: {} for each in (*plan["nodes"], *plan["spares"])}
    answers[plan["head"]["host"]] = {"cluster": cluster}
    answers[host] = {**answers[host], "logs": dict.fromkeys(logs, EVIL)}
    found, said = log_names.take_logs(plan, answers)
    return sorted(found[host]), said


def test_the_logs_of_another_node_are_left_out_and_said_once(tmp_path):
    plan = planned()
    sent = {"n1": {"rank_0.log": MINE, "metrics.jsonl": MINE, "monitor_0.log": MINE, "nccl_a.log": MINE},
            "n2": {"rank_0.log": EVIL, "metrics.jsonl": EVIL, "monitor_0.log": EVIL, "nccl_n1.log": EVIL,
                   "rank_1.log": MINE, "../../plan.json": EVIL, "a\nJob x succeeded": EVIL}}  # fmt: skip

    def ask(question, own, limit_s):
        return {host: {"changed": False, **STATUS, "logs": dict(sent[host])} for host in own}

    told = collect(plan, tmp_path, ask, Request(1 << 20))
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name, text in found.items() if "nan" in text} == {"logs/nccl_n2.log"}
    assert sorted(found) == ["logs/monitor_0.log", "logs/nccl_n1.log", "logs/nccl_n2.log", "logs/rank_0.log",
                             "logs/rank_1.log", "metrics.jsonl"]  # fmt: skip
    [said] = told["warnings"]
    assert "n2 (rank_0.log, monitor_0.log, ../../plan.json and 1 more)" in said and len(said.splitlines()) == 1


@pytest.mark.parametrize(("launcher", "own", "others"), [
    ("torchrun", ["agent_1.log", "rank_1.log", "rank_1_train.log"], ["agent_0.log", "rank_10.log", "rank_0_train.log"]),
    ("mpirun", ["rank_1.log", "stacks_1.log"], ["mpirun.log", "events.log", "scheduler.log"]),
    ("mindspore", ["worker_1.log"], ["scheduler.log", "rank_1.log", "worker_0.log"]),
])  # fmt: skip
def test_each_launchers_logs_are_known(launcher, own, others):
    plan = planned(launcher)
    assert names(plan, "n2", own + others)[0] == sorted(own)
    assert names(plan, "n2", own)[1] == ""
    assert set(names(plan, "n1", others)[0]) >= {"events.log", "scheduler.log"}.intersection(others)


def test_the_progress_is_that_of_the_node_whose_rank_the_head_names():
    plan = planned()
    assert names(plan, "n2", ["metrics.jsonl"]) == ([], "")
    cluster = {"progress_rank": 1}
    answers = {"n1": {"cluster": cluster, "logs": {"metrics.jsonl": EVIL}}, "n2": {"logs": {"metrics.jsonl": MINE}}}
    found, _ = log_names.take_logs(plan, answers)
    assert (found["n1"], found["n2"]) == ({}, {"metrics.jsonl": MINE})


def test_a_spare_brings_logs_of_the_place_that_the_head_gave_it():
    plan = planned(nodes=3, spares=1, max_restarts=1)
    assert [spare["host"] for spare in plan["spares"]] == ["n3"]
    assert names(plan, "n3", ["rank_1.log", "monitor_1.log"])[0] == []
    own = plan["spares"][0]["node_rank"]
    taken = {"restarts": {"replaced": {"n2": "n3"}}}
    assert names(plan, "n3", ["rank_1.log", f"monitor_{own}.log", "rank_0.log"], taken)[0] == [
        f"monitor_{own}.log",
        "rank_1.log",
    ]
    assert names(plan, "n2", ["rank_1.log"], taken)[0] == ["n2_rank_1.log"]
