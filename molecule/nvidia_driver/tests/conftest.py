"""The driver, its repository and dkms are fakes, there while this scenario is tested, and gone afterwards."""

import pytest
from lab_jobs import PROJECT, ansible_playbook


@pytest.fixture(scope="session", autouse=True)
def left_as_found(inventory_path):
    """Take everything away at the end; the other scenarios share the nodes."""
    yield
    ansible_playbook(PROJECT / "molecule/nvidia_driver/replay.yml", inventory_path, replay_state="absent").expect(0)
