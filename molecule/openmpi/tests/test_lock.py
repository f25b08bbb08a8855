"""A lock names what a node of the same system really gets, and a second run changes nothing."""

import json


def test_a_lock_has_the_versions_that_the_nodes_have(run_playbook, tmp_path, node, node_names):
    path = tmp_path / "trainyard.lock"
    asked = {"trainyard_frameworks": ["openmpi"], "trainyard_lock": str(path)}
    run_playbook("playbooks/lock.yml", "--check", **asked).expect(0)
    assert not path.exists()
    run_playbook("playbooks/lock.yml", **asked).expect(0, "packages of the system")
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
