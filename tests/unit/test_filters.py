"""Filters, as templates use them."""

import importlib.util
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "plugins/filter"


def filters():
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.update(module.FilterModule().filters())
    return found


def test_peers_of_a_node():
    peers_of = filters()["peers_of"]
    names = ["n1", "n2", "n3", "n4", "n5"]
    assert peers_of(names, "n4", "all") == ["n5", "n1", "n2", "n3"]
    assert peers_of(names, "n4", 2) == ["n5", "n1"]
    assert peers_of(["n1"], "n1", "all") == []


@pytest.mark.parametrize(("own", "most", "said"), [
    ("n9", "all", "n9 is none of the nodes: n1"), ("n1", "some", "expected 'all' or a number of peers from 1 on"),
])  # fmt: skip
def test_peers_of_nobody(own, most, said):
    with pytest.raises(ValueError, match=said):
        filters()["peers_of"](["n1"], own, most)


def test_vars_of_hosts_that_have_them_and_hosts_that_do_not():
    hostvars = {"n1": {"a": 1, "b": None}, "n2": {"c": 2}}
    records = filters()["vars_of"](["n2", "n1"], hostvars, ["b", "c"])
    assert records == [{"name": "n2", "c": 2}, {"name": "n1", "b": None}]


IDENTITY = {
    "name": "n1", "hostname": "n1", "connect": "10.0.0.1", "addresses": ["10.0.0.1"], "default_address": "10.0.0.1",
    "user": None, "uid_owner": "", "gid_owner": "", "group_gid": None, "nr_open": 1048576, "can_raise_limits": False,
    "hard_limits": {"memlock": 65536, "nofile": 4096}, "container": "podman",
}  # fmt: skip


def judged(**given):
    wanted = {"user": "train", "uid": 2000, "group": "train", "gid": 2000, "nofile": 1024, **given}
    nodes = [IDENTITY, {**IDENTITY, "name": "n2"}] if wanted.pop("twins", False) else [IDENTITY]
    return filters()["cluster_baseline"](nodes, **wanted)


def test_cluster_baseline_says_what_nodes_get_and_what_they_cannot():
    found = judged(sets_clock=True)
    assert found["fault"] == ""
    assert found["entries"] == [{"address": "10.0.0.1", "names": ["n1"]}]
    assert found["limits"] == {"n1": {"memlock": 65536, "nofile": 1024}}
    assert [text.partition(":")[0] for text in found["exceptions"]] == ["n1", "n1"]


@pytest.mark.parametrize(("given", "said"), [
    ({"twins": True}, "The nodes cannot be one cluster: 3 findings. Nothing was changed."),
    ({"user": "root"}, "1. training user"),
    ({"network": "10.0.0"}, "'10.0.0' does not appear to be an IPv4 or IPv6 network. Expected a CIDR"),
    ({"memlock": "lots"}, "memlock is 'lots'; expected 'unlimited' or a number of KiB"),
])  # fmt: skip
def test_cluster_baseline_says_all_faults_as_one_text(given, said):
    assert said in judged(**given)["fault"]


def test_plans_say_a_fault_or_what_to_install():
    found = filters()
    plan = found["mindspore_plan"]({"version": "2.10.0", "packages": ["numpy==1.26.4"]})
    assert (plan["fault"], plan["pin"], plan["target"]) == ("", "mindspore==2.10.0", "CPU")
    assert found["mindspore_plan"]({"version": "2.10.0", "device": "gpu"})["fault"].startswith("There is no MindSpore")
    assert found["oneflow_plan"]({"version": "0.9.0"})["pins"][0] == "oneflow==0.9.0"
    assert "0.0.1" in found["oneflow_plan"]({"version": "0.0.1"})["fault"]
    assert found["dataset_plan"]([{"name": "digits"}])["sets"][0]["kind"] == "digits"
    twice = [{"name": "a", "kind": "generated"}, {"name": "a", "kind": "generated"}]
    assert found["dataset_plan"](twice)["fault"].startswith("dataset_sets cannot be used: a: two data sets have this")


def test_versions_in_an_environment():
    environment = {"version": "3.11.2", "packages": {"torch": "2.13.0"}}
    told = filters()["versions_in"](environment, {"torch": "torch %s", "numpy": "numpy %s"})
    assert told == "torch 2.13.0, numpy missing, Python 3.11"


def test_findings_as_a_text():
    finding = {"host": "n1", "check": "mpirun", "found": "none", "expected": "one", "action": "install it"}
    told = filters()["findings_text"]([finding], "Stop: {count} {findings}.")
    assert told.splitlines()[:3] == ["Stop: 1 finding.", "", "  1. mpirun on n1"]


SAID = "trainyard:hostname=%s\ntrainyard:os_id=debian\ntrainyard:os_version=12\ntrainyard:python=3.11.2\n%d\n"


def test_cluster_survey_judges_the_answers_of_all_hosts():
    skipped = {"skipped": True, "skip_reason": "Conditional result was False"}
    answer = {"rc": 0, "stdout": SAID % ("n1", 0)}
    one = {"name": "n1", "trainyard_become": True, "__validate_probe": answer, "__validate_plain": skipped}
    other = {
        "name": "n2",
        "ansible_host": "n1",
        "trainyard_become": True,
        "__validate_probe": {"rc": 1, "stdout": "", "stderr": "sudo: a password is required\n", "msg": "non-zero"},
        "__validate_plain": {"rc": 0, "stdout": SAID % ("n2", 1000)},
    }
    survey = filters()["cluster_survey"]
    assert survey([one], {}, True) == {
        "fault": "",
        "summary": "1 node: debian 12; Python 3.11.2; at least 0 GiB free",
    }
    told = survey([one, other], {}, True)["fault"]
    assert told.startswith("These hosts cannot become nodes yet: 2 findings. Nothing was changed.")
    assert "become on n2" in told and "inventory on n1, n2" in told
    plain = {**one, "__validate_probe": {"rc": 0, "stdout": SAID % ("n1", 1000)}}
    assert "become on n1" in survey([plain], {}, True)["fault"]
    assert survey([{**plain, "trainyard_become": False}], {}, True)["fault"] == ""
