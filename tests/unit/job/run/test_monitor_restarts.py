"""Real monitors start a job, or one of its processes, again."""

import os
import signal

import pytest
from ansible.module_utils.trainyard.job.run import failure as failures
from ansible.module_utils.trainyard.job.run.head_state import HeadState
from ansible.module_utils.trainyard.job.run.orders import Now
from ansible.module_utils.trainyard_node.job.run import processes
from ansible.module_utils.trainyard_node.job.run.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import Cluster, attempt, wait_for


def running(job, number):
    """Wait until every rank of the job runs its script for the `number`th time after the first."""
    names = [(node, process["name"]) for node in job.nodes for process in node.spec["processes"]]
    wait_for(lambda: all(attempt(node, name) == number for node, name in names), f"attempt {number} of all processes")
    wait_for(lambda: job.state()["ranks_running"] == job.head.spec["world_size"], "all ranks")


def test_a_failure_starts_the_whole_job_again_until_the_budget_is_used_up(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=2).start()
    for number in (1, 2):
        first = [node.pid(f"rank{rank}") for rank, node in enumerate(job.nodes)]
        os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)
        running(job, number)
        # No rank is left from before.
        assert not set(first) & {node.pid(f"rank{rank}") for rank, node in enumerate(job.nodes)}
    history = job.state()["restarts"]["history"]
    restart = ("rank 1 on n2: killed by SIGKILL", "the whole job")
    assert [(entry["reason"], entry["restarted"]) for entry in history] == [restart] * 2
    log = (job.head.dir / "logs" / "rank_0.log").read_text().splitlines()
    assert log == [f"--- started again, attempt {number} ---" for number in (2, 3)]
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    end = job.over()
    assert (end["state"], end["failure"]["rank"]) == ("failed", 0)
    job.all_ended()


def test_a_missing_module_ends_the_job_with_restarts_left(cluster):
    job = cluster(["wait"], ["broken"], max_restarts=3).start()
    job.nodes[1].go()
    failure = job.over()["failure"]
    assert failure["not_restarted"].endswith("(ModuleNotFoundError: No module named 'no_such_module')")
    assert (failure["rank"], failure["fruitless"]) == (1, 1) and job.state()["restarts"]["history"] == []
    job.all_ended()


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


def without_ranks(job, name="scheduler", mode="wait", **changes):
    """Give the head another process, one without ranks."""
    like = job.head.spec["processes"][0]
    process = {**like, "name": name, "ranks": [], "log": str(job.head.dir / "logs" / f"{name}.log"), **changes}
    process["argv"] = [*like["argv"][:-1], mode]
    job.head.spec["processes"].append(process)
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    return job


def test_a_process_that_can_come_back_is_started_again_alone(cluster):
    job = without_ranks(cluster(["wait"], ["wait"], max_restarts=1), recover_after_s=1).start()
    ranks = [job.head.pid("rank0"), job.nodes[1].pid("rank1")]
    os.kill(job.head.pid("scheduler"), signal.SIGKILL)
    wait_for(lambda: attempt(job.head, "scheduler") == 1, "the scheduler's second start")
    wait_for(lambda: job.state()["restarts"]["history"], "the head's book")
    assert [entry["restarted"] for entry in job.state()["restarts"]["history"]] == ["scheduler"]
    assert ranks == [job.head.pid("rank0"), job.nodes[1].pid("rank1")]
    assert attempt(job.head) == attempt(job.nodes[1], "rank1") == 0
    # The budget is one for both kinds.
    os.kill(job.head.pid("scheduler"), signal.SIGKILL)
    assert job.over()["failure"]["process"] == "scheduler"
    job.all_ended()


def test_a_node_that_was_frozen_takes_part_again(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=1, rejoin_s=60).start()
    job.nodes[1].signal(signal.SIGSTOP)
    wait_for(lambda: job.state()["restarts"]["gathering"], "the head to give the node up")
    # Nobody starts without it.
    wait_for(lambda: job.state()["ranks_running"] <= 1, "the others to end their ranks")
    assert attempt(job.head) == 0
    job.nodes[1].signal(signal.SIGCONT)
    running(job, 1)
    assert job.state()["restarts"]["history"][0]["failure"]["kind"] == "silent"
    for node in job.nodes:
        node.signal(signal.SIGTERM)
    job.all_ended()


def test_a_node_whose_head_is_gone_waits_and_then_ends(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, rejoin_s=3).start()
    job.head.signal(signal.SIGKILL)
    wait_for(lambda: not processes.ranks_of_job(job.nodes[1].job_id, job.nodes[1].dir), "its ranks to end")
    assert job.nodes[1].monitor.poll() is None
    job.nodes[1].monitor.wait()
    assert job.nodes[1].end()["failure"]["kind"] == "head_silent"


@pytest.fixture
def ending(tmp_path, monkeypatch):
    """A node's runner, the processes of the job that it finds, those that it has ended, and the exits that it reads."""

    def make(*modes, node=0, processes_here=True):
        job = Cluster(tmp_path, *modes)
        if not processes_here:
            job.nodes[node].spec["processes"] = []
            write_json(job.nodes[node].dir / "node_plan.json", job.nodes[node].spec)
        runner, left, ended, exits = NodeRunner(job.nodes[node].dir), [], [], {}
        monkeypatch.setattr(processes, "ranks_of_job", lambda *_: list(left))
        monkeypatch.setattr(processes, "ask_to_end", ended.extend)
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
        assert failures.text(failure) == f"rank {rank} on {host}: exit code 7"
