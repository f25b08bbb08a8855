"""Jobs through MindSpore's dynamic cluster: real training on one node and on three, and every way to fail in time."""

import re

import pytest
from lab_jobs import PROJECT

CLUSTER = PROJECT / "jobs/mindspore-cluster.yml"
DIGITS = PROJECT / "jobs/mindspore-digits.yml"
CHECKPOINTS = "/var/lib/trainyard/checkpoints/mindspore-cluster"
# Rank 1 never joins the cluster.
ABSENT = {
    "job_launcher": "mindspore",
    "job_nodes": 2,
    "job_ranks_per_node": 1,
    "job_devices": "none",
    "job_source": "molecule/launchers/absent",
    "job_venv": "mindspore",
    "job_packages": ["mindspore"],
    "job_env": {"OMP_NUM_THREADS": 1},
}


@pytest.fixture(scope="module")
def three(play, nodes):
    """A first training on three nodes."""
    for node in nodes.values():
        node.host.check_output(f"rm -rf {CHECKPOINTS}")
    return play.launch(CLUSTER, job_nodes=3).wait()


def test_three_nodes_train_to_equal_parameters(three, left):
    three.trained(3)
    assert re.search(r"3/3 ranks running   step \d+   epoch \d+   loss \d", three.output), three.output
    assert left(three.job_id) == {}


def test_the_scheduler_stands_on_the_head_and_every_worker_on_its_node(three, nodes):
    names = [[process["name"] for process in node["processes"]] for node in three.file("plan.json")["nodes"]]
    assert names == [["scheduler", "rank0"], ["rank1"], ["rank2"]]
    for rank, node in enumerate(list(nodes.values())[:3]):
        logs = node.host.check_output(f"cd {three.job_dir}/hosts/*/logs && ls [!m]*").split()
        assert logs == [*(["scheduler.log"] if rank == 0 else []), f"worker_{rank}.log"]
    collected = {path.name for path in (three.folder / "logs").iterdir()}
    assert {"scheduler.log", "worker_0.log", "worker_1.log", "worker_2.log"} <= collected
    # As the plan numbers them, not in the order of arrival.
    for rank in range(3):
        assert f"rank {rank}: no checkpoint that all ranks have" in three.log(rank)


def test_a_run_goes_on_from_the_newest_epoch_that_all_ranks_have(three, play, nodes, left):
    kept = [f"{CHECKPOINTS}/rank_{rank}" for rank in range(3)]
    for folder, node in zip(kept, nodes.values()):
        assert node.host.check_output(f"ls {folder}").split() == ["epoch-0019.ckpt", "epoch-0020.ckpt"]
    # As if rank 1 had died before its last checkpoint.
    nodes["n2"].host.check_output(f"rm {kept[1]}/epoch-0020.ckpt")
    run = play.launch(CLUSTER, job_nodes=3).expect(0)
    for rank in range(3):
        assert f"rank {rank}: resumed from {kept[rank]}/epoch-0019.ckpt after epoch 19" in run.log(rank)
        epochs = set(re.findall(r"^epoch: (\d+) step: \d+, loss is ", run.log(rank), re.MULTILINE))
        assert epochs == {"20"}
    assert len(run.checksums(3)) == 1
    assert left(run.job_id) == {}


@pytest.fixture(scope="module")
def one(play, nodes):
    """Two workers on one node, one of which is killed while they train."""
    command = ["python", "mindspore/train.py", "--data=/var/lib/trainyard/data/digits", "--epochs=100000"]
    run = play.launch(DIGITS, job_command=command).trains()
    nodes["n1"].kill_process(run, "rank1")
    return run.wait()


@pytest.mark.long
def test_a_killed_worker_beside_the_scheduler_is_named_and_ends_the_job(one, left):
    last = f"  last lines of {one.job_dir}/hosts/n1/logs/worker_1.log on n1:"
    one.shows(2, "  rank 1 on n1 failed first: killed by SIGKILL", last)
    assert one.summary["failure"]["rank"] == 1
    assert left(one.job_id) == {}
    (node,) = one.file("plan.json")["nodes"]
    assert [process["name"] for process in node["processes"]] == ["scheduler", "rank0", "rank1"]
    assert re.search(r"2/2 ranks running   step \d+", one.output)


@pytest.fixture(scope="module")
def absent(play, nodes):
    """Jobs of which a process does not do its part, side by side, as each one mostly waits; the last two lose more."""

    def launch(name, *options, **given):
        return play.launch(**{**ABSENT, "job_name": name, **given}, job_command=["python", "absent.py", *options])

    alone = {"job_nodes": 1}
    runs = {
        "hangs": launch("hangs", "--hang", job_join_timeout=15),
        "fails": launch("fails"),
        "stays": launch("stays", "--stay"),
        "headless": launch("headless", "--wait", **alone),
        "budget": launch("budget", "--wait", **alone, job_recovery=True, job_max_restarts=1),
    }
    for name in ("headless", "budget"):
        runs[name].wait_for("1/1 ranks running")
        nodes["n1"].kill_process(runs[name], "scheduler")
    runs["budget"].wait_for("scheduler on n1: killed by SIGKILL, so scheduler starts again")
    nodes["n1"].kill_process(runs["budget"], "rank0")
    return {name: run.wait() for name, run in runs.items()}


@pytest.mark.long
def test_a_killed_scheduler_or_a_budget_that_is_used_up_ends_the_job(absent, left):
    """recovery_by_name.py has the recovery of processes that train."""
    killed, used_up = absent["headless"], absent["budget"]
    killed.shows(2, "  scheduler on n1 failed first: killed by SIGKILL")
    used_up.shows(2, "  rank 0 on n1 failed first: killed by SIGKILL", "  started again 1 of at most 1 time")
    assert left(killed.job_id) == left(used_up.job_id) == {}


@pytest.mark.long
def test_a_worker_that_fails_before_it_joins_ends_the_job_at_once(absent, left):
    run = absent["fails"]
    last = "no device answers"
    run.shows(2, f"  rank 1 on n2 failed first: exit code 1; its log ends with: {last}", f"    | {last}")
    assert left(run.job_id) == {}


@pytest.mark.long
def test_a_worker_that_never_joins_ends_the_job_in_time(absent, left):
    run = absent["hangs"]
    assert run.rc == 2, run.output
    assert "  rank 1 never joined the cluster: the scheduler waited for job_join_timeout" in run.lines
    assert f"  last lines of {run.job_dir}/hosts/n2/logs/worker_1.log on n2:" in run.lines
    assert "    | rank 1 does not join" in run.lines
    failure = run.summary["failure"]
    assert (failure["kind"], failure["process"], failure["rank"]) == ("not_joined", "scheduler", 1)
    assert left(run.job_id) == {}


@pytest.mark.long
def test_a_scheduler_that_never_exits_is_ended_after_the_workers(absent, left):
    run = absent["stays"].expect(0)
    processes = [process for node in run.summary["nodes"] for process in node["processes"]]
    assert [(process["name"], process["exit_code"]) for process in processes[1:]] == [("rank0", 0), ("rank1", 0)]
    assert left(run.job_id) == {}
