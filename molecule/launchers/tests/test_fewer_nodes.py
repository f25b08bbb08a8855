"""A job goes on with fewer nodes, and takes the lost node back at the next restart.

TRAINYARD_LAUNCHERS chooses the launchers (torchrun, direct, mpirun, or oneflow on the lab of the scenario oneflow): CI
has the first one. TRAINYARD_LOST is the node that is lost for a while: n2, or n1, so that another node leads the job
and has its rendezvous.
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
ALL = {"torchrun": (AGENTS, {}), **{name: (WORKER, {"job_launcher": name}) for name in ("direct", "mpirun")}}
ALL["oneflow"] = (WORKER, {"job_launcher": "oneflow", "job_venv": "oneflow", "job_packages": ["oneflow"]})
JOBS = {name: ALL[name] for name in os.environ.get("TRAINYARD_LAUNCHERS", "torchrun").split(",") if name in ALL}
LOST = os.environ.get("TRAINYARD_LOST", "n2")
# The place that is empty; and the node that leads the job, and has rank 0, without the lost one.
PLACE, FIRST = {"n1": (0, "n2"), "n2": (1, "n1")}[LOST]


def began(nodes, run, ranks):
    """Return the process id of rank 0 among so many ranks, once it has printed it; 0 before."""
    log = nodes[FIRST].host.run(f"cat {run.job_dir}/hosts/*/logs/rank_0.log").stdout
    return int(next(iter(re.findall(rf"rank 0 of {ranks} pid (\d+)", log)[-1:]), 0))


def left_out(nodes, run):
    return nodes[FIRST].cluster(run).get("restarts", {}).get("left_out")


@pytest.fixture(scope="module")
def ended(play, nodes, scheduler):
    """A job of each launcher: a node is frozen until the others have gone on; rank 0 is killed once it is back."""
    runs = {
        name: play.launch(file, **FEWER, **more, **scheduler, job_name=f"fewer-{name}")
        for name, (file, more) in JOBS.items()
    }
    for run in runs.values():
        run.trains()
    nodes[LOST].podman("pause")
    try:
        for name, run in runs.items():
            wait_until(lambda run=run: left_out(nodes, run) == {LOST: PLACE}, f"{name} without {LOST}")
            wait_until(lambda run=run: began(nodes, run, 2), f"rank 0 of two ranks of {name}")
    finally:
        nodes[LOST].podman("unpause")
    for run in runs.values():
        attempts = f"{run.job_dir}/hosts/*/attempts.json"
        wait_until(lambda attempts=attempts: nodes[LOST].table.read_json(attempts) == {"": 1}, f"{LOST} to follow")
        wait_until(lambda run=run: nodes[LOST].ranks(run.job_id) == [], f"no ranks on {LOST}")
        assert nodes[FIRST].cluster(run)["ranks_running"] == 2
        nodes[FIRST].table.kill(began(nodes, run, 2))
    return {name: run.wait() for name, run in runs.items()}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_goes_on_with_fewer_nodes_and_takes_the_node_back(ended, name, left, node_vars):
    run = ended[name].expect(
        0, f"the job goes on without {LOST}: 2 ranks on 2 nodes", f"{LOST} takes part again: 3 ranks on 3 nodes"
    )
    summary = run.summary
    assert summary["state"] == "succeeded" and len(summary["restarts"]) == 2
    assert [(each["world_size"], each["nodes"]) for each in summary["world_sizes"]] == [(3, 3), (2, 2), (3, 3)]
    assert {node["host"]: node["ranks"] for node in summary["nodes"]} == {"n1": [0], "n2": [1], "n3": [2]}
    logs = [run.log(0)]
    if LOST == "n1":
        logs.append((run.folder / "logs" / "n2_rank_0.log").read_text())
    begun = [re.findall(r"^rank 0 of (\d) pid \d+ head ([\d.]+):", log, re.MULTILINE) for log in logs]
    one, two = (node_vars[name]["ansible_host"] for name in ("n1", "n2"))
    whole = ("3", one)
    assert begun == ([[whole, whole], [("2", two)]] if LOST == "n1" else [[whole, ("2", one), whole]])
    # n3 had rank 1 while the node was away.
    alone = (run.folder / "logs" / "n3_rank_1.log").read_text()
    assert "rank 1 of 2 pid" in alone and "rank 2 of 3 pid" in run.log(2)
    assert left(run.job_id) == {}
