"""Files of a lock beside packages and environments: which roles take, what is found out of them, where they lie."""

import pytest
from ansible.module_utils.trainyard.bundle import locked_files

COMMIT = 40 * "c"
ARCHIVE = {"what": "Open MPI 4.1.8", "url": "https://d.example.org/openmpi-4.1.8.tar.bz2", "sha256": 64 * "0"}
OF_GIT = {"what": "nccl-tests", "url": "https://g.example.org/nccl-tests.git/info/refs", "sha256": ""}
GIT = {**OF_GIT, "repository": "https://g.example.org/nccl-tests.git", "commit": COMMIT}
LOCKED_GIT = {"what": "nccl-tests", "url": f"git+{GIT['repository']}@{COMMIT}", "sha256": 64 * "a"}
WHEEL = {"package": "scikit-learn==1.7.2", "platform": "--abi cp311", "index_url": "", "sha256": 64 * "d"}
DIGITS = {"what": "data set digits", "url": "", "local_file": "", "sha256": "", "variables": "v"}
REQUESTS = {
    "n1": {"openmpi": {"sources": [ARCHIVE]}, "nccl_tests": {"sources": [GIT]}, "rdma": {"packages": ["x"]}},
    "n2": {"openmpi": {"sources": [ARCHIVE]}, "dataset": {"sources": [DIGITS], "package": WHEEL}},
}


def test_each_file_is_requested_once():
    archive, digits, of_git = locked_files.requested(REQUESTS)
    assert archive == ARCHIVE
    assert digits == {"what": "data set digits", "url": "", "variables": "v", **WHEEL}
    assert of_git == {**LOCKED_GIT, "sha256": ""}
    assert [locked_files.is_resolved(each) for each in (archive, digits, of_git)] == [True, False, False]


def test_what_a_role_keeps_for_later_is_requested_too():
    requests = {"n1": {"nvidia_driver_upgrade": {"kept_sources": [ARCHIVE]}}}
    assert locked_files.requested(requests) == [ARCHIVE]
    (found,) = locked_files.brought(
        {"n1": {"nvidia_driver_upgrade": {"kept_sources": [{**ARCHIVE, "local_file": "/srv/o"}]}}}
    )
    assert found["where"] == "/srv/o"


def test_one_thing_from_two_addresses_is_two_files():
    other = {**ARCHIVE, "url": "https://d.example.org/arm64/openmpi-4.1.8.tar.bz2", "sha256": 64 * "1"}
    assert locked_files.requested({"n1": {"x": {"sources": [ARCHIVE]}}, "n2": {"x": {"sources": [other]}}}) == [
        other,
        ARCHIVE,
    ]


def test_addresses_have_no_password():
    source = {**ARCHIVE, "url": "https://u:hunter2@d.example.org/x"}
    (found,) = locked_files.requested({"n1": {"dataset": {"sources": [source]}}})
    assert found["url"] == "https://***@d.example.org/x"


def test_a_file_of_the_controller_is_named_as_one_to_take_along():
    requests = {"n1": {"openmpi": {"sources": [{**ARCHIVE, "local_file": "/srv/o.tar"}]}}}
    assert locked_files.requested(requests) == []
    (brought,) = locked_files.brought(requests)
    assert brought["what"] == "Open MPI 4.1.8" and brought["where"] == "/srv/o.tar"
    assert locked_files.absent(brought).endswith(f"; put the file with sha256 {ARCHIVE['sha256']} at /srv/o.tar")
    assert locked_files.absent({**brought, "sha256": ""}).endswith("; put it at /srv/o.tar")
    assert locked_files.absent({"what": "x", "why": "no sum"}) == "not in it: x: no sum"


def test_what_an_older_lock_knows_is_not_found_out_again():
    old = [LOCKED_GIT, {"what": "data set digits", "url": "https://i.example.org/s.whl", "sha256": 64 * "d"}]
    found = locked_files.with_old(locked_files.requested(REQUESTS), old)
    assert [locked_files.entry(each) for each in found] == [ARCHIVE, old[1], LOCKED_GIT]
    assert all(locked_files.is_resolved(each) for each in found)
    # Another commit has another sum.
    other = [{**LOCKED_GIT, "url": LOCKED_GIT["url"].replace("c", "b")}]
    assert locked_files.with_old(locked_files.requested(REQUESTS), other)[2]["sha256"] == ""


def test_no_file_takes_the_place_of_another():
    entries = [ARCHIVE, {**ARCHIVE, "url": "https://d.example.org/v4/OpenMPI-4.1.8.tar.bz2", "sha256": 64 * "1"},
               {**ARCHIVE, "url": "https://d.example.org/other.tgz", "sha256": 64 * "2"}, LOCKED_GIT,
               {**ARCHIVE, "sha256": ""}]  # fmt: skip
    assert locked_files.paths(entries) == {
        64 * "0": "files/000000000000-openmpi-4.1.8.tar.bz2",
        64 * "1": "files/111111111111-OpenMPI-4.1.8.tar.bz2",
        64 * "2": "files/other.tgz",
        64 * "a": "files/nccl-tests-cccccccccccc.tar",
    }
    assert locked_files.here([LOCKED_GIT], "/b") == {
        64 * "a": "/b/files/nccl-tests-cccccccccccc.tar", COMMIT: "/b/files/nccl-tests-cccccccccccc.tar",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://d.example.org/..", "files/_.."),
        ("https://d.example.org/a%2F..%2Fb", "files/b"),
        (f"git+git@g.example.org:x.git@{COMMIT}", "files/x-cccccccccccc.tar"),
        (f"git+file:///srv/..@{COMMIT}", "files/_..-cccccccccccc.tar"),
    ],
)
def test_no_file_of_a_lock_leaves_the_folder(url, path):
    assert list(locked_files.paths([{"what": "x", "url": url, "sha256": 64 * "0"}]).values()) == [path]


@pytest.mark.parametrize("url", ["https://d.example.org/x", "git+https://x/y@main", "git+@", ""])
def test_other_addresses_are_no_commit(url):
    assert locked_files.commit(url) is None
