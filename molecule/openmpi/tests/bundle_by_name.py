"""apt on a node installs from a bundle: a minute and 130 MB, so it runs by name.

pytest tests/bundle_by_name.py in the scenario's folder, after `make molecule SCENARIO=openmpi`.
"""

import shutil

from lab_jobs import LAB, PROJECT
from test_lock import asked

# A fixture that the test gets by its name.
__all__ = ["asked"]
# The nodes have it at /srv/shared.
SHARED = PROJECT / f".cache/labs/{LAB}/shared"


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
