"""Majority votes over what nodes should have in common, and over their clocks."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.findings.checks import STATES
from ansible.module_utils.trainyard.verify.drift import check_nodes, groups_of, verify
from ansible.module_utils.trainyard.verify.drift_clocks import check_clocks
from ansible.module_utils.trainyard.verify.drift_facts import FACTS
from hypothesis import given
from hypothesis import strategies as st

GPU, NIC = "10de:2330", "15b3:1021"
FACTS_OF_A_NODE = {
    "kernel": "6.1.0-31-amd64",
    "os": "debian 12.9",
    "memory_mib": 1000000,
    "mtu": 9000,
    "openmpi": "4.1.4",
    "torch": "2.13.0",
    "driver": "",
}
PACKAGES = {"python": "3.11.2", "torch": "2.13.0", "numpy": "2.4.6"}


def node(host, *, hardware=(NIC,), packages=None, group="", **facts):
    return {
        "host": host,
        "hostname": host,
        "group": group,
        "hardware": list(hardware),
        "facts": {**FACTS_OF_A_NODE, **facts},
        "environments": {"pytorch": PACKAGES if packages is None else packages},
    }


def cluster(count, **odd):
    """Make nodes n1 to n{count}; keywords are changes of single ones: n3={"kernel": "5.10"}."""
    return [node(f"n{number}", **odd.get(f"n{number}", {})) for number in range(1, count + 1)]


def of(checks, name):
    return [check for check in checks if check.name == name]


def only(checks, name):
    (check,) = of(checks, name)
    return check


def test_equal_nodes_pass_with_what_they_have():
    checks = check_nodes(cluster(4))
    assert {check.state for check in checks} == {"pass", "skipped"}
    kernel = only(checks, "kernel")
    assert (kernel.state, kernel.found, kernel.hosts) == ("pass", "6.1.0-31-amd64", ())
    assert only(checks, "environment pytorch").found == "3 equal packages"
    assert only(checks, "driver").reason == "no node has it"


def test_the_odd_node_is_named_with_the_difference():
    check = only(check_nodes(cluster(4, n3={"kernel": "6.1.0-30-amd64"}), inventory="-i hosts"), "kernel")
    assert (check.state, check.hosts) == ("fail", ("n3",))
    assert check.found == "6.1.0-30-amd64 on n3"
    assert check.expected == "6.1.0-31-amd64, as on n1, n2, n4"
    assert check.reason == "n3 differs from the other 3"
    assert check.command == "ansible n3 -i hosts -m ansible.builtin.shell -a 'uname -r'"
    assert check.source == "majority of 4 nodes with 15b3:1021"
    assert check.data == {"values": {"n3": "6.1.0-30-amd64"}}


def test_two_nodes_that_differ_have_no_odd_one():
    check = only(check_nodes(cluster(2, n2={"mtu": 1500})), "MTU of the job's interface")
    assert (check.state, check.hosts) == ("fail", ("n1", "n2"))
    assert check.found == "9000 on n1; 1500 on n2"
    assert "no value has a majority of 2 nodes" in check.reason


def test_a_tie_names_both_sides():
    check = only(check_nodes(cluster(4, n1={"openmpi": "5.0.5"}, n2={"openmpi": "5.0.5"})), "Open MPI")
    assert (check.state, check.hosts) == ("fail", ("n1", "n2", "n3", "n4"))
    assert check.found == "5.0.5 on n1, n2; 4.1.4 on n3, n4"


def test_one_node_has_nothing_to_be_compared_with():
    checks = check_nodes(cluster(1))
    assert {check.state for check in checks} == {"skipped"}
    assert {check.reason for check in checks} == {"there is one node, and nothing to compare it with"}


def test_an_unreadable_value_is_unknown_and_the_others_are_compared():
    checks = of(check_nodes(cluster(4, n2={"kernel": None}, n4={"kernel": "5.10"})), "kernel")
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n2",)), ("fail", ("n4",))]
    assert checks[1].expected == "6.1.0-31-amd64, as on n1, n3"


def test_a_speed_that_no_card_of_the_kind_has_is_not_unknown():
    """Virtual network cards: -1 or nothing in /sys/class/net/eth0/speed."""
    name = "speed of the job's interface"
    for count in (1, 2, 3):
        check = only(check_nodes([node(f"n{number}", nic_speed=None) for number in range(count)]), name)
        assert check.state == "skipped"
        assert ("one node" if count == 1 else "knows no speed") in check.reason
    # A card that loses what its like have, is one that should have been read.
    checks = of(
        check_nodes([node("n1", nic_speed=10000), node("n2", nic_speed=10000), node("n3", nic_speed=None)]), name
    )
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n3",)), ("pass", ())]
    kinds = [node("n1", nic_speed=None, hardware=["1af4:1000"]), node("n2", nic_speed=10000)]
    assert only(check_nodes(kinds), name).state == "skipped"


def test_nodes_of_which_only_one_could_be_read_do_not_pass():
    checks = of(check_nodes(cluster(2, n2={"kernel": None})), "kernel")
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n2",))]


def test_something_that_is_missing_on_one_node_is_drift():
    check = only(check_nodes(cluster(3, n2={"torch": ""})), "PyTorch")
    assert (check.state, check.hosts, check.found) == ("fail", ("n2",), "none on n2")


def test_hardware_facts_are_compared_among_nodes_of_one_kind_and_job_facts_among_all():
    gpu = {"hardware": [GPU, NIC], "kernel": "5.15", "driver": "570.86.15"}
    nodes = cluster(6, n1=gpu, n2=gpu, n3={**gpu, "driver": "570.86.16"}, n6={"torch": "2.12.0"})
    checks = check_nodes(nodes)
    assert only(checks, "kernel").state == "pass"
    assert only(checks, "kernel").found == "5.15; 6.1.0-31-amd64"
    assert only(checks, "driver").hosts == ("n3",)
    assert only(checks, "driver").source == "majority of 3 nodes with 10de:2330, 15b3:1021"
    assert only(checks, "PyTorch").hosts == ("n6",)
    assert only(checks, "hardware").found == "3 with 10de:2330, 15b3:1021; 3 with 15b3:1021"


def test_a_node_with_fewer_gpus_is_of_the_same_kind():
    gpu = {"hardware": [GPU, NIC], "gpus": "8 x H100"}
    check = only(check_nodes(cluster(3, n1=gpu, n2={**gpu, "gpus": "7 x H100"}, n3=gpu)), "accelerators")
    assert (check.state, check.hosts, check.found) == ("fail", ("n2",), "7 x H100 on n2")


def test_a_node_that_only_lacks_what_the_others_have_is_unknown_until_it_is_declared():
    gpu = {"hardware": [GPU, NIC]}
    check = only(check_nodes(cluster(4, n1=gpu, n2=gpu, n3=gpu)), "hardware")
    assert (check.state, check.hosts, check.found) == ("unknown", ("n4",), "no 10de:2330 (PCI)")
    assert "verify_group" in check.action
    declared = check_nodes(cluster(4, n1=gpu, n2=gpu, n3=gpu, n4={"group": "login"}))
    assert only(declared, "hardware").state == "pass"


def test_declared_groups_count_whatever_was_found():
    nodes = cluster(4, n1={"group": "a"}, n2={"group": "a"}, n3={"group": "b"}, n4={"group": "b"})
    assert groups_of(nodes) == {"a": ["n1", "n2"], "b": ["n3", "n4"]}


@pytest.mark.parametrize(
    ("memory", "state"), [(1000000, "pass"), (975000, "pass"), (937500, "fail"), (1032000, "fail")]
)
def test_memory_may_differ_a_little(memory, state):
    checks = of(check_nodes(cluster(4, n2={"memory_mib": memory})), "memory")
    assert [check.state for check in checks] == [state]
    if state == "fail":
        assert checks[0].hosts == ("n2",)
        assert checks[0].found == f"{memory} MiB on n2"


def test_a_package_of_another_version_is_named():
    other = {**PACKAGES, "numpy": "2.4.5", "pip": "24.0"}
    check = only(check_nodes(cluster(3, n3={"packages": other})), "environment pytorch")
    assert (check.state, check.hosts) == ("fail", ("n3",))
    assert check.found == "numpy 2.4.5 instead of 2.4.6, pip 24.0 in addition on n3"
    assert check.expected == "as on the other 2"


def test_a_missing_environment_is_drift():
    nodes = cluster(3)
    nodes[1]["environments"] = {}
    assert only(check_nodes(nodes), "environment pytorch").found == "missing on n2"


def test_two_different_environments_are_compared_with_the_first():
    check = only(check_nodes(cluster(2, n2={"packages": {**PACKAGES, "torch": "2.12.0"}})), "environment pytorch")
    assert (check.state, check.hosts) == ("fail", ("n1", "n2"))
    assert check.found == "compared with n1: torch 2.12.0 instead of 2.13.0 on n2"


def test_host_names_held_twice_fail():
    nodes = cluster(3)
    nodes[2]["hostname"] = "N1.example"
    check = only(check_nodes(nodes), "host names")
    assert (check.state, check.hosts, check.found) == ("fail", ("n1", "n3"), "n1 on n1, n3")


def test_what_is_to_be_ignored_is_not_compared():
    nodes = cluster(3, n3={"kernel": "5.10", "packages": {}})
    checks = check_nodes(nodes, ignore=["kernel", "pytorch"])
    assert not of(checks, "kernel") and not of(checks, "environment pytorch")


def test_no_node_at_all_is_unknown():
    assert [check.state for check in check_nodes([])] == ["unknown"]


def test_a_thousand_nodes_need_few_lines():
    checks = check_nodes([node(f"n{number}", kernel="5.10" if number == 512 else "6.1") for number in range(1, 1001)])
    check = only(checks, "kernel")
    assert check.hosts == ("n512",)
    assert len(check.expected) < 100


values = st.one_of(st.none(), st.just(""), st.text("ab", max_size=2), st.integers(0, 3))


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(("kernel", "mtu", "torch", "memory_mib"), values)), max_size=7))
def test_every_vote_ends_in_records_that_fit(rows):
    nodes = [node(f"n{number}", **facts) for number, facts in enumerate(rows)]
    checks = check_nodes(nodes)
    assert checks and {check.state for check in checks} <= set(STATES)
    for key in ("kernel", "mtu", "torch"):
        found = of(checks, FACTS[key].name)
        known = {row[key] for row in rows if row[key] is not None}
        if any(check.state == "pass" for check in found):
            assert len(known) == 1
        # Nobody is both odd and unread, and none passes what was not read.
        assert sum(len(check.hosts) for check in found) == len({host for check in found for host in check.hosts})
        unread = {f"n{number}" for number, row in enumerate(rows) if row[key] is None}
        assert unread == {host for check in found if check.state == "unknown" for host in check.hosts}


# clocks


def clock(offset, margin=0.002):
    return {"offset_s": offset, "margin_s": margin}


@pytest.mark.parametrize(
    ("clocks", "states", "hosts"),
    [
        ({"n1": clock(0.1), "n2": clock(0.2), "n3": clock(0.15)}, ["pass"], ()),
        ({"n1": clock(0.1), "n2": clock(9.0), "n3": clock(0.0)}, ["fail"], ("n2",)),
        # All are off against the controller, which is none of the nodes.
        ({"n1": clock(7200.0), "n2": clock(7200.1), "n3": clock(7200.0)}, ["pass"], ()),
        ({"n1": clock(0.0), "n2": clock(1.5, 0.9), "n3": clock(0.0)}, ["pass"], ()),
        ({"n1": clock(0.0), "n2": clock(0.0, 4.0), "n3": clock(0.0)}, ["unknown"], ("n2",)),
        ({"n1": clock(0.0), "n2": None, "n3": clock(0.0)}, ["unknown"], ("n2",)),
        ({"n1": clock(0.0)}, ["skipped"], ()),
        ({"n1": None}, ["unknown"], ("n1",)),
    ],
)
def test_clocks(clocks, states, hosts):
    checks = check_clocks(clocks, 1.0)
    assert [check.state for check in checks] == states
    assert checks[0].hosts == hosts


def test_a_clock_that_is_off_says_by_how_much():
    check = check_clocks({"n1": clock(0.0), "n2": clock(-60.0), "n3": clock(0.0)}, 1.0)[0]
    assert (check.found, check.data) == ("n2 -60.000 s", {"offsets": {"n2": -60.0}})


# what all nodes said


def test_nodes_without_an_answer_are_left_out():
    results = {name: {"host": name, **node(name)} for name in ("n1", "n2", "n3")}
    results["n4"] = {"unreachable": True, "msg": "Failed to connect"}
    results["n5"] = {}
    clocks = {"n1": clock(0.0), "n2": clock(0.0), "n3": {"failed": True, "msg": "no date"}}
    for name, reading in clocks.items():
        results[name]["clock"] = reading
    checks, groups = verify(results, groups={"n1": ""})
    assert groups == {NIC: ["n1", "n2", "n3"]}
    offset = [check for check in checks if check.name == "time offset"]
    assert [(check.state, list(check.hosts)) for check in offset] == [("unknown", ["n3"])]
    assert {check.state for check in checks if check.name != "time offset"} == {"pass", "skipped"}
    (alone,) = verify({"n4": results["n4"]}, groups={})[0]
    assert (alone.name, alone.state) == ("facts", "unknown")
