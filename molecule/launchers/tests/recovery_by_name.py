"""Recovery of MindSpore jobs in real training: a killed scheduler, a killed worker, a lost node."""

import re
import shutil

import pytest
from lab_jobs import PROJECT, wait_until

# The last epoch, and those after which all ranks wait until the test has done what it does there.
EPOCHS, GATES = 12, (3, 6, 9)
GATED = f"""
import os, pathlib, time
import train

write = train.Checkpoints.epoch_end

def write_and_wait(self, run_context):
    write(self, run_context)
    epoch = run_context.original_args().cur_epoch_num
    gate = pathlib.Path(os.environ["TRAINYARD_JOB_DIR"], f"gate_{{epoch}}")
    while epoch in {GATES} and not gate.exists():
        time.sleep(0.1)

train.Checkpoints.epoch_end = write_and_wait
train.main()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The training of jobs/mindspore-cluster.yml on three nodes, with gates, and checkpoints in the job's folder."""
    source = tmp_path_factory.mktemp("gated") / "source"
    shutil.copytree(PROJECT / "training/mindspore", source)
    (source / "gated.py").write_text(GATED)
    return {
        "job_name": "recovery",
        "job_nodes": 3,
        "job_source": str(source),
        "job_recovery": True,
        # Longer than the monitors wait for a silent node, so that these are the ones who miss it.
        "job_heartbeat_timeout": 60,
        "job_command": ["python", "gated.py", "--data=/var/lib/trainyard/data/digits", f"--epochs={EPOCHS}"],
    }


class Gates:
    """Where the ranks of one run wait."""

    def __init__(self, run, nodes):
        self.run, self.nodes = run, dict(list(nodes.items())[:3])

    def reached(self, epoch):
        """Wait until every rank has written the checkpoint of an epoch, and so waits at its gate."""

        def there():
            file = f"checkpoints/rank_{{}}/epoch-{epoch:04d}.ckpt"
            return all(
                node.host.file(f"{self.run.job_dir}/{file.format(rank)}").exists
                for rank, node in enumerate(self.nodes.values())
            )

        wait_until(there, f"all ranks have done epoch {epoch}: {self.run.output}")

    def open(self, epoch):
        for node in self.nodes.values():
            node.host.check_output(f"touch {self.run.job_dir}/gate_{epoch}")


@pytest.fixture(scope="module")
def recovered(play, nodes, node_vars, job):
    """One training that loses its scheduler, then a worker, then a node."""
    run = play.launch(PROJECT / "jobs/mindspore-cluster.yml", **job, job_max_restarts=3)
    run.wait_for(r"3/3 ranks running")
    gates = Gates(run, nodes)
    gates.reached(3)
    nodes["n1"].kill_process(run, "scheduler")
    run.wait_for("scheduler on n1: killed by SIGKILL, so scheduler starts again")
    gates.open(3)
    gates.reached(6)
    nodes["n2"].kill_process(run, "rank1")
    run.wait_for("rank 1 on n2: killed by SIGKILL, so the whole job starts again")
    gates.open(6)
    gates.reached(9)
    nodes["n3"].podman("kill")
    try:
        run.wait_for(r"node n3: no report for \d\d s, so the whole job starts again")
    finally:
        nodes["n3"].boot(node_vars["n3"]["ansible_host"])
    gates.open(9)
    return run.wait()


def test_training_ends_at_the_right_step_with_equal_parameters(recovered, left):
    assert recovered.rc == 0, recovered.output
    assert len(recovered.checksums(3)) == 1
    for rank in range(3):
        steps = re.findall(r"^epoch: (\d+) step: (\d+), loss is ", recovered.log(rank), re.MULTILINE)
        assert int(steps[-1][0]) == EPOCHS
        assert len({step for epoch, step in steps if epoch == str(EPOCHS)}) == int(steps[-1][1])
    assert left(recovered.job_id) == {}


def test_each_restart_is_told_with_its_reason(recovered):
    told = [
        (entry["failure"]["kind"], entry["failure"]["host"], entry["restarted"])
        for entry in recovered.summary["restarts"]
    ]
    assert told == [("exit", "n1", "scheduler"), ("exit", "n2", "the whole job"), ("silent", "n3", "the whole job")]
    assert "  started again 3 of at most 3 times" in recovered.lines


def test_workers_went_on_while_the_scheduler_came_back(recovered):
    for rank in range(3):
        # The first attempt of a worker lasted from the first epoch to the sixth.
        first = recovered.log(rank).partition("--- started again")[0]
        epochs = sorted({int(epoch) for epoch in re.findall(r"^epoch: (\d+) step", first, re.MULTILINE)})
        assert epochs[:6] == [1, 2, 3, 4, 5, 6]
    scheduler = (recovered.folder / "logs/scheduler.log").read_text()
    assert "--- started again, attempt 2 ---" in scheduler


def test_a_restarted_job_goes_on_from_the_newest_epoch_that_all_ranks_have(recovered):
    for rank in range(3):
        resumed = re.findall(rf"^rank {rank}: resumed from \S+ after epoch (\d+)$", recovered.log(rank), re.MULTILINE)
        assert resumed == ["6", "9"]
