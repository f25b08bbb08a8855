"""A rank that is killed: named with host and cause, and the job ends everywhere. In test_restarts.py one raises."""

import re
import time

import pytest
from lab_jobs import AGENTS, WORKER, host_list

# By the monitors: torch itself would give up after ten minutes. How fast it is stands in benchmarks/ (failure).
ENDED_WITHIN_S = 120


def last_end(run):
    """When the last process of a job ended, as the nodes recorded it."""
    return max(process["time"] for node in run.summary["nodes"] for process in node["processes"])


def kill_rank(run, nodes, name, rank):
    """Kill a rank with SIGKILL as soon as all train; returns when."""
    run.trains()
    now = time.time()
    nodes[name].kill_rank(run.job_id, rank)
    return now


@pytest.fixture(scope="module")
def killed(play, nodes):
    """A rank killed under each launcher."""
    direct, agents = play.launch(WORKER), play.launch(AGENTS, job_nodes=2)
    times = {"direct": kill_rank(direct, nodes, "n3", 2), "torchrun": kill_rank(agents, nodes, "n2", 1)}
    return {"direct": (direct.wait(), times["direct"]), "torchrun": (agents.wait(), times["torchrun"])}


@pytest.mark.parametrize(("launcher", "rank", "where"), [("direct", 2, "n3"), ("torchrun", 1, "n2")])
def test_a_killed_rank_is_named_and_ends_the_job_everywhere(killed, left, launcher, rank, where):
    run, at = killed[launcher]
    assert run.rc == 2, run.output
    assert re.search(rf"^Job {run.job_id} failed after 0:\d\d:\d\d\.$", run.output, re.MULTILINE)
    assert f"  rank {rank} on {where} failed first: killed by SIGKILL" in run.lines
    failure = run.summary["failure"]
    assert (failure["kind"], failure["host"], failure["rank"], failure["signal"]) == ("exit", where, rank, 9)
    assert run.summary["state"] == "failed"
    assert last_end(run) - at < ENDED_WITHIN_S
    assert left(run.job_id) == {}


def test_a_failure_ends_with_its_explanation(killed, node_names):
    run, _ = killed["direct"]
    told = run.lines[run.lines.index(next(line for line in run.lines if " failed after " in line)) :]
    assert told[1] == "  rank 2 on n3 failed first: killed by SIGKILL"
    said = "SIGKILL comes from outside: a person or a program sent it, as the kernel's OOM killer ended no process"
    assert told[2].startswith(f"  {said}") and " on n3 while" in told[2]
    assert re.match(r"  last progress: step \d+/10000   loss ", told[3])
    assert told[4] == f"  last lines of /var/lib/trainyard/jobs/{run.job_id}/logs/rank_2.log on n3:"
    tail = [line for line in told if line.startswith("    | ")]
    assert 0 < len(tail) <= 15
    assert tail[-1].removeprefix("    | ") == run.log(2).splitlines()[-1]
    assert f"  no process of the job is left on {host_list(node_names)}" in told
    assert told[-2] == f"  report      {run.folder}/report.html"
    assert told[-1].startswith("  next        ansible-playbook ")
    assert "FAILED" not in run.output
    assert "fatal:" not in run.output


def test_torchrun_starts_a_failed_rank_again(play, left):
    command = ["python3", "worker.py", "--steps", "10", "--raise-on", "1", "--once"]
    run = play.launch(AGENTS, job_nodes=2, job_max_restarts=1, job_command=command).expect(0)
    assert run.summary["state"] == "succeeded"
    for rank in range(2):
        first, again, second = run.log(rank).partition("--- started again ---")
        assert again
        assert "step 10/10" not in first
        assert "step 10/10" in second
    assert "ValueError: no picture for step 5" in run.log(1)
    assert left(run.job_id) == {}


def test_a_job_ends_when_its_time_is_up(play, left):
    run = play.launch(WORKER, job_nodes=2, job_timeout=3).expect(2)
    assert re.search(
        rf"^Job {run.job_id} was ended after 0:00:\d\d: its time \(job_timeout\) was up\.$", run.output, re.MULTILINE
    )
    assert run.summary["state"] == "timed_out"
    assert left(run.job_id) == {}


# Takes all room that /dev/shm has, 512 MiB, whole pages and whatever is left; then the other rank waits.
FILL = """
import os, signal
if os.environ["RANK"] == "0":
    try:
        with open("/dev/shm/filler", "wb", buffering=0) as filler:
            while filler.write(bytes(1 << 20)):
                pass
    finally:
        os._exit(3)
signal.pause()
"""


STATE = "/dev/shm/trainyard"  # noqa: S108 - the only small file system that a node of the lab has


def test_a_full_disk_of_the_head_ends_the_job_and_is_named(play, left, nodes):
    """The head's rank was never seen to end, as no file could say so; it is systemd that knows it."""
    try:
        settings = {"job_command": ["python3", "-c", FILL], "trainyard_state": STATE}
        run = play.launch(WORKER, job_nodes=2, **settings).expect(2)
        assert "  rank 0 on n1 failed first: exit code 3" in run.lines
        folder = f"{STATE}/jobs/{run.job_id}"
        assert f"  found 0 MiB free of 512 MiB under {folder} on n1, expected room" in run.output
        assert f"  n1: {folder} could not be written (No space left on device)" in run.output
        assert run.summary["state"] == "failed" and left(run.job_id) == {}
    finally:
        for name in ("n1", "n2"):
            nodes[name].host.check_output(f"rm -rf /dev/shm/filler {STATE}")
