"""A node is lost for good while nobody watches, such as the one that leads the job: a spare takes its place.

CI has the first launcher, and n1 without power. By name, TRAINYARD_LAUNCHERS chooses the launchers, TRAINYARD_LOST the
node (n1, n2), and TRAINYARD_FAULT what happens to it (off, frozen, cut, killed, shutdown).
"""

import contextlib
import hashlib
import os
import re
import time

import pytest
from lab_jobs import CHOSEN, PROJECT, Cut, wait_until

LAUNCHERS = os.environ.get("TRAINYARD_LAUNCHERS", "torchrun").split(",")
# Slurm, whose slurmctld n1 has, starts nothing again on a node that boots.
DEFAULTS = ("n2", "frozen") if "slurm" in CHOSEN else ("n1", "off")
LOST, FAULT = (os.environ.get(f"TRAINYARD_{name}", value) for name, value in zip(("LOST", "FAULT"), DEFAULTS))
STEPS = 120
# Before a node shuts down, its ranks and all others may save; rank 0 takes a while for that.
SAVES = ["5"] if FAULT == "shutdown" else []
PROGRAM = PROJECT / "molecule/launchers/succession/train.py"
MINDSPORE = {"job_venv": "mindspore", "job_packages": ["mindspore"], "job_nodes": 2}
ONEFLOW = {"job_venv": "oneflow", "job_packages": ["oneflow"], "job_nodes": 2, "job_source": "training"}
# OneFlow has a lab of its own, of the scenario oneflow.
OWN = {
    "mindspore": MINDSPORE,
    "msrun": MINDSPORE,
    "oneflow": ONEFLOW,
    "oneflow-list": {**ONEFLOW, "job_launcher": "oneflow", "job_oneflow_style": "address_list"},
}


def parameters(ranks):
    """The checksum after all steps, without any fault."""
    found = 1
    for step in range(1, STEPS + 1):
        found = (31 * found + sum(step * (rank + 1) for rank in range(ranks))) % 65521
    return hashlib.sha256(str(found).encode()).hexdigest()


def logs_of_rank(run, rank):
    """The logs of a rank, on the lost node, too."""
    name = run.file("plan.json")["rank_log"].replace("{rank}", str(rank))
    return "".join(path.read_text() for path in sorted((run.folder / "logs").glob(f"*{name}")))


def stepped(state):
    """Return whether the first restart has brought a step."""
    return any(restart.get("first_step") for restart in state["restarts"]["history"])


def replaced(end):
    """Return whether a node has ended because a spare has its place."""
    return ((end or {}).get("failure") or {}).get("kind") == "replaced"


@contextlib.contextmanager
def fault(nodes, node_vars, run):
    """Have the node be lost, until the others train again."""
    node = nodes[LOST]
    if FAULT == "cut":
        with Cut(nodes, node_vars, [LOST], [name for name in nodes if name != LOST]):
            yield
    elif FAULT == "frozen":
        node.podman("pause")
        try:
            yield
        finally:
            node.podman("unpause")
    elif FAULT == "killed":
        # The monitor, too: the node is there, but nothing of the job. The shell's own command does not match.
        pids = " ".join(map(str, node.processes(run.job_id)))
        node.host.check_output(f"kill -KILL {pids}; pkill -KILL -f '[/]{run.job_dir[1:]}' || true")
        yield
    else:
        node.podman(*(["stop", "--time=50"] if FAULT == "shutdown" else ["kill"]))
        try:
            yield
        finally:
            node.boot(node_vars[LOST]["ansible_host"])


@pytest.fixture(scope="module", params=LAUNCHERS)
def survived(play, nodes, node_vars, scheduler, request):
    """A job on all nodes but the last one, which is its spare, and a watch of it from then on when a node was lost."""
    name = request.param
    saved = f"/srv/shared/head-{name}-{time.time():.0f}"
    settings = {
        "job_name": f"head-{name}",
        "job_launcher": name,
        "job_command": ["python", "-c", PROGRAM.read_text(), str(STEPS), saved, *SAVES],
        "job_source": "training",
        "job_spares": 1,
        "job_max_restarts": 2,
        "job_ranks_per_node": 1,
        "job_devices": "none",
        "job_min_disk_mib": 16,
        "job_wait": False,
    }
    run = play.launch(**{**settings, **OWN.get(name, {}), **scheduler}).expect(0)

    leader = "n2" if LOST == "n1" else "n1"
    try:
        wait_until(lambda: (nodes["n1"].cluster(run).get("metrics") or {}).get("step", 0) > 5, "some steps")
        began = time.monotonic()
        with fault(nodes, node_vars, run):
            watched = play("playbooks/watch.yml", job_id=run.job_id)
            if LOST == "n1":
                wait_until(lambda: nodes["n2"].cluster(run).get("term") == 1, "n2 to lead")
                assert nodes["n2"].cluster(run)["head"] == "n2"
            wait_until(lambda: stepped(nodes[leader].cluster(run)), "the next step")
            took_s = time.monotonic() - began
        # A node that was cut off, or that boots, finds the others while they still train.
        if FAULT != "killed":
            wait_until(lambda: replaced(nodes[LOST].end(run)), "the lost node to know that it was replaced")
    finally:
        nodes[leader].host.check_output(f"touch {saved}/go")
    watched.wait()
    nodes[leader].host.check_output(f"rm -rf {saved}")
    print(f"{name}, {LOST} {FAULT}: next step after {took_s:.0f} s")
    return run, watched


def test_the_job_goes_on_without_the_node(survived, left):
    run, watched = survived
    watched.expect(0, f"takes the place of {LOST}")
    summary, (spare,) = run.summary, [each["host"] for each in run.file("plan.json")["spares"]]
    ranks = summary["world_size"]
    assert summary["state"] == "succeeded"
    (restart,) = summary["restarts"]
    # mpirun on n1 may notice first that it has lost its daemon on another node.
    assert restart["failure"]["host"] in (LOST, "n1")
    assert (restart["replaced"], restart["spare"]) == (LOST, spare)
    assert restart["first_step"] > 5
    if SAVES:
        (step,) = re.findall(r"^rank 0 saved step (\d+) after SIGTERM$", logs_of_rank(run, 0), re.MULTILINE)
        assert (restart["failure"]["kind"], restart["saving"]["asked"]) == ("rebooted", ranks)
        assert (restart["saving"]["stayed"], restart["first_step"]) == ({}, int(step) + 1)
    for rank in range(ranks):
        assert f"rank {rank} parameters sha256 {parameters(ranks)}" in run.log(rank)
    wait_until(lambda: left(run.job_id) == {}, "nothing of the job to run")


def test_the_node_that_comes_back_has_nothing_to_do(survived, nodes):
    run = survived[0]
    assert nodes[LOST].ranks(run.job_id) == []
    if FAULT != "killed":
        assert nodes[LOST].end(run)["failure"]["by"] == run.summary["restarts"][0]["spare"]
