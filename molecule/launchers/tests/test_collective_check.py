"""playbooks/collective_check.yml: right in every framework, and a rank that is wrong is named with its host."""

import shutil

import pytest
from lab_jobs import PROJECT

PLAYBOOK = "playbooks/collective_check.yml"
GATHERED = "return [int(number) for number in received]"


@pytest.mark.parametrize(
    ("framework", "launcher"), [("pytorch", "torchrun"), ("mpi", "mpirun"), ("mindspore", "mindspore")]
)
def test_every_rank_has_the_numbers_of_all(play, left, framework, launcher):
    run = play(PLAYBOOK, check_framework=framework, check_launcher=launcher, check_nodes=2, check_devices="none")
    run.expect(0, "All-gather over 2 ranks on 2 nodes: every rank has the numbers 0 to 1.")
    plan = run.file("plan.json")
    assert plan["launcher"] == launcher
    for rank, host in enumerate(("n1", "n2")):
        log = (run.folder / "logs" / plan["rank_log"].replace("{rank}", str(rank))).read_text()
        assert f"all-gather rank {rank} of 2 on {host}: 0 1 right" in log
    assert left(run.job_id) == {}


def test_a_wrong_rank_is_named_with_its_host(play, tmp_path, left):
    """A copy of the script, in which one rank receives what nobody sent."""
    source = shutil.copytree(PROJECT / "training/pytorch", tmp_path / "wrong")
    script = source / "all_gather.py"
    right = script.read_text()
    assert right.count(GATHERED) == 1
    script.write_text(right.replace(GATHERED, "return [0, 7 if rank == 1 else 1, 2]"))
    run = play(PLAYBOOK, check_launcher="direct", check_nodes=3, check_devices="none", job_source=str(source))
    run.expect(
        2,
        f"Job {run.job_id} failed after",
        "The all-gather over 3 ranks is wrong: 1 finding. 1. all-gather on n2 found rank 1 has 0 7 2 expected 0 1 2",
    )
    assert left(run.job_id) == {}


def test_a_job_that_cannot_run_says_why(play, node_names):
    run = play(PLAYBOOK, check_framework="tensorflow")
    run.expect(2, "check_framework found tensorflow expected one of pytorch, mindspore, oneflow, mpi do")
    run = play(PLAYBOOK, check_nodes=9).expect(2, f"9 nodes requested, {len(node_names)} in group compute")
