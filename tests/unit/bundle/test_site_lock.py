"""The lock of an inventory: what it has, when it stays, what differs."""

import json

import pytest
from ansible.module_utils.trainyard.bundle import site_lock, systems
from ansible.module_utils.trainyard.bundle.debs import Deb
from ansible.module_utils.trainyard.bundle.wheels import Wheel
from hypothesis import given
from hypothesis import strategies as st

TWELVE, ELEVEN = systems.named("debian-12-x86_64"), systems.named("debian-11-x86_64")
PYTORCH = {"path": "/opt/trainyard/venvs/pytorch", "interpreter": "python3", "packages": ["torch==2.13.0"]}
MPI = {
    "openmpi": {"packages": ["openmpi-bin"]},
    "dataset": {"sources": [{"what": "cifar10", "url": "u", "sha256": 64 * "5"}]},
}
REQUESTS = {
    "n1": {**MPI, "pytorch": {"packages": ["libgomp1"], "environment": PYTORCH}},
    "n2": {**MPI, "pytorch": {"packages": ["libgomp1"], "environment": PYTORCH}},
    "n3": MPI,
}
OF_HOSTS = {"n1": TWELVE, "n2": TWELVE, "n3": ELEVEN}


def deb(name, version="1.0"):
    return Deb(name, version, "amd64", f"{name}_{version}_amd64.deb", f"http://m.example.org/{name}", 1 << 20, 64 * "0")


def wheel(name, version="1.0"):
    return Wheel(name, version, f"{name}-{version}-py3-none-any.whl", f"http://i.example.org/{name}", 10, 64 * "1")


def locked(requests=REQUESTS, old=None, torch="2.13.0", mpi="4.1.4"):
    wanted = site_lock.wanted(requests, OF_HOSTS)
    kept = site_lock.unchanged(old, wanted)
    debs = {system: [deb("openmpi-bin", mpi)] for system in (TWELVE, ELEVEN)}
    return site_lock.lock(wanted, kept, debs, {(TWELVE, "pytorch"): [wheel("torch", torch)]}, requests)


def test_hosts_of_one_system_are_resolved_once():
    wanted = site_lock.wanted(REQUESTS, OF_HOSTS)
    assert {str(system): sorted(each.packages) for system, each in wanted.items()} == {
        "debian-12-x86_64": ["libgomp1", "openmpi-bin"],
        "debian-11-x86_64": ["openmpi-bin"],
    }
    assert list(wanted[TWELVE].environments) == ["pytorch"] and wanted[ELEVEN].environments == {}


def test_unequal_environments_of_one_system_each_count():
    other = {"packages": ["libgomp1"], "environment": {**PYTORCH, "packages": ["torch==2.12.0"]}}
    wanted = site_lock.wanted({**REQUESTS, "n2": {"pytorch": other}}, OF_HOSTS)
    assert list(wanted[TWELVE].environments) == ["pytorch", "pytorch-2"]


def test_a_lock_is_written_and_read_again():
    found = locked()
    assert site_lock.read(site_lock.text(found)) == json.loads(site_lock.text(found)) == found
    assert found["files"] == [{"what": "cifar10", "url": "u", "sha256": 64 * "5"}]
    assert site_lock.summary(found) == [
        "debian-12-x86_64: 1 package of the system, 1 MiB",
        "debian-12-x86_64 pytorch: 1 wheel for Python 3.11, 1 KiB",
        "debian-11-x86_64: 1 package of the system, 1 MiB",
        "file: cifar10",
    ]


def test_what_is_not_asked_anew_stays_as_it_is():
    old = locked()
    assert locked(old=old, torch="9", mpi="9") == old
    wanted = site_lock.wanted(REQUESTS, OF_HOSTS)
    left = site_lock.without(wanted, site_lock.unchanged(old, wanted))
    assert all(not each.packages and not each.environments for each in left.values())
    assert site_lock.without(wanted, site_lock.unchanged(None, wanted)) == wanted


def test_only_what_is_asked_in_another_way_is_resolved():
    old = locked()
    changed = {**REQUESTS, "n1": {**REQUESTS["n1"], "rdma": {"packages": ["rdma-core"]}}}
    new = locked(changed, old=old, torch="9", mpi="5.0")
    assert site_lock.changes(old, new) == ["debian-12-x86_64: openmpi-bin 4.1.4 -> 5.0"]


def test_archives_of_two_architectures_are_both_shown():
    new = {**locked(), "files": [{"what": "cuDNN", "url": f"u{sha256}", "sha256": sha256} for sha256 in ("1", "2")]}
    assert site_lock.changes(locked(), new) == ["files: cifar10 555555555555 -> (gone)", "files: cuDNN (new) -> 1 2"]


def test_each_version_that_differs_has_a_line():
    assert site_lock.changes(locked(), locked(torch="2.14.0")) == ["debian-12-x86_64 pytorch: torch 2.13.0 -> 2.14.0"]
    only = {host: {"openmpi": MPI["openmpi"]} for host in REQUESTS}
    gone = site_lock.changes(locked(), locked(only))
    assert gone == ["files: cifar10 555555555555 -> (gone)", "debian-12-x86_64 pytorch: torch 2.13.0 -> (gone)"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"systems": 1}', '{"systems": {}, "version": 2}', 100000 * "["])
def test_what_is_no_lock_is_refused(content):
    with pytest.raises(site_lock.LockError):
        site_lock.read(content)


@given(st.text())
def test_any_text_is_a_lock_or_refused(text):
    try:
        site_lock.read(text)
    except site_lock.LockError:
        return
