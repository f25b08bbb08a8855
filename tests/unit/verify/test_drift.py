"""Majority votes over what nodes should have in common, and over their clocks."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.base.checks import STATES
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
GPU_NODE = {"hardware": [GPU, NIC]}


def node(host, *, hardware=(NIC,), packages=PACKAGES, group="", hostname="", **facts):
    return {
        "host": host,
        "hostname": hostname or host,
        "group": group,
        "hardware": list(hardware),
        "facts": {**FACTS_OF_A_NODE, **facts},
        "environments": {"pytorch": packages} if packages is not None else {},
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
    assert only(checks, "driver").reason == "not on any node"


def test_the_odd_node_is_named_with_the_difference():
    check = only(check_nodes(cluster(4, n3={"kernel": "6.1.0-30-amd64"}), inventory="-i hosts"), "kernel")
    assert (check.state, check.hosts, check.found) == ("fail", ("n3",), "6.1.0-30-amd64 on n3")
    assert check.expected == "6.1.0-31-amd64, as on n1, n2, n4"
    assert check.reason == "differs from the other 3"
    assert check.command == "ansible n3 -i hosts -m ansible.builtin.shell -a 'uname -r'"
    assert check.source == "majority of 4 nodes with 15b3:1021"
    assert check.data == {"values": {"n3": "6.1.0-30-amd64"}}


TIE = {"n1": {"openmpi": "5.0.5"}, "n2": {"openmpi": "5.0.5"}}
SEVEN = {"n1": {**GPU_NODE, "gpus": "8 x H100"}, "n2": {**GPU_NODE, "gpus": "7 x H100"}}


@pytest.mark.parametrize(
    ("count", "odd", "name", "state", "hosts", "found"),
    [
        (2, {"n2": {"mtu": 1500}}, "MTU of the job's interface", "fail", ["n1", "n2"], "9000 on n1; 1500 on n2"),
        (4, TIE, "Open MPI", "fail", ["n1", "n2", "n3", "n4"], "5.0.5 on n1, n2; 4.1.4 on n3, n4"),
        (3, {"n2": {"torch": ""}}, "PyTorch", "fail", ["n2"], "none on n2"),
        # A node with fewer GPUs is of the same kind.
        (3, {**SEVEN, "n3": SEVEN["n1"]}, "accelerators", "fail", ["n2"], "7 x H100 on n2"),
        (3, {"n3": {"hostname": "N1.example"}}, "host names", "fail", ["n1", "n3"], "n1 on n1, n3"),
        (3, {"n2": {"packages": None}}, "environment pytorch", "fail", ["n2"], "missing on n2"),
        # Only one of two could be read.
        (2, {"n2": {"kernel": None}}, "kernel", "unknown", ["n2"], ""),
        (4, {"n2": {"memory_mib": 975000}}, "memory", "pass", [], ""),
        (4, {"n2": {"memory_mib": 937500}}, "memory", "fail", ["n2"], "937500 MiB on n2"),
        (4, {"n2": {"memory_mib": 1032000}}, "memory", "fail", ["n2"], "1032000 MiB on n2"),
    ],
)
def test_nodes_that_differ(count, odd, name, state, hosts, found):
    check = only(check_nodes(cluster(count, **odd)), name)
    assert (check.state, list(check.hosts)) == (state, hosts)
    assert check.found == found or not found


@pytest.mark.parametrize(
    ("count", "packages", "hosts", "found"),
    [
        (3, {"numpy": "2.4.5", "pip": "24.0"}, ["n3"], "numpy 2.4.5 instead of 2.4.6, pip 24.0 in addition on n3"),
        (2, {"torch": "2.12.0"}, ["n1", "n2"], "compared with n1: torch 2.12.0 instead of 2.13.0 on n2"),
    ],
)
def test_packages_of_another_version_are_named(count, packages, hosts, found):
    nodes = cluster(count, **{f"n{count}": {"packages": {**PACKAGES, **packages}}})
    check = only(check_nodes(nodes), "environment pytorch")
    assert (check.state, list(check.hosts), check.found) == ("fail", hosts, found)


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
    # A card without the speed that its like have is one that should have been read.
    checks = of(
        check_nodes([*(node(host, nic_speed=10000) for host in ("n1", "n2")), node("n3", nic_speed=None)]), name
    )
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n3",)), ("pass", ())]
    kinds = [node("n1", nic_speed=None, hardware=["1af4:1000"]), node("n2", nic_speed=10000)]
    assert only(check_nodes(kinds), name).state == "skipped"


def test_hardware_facts_are_compared_among_nodes_of_one_kind_and_job_facts_among_all():
    gpu = {**GPU_NODE, "kernel": "5.15", "driver": "570.86.15"}
    checks = check_nodes(cluster(6, n1=gpu, n2=gpu, n3={**gpu, "driver": "570.86.16"}, n6={"torch": "2.12.0"}))
    kernel, driver = only(checks, "kernel"), only(checks, "driver")
    assert (kernel.state, kernel.found) == ("pass", "5.15; 6.1.0-31-amd64")
    assert (driver.hosts, driver.source) == (("n3",), "majority of 3 nodes with 10de:2330, 15b3:1021")
    assert only(checks, "PyTorch").hosts == ("n6",)
    assert only(checks, "hardware").found == "3 with 10de:2330, 15b3:1021; 3 with 15b3:1021"


def test_a_node_without_the_hardware_of_the_others_is_unknown_until_it_is_declared():
    gpus = {"n1": GPU_NODE, "n2": GPU_NODE, "n3": GPU_NODE}
    check = only(check_nodes(cluster(4, **gpus)), "hardware")
    assert (check.state, check.hosts, check.found) == ("unknown", ("n4",), "no 10de:2330 (PCI)")
    assert "verify_group" in check.action
    assert only(check_nodes(cluster(4, **gpus, n4={"group": "login"})), "hardware").state == "pass"


def test_declared_groups_count_whatever_was_found():
    nodes = cluster(4, n1={"group": "a"}, n2={"group": "a"}, n3={"group": "b"}, n4={"group": "b"})
    assert groups_of(nodes) == {"a": ["n1", "n2"], "b": ["n3", "n4"]}


def test_ignored_facts_and_environments_are_not_compared():
    checks = check_nodes(cluster(3, n3={"kernel": "5.10", "packages": {}}), ignore=["kernel", "pytorch"])
    assert not of(checks, "kernel") and not of(checks, "environment pytorch")


def test_a_check_of_a_thousand_nodes_is_short():
    check = only(check_nodes(cluster(1000, n512={"kernel": "5.10"})), "kernel")
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


def test_nodes_without_facts_are_left_out():
    results = {name: {**node(name), "clock": clock(0.0)} for name in ("n1", "n2", "n3")}
    results["n3"]["clock"] = {"failed": True, "msg": "no date"}
    results["n4"] = {"unreachable": True, "msg": "Failed to connect"}
    results["n5"] = {}
    checks, groups = verify(results, groups={"n1": ""})
    assert groups == {NIC: ["n1", "n2", "n3"]}
    assert [(check.state, check.hosts) for check in of(checks, "time offset")] == [("unknown", ("n3",))]
    assert {check.state for check in checks if check.name != "time offset"} == {"pass", "skipped"}
    (alone,) = verify({"n4": results["n4"]}, groups={})[0]
    assert (alone.name, alone.state) == ("facts", "unknown")
