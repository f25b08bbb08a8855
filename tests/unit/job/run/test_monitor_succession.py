"""Real monitors: another node leads the job when its head is lost, without the controller."""

import os
import signal

from job_cluster import attempt, wait_for
from test_monitor_spares import lose


def leads(node, term):
    """Wait until a node leads the job in this term; return its state of the job."""
    state = wait_for(
        lambda: found if (found := node.read("cluster.json")) and found["term"] == term else None,
        f"{node.spec['host']} to lead in term {term}; its log: {node.log()}",
    )
    assert state["head"] == node.spec["host"]
    return state


def test_a_head_that_was_suspended_leads_no_more_and_takes_part_again(cluster):
    job = cluster(["train"], ["train"], ["train"], max_restarts=2, rejoin_s=60).start()
    first, second, _ = job.nodes
    first.signal(signal.SIGSTOP)
    leads(second, 1)
    first.signal(signal.SIGCONT)
    for rank, node in enumerate(job.nodes):
        wait_for(lambda node=node, rank=rank: attempt(node, f"rank{rank}") == 1, f"rank {rank}")
        node.go()
    assert wait_for(lambda: second.read("cluster.json")["end"], "the end of the job")["state"] == "succeeded"
    assert first.read("cluster.json")["term"] == 0 and not first.read("cluster.json")["end"]
    for node in job.nodes:
        node.monitor.wait()
        assert node.left() == []


def test_half_of_the_nodes_is_no_majority_and_ends_its_ranks(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], ["wait"], max_restarts=2, rejoin_s=8).start()
    for node in job.nodes[:2]:
        lose(node)
    ends = [wait_for(node.end, f"the end of {node.spec['host']}") for node in job.nodes[2:]]
    assert [end["failure"]["kind"] for end in ends] == ["no_majority"] * 2
    for node in job.nodes[2:]:
        node.monitor.wait()
        assert node.left() == [] and not node.read("cluster.json")


def test_a_head_without_a_majority_ends_its_ranks_and_starts_none(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=2, rejoin_s=8).start()
    for node in job.nodes[1:]:
        node.signal(signal.SIGSTOP)
    end = wait_for(job.head.end, "the end of n1")
    assert end["failure"]["kind"] == "no_majority"
    job.head.monitor.wait()
    assert job.head.left() == [] and attempt(job.head) == 0
    for node in job.nodes[1:]:
        os.kill(node.monitor.pid, signal.SIGCONT)
        node.monitor.wait()
        assert node.left() == []
