"""The node that leads a job loses its power while nobody watches: another one leads, and a spare takes its place.

TRAINYARD_LAUNCHERS chooses the launchers: CI has the first one.
"""

import hashlib
import os
import time

import pytest
from lab_jobs import PROJECT, wait_until

LAUNCHERS = os.environ.get("TRAINYARD_LAUNCHERS", "torchrun").split(",")
STEPS = 120
PROGRAM = PROJECT / "molecule/launchers/succession/train.py"
OWN = {"mindspore": {"job_venv": "mindspore", "job_packages": ["mindspore"], "job_nodes": 2}}


def parameters(ranks):
    """The checksum after all steps, without any fault."""
    found = 1
    for step in range(1, STEPS + 1):
        found = (31 * found + sum(step * (rank + 1) for rank in range(ranks))) % 65521
    return hashlib.sha256(str(found).encode()).hexdigest()


@pytest.fixture(scope="module", params=LAUNCHERS)
def survived(play, nodes, node_vars, node_names, request):
    """A job on all nodes but the last one, which is its spare, and a watch of it from then on when n1 was off."""
    name = request.param
    saved = f"/srv/shared/head-{name}-{time.time():.0f}"
    run = play.launch(
        job_name=f"head-{name}",
        job_launcher=name,
        job_command=["python", "-c", PROGRAM.read_text(), str(STEPS), saved],
        job_source="training/mindspore",
        job_spares=1,
        job_max_restarts=2,
        job_ranks_per_node=1,
        job_devices="none",
        job_min_disk_mib=16,
        job_wait=False,
        **OWN.get(name, {}),
    ).expect(0)

    def state(node):
        read = nodes[node].host.run(f"cat {run.job_dir}/cluster.json")
        return nodes[node].table.read_json(f"{run.job_dir}/cluster.json") if read.rc == 0 else {}

    wait_until(lambda: (state("n1").get("metrics") or {}).get("step", 0) > 5, "some steps")
    nodes["n1"].podman("kill")
    off, watched = time.monotonic(), play("playbooks/watch.yml", job_id=run.job_id)
    try:
        led = wait_until(lambda: state("n2") if state("n2").get("term") == 1 else None, "n2 to lead")
        assert led["head"] == "n2"
        wait_until(lambda: state("n2")["restarts"]["history"][0].get("first_step"), "the next step")
        took_s = time.monotonic() - off
    finally:
        nodes["n1"].boot(node_vars["n1"]["ansible_host"])
    watched.wait()
    nodes[node_names[1]].host.check_output(f"rm -rf {saved}")
    print(f"{name}: next step after {took_s:.0f} s")
    return run, watched


def test_the_job_goes_on_without_the_node_that_led_it(survived, left):
    run, watched = survived
    watched.expect(0, "takes the place of n1")
    summary, (spare,) = run.summary, [each["host"] for each in run.file("plan.json")["spares"]]
    ranks = summary["world_size"]
    assert summary["state"] == "succeeded"
    (restart,) = summary["restarts"]
    assert (restart["failure"]["host"], restart["replaced"], restart["spare"]) == ("n1", "n1", spare)
    assert restart["first_step"] > 5
    for rank in range(ranks):
        assert f"rank {rank} parameters sha256 {parameters(ranks)}" in run.log(rank)
    wait_until(lambda: left(run.job_id) == {}, "nothing of the job to run")


def test_the_node_that_led_comes_back_and_has_nothing_to_do(survived, nodes):
    run = survived[0]
    end = wait_until(lambda: nodes["n1"].table.read_json(f"{run.job_dir}/monitor.json")["end"], "the end of n1")
    assert (end["failure"]["kind"], end["failure"]["by"]) == ("replaced", run.summary["restarts"][0]["spare"])
