"""Slurm's Epilog runs as root: what it ends is for the job's user to end, whatever that user's processes tell it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from job_cluster import PATIENCE_S, wait_for

PROJECT = Path(__file__).resolve().parents[2]
EPILOG = PROJECT / "roles/slurm/files/epilog.sh"
CONF = PROJECT / "templates/slurm/slurm.conf.j2"
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def sleeping():
    """Starts processes that sleep."""
    started = []

    def start(**more):
        started.append(subprocess.Popen(["/bin/sleep", "1000"], **more))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def job(place):
    """What slurmd tells an epilog of a job of the training user."""
    return {
        "SLURM_JOB_ID": f"4711{os.getpid()}",
        "SLURM_JOB_USER": place.user,
        "SLURM_JOB_UID": str(place.owner.uid),
        "SLURM_JOB_GID": str(place.owner.gid),
    }


@pytest.fixture
def left(place, job, sleeping):
    """A process that the job left."""
    owner = {"user": place.owner.uid, "group": place.owner.gid} if IS_ROOT else {}
    process = sleeping(env={"SLURM_JOB_ID": job["SLURM_JOB_ID"]}, **owner)
    wait_for(lambda: job["SLURM_JOB_ID"] in Path(f"/proc/{process.pid}/environ").read_text(), "its environment")
    return process


def lying(place, script):
    """A search path with a grep that does what processes of the user could make of the real one, which they trace."""
    lies = place.state / "bin"
    lies.mkdir()
    (lies / "grep").write_text(f"#!/bin/sh\n{script}")
    (lies / "grep").chmod(0o755)
    return f"{lies}:{os.environ['PATH']}"


def epilog(job, *limit, **more):
    """Run the script as slurmd does, which also waits for the end of its output."""
    argv = ["/bin/sh", str(EPILOG), *limit]
    return subprocess.run(argv, env={**job, **more}, capture_output=True, timeout=300, check=False).returncode


def test_it_ends_what_the_job_left_and_nothing_that_a_lying_process_names(place, job, left, sleeping):
    roots = sleeping(env={})
    path = lying(place, f'echo /proc/{roots.pid}/environ\n/bin/grep "$@"\n')
    assert epilog(job, PATH=path) == 0
    # Without root nothing can become the user: then it ends nothing.
    assert not IS_ROOT or left.wait(PATIENCE_S) == -9
    assert roots.poll() is None


def test_a_stopped_shell_holds_neither_root_nor_slurmd(place, job):
    found = place.state / "found"
    # The second process leaves the group of the shell, as one that is traced could; it would keep the output open.
    path = lying(place, f"setsid sleep 1000 &\necho $PPID $! >{found}\nkill -STOP $PPID $$\n")
    try:
        assert epilog(job, "5", PATH=path) == 0
        # Without root nothing can become the user, and nothing is stopped.
        assert found.exists() == IS_ROOT
        if IS_ROOT:
            stopped = found.read_text().split()[0]
            wait_for(lambda: not Path(f"/proc/{stopped}").exists(), "the stopped shell has ended")
    finally:
        for pid in found.read_text().split() if found.exists() else ():
            if Path(f"/proc/{pid}").exists():
                os.kill(int(pid), signal.SIGKILL)


def test_slurm_waits_longer_than_root_does():
    limit = int(re.search(r"\$\{1:-(\d+)\}", EPILOG.read_text())[1])
    waits = int(re.search(r"^PrologEpilogTimeout=(\d+)$", CONF.read_text(), re.MULTILINE)[1])
    # Slurm drains the node if its own limit ends the script; a loaded machine may take long to start it.
    assert 0 < 2 * limit <= waits


@pytest.mark.parametrize(
    "changed",
    [
        {"SLURM_JOB_USER": "root", "SLURM_JOB_UID": "0", "SLURM_JOB_GID": "0"},
        {"SLURM_JOB_UID": "0"},
        {"SLURM_JOB_UID": "00"},
        {"SLURM_JOB_UID": "+0"},
        {"SLURM_JOB_UID": "root"},
        {"SLURM_JOB_UID": ""},
        {"SLURM_JOB_USER": "root"},
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": ".*"},
        {"SLURM_JOB_GID": ""},
        {"SLURM_JOB_GID": "root"},
    ],
)
def test_it_ends_nothing_of_root_and_nothing_without_a_number(job, left, sleeping, changed):
    """Not even itself, as the environment of root's own epilog names the job, and a failure drains the node."""
    given = {**job, **changed}
    roots = sleeping(env={"SLURM_JOB_ID": job["SLURM_JOB_ID"]})
    assert epilog(given) == 0
    assert (roots.poll(), left.poll()) == (None, None)
