"""Real monitors: a job goes on with fewer nodes, and takes a node back at the next restart, without the controller."""

import os
import signal
import time

import pytest
from ansible.module_utils.trainyard.job.run.decide.head_state import HeadState
from ansible.module_utils.trainyard.job.run.decide.orders import Now
from ansible.module_utils.trainyard_node.job.run.monitor import monitor as monitors
from ansible.module_utils.trainyard_node.job.run.monitor import node_loop
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import attempt, wait_for
from test_job_checkpoints import archive


def lose(node):
    """Have a node vanish: its monitor and all that it ran."""
    os.kill(node.monitor.pid, signal.SIGKILL)
    node.monitor.wait()
    wait_for(lambda: not node.left(), "the processes of a lost node to end with it")


def test_checkpoints_are_watched_where_rank_0_is_now(cluster, tmp_path):
    """They were watched no more, so that neither a rollback nor the hang rule knew of them."""
    (tmp_path / "step_10.pt").write_bytes(archive())
    watched = {"checkpoints": str(tmp_path)}
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=3, min_nodes=2, n2=watched)
    second = NodeRunner(job.nodes[1].dir)
    assert second.checkpoints.state() is None
    second.follow({"attempts": {"": 1}, "go": False, "absent": [0]})
    state = wait_for(second.checkpoints.state, "a poll of the checkpoints")
    assert (state["newest"] or state["unfinished"])["name"] == "step_10.pt"
    second.follow({"attempts": {"": 2}, "go": False})
    assert second.checkpoints.state() is None


def test_mpirun_goes_on_without_a_node_and_its_ranks_are_known_on_their_nodes(cluster):
    """All ranks are processes of the head, as those of mpirun are."""
    job = cluster(["wait", "wait", "wait"], [], [], max_restarts=2, rejoin_s=12, min_nodes=1)
    (first, *_), head = job.head.spec["processes"], job.head
    log, file = str(head.dir / "logs" / "mpirun.log"), head.dir / "hostfile"
    file.write_text("127.0.0.1 slots=1\n127.0.0.2 slots=1\n127.0.0.3 slots=1\n")
    argv = [first["argv"][0], "rank.py", "wait", "-n", "3"]
    mpirun = {
        **first,
        "name": "mpirun",
        "ranks": [0, 1, 2],
        "log": log,
        "argv": argv,
        "numbered": {"-n": "{world_size}"},
    }
    listed = {"path": str(file), "mode": "0644", "lists_nodes": True, "content": file.read_text()}
    for node in job.nodes:
        node.spec["fewer"]["ranks"] = [1, 1, 1]
    head.spec.update(processes=[mpirun], files=[listed], ranks_of={"n2": [1], "n3": [2]})
    for node in job.nodes:
        write_json(node.dir / "node_plan.json", node.spec)
    job.start()
    wait_for(lambda: job.state()["state"] == "running", "the head to hear of all")
    lose(job.nodes[1])
    wait_for(lambda: attempt(head, "mpirun") == 1, "mpirun's second start")
    assert file.read_text() == "127.0.0.1 slots=1\n127.0.0.3 slots=1\n"
    (process,) = head.read("node_plan.json")["processes"]
    assert process["argv"][-2:] == ["-n", "2"] and process["ranks"] == [0, 1]
    # Rank 1 is on n3 now, also to a head that comes back.
    head.signal(signal.SIGTERM)
    job.all_ended(but=("n2",))
    (head.dir / "logs" / "mpirun.log").write_text("trainyard: rank 1 ended with status 7\n")
    runner = NodeRunner(head.dir)
    runner.inspect()
    failure = runner.failure(runner.node_plan["processes"][0], from_status(1))
    state = HeadState(head.spec, Now(0.0, 0.0), head.read("cluster.json"))
    state.receive("n1", {"report": {**runner.report, "failures": [failure]}}, Now(1.0, 1.0))
    assert [each["host"] for each in state.rank_failures()] == ["n3"]


def test_progress_is_that_of_the_ranks_that_this_node_has(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=2, min_nodes=1)
    node = NodeRunner(job.nodes[2].dir)
    logs = job.nodes[2].dir / "logs"
    (logs / "rank_2.log").write_text("".join(f"step {step} loss 0.5\n" for step in range(1, 21)))
    node.tails.read(1.0)
    node.tails.read(1.0)
    assert (node.tails.rank, node.tails.shown.last["step"]) == (2, 20.0)
    node.tails.begin_attempt([1])
    assert node.tails.rank is None
    (logs / "rank_1.log").write_text("step 21 loss 0.25\n")
    node.tails.read(2.0)
    node.tails.read(2.0)
    assert (node.tails.rank, node.tails.shown.last["step"]) == (1, 21.0)
    # The curve goes on.
    assert len((job.nodes[2].dir / "metrics.jsonl").read_text().splitlines()) == 21


@pytest.mark.parametrize("min_nodes", [0, 2])
def test_a_node_that_may_be_left_out_tries_longer_to_reach_the_head(cluster, min_nodes):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=1, rejoin_s=1, min_nodes=min_nodes)
    node = monitors.Monitor(job.nodes[1].dir)
    for silent_s in (200.0, node_loop.LEFT_OUT_S + 200.0):
        node.loop.last_contact = time.monotonic() - silent_s
        node.loop._give_up()
        assert bool(node.runner.end) == (silent_s > 200 or not min_nodes)
