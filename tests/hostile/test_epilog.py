"""Slurm's Epilog runs as root: what it ends is for the job's user to end, whatever that user's processes tell it."""

import os
import subprocess
from pathlib import Path

import pytest
from job_cluster import wait_for

EPILOG = Path(__file__).resolve().parents[2] / "roles/slurm/files/epilog.sh"
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


def test_it_ends_what_the_job_left_and_nothing_that_a_lying_process_names(place, sleeping, tmp_path):
    job = {"SLURM_JOB_ID": f"4711{os.getpid()}", "SLURM_JOB_USER": place.user}
    left = sleeping(env=job, **({"user": place.owner.uid, "group": place.owner.gid} if IS_ROOT else {}))
    roots = sleeping(env={})
    wait_for(lambda: job["SLURM_JOB_ID"] in Path(f"/proc/{left.pid}/environ").read_text(), "its environment")
    # As the user's own processes could have it that trace the one that searches.
    lies = place.state / "bin"
    lies.mkdir()
    (lies / "grep").write_text(f'#!/bin/sh\necho /proc/{roots.pid}/environ\n/bin/grep "$@"\n')
    (lies / "grep").chmod(0o755)
    done = subprocess.run(["/bin/sh", str(EPILOG)], env={**job, "PATH": f"{lies}:{os.environ['PATH']}"}, check=False)
    assert done.returncode == 0
    # Without root nothing can become the user: then it ends nothing.
    assert not IS_ROOT or left.wait(60) == -9
    assert roots.poll() is None
