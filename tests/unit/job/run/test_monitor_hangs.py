"""A job that hangs, with real monitors and ranks: noticed, told with stacks of all ranks, ended or started again."""

import os
import re
import signal

import pytest
from ansible.module_utils.trainyard_node import agent
from job_cluster import wait_for
from test_stack_samples import begun, hanging

SOON = {"after_s": 3, "first_s": 30, "pause_s": 30, "pause_pattern": "evaluat"}


@pytest.fixture
def hangs(tmp_path):
    """Makes a job whose monitors look for hangs; each argument has the ranks of a node."""
    made = []

    def make(*modes, hang=SOON, **settings):
        made.append(hanging(tmp_path, *modes, n1={"hang": hang}, n2={"hang": hang}, **settings))
        return made[-1]

    yield make
    for job in made:
        job.__exit__()


def test_the_rank_that_never_came_is_named_with_all_stacks(hangs):
    job = begun(hangs(["barrier", "barrier"], ["fifo", "barrier"]))
    end = job.over()
    failure = end["failure"]
    assert (end["state"], failure["kind"], failure["host"], failure["rank"]) == ("failed", "hung", "n2", 2)
    assert failure["step"] == 1
    assert failure["groups"][0].startswith("3 ranks (0, 1, 3) are in barrier (rank.py:")
    assert failure["groups"][1].startswith("rank 2 on n2 is in load_batch (rank.py:")
    assert failure["reason"] == failure["groups"][1]
    odd, others = job.state()["stacks"]["groups"]
    assert (odd["odd"], odd["ranks"], odd["hosts"], odd["text"]) == (True, [2], ["n2"], failure["reason"])
    assert (others["odd"], others["ranks"], others["hosts"]) == (False, [0, 1, 3], ["n1", "n2"])
    assert any(name == "load_batch" and owner == "own" for name, _, _, owner in odd["frames"])
    job.all_ended()
    assert job.nodes[1].end()["failure"] == failure
    assert_stacks(job, (0, 1), (2, 3))


def assert_stacks(job, *ranks_of_nodes):
    for number, ranks in enumerate(ranks_of_nodes):
        text = (job.nodes[number].dir / "logs" / f"stacks_{number}.log").read_text()
        assert all(f"\nrank {rank}  pid " in text for rank in ranks)


def test_a_stopped_rank_is_named_and_ended(hangs):
    """An agent hands SIGTERM on and waits for its ranks; torchrun's does so for 30 s, systemd for 5."""
    job = hangs(["barrier", "barrier"], ["barrier", "barrier"], hang={**SOON, "after_s": 8}).start()
    os.kill(job.nodes[1].pid("rank3"), signal.SIGSTOP)
    for node in job.nodes:
        node.go()
    line = re.compile(r"step 1\b.*   no new step for \d+ s, (?:ends at 8 s|taking the stacks of all ranks)")
    told = {"job_id": job.head.job_id, "job_dir": str(job.head.dir)}
    wait_for(lambda: line.search(agent.state(**told).get("line", "")), "the count in the line of progress")
    failure = job.over()["failure"]
    assert (failure["kind"], failure["rank"]) == ("hung", 3)
    assert failure["reason"].startswith("rank 3 on n2 is stopped (by SIGSTOP)")
    job.all_ended()
    assert job.nodes[1].exits()["rank3"] == (None, signal.SIGTERM)
