"""Requests of software: findings on the input of roles, and the sources that the controller sends."""

from ansible.module_utils.trainyard.software import requested
from ansible.module_utils.trainyard.software.package_index import Offered
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
