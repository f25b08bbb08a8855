"""A lock names what a node of the same system really gets, and apt installs from its bundle."""

import json
import shutil
from pathlib import Path

import pytest
from lab_jobs import LAB, PROJECT

# The nodes have it at /srv/shared.
SHARED = PROJECT / f".cache/labs/{LAB}/shared"


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


def test_apt_takes_the_packages_of_a_bundle_and_refuses_a_changed_one(asked, run_playbook, tmp_path, node, node_names):
    """The nodes' own sources are left out, so nothing else can have the packages."""
    asked = {**asked, "bundle_path": str(SHARED), "bundle_key": str(tmp_path / "key")}
    run_playbook("playbooks/bundle.yml", "--check", **asked).expect(0, "openmpi-bin", "files, ")
    assert list(SHARED.glob("*.bundle*")) == []
    run_playbook("playbooks/bundle.yml", **asked).expect(0, "bundle ", "key ")
    run_playbook("playbooks/bundle.yml", **asked).expect(0, "is there already").changes_nothing()
    (bundle,) = SHARED.glob("*.bundle*")
    try:
        apt = node(node_names[0])
        source = f"/srv/shared/{bundle.name}"
        (repository,) = (bundle / "debs").iterdir()
        apt.check_output(
            f"printf %s 'deb [signed-by={source}/key.asc] file:{source}/debs/{repository.name} ./' > /tmp/bundle.list"
        )
        only = "-o Dir::Etc::sourcelist=/tmp/bundle.list -o Dir::Etc::sourceparts=- -o APT::Update::Error-Mode=any"
        install = f"sudo apt-get {only} -q install --reinstall -y --no-install-recommends openmpi-bin rsync"
        apt.check_output(f"sudo apt-get {only} -q update && {install}")

        (changed,) = repository.glob("openmpi-bin_*.deb")
        content = bytearray(changed.read_bytes())
        content[len(content) // 2] ^= 1
        changed.write_bytes(content)
        refused = apt.run(f"sudo apt-get clean && {install}")
        assert refused.rc != 0 and "Hash Sum mismatch" in refused.stdout + refused.stderr
    finally:
        shutil.rmtree(bundle)
        node(node_names[0]).check_output("rm -f /tmp/bundle.list; sudo apt-get -q update")
