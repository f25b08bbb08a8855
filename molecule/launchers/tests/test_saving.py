"""Time to save: a rank that takes a while to save, with the workers of its data loader, under each launcher.

TRAINYARD_SAVE_S is how long it takes, in seconds: 20 by hand, less in CI. TRAINYARD_LAUNCHERS chooses the launchers by
name: direct and mindspore, too, and oneflow on the lab of the scenario oneflow.
"""

import os
import re
import time

import pytest

SECONDS = os.environ.get("TRAINYARD_SAVE_S", "4")
JOB = {
    "job_nodes": 2,
    "job_ranks_per_node": 1,
    "job_devices": "none",
    "job_source": "molecule/launchers/saver",
    "job_packages": [],
    "job_checkpoints": "saved",
    "job_min_disk_mib": 16,
    "job_stop_grace": 60,
}
SCRIPT = f"python train.py {SECONDS} SIGTERM | tee out; true"
ALL = {
    "torchrun": {"job_stop_signal": "USR1"},
    "direct": {},
    "mpirun": {"job_stop_signal": "USR2"},
    "mindspore": {"job_venv": "mindspore"},
    # msrun ends the other ranks of its own node.
    "msrun": {"job_venv": "mindspore", "job_nodes": 1, "job_ranks_per_node": 2},
    "script": {"job_launcher": "direct", "job_command": ["bash", "-c", SCRIPT]},
    # So does OneFlow's launch module.
    "oneflow": {"job_venv": "oneflow", "job_nodes": 1, "job_ranks_per_node": 2},
}
CHOSEN = os.environ.get("TRAINYARD_LAUNCHERS", "torchrun,script").split(",")
LAUNCHERS = {name: ALL[name] for name in CHOSEN}


# Launchers whose rank 1 is killed before the stop, so that the healthy one saves twice.
AGAIN = [name for name in LAUNCHERS if name not in ("mindspore", "script")]


def launched(play, name, **more):
    own = {"job_launcher": name, **ALL[name]}
    signal = f"SIG{own.get('job_stop_signal', 'TERM')}"
    command = ["python", "train.py", SECONDS, signal]
    return play.launch(**{"job_name": f"saves-{name}", "job_command": command, **JOB, **own, **more})


@pytest.fixture(scope="module")
def stopped(play, nodes, scheduler):
    """A job of each launcher that was stopped, maybe after a restart, and what the stop printed."""
    runs = {name: launched(play, name, job_max_restarts=int(name in AGAIN), **scheduler) for name in LAUNCHERS}
    for run in runs.values():
        run.trains()
    for name in AGAIN:
        plan = runs[name].file("plan.json")
        node, log = nodes[plan["nodes"][-1]["host"]], plan["rank_log"].replace("{rank}", "1")
        text = node.host.check_output(f"cat {runs[name].job_dir}/hosts/*/logs/{log}")
        node.table.kill(int(re.search(r"pid (\d+)", text)[1]))
    for name in AGAIN:
        runs[name].wait_for(r"the program then printed: .*resumed from step [1-9]|its first step was")
    stops = {name: play("playbooks/stop.yml", job_id=run.job_id) for name, run in runs.items()}
    return {name: (run.wait(), stops[name].expect(0)) for name, run in runs.items()}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_rank_saves_before_the_job_stops(stopped, name):
    """Nothing that it needs ends before: its workers, its agent, mpirun, though another rank has died of the signal."""
    run, stop = stopped[name]
    steps = re.findall(r"^saved step (\d+) after 1 signal$", run.log(0), re.MULTILINE)
    assert len(steps) == (2 if name in AGAIN else 1)
    saving = run.summary["saving"]
    assert (saving["asked"], saving["host"], saving["rank"], saving["stayed"]) == (1, "n1", 0, {})
    assert float(SECONDS) <= saving["last_s"] < 60
    saved = f"step_{int(steps[-1]):06}.npz"
    assert run.summary["state"] == "stopped" and saving["after"] == saved
    signal = f"SIG{LAUNCHERS[name].get('job_stop_signal', 'TERM')}"
    assert f"time to save: 1 rank handled {signal}; the last to leave was rank 0 on n1, after" in stop.text
    assert f"s; new checkpoint: {saved}" in stop.text


@pytest.mark.parametrize("name", AGAIN)
def test_a_healthy_rank_saves_before_all_start_again(stopped, name):
    run, _ = stopped[name]
    restart = run.summary["restarts"][0]
    saved = [int(step) for step in re.findall(r"^saved step (\d+) after 1 signal$", run.log(0), re.MULTILINE)]
    assert restart["checkpoint"] == restart["saving"]["after"] == f"step_{saved[0]:06}.npz"
    assert restart["first_step"] == saved[0] + 1
    assert (restart["failure"]["rank"], restart["failure"]["signal"]) == (1, 9)
    signal = f"SIG{LAUNCHERS[name].get('job_stop_signal', 'TERM')}"
    assert f"time to save: 1 rank handled {signal}; the last to leave was rank 0 on n1, after" in run.output
    assert f"resumed from step {saved[0]}\n" in run.log(0)


@pytest.mark.long
def test_ranks_save_before_their_node_shuts_down(play, nodes, node_vars):
    """systemd waits for the head's rank, and for the ranks of other nodes; the job goes on once the node is back."""
    run = launched(play, "direct", job_name="saves-shutdown", job_max_restarts=1).trains()
    began = time.monotonic()
    try:
        nodes["n1"].podman("stop", "--time=50")
    finally:
        # Without it the tests that follow would fail, too.
        nodes["n1"].boot(node_vars["n1"]["ansible_host"])
    print("stopped and started after", time.monotonic() - began)
    run.wait_for(r"the program then printed: .*resumed from step [1-9]|its first step was")
    play("playbooks/stop.yml", job_id=run.job_id).expect(0)
    (restart,) = run.summary["restarts"]
    saved = [int(step) for step in re.findall(r"^saved step (\d+) after 1 signal$", run.log(0), re.MULTILINE)]
    assert restart["failure"] == {"kind": "rebooted", "host": "n1"}
    assert (restart["saving"]["asked"], restart["saving"]["rank"], restart["saving"]["stayed"]) == (1, 0, {})
    assert restart["checkpoint"] == restart["saving"]["after"] == f"step_{saved[0]:06}.npz"
    assert f"resumed from step {saved[0]}\n" in run.log(0)
