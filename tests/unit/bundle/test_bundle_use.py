"""The playbook bundle_use.yml on this machine, with a bundle that has nothing but its signature."""

import json
import platform
import tempfile

import pytest
from ansible.module_utils.trainyard.bundle import contents, systems
from ansible.module_utils.trainyard_controller.bundle import bundling
from ansible.module_utils.trainyard_controller.bundle.bundle_use import Bundle
from ansible_run import run_ansible


def own_system():
    release = platform.freedesktop_os_release()
    version = release["VERSION_ID"]
    facts = {"distribution": release["ID"], "distribution_version": version, "architecture": platform.machine()}
    return systems.of_facts({**facts, "distribution_major_version": version.partition(".")[0]})


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    folder, system = tmp_path / "bundle", own_system()
    folder.mkdir()
    empty = {"packages": {"requested": [], "files": []}, "environments": {}}
    lock = {"version": 1, "files": [], "missing": [], "systems": {system: empty}}
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        bundling.finish(folder, lock, contents.items(lock), None, bundling.Key(tmp_path / "key"), "0.1.0")
        yield Bundle(folder)


@pytest.fixture
def use(tmp_path, bundle):
    def run(**variables):
        records = {"trainyard_records": str(tmp_path / "records"), "trainyard_bundle": str(bundle.folder)}
        given = {**records, "trainyard_frameworks": [], "dataset_sets": [], **variables}
        argv = ["ansible-playbook", "playbooks/bundle_use.yml", "-i", "inventories/localhost"]
        return run_ansible(*argv, "-e", json.dumps(given))

    return run


def test_an_older_bundle_that_anybody_may_have_signed_needs_two_words(use, bundle, tmp_path):
    bundle.folder.chmod(0o777)
    stamp = tmp_path / "records/bundle/stamp"
    stamp.parent.mkdir(parents=True)
    newer = f"{64 * 'a'}\n{bundle.made + 60}\n"
    stamp.write_text(newer)
    facts = ["can be changed by others, and no key is expected", "this host has one of", "trainyard_bundle_older: true"]
    use().expect(2, *facts, "Nothing was changed")
    assert stamp.read_text() == newer
    use(trainyard_bundle_key=bundle.fingerprint, trainyard_bundle_older=True).expect(0)
    assert stamp.read_text() == f"{bundle.stamp}\n{bundle.made}\n"
