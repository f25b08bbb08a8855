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
from ansible.module_utils.trainyard.report.job_text import cause
from ansible.module_utils.trainyard_controller import run_folder
from ansible.module_utils.trainyard_node.job import exits
from ansible.module_utils.trainyard_node.job import monitor as monitors
from job_cluster import PATIENCE_S, Cluster

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

    monkeypatch.setattr(exits.os, "open", opened)


def with_secrets(job):
    for node in job.nodes:
        node.spec["secret_env"] = {"API_KEY": "hunter2"}
        exits.write_json(node.dir / "job.json", node.spec)
    return job


def secrets_left(node):
    text = (node.dir / "job.json").read_text() if (node.dir / "job.json").exists() else ""
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
    head = monitors.Monitor(job.head.dir)
    head.look()
    head.save()
    head.save_cluster()
    no_new_files(monkeypatch)
    process = job.head.spec["processes"][0]
    failure = head._failure(process, {"exit_code": 1, "signal": None, "result": "exit-code", "time": 1.0})
    assert failure["reason"] == f"{job.head.dir} on n1 cannot be written: No space left on device"
    head.finish("failed", failure=failure)
    head.save_cluster()
    head._leave()
    assert job.head.end()["failure"] == job.state()["end"]["failure"] == failure
    # The report says it.
    summary = {"failure": failure, "nodes": [{"host": "n1", "ranks": [0]}]}
    assert failure["reason"] in cause(summary, "")
    assert json.loads((job.head.dir / "job.json").read_text())["token"] == "" and secrets_left(job.head) == []
    assert not list(job.head.dir.glob(".*"))


def test_a_file_that_has_no_room_for_its_successor_stays(tmp_path, monkeypatch):
    path = tmp_path / "monitor.json"
    exits.write_json(path, {"pid": 7})
    no_new_files(monkeypatch)
    assert exits.keep_json(path, {"pid": 8, "much": "x" * 100000}) == "No space left on device"
    assert exits.read_json(path) == {"pid": 7}
    assert exits.keep_json(path, {"pid": 8}) and exits.read_json(path) == {"pid": 8}


def test_secrets_go_where_nothing_can_be_written(tmp_path):
    spec = {"token": "t", "secret_env": {"A": "hunter2"}, "secret_files": ["s"]}
    (tmp_path / "job.json").write_text(json.dumps(spec))
    (tmp_path / "s").write_text("hunter2")
    code = (
        "import sys, resource; sys.path.insert(0, sys.argv[1]); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from module_utils.trainyard_node.job.exits import forget_secrets; forget_secrets(sys.argv[2])"
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
    assert text[0].startswith(f"n2 could not start its part again: {job.nodes[1].dir} cannot be written: ")


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
    text = caught.value.text(tmp_path / "digits-1")
    assert f"cannot write {kept}: No space left on device" in text
    assert "playbooks/logs.yml -e job_id=digits-1" in text


def real_full(path):
    """Begin to write, and find the disk full."""
    with path.open("wb") as there:
        there.write(b"ha")
    with open("/dev/full", "wb", buffering=0) as device:  # noqa: PTH123
        device.write(b"lf")
