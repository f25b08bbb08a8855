"""Whether a bundle fits the hosts and the inventory, and what roles take from it."""

import pytest
from ansible.module_utils.trainyard.bundle import site_lock, systems, use
from ansible.module_utils.trainyard.software import datasets
from filters import FILTERS
from test_site_lock import OF_HOSTS, PYTORCH, REQUESTS, TWELVE, locked, wheel

LOCK, SUM = locked(), 64 * "5"


def found(requests, of_hosts=OF_HOSTS):
    return [(each.host, each.found) for each in use.fit(LOCK, requests, of_hosts)]


def test_a_bundle_of_the_same_inventory_fits():
    assert found(REQUESTS) == []
    # Fewer hosts and less software are no reason for another one.
    assert found({"n3": REQUESTS["n3"]}) == []


def test_a_system_that_is_not_in_it():
    thirteen = systems.named("debian-13-x86_64")
    assert found(REQUESTS, {**OF_HOSTS, "n3": thirteen}) == [("n3", "nothing for debian-13-x86_64")]
    assert list(use.pins(LOCK, REQUESTS, {**OF_HOSTS, "n3": thirteen})) == ["n1", "n2"]


def test_software_that_is_not_in_it():
    more = {"rdma": {"packages": ["rdma-core", "openmpi-bin"]}}
    assert found({**REQUESTS, "n2": {**REQUESTS["n2"], **more}}) == [("n2", "no rdma-core for debian-12-x86_64")]
    other = {"pytorch": {"environment": {**PYTORCH, "packages": ["torch==2.12.0"]}}}
    assert found({**REQUESTS, "n1": other}) == [("n1", "another pytorch for debian-12-x86_64")]
    newer = {"pytorch": {"environment": {**PYTORCH, "interpreter": "python3.13"}}}
    assert found({**REQUESTS, "n1": newer}) == [("n1", "pytorch for Python 3.11 on debian-12-x86_64")]


def test_unequal_environments_of_one_system_get_their_own_pins():
    """The lock's names for them do not matter, nor does --limit."""
    other = {"pytorch": {"environment": {**PYTORCH, "packages": ["torch==2.12.0"]}}}
    requests = {**REQUESTS, "n2": other}
    wanted = site_lock.wanted(requests, OF_HOSTS)
    wheels = {
        (TWELVE, "pytorch"): [wheel("filelock"), wheel("torch", "2.13.0")],
        (TWELVE, "pytorch-2"): [wheel("torch", "2.12.0")],
    }
    lock = site_lock.lock(wanted, site_lock.unchanged(None, wanted), {}, wheels, requests)
    for hosts in ({"n1", "n2"}, {"n2"}):
        some = {host: system for host, system in OF_HOSTS.items() if host in hosts}
        assert use.fit(lock, {host: requests[host] for host in hosts}, some) == []
        pins = use.pins(lock, requests, some)
        assert {host: each["pytorch"][0].partition(" ")[0] for host, each in pins.items()} == {
            host: {"n1": "torch==2.13.0", "n2": "torch==2.12.0"}[host] for host in hosts
        }


def test_versions_for_apt():
    assert use.versions(LOCK, TWELVE) == {"openmpi-bin": "4.1.4"}
    files = [{"name": name, "version": version} for name, version in (("aa", "1"), ("bb", "1"), ("bb", "2"))]
    assert use.versions({"systems": {str(TWELVE): {"packages": {"files": files}}}}, TWELVE) == {"aa": "1"}


@pytest.mark.parametrize("change", [{"version": "1\nPackage: *"}, {"name": "*"}, {"version": ""}, {"version": "*"}])
def test_a_lock_writes_no_other_pins(change):
    """Its names and versions go into a file of apt, by which root installs."""
    lock = {"systems": {str(TWELVE): {"packages": {"files": [{"name": "rsync", "version": "1", **change}]}}}}
    with pytest.raises(site_lock.LockError, match="no package with its version"):
        use.versions(lock, TWELVE)


def test_a_file_that_is_not_in_it():
    more = [{"what": "x", "url": "u", "sha256": 12 * "ab"}, {"what": "git", "repository": "r", "commit": 40 * "c"},
            {"what": "no sum", "url": "u", "sha256": ""}]  # fmt: skip
    requests = {**REQUESTS, "n3": {"openmpi": {**REQUESTS["n3"]["openmpi"], "sources": more}}}
    assert found(requests) == [("n3", "no git (cccccccccccc)"), ("n3", "no x (abababababab)")]
    # One that the inventory names on the controller is not asked for.
    assert found({"n3": {"nccl": {"sources": [{**more[0], "local_file": "/x"}]}}}) == []


def test_a_file_of_the_bundle_stands_in_for_one_to_download():
    here = {"files": {SUM: "/b/files/x"}}
    assert use.file(SUM, here) == "/b/files/x"
    assert use.file("", here) == use.file(None, here) == use.file(SUM, {}) == ""
    records = [{"sha256": SUM, "url": "u"}, {"sha256": SUM, "url": "", "local_file": "/own"}, {"url": "u"}]
    assert use.with_files(records, here) == [{"sha256": SUM, "url": "", "local_file": "/b/files/x"}, *records[1:]]
    assert use.with_files(records, {}) == records


def test_data_sets_of_the_bundle():
    digits, cifar = 64 * "d", datasets.VENDOR["binary"][1]
    here = {"files": {digits: "/b/files/s.whl", cifar: "/b/files/c.tar.gz"}}
    sets = [{"name": "digits"}, {"name": "cifar10"}, {"name": "own", "kind": "digits", "local_file": "/d.gz"},
            {"name": "made", "kind": "generated"}]  # fmt: skip
    planned = FILTERS["dataset_plan"](sets, here, digits)
    files = ["/b/files/s.whl", "/b/files/c.tar.gz", "/d.gz", ""]
    assert [each["local_file"] for each in planned["sets"]] == files
    assert [(each["local_file"], each["url"]) for each in planned["sources"]] == [(file, "") for file in files[:3]]
    # Sums are those of what is placed: none of the digits' wheel, so that a copy of the digits may be given as well.
    assert [each["sha256"] for each in planned["sets"]] == ["", cifar, "", ""]


def test_what_a_node_gets():
    sums = ["key.asc", "lock", "debs/debian-12-x86_64/a.deb", "debs/debian-11-x86_64/a.deb",
            "wheels/torch-2.13.0-py3-none-any.whl", "wheels/other.whl"]  # fmt: skip
    assert use.paths(LOCK, TWELVE, sums) == [
        "debs/debian-12-x86_64/a.deb", "key.asc", "wheels/torch-2.13.0-py3-none-any.whl",
    ]  # fmt: skip


def test_an_environment_from_the_bundle():
    here = {"folder": "/srv/bundle", "environments": use.pins(LOCK, REQUESTS, OF_HOSTS)["n1"]}
    asked = {**PYTORCH, "index_url": "https://index.example.org", "constraints": ["x==1"], "min_free_mb": 500}
    made = use.environment(asked, here)
    assert made["packages"] == [f"torch==2.13.0 --hash=sha256:{64 * '1'}"]
    assert (made["no_index"], made["find_links"]) == (True, ["/srv/bundle/wheels"])
    assert (made["index_url"], made["constraints"], made["min_free_mb"]) == ("", [], 500)
    # Without a bundle, or one without this environment, all stays as it is asked.
    assert use.environment(asked, {}) == asked
    assert use.environment({**asked, "path": "/opt/own"}, here) == {**asked, "path": "/opt/own"}


def test_an_environment_by_a_lock_keeps_its_sources():
    here = {"folder": "", "environments": use.pins(LOCK, REQUESTS, OF_HOSTS)["n1"]}
    asked = {**PYTORCH, "index_url": "https://index.example.org", "constraints": ["x==1"], "lock": "x==1 --hash"}
    assert use.environment(asked, here) == {
        **asked, "packages": here["environments"]["pytorch"], "constraints": [], "lock": "",
    }  # fmt: skip


def test_a_disk_without_room():
    assert use.no_room("n1", 2048, 1024, "/srv") is None
    assert use.no_room("n1", 2047, 1024, "/srv").host == "n1"


def test_the_lock_of_a_bundle_is_that_of_the_inventory():
    assert site_lock.read(site_lock.text(LOCK)) == LOCK


def on_host(*lines):
    """Return the bundle that a host answers that it has, or the finding."""
    there, findings = use.on_hosts({"n1": list(lines)}, "/srv/bundle")
    return there["n1"] if there else findings[0]


def test_what_a_host_has():
    assert on_host("none", "Avail", "9000") == use.There("none", None, 9000)
    # Brought before there were times.
    assert on_host(SUM, "    Avail", " 9000 ") == use.There(SUM, None, 9000)
    assert on_host(SUM, "1754300000", "Avail", "9000") == use.There(SUM, 1754300000, 9000)
    assert use.on_hosts({"n1": ["none", 9000]}, "")[0] == {"n1": use.There("none", None, 9000)}


@pytest.mark.parametrize("lines", [
    (), ("none",), ("none", "Avail"), (SUM, "1e9", "Avail", "x"), (SUM, "Avail", "-1"), (SUM, "Avail", 40 * "9"),
    ("none\nx", "Avail", "1"), ([], {}), (SUM, "\u0661", "Avail", "\u0661"), ("../../x", "Avail", "9"),
])  # fmt: skip
def test_a_host_that_answers_something_else_is_a_finding_of_that_host(lines):
    found = on_host(*lines)
    assert (found.check, found.host) == ("bundle", "n1") and "/srv/bundle" in found.action and len(found.found) < 200


def test_other_hosts_stay_as_they_are():
    there, findings = use.on_hosts({"n1": None, "n2": ["none", "1"]}, "/srv/bundle")
    assert list(there) == ["n2"] and [each.host for each in findings] == ["n1"]


def test_an_older_bundle_is_named_with_both_times():
    there = {
        "n1": use.There(SUM, 1754300000, 1), "n2": use.There(SUM, 1754200000, 1), "n3": use.There(SUM, None, 1),
        "n4": use.There("none", None, 1),
    }  # fmt: skip
    (found,) = use.older(there, 1754200000, 64 * "6")
    assert found.host == "n1" and "2025-08-03 05:46" in found.found and "2025-08-04 09:33" in found.found
    assert "trainyard_bundle_older" in found.action
    # The same one again is no older one, and so is a newer one.
    assert use.older(there, 1754200000, SUM) == use.older(there, 1754300000, 64 * "6") == []
    # A host may say any time.
    (found,) = use.older({"n1": use.There(SUM, 10**11 - 1, 1)}, 0, "")
    assert found.host == "n1"
