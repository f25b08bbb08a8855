"""Checks of the connections between nodes."""

from __future__ import annotations

import itertools
import signal

import pytest
from ansible.module_utils.trainyard.cluster.ssh_peers import distances
from ansible.module_utils.trainyard.verify.reach import Failure, check_network, check_ssh, suspects, usable, verify
from ansible.module_utils.trainyard.verify.reach_names import check_addresses, check_names
from ansible.module_utils.trainyard.verify.reporting_hosts import check_answers
from ansible.module_utils.trainyard_node.verify.peer_connections import DATA, RENDEZVOUS
from hypothesis import given
from hypothesis import strategies as st


def ways(*pairs, way="w", reason="no answer"):
    return [Failure(source, target, way, reason) for source, target in pairs]


HOSTS = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize(
    ("failures", "odd", "left"),
    [
        ([], [], 0),
        (ways(("n1", "n3"), ("n2", "n3"), ("n4", "n3")), ["n3"], 0),
        (ways(("n3", "n1"), ("n3", "n2"), ("n3", "n4")), ["n3"], 0),
        # Two of three others: more than half.
        (ways(("n1", "n3"), ("n2", "n3")), ["n3"], 0),
        # One pair is nobody's fault alone.
        (ways(("n1", "n3"), ("n3", "n1")), [], 2),
        (ways(("n1", "n3"), ("n2", "n4")), [], 2),
        # Two bad nodes at once: between the two good ones nothing is wrong.
        (ways(*(pair for pair in itertools.permutations(HOSTS, 2) if {"n2", "n4"} & set(pair))), ["n4", "n2"], 0),
    ],
)
def test_hosts_explain_failures(failures, odd, left):
    found, rest = suspects(failures, HOSTS)
    assert (found, len(rest)) == (odd, left)


def test_a_host_is_named_also_where_each_tried_only_its_next_ones():
    hosts = [f"n{number}" for number in range(1000)]
    around = [number for number in range(500 - 8, 500 + 9) if number != 500]
    failures = ways(*((f"n{number}", "n500") if number < 500 else ("n500", f"n{number}") for number in around))
    assert suspects(failures, hosts, 16) == (["n500"], [])
    assert suspects(failures, hosts)[0] == []


@pytest.mark.parametrize(
    ("failures", "usable_hosts"),
    [
        ([], HOSTS),
        (ways(("n1", "n3"), ("n2", "n3")), ["n1", "n2", "n4"]),
        # The later one goes: the first host is the head of jobs.
        (ways(("n1", "n3")), ["n1", "n2", "n4"]),
        (ways(("n3", "n1")), ["n1", "n2", "n4"]),
        (ways(("n1", "n2"), ("n3", "n4")), ["n1", "n3"]),
        (ways(*itertools.permutations(HOSTS, 2)), ["n1"]),
        (ways(("n1", "gone")), HOSTS),
    ],
)
def test_hosts_that_jobs_can_use(failures, usable_hosts):
    assert usable(HOSTS, failures) == usable_hosts


pairs = st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)).filter(lambda pair: pair[0] != pair[1])


@given(st.lists(pairs, max_size=12))
def test_no_way_between_usable_hosts_failed(chosen):
    failures = ways(*chosen)
    found = usable(HOSTS, failures)
    assert found and found == [host for host in HOSTS if host in found]
    assert not [failure for failure in failures if failure.source in found and failure.target in found]


def row(failures=(), tried=6, resolved=0, names=()):
    return {"tried": tried, "failures": list(failures), "resolved": resolved, "names": list(names)}


def network(failures=(), *, dead=(), mute=(), hosts=HOSTS):
    listeners = {host: {"msg": "nothing can listen"} if host in mute else {"endpoint": {}} for host in hosts}
    ended = {host: host not in dead for host in hosts}
    rows = {host: row() for host in hosts if host not in mute}
    for source, target, way, reason in failures:
        rows[source]["failures"].append({"host": target, "way": way, "reason": reason})
    return check_network(listeners, ended, rows, "-i hosts")


def summary(checks):
    return [(check.state, check.hosts) for check in checks]


def test_connections_that_all_work_pass():
    (check,), failures = network()
    assert (check.state, check.found, failures) == ("pass", "24 connections between 4 nodes", [])


def test_pairs_that_were_not_tried_are_counted():
    hosts = [f"n{number}" for number in range(1, 101)]
    rows = {host: row(tried=2 * 8) for host in hosts}
    listeners, lived = {host: {"endpoint": {}} for host in hosts}, dict.fromkeys(hosts, True)
    (check,), _ = check_network(listeners, lived, rows)
    assert check.found == "1600 connections between 100 nodes, each with 16 others; not tried: 4150 pairs"
    # 9 of its 16 partners fail with n5: more than half of those that tried.
    near = [hosts[(4 + distance) % 100] for distance in distances(100, 8)]
    far = [hosts[4 - distance] for distance in distances(100, 8)]
    rows["n5"]["failures"] = [{"host": host, "way": RENDEZVOUS, "reason": "no answer"} for host in near]
    rows[far[0]]["failures"] = [{"host": "n5", "way": RENDEZVOUS, "reason": "no answer"}]
    (check,), _ = check_network(listeners, lived, rows)
    assert (check.state, check.hosts) == ("fail", ("n5",))
    assert check.reason == "1 node does not reach it and it does not reach 8 others"


def test_a_node_that_nobody_reaches_is_named():
    found = ways(("n1", "n3"), ("n2", "n3"), ("n4", "n3"), way=RENDEZVOUS, reason="no answer within 10 s")
    (check,), _ = network(found)
    assert (check.state, check.hosts, check.reason) == ("fail", ("n3",), "3 nodes do not reach it")
    assert check.found == "n1 -> n3, n2 -> n3, n4 -> n3: no answer within 10 s (rendezvous port)"
    assert "firewall and routes of n3" in check.action
    assert check.command.startswith("ansible n3 -i hosts -b")
    assert check.data == {"pairs": 3}


@pytest.mark.parametrize(
    ("pairs", "hosts", "reason"),
    [
        ([("n4", "n1")], ("n1", "n4"), "1 pair does not get through"),
        # Nothing works: one fault.
        (list(itertools.permutations(HOSTS, 2)), tuple(HOSTS), "12 pairs do not get through"),
    ],
)
def test_pairs_are_named_where_no_node_explains_them(pairs, hosts, reason):
    (check,), _ = network(ways(*pairs))
    assert (check.state, check.hosts, check.reason) == ("fail", hosts, reason)


def test_a_listener_that_ended_early_or_never_started_is_no_result_about_the_network():
    checks, failures = network(ways(("n1", "n3"), ("n2", "n3"), reason="connection refused"), dead=["n3"])
    assert (summary(checks), failures) == ([("unknown", ("n3",))], [])
    assert checks[0].found == "its listener ended early"
    # After all others had connected, it is no fault.
    assert summary(network(dead=["n3"])[0]) == [("pass", ())]
    assert summary(network(mute=["n2"])[0]) == [("unknown", ("n2",))]


@pytest.mark.parametrize("by", [{host: host for host in HOSTS}, {"n1": "10.0.0.1", "n2": "10.0.0.2", "n3": "10.0.0.3"}])
def test_ssh(by):
    """By names, or by addresses where the hosts do not know the names."""
    failure = {"peer": by["n3"], "targets": "n3, 10.0.0.3", "reason": "train@n3: Permission denied (publickey)."}
    results = {
        "n1": {"row": {"n2": True, "n3": False}, "logins": 4, "failures": [failure]},
        "n2": {"row": {"n1": True, "n3": False}, "logins": 4, "failures": [failure]},
        "n3": {"row": {"n1": True, "n2": True}, "logins": 4, "failures": []},
    }
    (check,) = check_ssh(results, "train", "-i hosts", by)
    assert (check.state, check.hosts, check.reason) == ("fail", ("n3",), "2 nodes do not reach it")
    assert check.found == "n1 -> n3, n2 -> n3: train@n3: Permission denied (publickey). (ssh)"
    assert "journalctl -t sshd" in check.action and '"verify_phases": ["reach"]' in check.command


def test_ssh_that_no_node_could_test_is_one_check():
    results = {name: {"msg": f"{name}: there is no user train; run the role node_baseline first."} for name in HOSTS}
    checks = check_ssh(results, "train")
    assert summary(checks) == [("unknown", tuple(HOSTS))]
    assert checks[0].found == "there is no user train; run the role node_baseline first."


def test_names():
    rows = {host: row(resolved=3) for host in ("n1", "n2", "n3")}
    assert [(check.state, check.found) for check in check_names(rows)] == [("pass", "9 names resolve")]
    rows["n2"]["names"] = [{"host": "n2", "name": "n2", "found": "127.0.1.1", "expected": "10.0.0.2"}]
    (check,) = check_names(rows)
    assert (check.state, check.hosts, check.found) == ("fail", ("n2",), "n2 leads to 127.0.1.1 on n2")
    assert "getent ahosts n2" in check.command


def test_a_node_that_finds_one_wrong_name_of_two_others_is_named_once():
    wrong = {"name": "vm", "found": "127.0.0.1", "expected": "10.77.0.2"}
    (check,) = check_names({f"n{n}": row(resolved=2, names=[wrong, wrong]) for n in (1, 2)})
    assert check.found.endswith(" to 127.0.0.1 on n1, n2") and check.hosts == ("n1", "n2")


def test_many_names_that_lead_nowhere_on_the_same_nodes_are_one_fault():
    wrong = [{"host": f"n{n}", "name": f"n{n}", "found": "nothing", "expected": f"10.0.0.{n}"} for n in range(1, 101)]
    (check,) = check_names({f"n{n}": row(resolved=100, names=wrong) for n in range(1, 101)})
    assert len(check.hosts) == 100
    assert check.found.startswith("n1 to n100 lead to nothing on n1 to n100")


def test_addresses():
    well = {"address": "10.0.0.1", "problem": "", "action": ""}
    none = {"address": "", "problem": "lo; expected an address in 10.0.0.0/24", "action": "set job_network"}
    assert summary(check_addresses({"n1": well}, "")) == [("pass", ())]
    checks = check_addresses({"n1": well, "n2": none, "n3": dict(well)}, "10.0.0.0/24")
    assert summary(checks) == [("fail", ("n2",)), ("fail", ("n1", "n3"))]
    assert checks[0].action == "set job_network"


def test_checks_are_skipped_where_no_node_answers():
    (check,), failures = network(hosts=[])
    assert (check.state, check.reason, failures) == ("skipped", "no node could take part", [])
    assert [check.state for check in check_addresses({}, "") + check_names({})] == ["skipped", "skipped"]


def test_hosts_without_facts():
    lost = {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: timed out"}
    checks = check_answers({"n2": lost, "n3": {"msg": "no Python"}, "n4": {}}, HOSTS, "-i hosts")
    assert summary(checks) == [("fail", ("n2",)), ("unknown", ("n3",)), ("unknown", ("n4",))]
    assert checks[2].found == "it was left out by an earlier step"
    assert [check.found for check in check_answers({}, HOSTS)] == ["4 of 4 nodes"]


def test_a_shared_connection_that_broke_without_a_reason_is_no_answer():
    lost = 'Data could not be sent to remote host "10.0.0.2". Make sure this host can be reached over ssh:'
    assert [check.found for check in check_answers({"n2": {"unreachable": True, "msg": lost}}, HOSTS)] == ["no answer"]


def facts_of(host, address):
    network = {"address": address, "problem": "none", "action": "do", "interface": "eth0", "addresses": []}
    return {"host": host, "facts": {"kernel": "6.1"}, "network": network}


def test_hosts_that_jobs_cannot_use_are_left_out():
    alarm = signal.getsignal(signal.SIGALRM)
    results = {f"n{number}": facts_of(f"n{number}", f"10.0.0.{number}") for number in range(1, 6)}
    results["n2"] = {"unreachable": True, "msg": "timed out"}
    results["n4"] = facts_of("n4", "")
    rows = {host: row(resolved=3) for host in ("n1", "n3", "n5")}
    rows["n5"]["failures"] = [{"host": "n1", "way": DATA, "reason": "no answer"}]
    listeners, ended = {host: {"endpoint": {}} for host in rows}, {host: {"lived": True} for host in rows}
    checks, able, nodes = verify(results, listeners, ended, rows, None)
    assert able == ["n1", "n3"]
    assert {node["host"]: node["address"] for node in nodes if node["address"]} == {
        f"n{number}": f"10.0.0.{number}" for number in (1, 3, 5)
    }
    assert [(check.name, check.state, *check.hosts) for check in checks] == [
        ("answer", "fail", "n2"),
        ("job address", "fail", "n4"),
        ("job network", "fail", "n1", "n5"),
        ("names", "pass"),
        ("ssh", "not_asked"),
    ]
    # The handler of an earlier test stays.
    assert signal.getsignal(signal.SIGALRM) == alarm
