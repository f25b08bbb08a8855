"""What is Slurm's own with three nodes: shared nodes, the login host, requests, scancel, a requeued job.

The tests of jobs that are the same over ssh are in the scenarios jobs and launchers (TRAINYARD_SCHEDULERS=slurm).
"""

import json
import re

import pytest
from lab_jobs import PROJECT, WORKER, host_list, wait_until

SLURM = {"job_scheduler": "slurm"}
# This folder is shared by all nodes of a lab.
SHARED = "/srv/shared"


@pytest.fixture(scope="module")
def three(play):
    """torchrun over all nodes, MPI ranks beside it, and msrun when there is room: they share the nodes' cores."""
    torchrun = play.launch(PROJECT / "jobs/slurm-digits.yml", job_nodes=3)
    torchrun.wait_for("ranks running")
    mpi = play.launch(PROJECT / "jobs/slurm-mpi.yml", job_nodes=3)
    # If msrun started first, only one node would have free cores.
    mpi.wait_for("ranks running")
    msrun = play.launch(PROJECT / "jobs/msrun-digits.yml", **SLURM, job_nodes=2)
    return torchrun.wait(), mpi.wait(), msrun.wait()


def test_torchrun_trains_on_the_nodes_that_slurm_chose(three):
    run = three[0].expect(0)
    assert (run.summary["state"], run.summary["engine"]["kind"]) == ("succeeded", "slurm")
    assert [node["host"] for node in run.summary["nodes"]] == ["n1", "n2", "n3"]
    assert "final test accuracy" in run.log(0)
    # Ranks that trained together have the same parameters.
    assert len({re.search(r"rank \d parameters sha256 (\w+)", run.log(rank))[1] for rank in range(3)}) == 1
    assert run.summary["engine"]["id"].isdigit()


def test_mpi_ranks_find_each_other_by_the_daemons_of_monitors(three):
    run = three[1].expect(0)
    assert "all_reduce" in run.log(0)
    assert "# Out of bounds values : 0 OK" in run.log(0)
    assert [run.summary["state"], run.summary["world_size"]] == ["succeeded", 3]


def test_two_jobs_share_the_nodes_and_msrun_trains_when_there_is_room(three):
    first, second = three[0].summary, three[1].summary
    assert first["started"] < second["finished"] and second["started"] < first["finished"]
    assert {node["host"] for node in first["nodes"]} == {node["host"] for node in second["nodes"]}
    assert "final test accuracy" in three[2].expect(0).log(0)


def test_a_login_host_is_all_that_the_inventory_needs(play, nodes, node_vars, tmp_path, left):
    """The ranks run on nodes that it does not have, with a folder shared with the login host."""
    inventory = tmp_path / "login.json"
    inventory.write_text(json.dumps({"slurm_login": {"hosts": {"n1": node_vars["n1"]}}}))
    run = play.launch(
        WORKER, **SLURM, inventory=inventory, job_nodes=2, job_folder=SHARED,
        job_sbatch_options=["--exclude=n1"],
    ).trains()  # fmt: skip
    n3 = nodes["n3"].table
    n3.kill(n3.rank(f"{SHARED}/jobs/{run.job_id}", 1))
    run.expect(2, "rank 1 on n3 failed first: killed by SIGKILL")
    assert [node["host"] for node in run.summary["nodes"]] == ["n2", "n3"]
    assert run.summary["metrics"]["step"] and "rank 1 of 2" in run.log(1)
    wait_until(lambda: left(run.job_id) == {}, "nothing of the job is left")


def test_a_login_host_alone_is_not_enough_where_nothing_is_shared(play, node_vars, node_names, tmp_path):
    inventory = tmp_path / "login.json"
    inventory.write_text(json.dumps({"slurm_login": {"hosts": {"n1": node_vars["n1"]}}}))
    run = play.launch(WORKER, **SLURM, inventory=inventory)
    run.expect(2, "0, and no host of the inventory in compute expected the number of nodes")
    others = host_list(node_names[1:])
    assert f"nothing; logs cannot be fetched from {others} of train" in run.text


def test_impossible_requests_are_found_before_submission(play):
    run = play.launch(WORKER, **SLURM, job_nodes=3, job_ranks_per_node=64, job_gres="gpu:8")
    run.expect(2, "64 ranks on each node; 0 nodes of train have as many CPUs", "nothing was started")
    assert "gpu:8 on each node; 0 nodes of train have as many" in run.text
    # The nodes find this themselves before any rank starts.
    late = play.launch(WORKER, **SLURM, job_nodes=2, job_data=["/srv/missing"]).expect(2)
    assert "no /srv/missing" in late.text and "the job's data on every node (job_data)" in late.text
    assert "nothing was started" in late.text and late.summary["nodes"][0]["ranks"] == []
    other = play.launch(WORKER, **SLURM, job_nodes=9, job_partition="nowhere")
    other.expect(2, "no partition 'nowhere' expected a partition of the cluster: train")


def test_a_job_that_its_user_cancels_was_stopped(play, nodes, left):
    run = play.launch(WORKER, **SLURM, job_nodes=2, job_max_restarts=1).trains()
    nodes["n1"].host.check_output(f"runuser -u train -- scancel {run.file('plan.json')['engine']['id']}")
    run.expect(2, "was stopped")
    wait_until(lambda: left(run.job_id) == {}, "nothing of the job is left")


def test_a_lost_node_requeues_the_job_where_restarts_are_allowed(play, nodes, node_vars, left):
    command = ["python3", "worker.py", "--resume", "--steps", "400"]
    run = play.launch(
        WORKER, **SLURM, job_nodes=2, job_max_restarts=1, job_command=command,
        job_sbatch_options=["--nodelist=n1,n3"],
    ).trains()  # fmt: skip
    nodes["n3"].podman("kill")
    try:
        run.wait_for(r"pending \(.*")
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    # After slurm_requeue_wait, the requeued job resumes from its checkpoint.
    run.wait_for(r"(?s)pending \(.*2/2 ranks running")
    assert run.rc == 0, run.output
    assert run.summary["restarts"] and "step 400/400" in run.log(0)
