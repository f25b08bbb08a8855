"""The nodes' Ascend devices are replays: they are there while this scenario is tested, and gone afterwards."""

import pytest
from lab_jobs import PROJECT, ansible_playbook


@pytest.fixture(scope="session", autouse=True)
def replay(inventory_path):
    """Put devices up for all tests of the scenario; other scenarios share the nodes and must find none.

    Returns a function that puts them up with other settings.
    """

    def put_up(**settings):
        ansible_playbook(PROJECT / "molecule/ascend/replay.yml", inventory_path, **settings).expect(0)

    put_up()
    yield put_up
    put_up(replay_state="absent")
