"""Ways between nodes: real listeners and connections on this machine's loopback addresses, and the judge of pairs."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.cluster.ssh_logins import distances
from ansible.module_utils.trainyard.verify.reach import Failure, judge_network, judge_ssh, suspects, usable, verify
from ansible.module_utils.trainyard.verify.reach_names import judge_addresses, judge_names
from ansible.module_utils.trainyard.verify.who_answered import judge_answers
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job import processes
from ansible.module_utils.trainyard_node.verify import reach as node_reach
from ansible.module_utils.trainyard_node.verify.reach import (
    DATA,
    RENDEZVOUS,
    Peer,
    connect_all,
    greeting,
    read_peers,
    start_listener,
    stop_listener,
    wrong_names,
)
from hypothesis import given
from hypothesis import strategies as st

TOKEN = "trainyard-1"  # noqa: S105 (tells a test from other services)


@pytest.fixture
def listen():
    """Start listeners as nodes would, each on its own loopback address, and end what a test has left."""
    started = []

    def start(host, address="127.0.0.1", token=TOKEN, life=60):
        found = start_listener(address, host, token, life)
        started.append(found)
        return Peer(host, address, found["ports"], "localhost", [address]), found

    yield start
    for found in started:
        stop_listener(found["pid"], found["start_time"])


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def peer_of(port, host="n9"):
    return Peer(host, "127.0.0.1", {RENDEZVOUS: port, DATA: port}, "localhost", ["127.0.0.1"])


@contextlib.contextmanager
def server(handle):
    """Serve one port with a function of the accepted connection, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                handle(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def test_every_node_reaches_every_listener_on_both_ports(listen):
    peers = [listen(f"n{number}", f"127.0.0.{number}")[0] for number in (1, 2, 3)]
    assert connect_all(peers, TOKEN, 30, 4) == (6, [])
    ports = peers[0].ports
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert ports[RENDEZVOUS] >= 10000
    assert not first <= ports[RENDEZVOUS] <= last
    assert first <= ports[DATA] <= last


def test_a_listener_ends_when_it_is_told_to(listen):
    peer, found = listen("n1")
    assert stop_listener(found["pid"], found["start_time"]) is True
    wait_until(lambda: processes.start_time(found["pid"]) is None)
    assert stop_listener(found["pid"], found["start_time"]) is False
    tried, failures = connect_all([peer], TOKEN, 30, 4)
    assert (tried, {failure["reason"] for failure in failures}) == (2, {"connection refused"})


def test_a_listener_ends_by_itself(listen):
    _, found = listen("n1", life=1)
    wait_until(lambda: processes.start_time(found["pid"]) is None)


def test_a_process_that_only_has_the_number_is_left_alone():
    assert stop_listener(os.getpid(), processes.start_time(os.getpid()) - 1) is False
    assert stop_listener(os.getpid(), None) is False


def test_a_caller_that_reads_nothing_blocks_nobody(listen):
    peer, _ = listen("n1")
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection((peer.address, peer.ports[DATA])))
        assert connect_all([peer], TOKEN, 30, 4) == (2, [])


def test_a_listener_holds_nothing_of_the_module_open(listen):
    _, found = listen("n1")
    links = [str(Path(f"/proc/{found['pid']}/fd/{number}").readlink()) for number in (0, 1, 2)]
    assert links == ["/dev/null"] * 3
    assert os.getsid(found["pid"]) != os.getsid(0)


def test_another_node_under_the_address_is_told(listen):
    peer, _ = listen("n1")
    _, failures = connect_all([peer._replace(host="n2")], TOKEN, 30, 4)
    assert {failure["reason"] for failure in failures} == {"answered by n1"}


def test_another_service_on_the_port_is_told():
    def speak(connection):
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.close()

    with server(speak) as port:
        _, failures = connect_all([peer_of(port)], TOKEN, 30, 4)
    assert {failure["reason"] for failure in failures} == {"something else answers: 'SSH-2.0-OpenSSH_9.2\\r'"}


def test_a_connection_that_ends_without_a_word_is_told():
    with server(lambda connection: connection.close()) as port:
        _, failures = connect_all([peer_of(port)], TOKEN, 30, 4)
    assert {failure["reason"] for failure in failures} <= {"ended without a word", "connection reset by peer"}
    assert len(failures) == 2


def test_a_connection_on_which_large_packets_vanish_is_told():
    held = []

    def stop_short(connection):
        connection.sendall(greeting(TOKEN, "n9")[:1000])
        held.append(connection)

    with server(stop_short) as port:
        _, failures = connect_all([peer_of(port)], TOKEN, 1, 4)
    for connection in held:
        connection.close()
    assert {failure["reason"] for failure in failures} == {
        "connected, then only 1000 of 24000 bytes within 1 s: large packets may vanish (MTU)"
    }


def test_a_peer_that_does_not_answer_costs_its_own_time_only(listen, monkeypatch):
    peer, _ = listen("n1")
    # A listener whose backlog is full drops what comes: the nearest to a firewall that an ordinary user can make.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    full = []
    for _ in range(8):
        caller = socket.socket()
        caller.setblocking(False)
        caller.connect_ex(silent.getsockname())
        full.append(caller)
    try:
        tried, failures = connect_all([peer_of(silent.getsockname()[1]), peer], TOKEN, 2, 4)
    finally:
        for caller in (silent, *full):
            caller.close()
    assert tried == 4
    assert {(failure["host"], failure["reason"]) for failure in failures} == {("n9", "no answer within 2 s")}


def test_an_address_without_a_route_is_told():
    _, failures = connect_all([Peer("n9", "240.0.0.1", {RENDEZVOUS: 1, DATA: 1}, "", [])], TOKEN, 2, 4)
    assert len(failures) == 2
    assert all(failure["reason"] for failure in failures)


def test_names_lead_to_their_node_or_are_told(monkeypatch):
    known = {"n1": ["10.0.0.1"], "n2": ["127.0.1.1"], "n3": ["10.0.0.9", "10.0.0.3"]}

    def resolve(name, port, type):
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, type, 6, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(node_reach.socket, "getaddrinfo", resolve)
    peers = [Peer(f"n{number}", f"10.0.0.{number}", {}, f"n{number}", [f"10.0.0.{number}"]) for number in range(1, 5)]
    resolved, wrong = wrong_names(peers)
    assert resolved == 4
    assert [(name["name"], name["found"], name["expected"]) for name in wrong] == [
        ("n2", "127.0.1.1", "10.0.0.2"),
        ("n3", "10.0.0.3, 10.0.0.9", "10.0.0.3"),
        ("n4", "nothing (name or service not known)", "10.0.0.4"),
    ]


@pytest.mark.parametrize("records", [[{"host": "n1"}], [1], [{"host": "n1", "and": "more"}]])
def test_peers_that_are_not_as_listeners_return_them_are_refused(records):
    with pytest.raises(ValueError, match="peers are not as listeners returned them"):
        read_peers(records)
    told = agent.connect(host="n1", peers=records, token=TOKEN, timeout_s=1, names=False)
    assert told["failed"] and told["msg"].startswith("n1: connections could not be tried: ")


# what the controller asks


def test_listen_connect_and_end():
    found = agent.listen(host="n1", address="127.0.0.1", addresses=["127.0.0.1"], token=TOKEN, life_s=60)
    try:
        assert set(found["endpoint"]) == {"host", "address", "ports", "hostname", "addresses"}
        me = {**found["endpoint"], "host": "n2", "hostname": ""}
        peers = json.loads(json.dumps([{**found["endpoint"], "hostname": "localhost"}, me]))
        row = agent.connect(host="n2", peers=peers, token=TOKEN, timeout_s=10, names=True)
        assert (row["tried"], row["failures"], row["resolved"]) == (2, [], 1)
        assert agent.connect(host="n2", peers=peers, token=TOKEN, timeout_s=10, names=False)["resolved"] == 0
    finally:
        ended = agent.unlisten(pid=found["pid"], start_time=found["start_time"])
    assert ended == {"lived": True}
    assert agent.unlisten(pid=found["pid"], start_time=None) == {"lived": False}


def test_an_address_that_the_node_does_not_have_is_explained():
    found = agent.listen(host="n1", address="192.0.2.1", addresses=[], token=TOKEN, life_s=60)
    assert found["failed"] and found["msg"].startswith("n1: nothing can listen on 192.0.2.1: ")
    assert found["msg"].endswith("expected an address of this node on the job network, see `ip address`.")


def test_a_user_that_is_not_there_cannot_log_in():
    told = agent.logins(host="n1", nodes=["n2"], user="nosuchuser", connect_timeout=1, parallel=1)
    assert told == {"failed": True, "msg": "n1: there is no user nosuchuser; run the role node_baseline first."}


# judging


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
def test_who_explains_failures(failures, odd, left):
    found, rest = suspects(failures, HOSTS)
    assert (found, len(rest)) == (odd, left)


def test_a_host_is_named_also_where_each_tried_only_its_next_ones():
    hosts = [f"n{number}" for number in range(1000)]
    around = [number for number in range(500 - 8, 500 + 9) if number != 500]
    failures = ways(*((f"n{number}", "n500") if number < 500 else ("n500", f"n{number}") for number in around))
    assert suspects(failures, hosts, 16) == (["n500"], [])
    assert suspects(failures, hosts)[0] == []


@pytest.mark.parametrize(
    ("failures", "kept"),
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
def test_who_can_be_used(failures, kept):
    assert usable(HOSTS, failures) == kept


pairs = st.tuples(st.sampled_from(HOSTS), st.sampled_from(HOSTS)).filter(lambda pair: pair[0] != pair[1])


@given(st.lists(pairs, max_size=12))
def test_no_way_between_usable_hosts_failed(chosen):
    failures = ways(*chosen)
    kept = usable(HOSTS, failures)
    assert kept == [host for host in HOSTS if host in kept]
    assert not [failure for failure in failures if failure.source in kept and failure.target in kept]
    assert kept


def network(failures=(), *, dead=(), mute=(), hosts=HOSTS):
    listeners = {host: {"msg": "nothing can listen"} if host in mute else {"endpoint": {}} for host in hosts}
    ended = {host: host not in dead for host in hosts}
    rows = {host: {"tried": 6, "failures": [], "resolved": 0, "names": []} for host in hosts if host not in mute}
    for source, target, way, reason in failures:
        rows[source]["failures"].append({"host": target, "way": way, "reason": reason})
    return judge_network(listeners, ended, rows, "-i hosts")


def test_all_ways_well():
    (check,), failures = network()
    assert (check.state, check.found, failures) == ("pass", "24 ways between 4 nodes", [])


def test_pairs_that_were_not_tried_are_said():
    hosts = [f"n{number}" for number in range(1, 101)]
    rows = {host: {"tried": 2 * 8, "failures": [], "resolved": 0, "names": []} for host in hosts}
    listeners, lived = {host: {"endpoint": {}} for host in hosts}, dict.fromkeys(hosts, True)
    (check,), _ = judge_network(listeners, lived, rows)
    assert check.found == "1600 ways between 100 nodes, each with 16 others; not tried: 4150 pairs"
    # Of its 16 partners 9 fail with n5: more than half of those that tried.
    near = [hosts[(4 + distance) % 100] for distance in distances(100, 8)]
    far = [hosts[4 - distance] for distance in distances(100, 8)]
    rows["n5"]["failures"] = [{"host": host, "way": RENDEZVOUS, "reason": "no answer"} for host in near]
    rows[far[0]]["failures"] = [{"host": "n5", "way": RENDEZVOUS, "reason": "no answer"}]
    (check,), _ = judge_network(listeners, lived, rows)
    assert (check.state, check.hosts) == ("fail", ("n5",))
    assert check.reason == "1 node does not reach n5 and n5 does not reach 8 others"


def test_a_node_that_nobody_reaches_is_named():
    found = ways(("n1", "n3"), ("n2", "n3"), ("n4", "n3"), way=RENDEZVOUS, reason="no answer within 10 s")
    (check,), _ = network(found)
    assert (check.state, check.hosts, check.reason) == ("fail", ("n3",), "3 nodes do not reach n3")
    assert check.found == "n1 -> n3, n2 -> n3, n4 -> n3: no answer within 10 s (rendezvous port)"
    assert "firewall and routes of n3" in check.action
    assert check.command.startswith("ansible n3 -i hosts -b")
    assert check.data == {"pairs": 3}


def test_a_pair_is_named_where_no_node_explains_it():
    (check,), _ = network(ways(("n4", "n1")))
    assert (check.hosts, check.reason) == (("n1", "n4"), "1 pair does not get through")


def test_a_network_of_which_nothing_is_well_is_one_fault():
    (check,), _ = network(ways(*itertools.permutations(HOSTS, 2)))
    assert (check.state, check.hosts, check.reason) == ("fail", tuple(HOSTS), "12 pairs do not get through")


def test_a_listener_that_ended_early_says_nothing_about_the_network():
    checks, failures = network(ways(("n1", "n3"), ("n2", "n3"), reason="connection refused"), dead=["n3"])
    assert [(check.state, check.hosts, check.found) for check in checks] == [
        ("unknown", ("n3",), "its listener ended early")
    ]
    assert failures == []


def test_a_listener_that_ended_early_after_everybody_had_called_is_no_fault():
    (check,), _ = network(dead=["n3"])
    assert check.state == "pass"


def test_a_node_that_could_not_listen_is_unknown():
    checks, _ = network(mute=["n2"])
    assert [(check.state, check.hosts) for check in checks] == [("unknown", ("n2",))]


def test_ssh():
    results = {
        "n1": {"row": {"n2": True, "n3": False}, "logins": 4,
               "failures": ["n1 -> n3 (n3, 10.0.0.3): train@n3: Permission denied (publickey)."]},
        "n2": {"row": {"n1": True, "n3": False}, "logins": 4,
               "failures": ["n2 -> n3 (n3, 10.0.0.3): train@n3: Permission denied (publickey)."]},
        "n3": {"row": {"n1": True, "n2": True}, "logins": 4, "failures": []},
    }  # fmt: skip
    (check,), failures = judge_ssh(results, "train", "-i hosts")
    assert (check.state, check.hosts, check.reason) == ("fail", ("n3",), "2 nodes do not reach n3")
    assert check.found == "n1 -> n3, n2 -> n3: train@n3: Permission denied (publickey). (ssh)"
    assert "journalctl -t sshd" in check.action
    assert len(failures) == 2


def test_ssh_that_no_node_could_test_is_said_once():
    results = {name: {"msg": f"{name}: there is no user train; run the role node_baseline first."} for name in HOSTS}
    (check,), _ = judge_ssh(results, "train")
    assert (check.state, check.hosts) == ("unknown", tuple(HOSTS))
    assert check.found == "there is no user train; run the role node_baseline first."


def test_names():
    wrong = {"host": "n2", "name": "n2", "found": "127.0.1.1", "expected": "10.0.0.2"}
    rows = {host: {"tried": 0, "failures": [], "resolved": 3, "names": []} for host in ("n1", "n2", "n3")}
    assert [(check.state, check.found) for check in judge_names(rows)] == [("pass", "9 names resolve")]
    rows["n2"]["names"] = [wrong]
    (check,) = judge_names(rows)
    assert (check.state, check.hosts, check.found) == ("fail", ("n2",), "n2 leads to 127.0.1.1 on n2")
    assert "getent ahosts n2" in check.command


def test_many_names_that_lead_nowhere_on_the_same_nodes_are_one_fault():
    wrong = [{"host": f"n{n}", "name": f"n{n}", "found": "nothing", "expected": f"10.0.0.{n}"} for n in range(1, 101)]
    rows = {f"n{n}": {"tried": 0, "failures": [], "resolved": 100, "names": wrong} for n in range(1, 101)}
    (check,) = judge_names(rows)
    assert len(check.hosts) == 100
    assert check.found.startswith("n1 to n100 lead to nothing on n1 to n100")


def test_addresses():
    well = {"address": "10.0.0.1", "problem": "", "action": ""}
    none = {"address": "", "problem": "lo; expected an address in 10.0.0.0/24", "action": "set job_network"}
    assert [check.state for check in judge_addresses({"n1": well}, "")] == ["pass"]
    checks = judge_addresses({"n1": well, "n2": none, "n3": dict(well)}, "10.0.0.0/24")
    assert [(check.state, check.hosts) for check in checks] == [("fail", ("n2",)), ("fail", ("n1", "n3"))]
    assert checks[0].action == "set job_network"


def test_where_no_node_answers_nothing_passes():
    (check,), failures = network(hosts=[])
    assert (check.state, check.reason, failures) == ("skipped", "no node could take part", [])
    assert [check.state for check in judge_addresses({}, "") + judge_names({})] == ["skipped", "skipped"]


def test_who_answered():
    lost = {"unreachable": True, "msg": "Task failed: Failed to connect to the host via ssh: timed out"}
    checks = judge_answers({"n2": lost, "n3": {"msg": "no Python"}, "n4": {}}, HOSTS, "-i hosts")
    assert [(check.state, check.hosts) for check in checks] == [
        ("fail", ("n2",)), ("unknown", ("n3",)), ("unknown", ("n4",)),
    ]  # fmt: skip
    assert checks[2].found == "it was left out by an earlier step"
    assert [check.found for check in judge_answers({}, HOSTS)] == ["4 of 4 nodes"]


def test_a_shared_connection_that_broke_without_a_reason_is_no_answer():
    lost = 'Data could not be sent to remote host "10.0.0.2". Make sure this host can be reached over ssh:'
    assert [check.found for check in judge_answers({"n2": {"unreachable": True, "msg": lost}}, HOSTS)] == ["no answer"]


def facts_of(host, address):
    return {
        "host": host,
        "facts": {"kernel": "6.1"},
        "network": {"address": address, "problem": "none", "action": "do", "interface": "eth0", "addresses": []},
    }


def test_whoever_jobs_cannot_use_is_left_out():
    hosts = ["n1", "n2", "n3", "n4", "n5"]
    results = {host: facts_of(host, f"10.0.0.{number}") for number, host in enumerate(hosts, 1)}
    results["n2"] = {"unreachable": True, "msg": "timed out"}
    results["n4"] = facts_of("n4", "")
    listeners = {host: {"endpoint": {}} for host in ("n1", "n3", "n5")}
    rows = {host: {"tried": 4, "failures": [], "resolved": 3, "names": []} for host in ("n1", "n3", "n5")}
    rows["n5"]["failures"] = [{"host": "n1", "way": DATA, "reason": "no answer"}]
    ended = {host: {"lived": True} for host in rows}
    checks, able, nodes = verify(results, listeners, ended, rows, None)
    assert able == ["n1", "n3"]
    assert [(node["host"], node["address"]) for node in nodes] == [
        ("n1", "10.0.0.1"), ("n2", ""), ("n3", "10.0.0.3"), ("n4", ""), ("n5", "10.0.0.5"),
    ]  # fmt: skip
    states = {(check.name, check.state): list(check.hosts) for check in checks}
    assert states == {
        ("answer", "fail"): ["n2"],
        ("job address", "fail"): ["n4"],
        ("job network", "fail"): ["n1", "n5"],
        ("names", "pass"): [],
        ("ssh", "not_asked"): [],
    }
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_defaults_and_argument_specs_name_the_same_variables():
    role = Path(__file__).resolve().parents[3] / "roles/verify"
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    assert set(specs["begin"]["options"]) == set(defaults) == set(specs["main"]["options"])
