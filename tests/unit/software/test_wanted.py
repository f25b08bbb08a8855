"""What hosts are to get, judged before anything is touched: the input of roles, and what the controller brings."""

import pytest
from ansible.module_utils.trainyard.software import wanted
from ansible.module_utils.trainyard.software.package_index import Offered
from filters import FILTERS

ARCHIVE = {
    "what": "data set cifar10",
    "variables": "local_file",
    "url": "",
    "local_file": "/a.tar.gz",
    "sha256": "0f" * 32,
}
DIGITS = {"what": "data set digits", "variables": "dataset_index_url", "url": "", "local_file": "", "sha256": ""}


@pytest.mark.parametrize(
    ("fault", "found", "expected", "action"),
    [
        (
            "pytorch_version is '2', expected an exact release such as 2.13.0.",
            "pytorch_version is '2'",
            "an exact release such as 2.13.0",
            "correct it (roles/pytorch/README.md)",
        ),
        (
            "No package index has MindSpore 2.2.14 for gpu: give the address of its wheel in mindspore_wheel_url.",
            "No package index has MindSpore 2.2.14 for gpu",
            "a choice that can be installed",
            "give the address of its wheel in mindspore_wheel_url",
        ),
        ("something else", "something else", "a choice that can be installed", "correct it (roles/pytorch/README.md)"),
    ],
)
def test_a_sentence_becomes_a_finding(fault, found, expected, action):
    finding = wanted.finding_of("pytorch", fault)
    assert (finding.found, finding.expected, finding.action) == (found, expected, action)


def test_every_fault_of_every_role_is_found_on_its_host():
    given = {
        "n1": {"pytorch": {"faults": ["a", "b"]}, "dataset": {"faults": []}},
        "n2": {"mindspore": {"faults": ["c"]}},
    }
    assert [(each.host, each.found) for each in wanted.input_findings(given)] == [("n1", "a"), ("n1", "b"), ("n2", "c")]


def test_the_controller_brings_what_hosts_lack_and_each_once():
    part = {"dataset": {"sources": [ARCHIVE, {**DIGITS}], "package": {"package": "scikit-learn==1.7.2"}}}
    needed = {"n1": ["data set cifar10"], "n2": ["data set cifar10", "data set digits"]}
    sources = wanted.needed_of_controller({"n1": part, "n2": part}, needed)
    assert sources == [ARCHIVE, {"package": "scikit-learn==1.7.2", **DIGITS}]
    assert wanted.needed_of_controller({"n1": part}, {"n1": []}) == []


def test_a_file_of_the_controller_is_there_with_its_sum():
    assert wanted.file_finding(ARCHIVE, "0f" * 32) is None
    assert wanted.file_finding({**ARCHIVE, "sha256": ""}, "whatever") is None
    assert wanted.file_finding(ARCHIVE, None).found == "/a.tar.gz on the controller does not exist"
    assert wanted.file_finding(ARCHIVE, "ab").found == "/a.tar.gz on the controller has sha256 ab"


def test_the_controllers_index_has_the_package_of_a_source():
    source = {**DIGITS, "package": "scikit-learn==1.7.2"}
    assert wanted.package_finding(source, Offered(("1.7.2",))) is None
    finding = wanted.package_finding(source, Offered(("1.7.1",)))
    assert finding.check == "source of data set digits" and finding.action == "set dataset_index_url"


def test_data_sets_say_where_they_come_from():
    planned = FILTERS["dataset_plan"]([{"name": "cifar10"}, {"name": "digits"}, {"name": "made", "kind": "generated"}])
    assert [(each["what"], each["unless"]) for each in planned["sources"]] == [
        ("data set cifar10", "cifar10/manifest.json"),
        ("data set digits", "digits/manifest.json"),
    ]
    assert planned["sources"][0]["url"].startswith("https://") and planned["sources"][1]["url"] == ""
