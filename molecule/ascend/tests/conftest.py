"""The nodes' Ascend devices are replays: they are there while this scenario is tested, and gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import testinfra

PROJECT = Path(__file__).resolve().parents[3]


def run_replay(inventory_path, *arguments, **settings):
    """Put the replays up, alter or remove them, as molecule/ascend/tasks/replay.yml says."""
    argv = ["ansible-playbook", "-i", str(inventory_path), str(PROJECT / "molecule/ascend/replay.yml"), *arguments]
    env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    done = subprocess.run(
        [*argv, "-e", json.dumps(settings)], env=env, cwd=PROJECT, timeout=300, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session", autouse=True)
def replay(inventory_path):
    """Devices for all tests of the scenario; other scenarios share the nodes and must find none.

    Returns a function that puts them up with other settings.
    """

    def put_up(*arguments, **settings):
        run_replay(inventory_path, *arguments, **settings)

    put_up()
    yield put_up
    put_up(replay_state="absent")


@pytest.fixture(scope="session")
def host_of(inventory_path):
    """Return a function that gives the testinfra host of a node."""
    return lambda name: testinfra.get_host(f"ansible://{name}?ansible_inventory={inventory_path}")
