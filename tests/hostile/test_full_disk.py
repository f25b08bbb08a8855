"""A disk that is full: a job ends as it would, its end is kept as far as can be, and secrets go in any case."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.run.wire import answers, messages
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.report.job_text import cause, explain
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_node.job.run.monitor.monitor import Monitor
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.ranks import disk_space as room
from ansible.module_utils.trainyard_node.job.run.ranks import rank_exits as exits
from ansible.module_utils.trainyard_node.machine import json_files
from job_cluster import PATIENCE_S, Cluster
from job_samples import make_job, make_plan, member

PROJECT = Path(__file__).resolve().parents[2]


def full(pid):
    """From now on a process can write no file beyond its first byte (EFBIG, as a real disk says ENOSPC)."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]))


def no_new_files(monkeypatch):
    """From now on no new file finds room in this process; what is there can be written over."""
    real = os.open

    def opened(path, flags, *arguments, **options):
        if flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return real(path, flags, *arguments, **options)

    monkeypatch.setattr(json_files.os, "open", opened)


def with_secrets(job):
    for node in job.nodes:
        node.spec["secret_env"] = {"API_KEY": "hunter2"}
        json_files.write_json(node.dir / "node_plan.json", node.spec)
    return job


def secrets_left(node):
    text = (node.dir / "node_plan.json").read_text() if (node.dir / "node_plan.json").exists() else ""
    return [secret for secret in ("hunter2", node.spec["token"]) if secret in text]


def test_monitors_on_full_disks_go_on_and_end_all(tmp_path):
    with with_secrets(Cluster(tmp_path, ["wait"], ["wait"])) as job:
        job.start()
        for node in job.nodes:
            full(node.monitor.pid)
        os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)
        for node in job.nodes:
            assert node.monitor.wait(PATIENCE_S) == 0
            assert node.left() == [] and secrets_left(node) == []


def test_the_end_is_written_over_what_there_was(tmp_path, monkeypatch):
    job = with_secrets(Cluster(tmp_path, ["wait"]))
    (job.head.dir / "trainyard.pyz").touch()
    head = Monitor(job.head.dir)
    head.inspect()
    head.runner.save()
    head.loop.save_cluster()
    no_new_files(monkeypatch)
    process = job.head.spec["processes"][0]
    failure = head.runner.failure(process, {"exit_code": 1, "signal": None, "result": "exit-code", "time": 1.0})
    assert failure["reason"] == f"{job.head.dir} on n1 cannot be written: No space left on device"
    head.finish("failed", failure=failure)
    head.loop.save_cluster()
    head.leave()
    assert job.head.end()["failure"] == job.state()["end"]["failure"] == failure
    # The report says it.
    summary = {"failure": failure, "nodes": [{"host": "n1", "ranks": [0]}]}
    assert failure["reason"] in cause(summary, "")
    assert json.loads((job.head.dir / "node_plan.json").read_text())["token"] == "" and secrets_left(job.head) == []
    assert not list(job.head.dir.glob(".*"))


def shown(blocks, free, files, free_files):
    """What statvfs(3) says of a file system with blocks of 4 KiB."""
    return os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, 0, 255))


@pytest.mark.parametrize(("state", "found"), [
    (shown(1 << 17, 255, 100, 50), "0 MiB free of 512 MiB"), (shown(1 << 17, 256, 100, 0), "0 inodes free of 100"),
    (shown(1 << 17, 256, 0, 0), ""), (shown(1 << 17, 256, 100, 1), ""),
])  # fmt: skip
def test_a_rank_that_fails_on_a_full_disk_says_so(tmp_path, monkeypatch, state, found):
    job = Cluster(tmp_path, ["wait"])
    runner = NodeRunner(job.head.dir)
    monkeypatch.setattr(room.os, "statvfs", lambda path: state if path != room.SHARED else shown(9999, 9999, 0, 0))
    failure = runner.failure(job.head.spec["processes"][0], exits.from_status(1))
    said = f"found {found} under {job.head.dir} on n1, expected room for what the job writes: make room there, or "
    assert failure.get("reason", "") == (f"{said}choose another folder with trainyard_state" if found else "")
    runner.inspect()
    assert runner.report["full"] == failure.get("reason", "")
    assert not misfit(failure, messages.failure_shape("n1", 1))


# Messages of PyTorch 2.13 for a data loader without shared memory, and a program's own for a disk.
NO_SHARED = "RuntimeError: unable to allocate shared memory(shm) for file </torch_77_1>: Success (0)"
NO_ROOM = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(("free", "status", "log", "found"), [
    (0, 1, NO_ROOM, f"{room.SHARED} on n1 is full: 512 of 512 MiB"),
    (0, 1, "", f"{room.SHARED} on n1 is full: 512 of 512 MiB"),
    # It was full when the rank ran.
    (1 << 16, 1, NO_SHARED, f"{room.SHARED} on n1: 256 of 512 MiB are used now"),
    (1 << 16, -signal.SIGBUS, "", f"{room.SHARED} on n1: 256 of 512 MiB are used now"),
    (1 << 16, 1, NO_ROOM, ""), (1 << 16, 1, "via SHM/direct\nValueError: x", ""),
])  # fmt: skip
def test_a_rank_that_fails_without_shared_memory_says_so(tmp_path, monkeypatch, free, status, log, found):
    job = Cluster(tmp_path, ["wait"])
    runner = NodeRunner(job.head.dir)
    (job.head.dir / "logs/rank_0.log").write_text(f"{log}\n")
    state = {room.SHARED: shown(1 << 17, free, 0, 0)}
    monkeypatch.setattr(room.os, "statvfs", lambda path: state.get(path) or shown(9999, 9999, 0, 0))
    reason = runner.failure(job.head.spec["processes"][0], exits.from_status(status)).get("reason", "")
    assert reason.count(room.SHARED) == bool(found) and reason.endswith(found)
    # Another node's rank may be blamed, also one that mpirun started here.
    runner.inspect()
    assert runner.report["full"] == (found if not free else "")


def test_what_its_log_says_comes_first(tmp_path, monkeypatch):
    job = Cluster(tmp_path, ["wait"])
    runner = NodeRunner(job.head.dir)
    (job.head.dir / "logs/rank_0.log").write_text("step 1\nOSError: [Errno 28] No space left on device: '/data/x'\n")
    failure = runner.failure(job.head.spec["processes"][0], exits.from_status(1))
    assert failure["reason"] == "it could not write: OSError: [Errno 28] No space left on device: '/data/x'"
    assert failure["full"] is True


def test_a_file_that_has_no_room_for_its_successor_stays(tmp_path, monkeypatch):
    path = tmp_path / "monitor.json"
    json_files.write_json(path, {"pid": 7})
    no_new_files(monkeypatch)
    assert json_files.keep_json(path, {"pid": 8, "much": "x" * 100000}) == "No space left on device"
    assert json_files.read_json(path) == {"pid": 7}
    assert json_files.keep_json(path, {"pid": 8}) and json_files.read_json(path) == {"pid": 8}


def test_secrets_go_where_nothing_can_be_written(tmp_path):
    spec = {"token": "t", "secret_env": {"A": "hunter2"}, "secret_files": ["s"]}
    (tmp_path / "node_plan.json").write_text(json.dumps(spec))
    (tmp_path / "s").write_text("hunter2")
    code = (
        "import sys, resource; sys.path.insert(0, sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from module_utils.trainyard_node.job.record.secrets import forget_secrets; forget_secrets(sys.argv[2])"
    )
    subprocess.run([sys.executable, "-c", code, PROJECT, tmp_path], check=True)
    assert not list(tmp_path.iterdir())


def test_a_restart_that_cannot_be_written_is_the_end(tmp_path):
    with Cluster(tmp_path, ["wait"], ["wait"], max_restarts=1) as job:
        job.start()
        full(job.nodes[1].monitor.pid)
        os.kill(job.head.pid("rank0"), signal.SIGKILL)
        failure = job.over()["failure"]
        assert (failure["kind"], failure["host"], failure["folder"]) == ("cannot_write", "n2", str(job.nodes[1].dir))
        for node in job.nodes:
            node.monitor.wait(PATIENCE_S)
            assert node.left() == []
    text = cause({"failure": failure, "nodes": []}, "")
    assert text[0].startswith(f"n2 could not start its ranks again: {job.nodes[1].dir} cannot be written: ")


# ---- what is said


def test_a_monitor_whose_log_is_full_goes_on(tmp_path):
    """What it said of the metrics that it could not write were its last words."""
    with Cluster(tmp_path, ["train"], n1={"metrics_folder": str(tmp_path), "launcher": "direct"}) as job:
        job.start()
        full(job.head.monitor.pid)
        job.head.go()
        assert job.head.monitor.wait(PATIENCE_S) == 0
        assert job.head.left() == [] and job.head.log() in ("", "m")


def test_what_could_not_be_written_is_said_once(tmp_path, monkeypatch):
    job = Cluster(tmp_path, ["wait"])
    (job.head.dir / "trainyard.pyz").touch()
    runner = NodeRunner(job.head.dir)
    monkeypatch.setattr(runner.tails.shown, "unwritten", "No space left on device")
    runner.save()
    assert job.head.read("monitor.json")["unwritten"] == "No space left on device"
    assert not misfit(job.head.read("monitor.json"), answers.MONITOR)
    plan = make_plan(make_job(launcher="direct"), [member(0), member(1)]).as_dict()
    result = {"known": True, "monitor_alive": False, "left": 0, "cluster": None, "processes": []}
    results = {
        host: {**result, "monitor": {"started": 1.0, "end": {"state": "stopped", "finished": 2.0}, **more}}
        for host, more in (("n1", {}), ("n2", {"unwritten": "No space left on device"}))
    }
    summary = schedulers.summarize(plan, ssh.state(plan, results, {}, {}))
    said = "n2: /jobs/x could not be written (No space left on device); the job's record there is incomplete"
    assert explain(summary, "/runs/x", "/jobs/x", []).splitlines().count(f"  {said}") == 1


# ---- the controller


@pytest.mark.parametrize("name", ["rank_0.log", "metrics.jsonl"])
def test_a_record_on_the_controller_is_never_half_written(tmp_path, name, monkeypatch):
    brought = {name: "bG9uZ2Vy" * 1000}
    run_folder.write_logs(tmp_path, {name: "c2hvcnQ="}, keep=False)
    monkeypatch.setattr(run_folder.Path, "write_bytes", lambda path, _: real_full(path))
    with pytest.raises(run_folder.NotWrittenError) as caught:
        run_folder.write_logs(tmp_path, brought, keep=False)
    [kept] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert (kept.name, kept.read_text()) == (name, "short")
    text = caught.value.failure(tmp_path / "digits-1")["msg"]
    assert f"cannot write {kept}: No space left on device" in text
    assert "playbooks/logs.yml -e job_id=digits-1" in text


def real_full(path):
    """Begin to write, and find the disk full."""
    with path.open("wb") as there:
        there.write(b"ha")
    with open("/dev/full", "wb", buffering=0) as device:  # noqa: PTH123
        device.write(b"lf")
