"""Requests of software: findings on the input of roles and on builds, and the sources that the controller sends."""

import pytest
from ansible.module_utils.trainyard.software import requested
from ansible.module_utils.trainyard.software.package_index import Offered
from ansible.module_utils.trainyard_node.software.can_install import can_install
from filters import FILTERS

SOURCE = {"what": "data set cifar10", "variables": "local_file", "url": "", "local_file": "/a.tar.gz"}
ARCHIVE = {**SOURCE, "sha256": "0f" * 32}
DIGITS = {"what": "data set digits", "variables": "dataset_index_url", "url": "", "local_file": "", "sha256": ""}


def test_findings_on_the_input_of_roles_name_the_host():
    finding = {"host": "", "check": "input of pytorch", "found": "a", "expected": "b", "action": "c"}
    requests = {"n1": {"pytorch": {"findings": [finding]}, "dataset": {"findings": []}}, "n2": {"apt": {}}}
    assert [(each.host, each.found) for each in requested.input_findings(requests)] == [("n1", "a")]


def test_the_controller_sends_each_missing_source_once():
    part = {"dataset": {"sources": [ARCHIVE, {**DIGITS}], "package": {"package": "scikit-learn==1.7.2"}}}
    needed = {"n1": ["data set cifar10"], "n2": ["data set cifar10", "data set digits"]}
    sources = requested.needed_of_controller({"n1": part, "n2": part}, needed)
    assert sources == [ARCHIVE, {"package": "scikit-learn==1.7.2", **DIGITS}]
    assert requested.needed_of_controller({"n1": part}, {"n1": []}) == []
    # A repository that git reads by ssh.
    of_git = {"nccl_tests": {"sources": [{**DIGITS, "what": "nccl-tests"}]}}
    assert requested.needed_of_controller({"n1": of_git}, {"n1": ["nccl-tests"]}) == []


def test_a_file_on_the_controller_must_have_its_sum():
    assert requested.file_finding(ARCHIVE, "0f" * 32) is None
    assert requested.file_finding({**ARCHIVE, "sha256": ""}, "whatever") is None
    assert requested.file_finding(ARCHIVE, None).found == "/a.tar.gz on the controller does not exist"
    assert requested.file_finding(ARCHIVE, "ab").found == "/a.tar.gz on the controller has sha256 ab"


def test_the_index_of_the_controller_must_have_the_package_of_a_source():
    source = {**DIGITS, "package": "scikit-learn==1.7.2"}
    assert requested.package_finding(source, Offered(("1.7.2",))) is None
    finding = requested.package_finding(source, Offered(("1.7.1",)))
    assert finding.check == "source of data set digits" and finding.action == "set dataset_index_url"


def test_data_sets_have_sources():
    planned = FILTERS["dataset_plan"]([{"name": "cifar10"}, {"name": "digits"}, {"name": "made", "kind": "generated"}])
    assert [(each["what"], each["unless"]) for each in planned["sources"]] == [
        ("data set cifar10", "cifar10/manifest.json"),
        ("data set digits", "digits/manifest.json"),
    ]
    assert planned["sources"][0]["url"].startswith("https://") and planned["sources"][1]["url"] == ""


def builders(built=(), platforms=(), groups=()):
    """Return the findings on a build whose source no host has; `built` have the build, `groups` share its folder."""
    source = {"what": "a build", "unless": "/soft/build/.trainyard.json", "variables": "url", "url": "file:///none"}
    part = {"built": True, "sources": [source], "system": [{"file": "no-such-tool", "packages": {}}]}
    requests, answers = {}, {}
    for host in ("n1", "n2", "n3", "n4"):
        own = {**source, "unless": "/proc" if host in built else source["unless"]}
        requests[host] = {"openmpi": {**part, "sources": [own]}, "apt": {}}
        answers[host] = {**can_install(requests=requests[host]), "platform": dict(platforms).get(host, "debian 12")}
        requests[host]["openmpi"] = part
        assert answers[host]["findings"] == []
    return [
        (each.host, each.check, each.found) for each in requested.build_findings(requests, answers, {"/soft": groups})
    ]


SOURCE_FAULT = ("source of a build", "file:///none: there is no such file on the node")
TOOL_FAULT = ("packages of the system", "no no-such-tool (for openmpi)")


def test_only_the_host_that_builds_needs_source_and_tools():
    assert builders() == [("n1", *SOURCE_FAULT), ("n1", *TOOL_FAULT)]
    assert builders(built=["n3"]) == [], "the others copy from it"
    other = {"n2": "rocky 9", "n3": "rocky 9"}
    assert [host for host, *_ in builders(platforms=other)] == ["n1", "n1", "n2", "n2"]
    assert [host for host, *_ in builders(["n4"], other)] == ["n2", "n2"]


@pytest.mark.parametrize("built", [[], ["n1", "n2", "n3", "n4"]])
def test_hosts_of_two_systems_that_share_a_folder_are_found_before_a_build(built):
    mixed = ("n3", "build of openmpi", "/soft is shared with n2, whose system is debian 12; here it is rocky 9")
    found = builders(built, {"n3": "rocky 9"}, [["n1"], ["n2", "n3"], ["n4"]])
    assert found[-1] == mixed and [each for each in found if "shared" in each[2]] == [mixed]
    assert not [each for each in builders(built, {"n3": "rocky 9"}, [["n1", "n2"], ["n3"]]) if "shared" in each[2]]
