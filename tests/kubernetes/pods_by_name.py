"""Jobs in pods of a real cluster, or in Podman containers (pods.py), as root.

TRAINYARD_TEST_IMAGE is their image, by default that of the lab's nodes; TRAINYARD_TEST_SUBNET their network, and
TRAINYARD_TEST_TORCH site-packages with PyTorch for the Python of the image.
"""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import IMAGE, PROJECT, REAL, Cluster
from pods import Pods, podman

SUBNET = os.environ.get("TRAINYARD_TEST_SUBNET") or "10.78.0.0/24"
# Packages for the Python of the image, with PyTorch.
TORCHED = Path(os.environ.get("TRAINYARD_TEST_TORCH", "/nowhere"))


@pytest.fixture(scope="module")
def image():
    built = [PROJECT / "molecule/default/image/build", "bookworm", PROJECT / ".cache"]
    return os.environ.get("TRAINYARD_TEST_IMAGE") or subprocess.check_output(built, text=True).split()[-1]


@pytest.fixture
def cluster(tmp_path, request):
    if REAL:
        made = Cluster(None, REAL, tmp_path)
        made.image = IMAGE
        with made.scratch:
            yield made
        return
    image = request.getfixturevalue("image")
    with Pods(SUBNET, tmp_path / "pods") as api:
        made = Cluster(api, api.kubeconfig(tmp_path / "kubeconfig"), tmp_path)
        made.image = image
        with made.scratch:
            yield made


def launch(cluster, *words, **job):
    given = {"job_image": cluster.image, "job_command": ["python3", "train.py", *words], "job_min_disk_mib": 1}
    return cluster.launch(**{**given, **job})


def wait_for(condition, what, seconds=300):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.5)
    return found


def in_background(function):
    """Call a function at the same time; returns what waits for its result."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()

    def result():
        thread.join()
        return results[0]

    return result


def log_of(pod):
    return podman("logs", pod)


PROGRAM = """
import os, pathlib, signal, sys, time
rank, attempt = int(os.environ["RANK"]), int(os.environ.get("TRAINYARD_ATTEMPT", 0))
print("hosts", os.environ["WORLD_SIZE"], "secret", os.environ.get("TOKEN", ""), flush=True)
def save(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
for step in range(1, 1 + int(sys.argv[2])):
    print(f"step {step}/{sys.argv[2]} loss {1 / step:.3f}", flush=True)
    if (sys.argv[1], rank, attempt, step) in (("killed", 1, 0, 3), ("fails", 1, attempt, 3)):
        os.kill(os.getpid(), signal.SIGKILL) if sys.argv[1] == "killed" else sys.exit("no data")
    time.sleep(0.5)
"""


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    return {"job_source": str(folder)}


def test_a_job_in_pods_is_that_of_ssh(cluster, source):
    """The ranks' secrets, logs, progress and exits come home, though nothing is left of a pod but what it printed."""
    sent = {}
    if cluster.api:
        # What it sends, by the Secret of the job, and its metrics.
        kept = cluster.folder / "sent"
        kept.mkdir()
        kept.chmod(0o777)
        volume = {"path": "/sent", "host_path": str(kept)}
        sent = {"job_events": [{"file": "/sent/events.jsonl"}], "job_metrics_folder": "/sent"}
        sent["job_kubernetes"] = {"volumes": [volume]}
    job = {**source, **sent, "job_secret_env": {"TOKEN": "a-secret-value"}}
    run = launch(cluster, "-", "4", **job).expect(0, "succeeded in")
    if cluster.api:
        events = [json.loads(line)["event"] for line in (kept / "events.jsonl").read_text().splitlines()]
        assert (events[0], events[-1]) == ("started", "ended")
    summary = run.summary
    assert (summary["state"], summary["world_size"], summary["metrics"]["step"]) == ("succeeded", 2, 4)
    assert [process["exit_code"] for node in summary["nodes"] for process in node["processes"]] == [0, 0]
    printed = (run.folder / "logs" / "rank_1.log").read_text()
    assert "hosts 2 secret **************" in printed and "step 4/4" in printed
    assert [json.loads(line)["step"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()][-1] == 4
    kept = [path for path in cluster.runs.rglob("*") if path.is_file() and b"a-secret-value" in path.read_bytes()]
    assert kept == [] and "a-secret-value" not in run.output
    if cluster.api:
        [first] = [pod for pod in cluster.api.pods() if "-0-" in pod]
        assert "[rank 0] step 4/4" in log_of(first) and "a-secret-value" not in log_of(first)
        # Secrets go with the end of the job, the rest with stop.yml.
        assert not cluster.api.made("secrets")
    cluster.play("playbooks/stop.yml", job_name="digits").expect(0)
    assert not cluster.api or (cluster.api.objects == {} and cluster.api.pods() == [])


def test_a_killed_rank_starts_again_in_its_pod_and_a_failure_is_explained(cluster, source):
    run = launch(cluster, "killed", "5", **source, job_max_restarts=1).expect(0, "succeeded in")
    [restart] = run.summary["restarts"]
    assert restart["failure"]["rank"] == 1 and "SIGKILL" in restart["reason"]
    cluster.play("playbooks/stop.yml", job_name="digits").expect(0)
    launch(cluster, "fails", "5", **source, job_name="fails").fails("rank 1", "no data")
    record = json.loads(next(cluster.runs.glob("fails-*/summary.json")).read_text())
    assert (record["failure"]["rank"], record["failure"]["exit_code"]) == (1, 1)


@pytest.mark.podman
def test_stop_gives_time_to_save(cluster, source):
    launch(cluster, "-", "2000", **source, job_wait=False).expect(0)
    first = in_step(cluster, 0)
    assert "2/2 ranks running" in cluster.play("playbooks/status.yml", job_name="digits").text, log_of(first)
    stopped = cluster.play("playbooks/stop.yml", job_name="digits").expect(0)
    assert stopped.summary["state"] == "stopped"
    logs = [(stopped.folder / "logs" / f"rank_{rank}.log").read_text() for rank in (0, 1)]
    assert [text.splitlines()[-1] for text in logs] == ["saved", "saved"]
    assert cluster.api.objects == {} and cluster.api.pods() == []


def in_step(cluster, index, step=2):
    """Wait until the rank of a pod is in this step; return the pod."""

    def found():
        return [pod for pod in cluster.api.pods() if f"-{index}-" in pod and f"step {step}/" in log_of(pod)]

    return wait_for(found, "steps")[0]


@pytest.mark.podman
def test_a_pod_that_the_cluster_ends_saves_and_is_not_done(cluster, source):
    launch(cluster, "-", "2000", **source, job_wait=False).expect(0)
    first = in_step(cluster, 0)
    podman("stop", "--time", "60", first)
    assert podman("inspect", "--format", "{{.State.ExitCode}}", first).strip() == "143"
    assert "[rank 0] saved" in log_of(first)


@pytest.mark.podman
@pytest.mark.parametrize(
    ("ends", "pod", "goes_on"),
    [("killed", 1, "spares"), ("drained", 1, "spares"), ("drained", 0, "spares"), ("drained", 1, "min_nodes")],
)
def test_the_job_goes_on_without_a_pod(cluster, source, ends, pod, goes_on):
    """A spare takes the place of a lost pod, and of one that the cluster ends, which has its time to save."""
    given = {f"job_{goes_on}": 1, "job_max_restarts": 2, "job_rejoin_timeout": 10, **source}
    result = in_background(lambda: launch(cluster, "-", "60", **given))
    lost = in_step(cluster, pod)
    podman(*(("kill", "--signal", "KILL") if ends == "killed" else ("stop", "--time", "60")), lost)
    code, printed = podman("inspect", "--format", "{{.State.ExitCode}}", lost).strip(), log_of(lost)
    run = result().expect(0, "succeeded in")
    roles = {node["host"]: node.get("role", "") for node in run.summary["nodes"]}
    assert goes_on == "min_nodes" or any("took its place" in role for role in roles.values()), roles
    assert len(run.summary["restarts"]) == 1, run.summary["restarts"]
    if ends == "drained":
        assert (code, "saved" in printed) == ("143", True), printed
        assert run.summary["restarts"][0]["failure"]["kind"] == "rebooted"


TORCH = """
import os, torch.distributed as dist, torch
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank())])
dist.all_reduce(value)
print("sum", value.item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.podman
def test_torchrun_joins_the_ranks_of_two_pods(cluster, source, tmp_path):
    (tmp_path / "source/train.py").write_text(TORCH)
    assert TORCHED.is_dir(), "TRAINYARD_TEST_TORCH names no site-packages with PyTorch"
    volume = {"path": "/torch", "host_path": str(TORCHED), "read_only": True}
    given = {"job_launcher": "torchrun", "job_ranks_per_node": 2, "job_env": {"PYTHONPATH": "/torch"}}
    run = launch(cluster, **source, **given, job_kubernetes={"volumes": [volume]}, job_command=["python3", "train.py"])
    run.expect(0, "succeeded in")
    assert "sum 6.0 of 4" in (run.folder / "logs/rank_3.log").read_text()


HUNGRY = """
import os, time
print("rank", os.environ["RANK"], flush=True)
kept = []
while os.environ["RANK"] == "1":
    kept.append(b"x" * (8 << 20))
time.sleep(600)
"""


@pytest.mark.podman
def test_a_rank_that_exceeds_the_memory_of_its_pod_is_named(cluster, source, tmp_path):
    """With cgroup v1 the kernel ends one process; where it ends all of a container, only a real cluster shows."""
    (tmp_path / "source/train.py").write_text(HUNGRY)
    run = launch(cluster, **source, job_kubernetes={"memory": "256Mi"}, job_min_memory_mib=1)
    run.fails("rank 1 on", "killed by SIGKILL", "for want of memory")


@pytest.mark.podman
def test_an_image_may_have_another_user_than_root(cluster, source, tmp_path):
    (tmp_path / "Containerfile").write_text(f"FROM {cluster.image}\nRUN useradd -m train\nUSER train\n")
    cluster.image = podman(
        "build", "--quiet", "--network", "none", "--tag", "localhost/trainyard-user:1", str(tmp_path)
    ).strip()
    try:
        run = launch(cluster, "-", "4", **source).expect(0, "succeeded in")
        assert "step 4/4" in (run.folder / "logs/rank_1.log").read_text()
    finally:
        podman("rmi", "--force", "localhost/trainyard-user:1", check=False)


def test_a_job_that_cannot_run_says_why(cluster, source):
    run = launch(cluster, "-", "5", **source, job_data=["/no such data"])
    run.fails("no /no such data", "the job's data on every node", "nothing was started")
