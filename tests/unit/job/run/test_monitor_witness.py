"""Real monitors: two nodes and a witness, a host that only votes when the head is lost."""

import signal

from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import SILENT_S, attempt, wait_for
from test_monitor_spares import lose, lose_head
from test_monitor_succession import leads


def begun(job):
    """Start a job, and wait until the head has heard every host."""
    job.start()
    nodes = ("n1", "n2", "w")
    wait_for(lambda: all(job.state()["nodes"][host]["silent_s"] is not None for host in nodes), "all monitors")
    wait_for(lambda: job.nodes[1].read("succession.json"), "the copy of n2")
    return job


def end_well(job, head, *nodes):
    """Let the ranks end, and wait until no monitor runs any more."""
    for node in nodes:
        node.go()
    assert wait_for(lambda: head.read("cluster.json")["end"], "the end of the job")["state"] == "succeeded"
    for node in job.nodes:
        node.monitor.wait()
        assert node.left() == []


def test_the_second_of_two_nodes_leads_when_the_head_is_lost_and_the_lost_one_takes_part_again(cluster):
    job = begun(cluster(["train"], ["train"], max_restarts=2, rejoin_s=60, witness="w"))
    first, second, witness = job.nodes
    lose_head(job, second)
    state = leads(second, 1)
    assert state["restarts"]["members"] == ["n1", "n2"] and state["ranks_running"] == 0
    # Until it is written again.
    (first.dir / "pids.json").unlink()
    first.start()
    for rank, node in enumerate((first, second)):
        wait_for(lambda node=node, rank=rank: attempt(node, f"rank{rank}") == 1, f"rank {rank}")
    wait_for(lambda: witness.read("monitor.json")["follows"] == "n2", "the witness to follow n2")
    assert witness.read("monitor.json")["term"] == 1 and not witness.read("cluster.json") and witness.exits() == {}
    end_well(job, second, first, second)


def test_a_witness_that_is_ended_ends_nothing_else(cluster):
    job = begun(cluster(["train"], ["train"], max_restarts=2, witness="w"))
    witness = job.nodes[2]
    witness.signal(signal.SIGTERM)
    witness.monitor.wait()
    assert witness.end()["state"] == "stopped"
    wait_for(lambda: (job.state()["nodes"]["w"]["silent_s"] or 0) > SILENT_S + 1, "the silence of the witness")
    assert job.state()["ranks_running"] == 2 and attempt(job.head) == 0 and not job.state()["restarts"]["history"]
    end_well(job, job.head, *job.nodes[:2])


def test_the_first_node_goes_on_alone_as_long_as_the_witness_is_there(cluster):
    job = begun(cluster(["wait"], ["wait"], max_restarts=3, rejoin_s=12, min_nodes=1, witness="w"))
    first = job.head.pid("rank0")
    lose(job.nodes[1])
    # The state is written some time after the attempt.
    wait_for(lambda: attempt(job.head) == 1 and job.state()["restarts"]["left_out"] == {"n2": 1}, "n2 to be left out")
    wait_for(lambda: job.state()["world_size"] == job.state()["ranks_running"] == 1, "rank 0 alone")
    wait_for(lambda: job.head.pid("rank0") != first, "the new rank 0")
    alone = job.head.pid("rank0")
    lose(job.nodes[2])
    wait_for(lambda: not process_table.start_time(alone), "the rank of n1 to end")
    assert not job.head.end() and attempt(job.head) == 1
