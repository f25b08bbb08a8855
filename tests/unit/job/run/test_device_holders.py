"""Devices that are not free before the next attempt: with a fake /proc and a fake nvidia-smi."""

import contextlib
import os
import signal

import pytest
from ansible.module_utils.trainyard_node.job.run.evidence import device_holders as holders
from job_cluster import attempt, wait_for

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A folder as /proc is, and a function that puts a process into it; a machine without NVIDIA's tool."""
    monkeypatch.setattr(holders.shutil, "which", lambda _: None)

    def add(pid, name, began_s, *opened):
        fd = tmp_path / str(pid) / "fd"
        fd.mkdir(parents=True)
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
        fields = ["S", *["0"] * 18, str(int(began_s * TICKS)), "0"]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name} (x)) {' '.join(fields)}")
        for number, target in enumerate(opened):
            (fd / str(number)).symlink_to(target)

    return tmp_path, add


def test_a_younger_process_on_a_device_of_the_job_holds_it(proc):
    folder, add = proc
    add(10, "old", 5, "/dev/davinci1")
    add(11, "python", 50, "/dev/davinci1", "/dev/davinci_manager")
    add(12, "elsewhere", 50, "/dev/davinci7")
    assert holders.held([0, 1], 20.0, folder) == "python (process 11)"
    assert holders.held([2], 20.0, folder) == ""


def tool(folder, monkeypatch, text, status=0):
    path = folder / "nvidia-smi"
    path.write_text(f'#!/bin/sh\n# A fake.\necho "$@" > {folder}/asked\n{text}\nexit {status}\n')
    path.chmod(0o755)
    monkeypatch.setattr(holders.shutil, "which", lambda _: str(path))


def test_nvidia_smi_queries_the_devices_of_the_job(proc, monkeypatch, tmp_path):
    folder, add = proc
    add(11, "python", 50)
    add(12, "mps", 50)
    add(13, "older", 5)
    pids = {11: "/opt/python", 12: "nvidia-cuda-mps-server", 13: "infer", 99: "in another container"}
    lines = "".join(f"GPU-a, {pid}, 500, {name}\\n" for pid, name in pids.items())
    tool(tmp_path, monkeypatch, f"printf '{lines}'")
    assert holders.held([2, 3], 20.0, folder) == "python (process 11)"
    assert (tmp_path / "asked").read_text().endswith("-i 2,3\n")


@pytest.mark.parametrize(
    ("text", "status", "problem"),
    [
        ("echo Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.", 15, "GPU is lost."),
        ("echo failed to communicate with the NVIDIA driver >&2", 9, "failed to communicate with the NVIDIA driver"),
        ("sleep 30", 0, "gave no answer within 0.2 s"),
        # A driver without such a query does not block the next attempt.
        ("exit 2", 0, ""),
        ("exit 255", 0, ""),
        ("echo junk", 0, ""),
    ],
)
def test_gpus_that_do_not_answer_are_not_free(proc, monkeypatch, tmp_path, text, status, problem):
    tool(tmp_path, monkeypatch, text, status)
    found = holders.held([0], 0.0, proc[0], limit_s=0.2 if "sleep" in text else 20.0)
    assert found == "" if not problem else found.startswith("nvidia-smi") and found.endswith(problem)


def test_the_next_attempt_waits_and_then_the_process_is_named(cluster, tmp_path):
    blocker = tmp_path / "holder"
    path = tmp_path / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n# A fake.\ncat {blocker} 2>/dev/null || true\n")
    path.chmod(0o755)
    job = cluster(["wait"], ["wait"], max_restarts=2, rejoin_s=20, n2={"devices": [0]})
    job.nodes[1].environment = {"PATH": f"{path.parent}:{os.defpath}"}
    job.start()
    # What began after the job, and is no process of it: this one stands for what a rank has left.
    with holders.subprocess.Popen(["sleep", "600"]) as left, contextlib.ExitStack() as at_end:
        at_end.callback(left.kill)
        blocker.write_text(f"GPU-a, {left.pid}, 500, /usr/bin/left-over\n")
        os.kill(job.head.pid("rank0"), signal.SIGKILL)
        wait_for(lambda: job.state()["held"], "the head to hear of it")
        assert job.state()["held"] == f"n2 waits for its devices: left-over (process {left.pid})"
        assert attempt(job.head) == 0
        blocker.write_text("")
        wait_for(lambda: attempt(job.head) == 1 and attempt(job.nodes[1], "rank1") == 1, "the next attempt")
        blocker.write_text(f"GPU-a, {left.pid}, 500, /usr/bin/left-over\n")
        wait_for(lambda: job.state()["ranks_running"] == 2, "all ranks")
        os.kill(job.head.pid("rank0"), signal.SIGKILL)
        failure = job.over()["failure"]
    assert (failure["kind"], failure["host"]) == ("held", "n2")
    assert failure["reason"] == f"left-over (process {left.pid})"
    job.all_ended()
