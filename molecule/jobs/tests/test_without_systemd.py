"""Where systemd cannot supervise, on this machine; the scenario no_root has the same tests on several hosts."""

import os
from pathlib import Path

import pytest
from lab_jobs import PROJECT, ProcessTable
from without_systemd import *  # noqa: F403
from without_systemd import Place


@pytest.fixture(scope="module")
def place(play, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    return Place(
        play,
        {"trainyard_state": str(state), "job_ranks_per_node": 2},
        PROJECT / "inventories/localhost",
        {"localhost": ProcessTable.of_this_machine()},
        f"{state}/jobs",
        # With this machine's own systemd where there is one and we are root: then that is tested on one host.
        Path("/run/systemd/system").is_dir() and os.geteuid() == 0,
    )
