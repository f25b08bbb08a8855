"""Which peers a node reaches: real listeners and connections on this machine's loopback addresses."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.verify import peer_connections
from ansible.module_utils.trainyard_node.verify.peer_connections import (
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

TOKEN = "trainyard-1"  # noqa: S105 (distinguishes a test from other services)


@pytest.fixture
def listen():
    """Start listeners as nodes would, each on its own loopback address, and end what a test has left."""
    started = []

    def start(host, address="127.0.0.1", token=TOKEN, life=600):
        found = start_listener(address, host, token, life)
        started.append(found)
        return Peer(host, address, found["ports"], "localhost", [address]), found

    yield start
    for found in started:
        stop_listener(found["pid"], found["start_time"])


def wait_until(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "timed out"
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
                handle(listener.accept()[0])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def reasons(peers, timeout=120):
    tried, failures = connect_all(peers, TOKEN, timeout, 4)
    assert tried == 2 * len(peers)
    return [failure["reason"] for failure in failures]


def test_every_node_reaches_every_listener_on_both_ports(listen):
    peers = [listen(f"n{number}", f"127.0.0.{number}")[0] for number in (1, 2, 3)]
    assert connect_all(peers, TOKEN, 120, 4) == (6, [])
    ports = peers[0].ports
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert ports[RENDEZVOUS] >= 10000
    assert not first <= ports[RENDEZVOUS] <= last
    assert first <= ports[DATA] <= last


def test_a_listener_can_be_stopped(listen):
    peer, found = listen("n1")
    assert stop_listener(found["pid"], found["start_time"]) is True
    wait_until(lambda: process_table.start_time(found["pid"]) is None)
    assert stop_listener(found["pid"], found["start_time"]) is False
    assert reasons([peer]) == ["connection refused"] * 2


def test_a_listener_ends_by_itself(listen):
    _, found = listen("n1", life=1)
    wait_until(lambda: process_table.start_time(found["pid"]) is None)


def test_a_process_that_only_has_the_number_is_left_alone():
    assert stop_listener(os.getpid(), process_table.start_time(os.getpid()) - 1) is False
    assert stop_listener(os.getpid(), None) is False


def test_a_caller_that_reads_nothing_blocks_nobody(listen):
    peer, _ = listen("n1")
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection((peer.address, peer.ports[DATA])))
        assert reasons([peer]) == []


def test_a_listener_holds_nothing_of_the_module_open(listen):
    _, found = listen("n1")
    links = [str(Path(f"/proc/{found['pid']}/fd/{number}").readlink()) for number in (0, 1, 2)]
    assert links == ["/dev/null"] * 3
    assert os.getsid(found["pid"]) != os.getsid(0)


def test_another_node_under_the_address_is_a_failure(listen):
    peer, _ = listen("n1")
    assert reasons([peer._replace(host="n2")]) == ["answered by n1"] * 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", {"something else answers: 'SSH-2.0-OpenSSH_9.2\\r'"}),
        (b"", {"ended without a word", "connection reset by peer"}),
    ],
)
def test_another_service_on_the_port_is_a_failure(data, expected):
    def send(connection):
        connection.sendall(data)
        connection.close()

    with server(send) as port:
        found = reasons([peer_of(port)])
    assert len(found) == 2 and set(found) <= expected


def test_a_connection_that_loses_large_packets_is_a_failure():
    with contextlib.ExitStack() as stack:

        def stop_short(connection):
            stack.enter_context(connection).sendall(greeting(TOKEN, "n9")[:1000])

        port = stack.enter_context(server(stop_short))
        found = reasons([peer_of(port)], timeout=4)
    assert found == ["connected, then only 1000 of 24000 bytes within 4 s: large packets may vanish (MTU)"] * 2


def test_a_peer_that_does_not_answer_costs_its_own_time_only(listen):
    peer, _ = listen("n1")
    with contextlib.ExitStack() as stack:
        # A listener with a full backlog drops new connections: the nearest to a firewall without root.
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(silent.getsockname())
        found = reasons([peer_of(silent.getsockname()[1]), peer], timeout=5)
    assert found == ["no answer within 5 s"] * 2


def test_an_address_without_a_route_is_a_failure():
    found = reasons([Peer("n9", "240.0.0.1", {RENDEZVOUS: 1, DATA: 1}, "", [])], timeout=2)
    assert len(found) == 2 and all(found)


def test_names_lead_to_their_node_or_are_failures(monkeypatch):
    known = {"n1": ["10.0.0.1"], "n2": ["127.0.1.1"], "n3": ["10.0.0.9", "10.0.0.3"]}

    def resolve(name, port, type):
        if name not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, type, 6, "", (address, 0)) for address in known[name]]

    monkeypatch.setattr(peer_connections.socket, "getaddrinfo", resolve)
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
    result = agent.connect(host="n1", peers=records, token=TOKEN, timeout_s=1, names=False)
    assert result["failed"] and result["msg"].startswith("n1: connections could not be tried: ")


def test_listen_connect_and_end():
    found = agent.listen(host="n1", address="127.0.0.1", addresses=["127.0.0.1"], token=TOKEN, life_s=600)
    try:
        assert set(found["endpoint"]) == {"host", "address", "ports", "hostname", "addresses"}
        me = {**found["endpoint"], "host": "n2", "hostname": ""}
        peers = json.loads(json.dumps([{**found["endpoint"], "hostname": "localhost"}, me]))
        row = agent.connect(host="n2", peers=peers, token=TOKEN, timeout_s=60, names=True)
        assert (row["tried"], row["failures"], row["resolved"]) == (2, [], 1)
        assert agent.connect(host="n2", peers=peers, token=TOKEN, timeout_s=60, names=False)["resolved"] == 0
    finally:
        ended = agent.unlisten(pid=found["pid"], start_time=found["start_time"])
    assert ended == {"lived": True}
    assert agent.unlisten(pid=found["pid"], start_time=None) == {"lived": False}


def test_an_address_that_the_node_does_not_have_is_explained():
    found = agent.listen(host="n1", address="192.0.2.1", addresses=[], token=TOKEN, life_s=600)
    assert found["failed"] and found["msg"].startswith("n1: nothing can listen on 192.0.2.1: ")
    assert found["msg"].endswith("expected an address of this node on the job network, see `ip address`.")


def test_an_unknown_user_cannot_log_in():
    given = {"host": "n1", "nodes": ["n2"], "user": "nosuchuser", "connect_timeout": 1, "parallel": 1}
    result = agent.answer("logins", given, 30)
    assert result == {"failed": True, "msg": "n1: there is no user nosuchuser; run the role node_baseline first."}
