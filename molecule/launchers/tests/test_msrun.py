"""Jobs through msrun, one on each node: real training, and a worker that is killed."""

import re

import pytest
from lab_jobs import PROJECT, wait_until

DIGITS = PROJECT / "jobs/msrun-digits.yml"


@pytest.fixture(scope="module")
def two(play):
    return play.launch(DIGITS, job_nodes=2).wait()


def test_two_nodes_train_to_equal_parameters(two, left):
    two.trained(2)
    assert re.search(r"2/2 ranks running   step \d+   epoch \d+   loss \d", two.output), two.output
    assert left(two.job_id) == {}


def test_its_logs_are_found_where_those_of_the_other_launcher_are(two):
    collected = {path.name for path in (two.folder / "logs").iterdir()}
    assert {"agent_0.log", "agent_1.log", "scheduler.log", "worker_0.log", "worker_1.log"} <= collected


@pytest.mark.long
def test_a_killed_worker_ends_the_job_everywhere(play, nodes, left):
    command = ["python", "mindspore/train.py", "--data=/var/lib/trainyard/data/digits", "--epochs=100000"]
    run = play.launch(DIGITS, job_nodes=2, job_command=command).trains()
    table = nodes["n2"].table
    worker = wait_until(
        lambda: [pid for pid in table.of_job(run.job_id) if "MS_NODE_ID=1" in environment(nodes["n2"], pid)],
        "the worker of rank 1",
    )
    table.kill(worker[0])
    run.shows(2, "  rank 1 on n2 failed first: killed by SIGKILL")
    assert left(run.job_id) == {}


def environment(node, pid):
    return node.host.run(f"runuser -u train -- cat /proc/{pid}/environ").stdout.split("\0")
