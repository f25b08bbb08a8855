"""A cluster of monitors on this machine, which ends with the test, and a node's part of a plan for preflight."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.file.job import NODE_OPTIONS
from job_cluster import Cluster, free_port

# A test of one folder may use what a test of another one has made.
sys.path += [str(folder) for folder in Path(__file__).parent.iterdir() if folder.is_dir()]
# Advice about software, drivers and the ssh mesh is tried with the samples of their tests.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("cluster", "nvidia", "software")]


@pytest.fixture
def cluster(tmp_path):
    made = []

    def make(*modes, **changes):
        made.append(Cluster(tmp_path / f"cluster{len(made)}", *modes, **changes))
        return made[-1].__enter__()

    yield make
    for item in made:
        item.__exit__()


@pytest.fixture
def spec(tmp_path):
    """Return a node plan without findings."""
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "data").mkdir()
    return {
        **NODE_OPTIONS,
        "job_id": "digits-1",
        "job_dir": str(tmp_path / "jobs" / "digits-1"),
        "host": "n1",
        "node_rank": 0,
        "head_host": "n1",
        "head_address": "127.0.0.1",
        "port": free_port(),
        "monitor_port": free_port(),
        "venv": str(tmp_path / "venv"),
        "data": [str(tmp_path / "data")],
        "min_disk_mib": 1,
        "events": [],
        "program": "python",
        "source_files": [],
        "scripts": [],
        "entry": {"script": "", "imports": [], "environment": {}},
        "ssh_peers": [],
        "devices": [0, 1],
        "program_path": f"{tmp_path}/venv/bin:/usr/bin:/bin",
    }
