"""A lock names what a node of the same system really gets, and site.yml installs just that, not what is newer."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.mirrors


@pytest.fixture(scope="module")
def asked(run_playbook, tmp_path_factory):
    """Options of lock.yml and bundle.yml, after a lock was written."""
    path = tmp_path_factory.mktemp("lock") / "trainyard.lock"
    given = {"trainyard_frameworks": ["openmpi"], "trainyard_lock": str(path)}
    run_playbook("playbooks/lock.yml", **given).expect(0, "packages of the system")
    return given


def test_a_lock_has_the_versions_that_the_nodes_have(asked, run_playbook, node, node_names):
    (system,) = json.loads(Path(asked["trainyard_lock"]).read_text())["systems"].values()
    locked = {each["name"]: each["version"] for each in system["packages"]["files"]}
    listed = node(node_names[0]).check_output("dpkg-query -W -f '${Package} ${Version}\\n' openmpi-bin libopenmpi-dev")
    installed = dict(line.split() for line in listed.splitlines())
    assert {name: locked.get(name) for name in installed} == installed
    # All that they need is there, from an empty system on.
    assert {"libc6", "python3-apt", "rsync"} <= set(locked)


# A repository with two versions of a package without content.
REPOSITORY = """set -eu
mkdir -p /srv/held/root/DEBIAN
cd /srv/held
for version in 1.0 2.0; do
    printf '%s\\n' 'Package: trainyard-held' "Version: $version" 'Architecture: all' 'Maintainer: none' \
        'Description: nothing' >root/DEBIAN/control
    dpkg-deb --build root $version.deb >&2
    { cat root/DEBIAN/control
      echo "Filename: ./$version.deb"
      echo "Size: $(stat -c %s $version.deb)"
      echo "SHA256: $(sha256sum <$version.deb | cut -d' ' -f1)"
      echo; } >>Packages
done
echo 'deb [trusted=yes] file:/srv/held ./' >/etc/apt/sources.list.d/held.list
"""
CLEAN = """set -eu
dpkg --purge trainyard-held >&2
rm -r /srv/held /etc/apt/sources.list.d/held.list /var/lib/apt/lists/_srv_held_*
"""


@pytest.fixture
def held(asked, node, node_names, tmp_path):
    """Return a function that gives options of site.yml with a lock that has a version of trainyard-held."""
    host = node(node_names[0])
    host.check_output("sudo sh -c %s", REPOSITORY)

    def options(version):
        lock = json.loads(Path(asked["trainyard_lock"]).read_text())
        (packages,) = (system["packages"] for system in lock["systems"].values())
        packages["requested"] = sorted([*packages["requested"], "trainyard-held"])
        packages["files"].append({**packages["files"][0], "name": "trainyard-held", "version": version})
        path = tmp_path / f"{version}.lock"
        path.write_text(json.dumps(lock))
        extra = {"node_baseline_extra_packages": ["trainyard-held"], "dataset_sets": []}
        return {**asked, **extra, "trainyard_lock": str(path)}

    yield options
    host.check_output("sudo sh -c %s", CLEAN)
