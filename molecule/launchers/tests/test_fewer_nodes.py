"""A job goes on with fewer nodes, and takes the lost node back at the next restart.

TRAINYARD_LAUNCHERS chooses the launchers (torchrun, mpirun): CI has the first one.
"""

import os
import re

import pytest
from lab_jobs import AGENTS, WORKER, wait_until

FEWER = {
    "job_nodes": 3,
    "job_min_nodes": 2,
    "job_max_restarts": 3,
    "job_rejoin_timeout": 3,
    "job_command": ["python3", "worker.py", "--resume", "--steps", "60", "--restarts", "2"],
}
ALL = {"torchrun": (AGENTS, {}), "mpirun": (WORKER, {"job_launcher": "mpirun"})}
JOBS = {name: ALL[name] for name in os.environ.get("TRAINYARD_LAUNCHERS", "torchrun").split(",") if name in ALL}


def cluster(nodes, run):
    return nodes["n1"].table.read_json(f"{run.job_dir}/cluster.json")


def began(nodes, run, ranks):
    """Return the process id of rank 0 among so many ranks, once it has printed it; 0 before."""
    log = nodes["n1"].host.check_output(f"cat {run.job_dir}/logs/rank_0.log")
    return int(next(iter(re.findall(rf"rank 0 of {ranks} pid (\d+)", log)[-1:]), 0))


@pytest.fixture(scope="module")
def ended(play, nodes):
    """A job of each launcher: n2 is frozen until the others have gone on, then rank 0 is killed once n2 is back."""
    runs = {name: play.launch(file, **FEWER, **more, job_name=f"fewer-{name}") for name, (file, more) in JOBS.items()}
    for run in runs.values():
        run.trains()
    nodes["n2"].podman("pause")
    try:
        for name, run in runs.items():
            wait_until(lambda run=run: cluster(nodes, run)["restarts"]["left_out"] == {"n2": 1}, f"{name} without n2")
            wait_until(lambda run=run: began(nodes, run, 2), f"rank 0 of two ranks of {name}")
    finally:
        nodes["n2"].podman("unpause")
    for run in runs.values():
        attempts = f"{run.job_dir}/attempts.json"
        wait_until(lambda attempts=attempts: nodes["n2"].table.read_json(attempts) == {"": 1}, "n2 to follow")
        assert nodes["n2"].ranks(run.job_id) == [] and cluster(nodes, run)["ranks_running"] == 2
        nodes["n1"].table.kill(began(nodes, run, 2))
    return {name: run.wait() for name, run in runs.items()}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_goes_on_with_fewer_nodes_and_takes_the_node_back(ended, name, left):
    run = ended[name].expect(
        0, "the job goes on without n2: 2 ranks on 2 nodes", "n2 takes part again: 3 ranks on 3 nodes"
    )
    summary = run.summary
    assert summary["state"] == "succeeded" and len(summary["restarts"]) == 2
    assert [(each["world_size"], each["nodes"]) for each in summary["world_sizes"]] == [(3, 3), (2, 2), (3, 3)]
    assert {node["host"]: node["ranks"] for node in summary["nodes"]} == {"n1": [0], "n2": [1], "n3": [2]}
    assert [line.split(" pid")[0] for line in run.log(0).splitlines() if line.startswith("rank 0 of")] == [
        f"rank 0 of {ranks}" for ranks in (3, 2, 3)
    ]
    # n3 had rank 1 while n2 was away.
    alone = (run.folder / "logs" / "n3_rank_1.log").read_text()
    assert "rank 1 of 2 pid" in alone and "rank 2 of 3 pid" in run.log(2)
    assert left(run.job_id) == {}
