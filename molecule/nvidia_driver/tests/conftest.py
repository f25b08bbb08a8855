"""The driver, its repository and dkms are fakes, there while this scenario is tested, and gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session", autouse=True)
def left_as_found(inventory_path):
    """Take everything away at the end; the other scenarios share the nodes."""
    yield
    argv = ["ansible-playbook", "-i", str(inventory_path), str(PROJECT / "molecule/nvidia_driver/replay.yml")]
    env = {**os.environ, "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg")}
    given = json.dumps({"replay_state": "absent"})
    done = subprocess.run([*argv, "-e", given], env=env, cwd=PROJECT, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
