"""Processes that hide from a look at environments are ended with their job all the same."""

import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import Cluster, wait_for

# A rank that writes over its environment, as setproctitle does, and has two helpers without one: one in a session of
# its own, one whose parent has ended besides. Then it waits for `go`, and does what its argument says.
HIDES = """
import ctypes, os, pathlib, subprocess, sys, time
fields = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
bare = ["env", "-i", "setsid", "sh", "-c", "trap '' TERM; echo $$ >>helpers; exec sleep 1000"]
if not pathlib.Path("helpers").exists():
    pathlib.Path("helpers").touch()
    subprocess.Popen(bare)
    subprocess.run(["sh", "-c", '"$@" & true', "sh", *bare])
ctypes.memset(start, 0, end - start)
while len(pathlib.Path("helpers").read_text().split()) < 2:
    time.sleep(0.05)
pathlib.Path(f"up-{os.getpid()}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
pathlib.Path("again").touch() if "TRAINYARD_ATTEMPT" in os.environ and os.environ["TRAINYARD_ATTEMPT"] != "0" else None
if sys.argv[1] == "fail" and not pathlib.Path("again").exists():
    sys.exit(3)
time.sleep(1000)
"""


def hiding(folder, mode, **given):
    """A job of one rank that hides."""
    job = Cluster(folder, [mode], **given)
    (job.head.dir / "source" / "rank.py").write_text(HIDES)
    return job


def helpers(job):
    return [int(pid) for pid in (job.head.dir / "source" / "helpers").read_text().split()]


@pytest.fixture
def none_left():
    pids = []
    yield pids
    for pid in pids:
        if process_table.start_time(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def test_all_of_them_are_found_and_end_with_the_job(tmp_path, none_left):
    with hiding(tmp_path, "wait") as job:
        job.start()
        none_left += [*helpers(job), job.head.pid("rank0")]
        assert set(none_left) <= set(job.head.left())
        job.head.signal(signal.SIGTERM)
        job.head.monitor.wait()
        assert [pid for pid in none_left if process_table.start_time(pid) is not None] == []


def test_none_of_them_lives_on_when_the_job_starts_again(tmp_path, none_left):
    with hiding(tmp_path, "fail", max_restarts=1) as job:
        job.start()
        none_left += [*helpers(job), job.head.pid("rank0")]
        job.head.go()
        wait_for((job.head.dir / "source" / "again").exists, "the second attempt")
        assert [pid for pid in none_left if process_table.start_time(pid) is not None] == []


def test_a_job_in_a_unit_has_all_that_is_in_it_started_again_or_ended(tmp_path):
    """Where a process hides, the cgroup knows it."""
    for pid, argv in ((10, b"train"), (11, b"python\0/jobs/x/trainyard.pyz\0monitor")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_bytes(b"%d (x) S 1 %s" % (pid, b" ".join([b"7"] * 40)))
        (tmp_path / str(pid) / "environ").write_bytes(b"\0" * 20)
        (tmp_path / str(pid) / "cgroup").write_text("0::/trainyard.slice/trainyard-x.service\n")
        (tmp_path / str(pid) / "cmdline").write_bytes(argv + b"\0")
    assert process_table.ranks_of_job("x", "/jobs/x", "trainyard-x.service", tmp_path) == [10]


def test_a_monitor_leaves_no_zombies_of_those_that_it_adopted(tmp_path, none_left):
    with hiding(tmp_path, "wait") as job:
        job.start()
        none_left += helpers(job)
        monitor = job.head.monitor.pid
        adopted = [pid for pid in none_left if process_table._stat(pid, "/proc")[0] == monitor]
        assert len(adopted) == 1, "whose parent has ended"
        os.kill(adopted[0], signal.SIGKILL)
        wait_for(lambda: not Path(f"/proc/{adopted[0]}").exists(), "its zombie to be gone")


def test_one_that_becomes_another_program_at_the_first_look_is_ended(monkeypatch, none_left):
    """In execve(2) a process shows no environment: a single look took it for none of the job."""
    job_id = f"test-{uuid.uuid4().hex[:12]}"
    process = subprocess.Popen(["sleep", "600"], env={"TRAINYARD_JOB_ID": job_id})
    none_left.append(process.pid)
    looks, real = [], process_table._environ

    def environ(entry):
        if entry == f"{process_table.PROC}/{process.pid}":
            looks.append(entry)
        return b"" if looks == [entry] else real(entry)

    monkeypatch.setattr(process_table, "_environ", environ)
    assert process_table.left_of_job(job_id) == [process.pid]
    looks.clear()
    # Its end is for its parent, this test, to see.
    assert process_table.end(job_id, grace_s=0.5) == [] and process.wait() < 0
