"""A lock names what a node of the same system really gets, and a second run changes nothing."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def asked(run_playbook, tmp_path_factory):
    """Options of lock.yml and bundle.yml, after a lock was written."""
    path = tmp_path_factory.mktemp("lock") / "trainyard.lock"
    given = {"trainyard_frameworks": ["openmpi"], "trainyard_lock": str(path)}
    run_playbook("playbooks/lock.yml", "--check", **given).expect(0)
    assert not path.exists()
    run_playbook("playbooks/lock.yml", **given).expect(0, "packages of the system")
    return given


def test_a_lock_has_the_versions_that_the_nodes_have(asked, run_playbook, node, node_names):
    path = Path(asked["trainyard_lock"])
    written = path.read_text()
    run_playbook("playbooks/lock.yml", **asked).changes_nothing()
    assert path.read_text() == written

    (system,) = json.loads(written)["systems"].values()
    locked = {each["name"]: each["version"] for each in system["packages"]["files"]}
    listed = node(node_names[0]).check_output("dpkg-query -W -f '${Package} ${Version}\\n' openmpi-bin libopenmpi-dev")
    installed = dict(line.split() for line in listed.splitlines())
    assert {name: locked.get(name) for name in installed} == installed
    # All that they need is there, from an empty system on.
    assert {"libc6", "python3-apt", "rsync"} <= set(locked)
