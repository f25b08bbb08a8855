"""Time to save after the failure of a rank, under launchers that end all others as soon as they learn of it."""

import os
import signal
import sys

import pytest
from ansible.module_utils.trainyard.job.launchers import held_exit
from ansible.module_utils.trainyard_node.job.run.evidence.rank_failures import Failures
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import PATIENCE_S, Cluster, wait_for
from job_samples import VENV, make_job, make_plan, member

STOP = {"signal": "TERM", "grace_s": 60}
OPEN_MPI = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
SCRIPTS = {"mpirun": "mpi_rank", "oneflow": "oneflow_rank"}
# Starts each rank through its node's script. It ends all as soon as one has failed, without a chance to save.
LAUNCHER = """
import os, subprocess, sys, time
ranks = {}
for rank, (folder, job_id, script, mode) in enumerate(word.split(",") for word in sys.argv[1:]):
    place = {"RANK": rank, "SIZE": len(sys.argv) - 1, "LOCAL_RANK": 0, "LOCAL_SIZE": 1}
    own = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in place.items()}
    env = {**os.environ, **own, "RANK": str(rank), "TRAINYARD_JOB_DIR": folder, "TRAINYARD_JOB_ID": job_id}
    command = ["sh", f"{folder}/{script}", sys.executable, f"{folder}/source/rank.py", mode]
    ranks[rank] = subprocess.Popen(command, env=env, start_new_session=True)
while ranks:
    for rank, process in list(ranks.items()):
        if process.poll():
            print("Killing all", flush=True)
            for each in ranks.values():
                os.killpg(each.pid, 9)
            sys.exit(1)
        if process.returncode == 0:
            del ranks[rank]
    time.sleep(0.01)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    made = []
    # On a busy machine a monitor may need longer than that to ask.
    monkeypatch.setattr(held_exit, "UNKNOWN_S", int(PATIENCE_S))

    def make(launcher, *modes, **changes):
        """Start a job with one rank on each node (mpirun), or all on the first (oneflow)."""
        own, name = (["-"] * len(modes)), "mpirun" if launcher == "mpirun" else "agent"
        others = [[] for _ in modes[1:]] if launcher == "mpirun" else []
        process = {"name": name, "ranks": list(range(len(modes))), "env": {"PATH": os.defpath}}
        job = Cluster(tmp_path, own, *others, stop=STOP, n1={"launcher": launcher, "processes": [process]}, **changes)
        made.append(job)
        plan = make_plan(make_job(launcher=launcher), [member(0, mpi=OPEN_MPI)]).as_dict()
        (script,) = [
            file["content"]
            for file in [*plan["files"], *plan["nodes"][0]["files"]]
            if file["path"].endswith(SCRIPTS[launcher])
        ]
        for node in job.nodes:
            text = script.replace(plan["job_dir"], str(node.dir)).replace(f"{VENV}/bin/python", sys.executable)
            (node.dir / SCRIPTS[launcher]).write_text(text)
        where = job.nodes if launcher == "mpirun" else [job.head] * len(modes)
        words = [f"{node.dir},{node.job_id},{SCRIPTS[launcher]},{mode}" for node, mode in zip(where, modes)]
        process["argv"] = [sys.executable, "-c", LAUNCHER, *words]
        process["log"] = str(job.head.dir / f"logs/{name}.log")
        process["env"]["TRAINYARD_JOB_ID"] = job.head.job_id
        write_json(job.head.dir / "node_plan.json", job.head.spec)
        for node in job.nodes:
            node.start()
        wait_for(lambda: len(ups(job)) == len(modes), "all ranks to run")
        # A node that joins after the end waits for its head for minutes.
        wait_for(lambda: (job.state() or {}).get("state") == "running", "all nodes to join")
        return job

    yield make
    for job in made:
        job.__exit__()


def ups(job):
    return [path for node in job.nodes for path in (node.dir / "source").glob("up-*")]


def log(job, rank):
    (found,) = [path for node in job.nodes for path in (node.dir / "logs").glob(f"rank_{rank}.log")]
    return found.read_text()


def ready_to_save(job):
    for node in job.nodes:
        node.go()
    wait_for(lambda: [path for node in job.nodes for path in (node.dir / "source").glob("saves-*")], "a handler")


CASES = [("mpirun", ["late", "saves2"], 0, "n2"), ("oneflow", ["saves2", "late"], 1, "n1")]


@pytest.mark.parametrize(("launcher", "modes", "failed", "saver"), CASES)
def test_healthy_ranks_save_when_one_has_failed(cluster, launcher, modes, failed, saver):
    job = cluster(launcher, *modes)
    ready_to_save(job)
    for node in job.nodes:
        (node.dir / "source/late").touch()
    ended = job.over()
    cause = ended["failure"]
    assert (ended["state"], cause["rank"], cause["exit_code"]) == ("failed", failed, 1)
    assert cause["error"] == "ValueError: it is too late"
    job.all_ended()
    # A launcher that had learned of the failure before would have killed this rank as it saved.
    assert "saved after SIGTERM with its worker" in log(job, 1 - failed)
    saving = job.state()["saving"]
    assert (saving["asked"], saving["host"], saving["rank"], saving["stayed"]) == (1, saver, 1 - failed, {})


def rank_note(job, rank):
    (note,) = [path for node in job.nodes for path in (node.dir / "ranks").glob(str(rank))]
    return note.read_text().split()[0]


@pytest.mark.parametrize("launcher", ["mpirun", "oneflow"])
def test_without_a_handler_nobody_waits(cluster, launcher):
    job = cluster(launcher, "wait", "wait")
    os.kill(int(rank_note(job, 0)), signal.SIGKILL)
    ended = job.over()
    assert (ended["failure"]["rank"], ended["failure"]["signal"]) == (0, signal.SIGKILL)
    job.all_ended()
    assert job.state()["saving"] is None


def test_only_launchers_that_end_others_have_their_logs_read(tmp_path):
    log = tmp_path / "log"
    log.write_text("trainyard: rank 1 ended with status 7\ntrainyard: rank 1 holds its exit back\n")

    def coming(launcher, name):
        process = {"name": name, "ranks": [0, 1], "log": str(log)}
        node_plan = {"host": "n1", "job_id": "digits-1", "launcher": launcher, "processes": [process]}
        return set(Failures(tmp_path, node_plan, ()).by_rank({}))

    assert coming("mpirun", "mpirun") == {"mpirun"} and coming("oneflow", "agent") == {"agent"}
    assert coming("torchrun", "agent") == coming("oneflow", "rank0") == set()
