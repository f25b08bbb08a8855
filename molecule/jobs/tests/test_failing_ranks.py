"""A rank that is killed: named with host and cause, and the job ends everywhere. In test_restarts.py one raises."""

import re

import pytest
from lab_jobs import WORKER


@pytest.fixture(scope="module")
def killed(play, nodes, scheduler):
    """A job of which a rank was killed."""
    run = play.launch(WORKER, **scheduler, job_nodes=3)
    nodes["n3"].kill_rank(run.trains().job_id, 2)
    return run.wait()


def test_a_killed_rank_is_named_and_ends_the_job_everywhere(killed, left):
    killed.names_killed(2, "n3")
    assert re.search(rf"^Job {killed.job_id} failed after 0:\d\d:\d\d\.$", killed.output, re.MULTILINE)
    assert left(killed.job_id) == {}


def test_a_failure_ends_with_its_explanation(killed, scheduler):
    run = killed
    told = run.lines[run.lines.index(next(line for line in run.lines if " failed after " in line)) :]
    assert told[1] == "  rank 2 on n3 failed first: killed by SIGKILL"
    said = "SIGKILL comes from outside: a person or a program sent it, as the kernel's OOM killer ended no process"
    assert told[2].startswith(f"  {said}") and " on n3 while" in told[2]
    assert re.match(r"  last progress: step \d+/10000   loss ", told[3])
    assert told[4] == f"  last lines of /var/lib/trainyard/jobs/{run.job_id}/hosts/n3/logs/rank_2.log on n3:"
    tail = [line for line in told if line.startswith("    | ")]
    assert 0 < len(tail) <= 15
    assert tail[-1].removeprefix("    | ") == run.log(2).splitlines()[-1]
    assert scheduler or "  no process of the job is left on n1, n2, n3" in told
    assert told[-2] == f"  report      {run.folder}/report.html"
    assert told[-1].startswith("  next        ansible-playbook ")
    assert "FAILED" not in run.output
    assert "fatal:" not in run.output


def test_a_job_ends_when_its_time_is_up(play, scheduler, left):
    run = play.launch(WORKER, **scheduler, job_nodes=2, job_timeout=3).expect(2)
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
        assert f"  found 0 MiB free of 512 MiB under {folder}/hosts/n1 on n1, expected room" in run.output
        assert f"  n1: {folder} could not be written (No space left on device)" in run.output
        assert run.summary["state"] == "failed" and left(run.job_id) == {}
    finally:
        for name in ("n1", "n2"):
            nodes[name].host.check_output(f"rm -rf /dev/shm/filler {STATE}")
