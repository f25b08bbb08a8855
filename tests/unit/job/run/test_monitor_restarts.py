"""Real monitors start a job, or one of its processes, again."""

import os
import signal

import pytest
from ansible.module_utils.trainyard.job.run.decide.head_state import HeadState
from ansible.module_utils.trainyard.job.run.decide.orders import Now
from ansible.module_utils.trainyard.job.run.logs import failures
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import Cluster, attempt, wait_for


def running(job, number):
    """Wait until every rank of the job runs its script for the `number`th time after the first."""
    names = [(node, process["name"]) for node in job.nodes for process in node.spec["processes"]]
    wait_for(lambda: all(attempt(node, name) == number for node, name in names), f"attempt {number} of all processes")
    wait_for(lambda: job.state()["ranks_running"] == job.head.spec["world_size"], "all ranks")


def test_only_the_last_attempts_output_of_a_rank_explains_its_end(tmp_path):
    node = Cluster(tmp_path, ["wait"]).head
    lost = "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1431"
    again = "--- started again, attempt 2 ---"
    for lines, explains in (([lost, again], False), ([again, lost], True)):
        node.dir.joinpath("logs", "rank_0.log").write_text("\n".join([*lines, ""]))
        failure = NodeRunner(node.dir).failure(node.spec["processes"][0], from_status(1))
        assert ("lost" in failure) is explains


def test_after_a_restart_without_leftovers_a_job_succeeds(cluster):
    job = cluster(["train"], ["train"], max_restarts=1).start()
    (job.head.dir / "attempt" / "recovery").mkdir(parents=True)
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    running(job, 1)
    assert not (job.head.dir / "attempt").exists()
    for node in job.nodes:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert [node.exits() for node in job.nodes] == [{"rank0": (0, None)}, {"rank1": (0, None)}]


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """A node's runner, the processes of the job that it finds, those that it has ended, and the exits that it reads."""

    def make(*modes, node=0, processes_here=True):
        job = Cluster(tmp_path, *modes)
        if not processes_here:
            job.nodes[node].spec["processes"] = []
            write_json(job.nodes[node].dir / "node_plan.json", job.nodes[node].spec)
        runner, left, ended, exits = NodeRunner(job.nodes[node].dir), [], [], {}
        monkeypatch.setattr(process_table, "ranks_of_job", lambda *_: list(left))
        monkeypatch.setattr(process_table, "ask_to_end", ended.extend)
        monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
        monkeypatch.setattr(runner.supervisor, "exits", lambda: exits)
        runner.follow({"attempts": {"": 1}, "go": False})
        return runner, left, ended, exits

    return make


def test_a_node_that_waits_to_start_ends_nothing_of_the_next_attempt(ending):
    """Under mpirun the ranks of other nodes are the head's processes: they may start here before its message."""
    runner, left, ended, _ = ending(["wait"], ["wait"], node=1, processes_here=False)
    left.append(4711)
    for found, ready in (([4711], None), ([], {"": 1}), ([4712], {"": 1})):
        left[:] = found
        runner.inspect()
        assert (ended, runner.report["ready_for"]) == ([4711], ready)


def test_a_process_that_starts_while_all_end_the_last_attempt_is_ended(ending):
    """systemd may be late to start it (TimeoutStopSec of its last run): when it does, its turn is over already."""
    runner, left, ended, exits = ending(["wait"])
    runner.inspect()
    assert (ended, runner.report["ready_for"]) == ([], None)
    left.append(4712)
    runner.inspect()
    assert (ended, runner.report["ready_for"]) == ([4712], None)
    left.clear()
    exits["rank0"] = {**from_status(-15), "attempt": 0}
    runner.inspect()
    assert runner.report["ready_for"] == {"": 1}


def test_a_rank_that_mpirun_started_on_another_node_is_reported_with_that_node(tmp_path):
    node = Cluster(tmp_path, ["wait"], ["wait"]).head
    runner, log = NodeRunner(node.dir), tmp_path / "mpirun.log"
    runner.inspect()
    node.spec["ranks_of"] = {"n2": [1]}
    state = HeadState(node.spec, Now(0.0, 0.0))
    for rank, host in ((1, "n2"), (0, "n1")):
        log.write_text(f"trainyard: rank {rank} ended with status 7\n")
        failure = runner.failure({"name": "mpirun", "ranks": [0, 1], "log": str(log)}, from_status(1))
        state.receive("n1", {"report": {**runner.report, "failures": [failure]}}, Now(1.0, 1.0))
        (failure,) = state.rank_failures()
        assert (failure["rank"], failure["host"]) == (rank, host)
        assert failures.failure_text(failure) == f"rank {rank} on {host}: exit code 7"
