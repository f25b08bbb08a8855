"""Logins between nodes: the choice of peers, ssh's reasons, and a login with a simulated ssh."""

import os
import pwd

import pytest
from ansible.module_utils.trainyard.cluster.ssh_peers import (
    distances,
    failure_records,
    parse_peers,
    partners,
    peers,
    ssh_reason,
)
from ansible.module_utils.trainyard_node.cluster import ssh_logins
from hypothesis import given
from hypothesis import strategies as st

ME = pwd.getpwuid(os.getuid()).pw_name
TURNED_AWAY = "kex_exchange_identification: read: Connection reset by peer"
CHANGED = "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @"
UNKNOWN = "No ED25519 host key is known for n4 and you have requested strict checking."


@pytest.fixture
def login(tmp_path, monkeypatch):
    """Return a function that logs in with an `ssh` that fails some times, and returns the reason and the attempts."""
    monkeypatch.setattr(ssh_logins, "_PAUSE_S", 0.01)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def call(message, times):
        program = tmp_path / "ssh"
        program.write_text(
            f"#!/bin/sh\necho x >> {tmp_path}/tries\n"
            f"[ $(wc -l < {tmp_path}/tries) -gt {times} ] && exit 0\necho '{message}' >&2\nexit 255\n"
        )
        program.chmod(0o755)
        found = ssh_logins.try_login(ME, "n3", "n3", 5)
        return found.reason, len((tmp_path / "tries").read_text().split())

    return call


@pytest.mark.parametrize(
    ("message", "failures", "attempts", "reason"),
    [
        (TURNED_AWAY, 3, 4, ""),
        (TURNED_AWAY, 99, 4, "kex_exchange_identification"),
        # Another attempt would not help here.
        ("n3: Permission denied (publickey).", 99, 1, "n3: Permission denied"),
    ],
)
def test_only_a_busy_server_is_tried_again(login, message, failures, attempts, reason):
    found, number = login(message, failures)
    assert (number, found.startswith(reason), bool(found)) == (attempts, True, bool(reason))


@given(st.integers(1, 40), st.integers(1, 50), st.data())
def test_every_node_tests_and_is_tested_by_as_many(count: int, most: int, data: st.DataObject) -> None:
    names = [f"n{i}" for i in range(count)]
    expected = min(most, count - 1)
    chosen = {name: peers(names, name, most) for name in names}
    one = data.draw(st.sampled_from(names))
    assert one not in chosen[one]
    assert len(set(chosen[one])) == len(chosen[one]) == expected
    assert sum(one in others for others in chosen.values()) == expected
    assert sorted(peers(names, one, None)) == sorted(set(names) - {one})
    tested_with = {name: {other for other in names if other in chosen[name] or name in chosen[other]} for name in names}
    assert {len(others) for others in tested_with.values()} == {partners(count, most)}


@given(st.integers(2, 20), st.none() | st.integers(1, 30), st.data())
def test_pairs_of_changed_nodes_and_one_pair_of_others_are_tested(count, most, data):
    names = [f"n{i}" for i in range(count)]
    changed = data.draw(st.sets(st.sampled_from(names)))
    pairs = {(own, one) for own in names for one in peers(names, own, most)}
    tested = {(own, one) for own in names for one in peers(names, own, most, changed)}
    ring = set(zip(names, names[1:] + names[:1], strict=True))
    assert tested == ring | {pair for pair in pairs if changed & set(pair)}


def test_few_peers_are_near_and_distant() -> None:
    assert distances(1000, 8) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert distances(1000, 12) == [1, 2, 3, 4, 5, 6, 8, 16, 32, 64, 128, 256]
    assert distances(5, 3) == [1, 2, 3]
    assert distances(4, 9) == distances(4, None) == [1, 2, 3]
    assert distances(1, None) == distances(0, None) == []
    # With 16 peers, 1,000 nodes make 32,000 connections instead of two million.
    assert partners(1000, 16) == 32
    assert partners(1000, None) == 999


def test_the_number_of_peers_is_parsed() -> None:
    assert parse_peers("all") is None
    assert parse_peers("3") == 3
    for text in ("0", "-1", "most", "", "1.5"):
        with pytest.raises(ValueError, match="expected 'all' or a number of peers from 1 on"):
            parse_peers(text)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("train@n4: Permission denied (publickey).\n", "train@n4: Permission denied (publickey)."),
        ("", "ssh ended with exit status 255 and without a message"),
        (f"@@@@@@@\n{CHANGED}\n@@@@@@@\nHost key verification failed.\n", f"{CHANGED}; Host key verification failed."),
        (f"{UNKNOWN}\nHost key verification failed.\n", f"{UNKNOWN}; Host key verification failed."),
    ],
)
def test_ssh_reasons_are_parsed(output: str, reason: str) -> None:
    assert ssh_reason(output, 255) == reason


@given(st.text(), st.integers(1, 255))
def test_a_failure_always_has_one_line_as_reason(output: str, status: int) -> None:
    reason = ssh_reason(output, status)
    assert reason
    assert len(reason.splitlines()) == 1


def test_a_pair_with_one_reason_is_one_record() -> None:
    denied, unresolved = (
        "Permission denied (publickey).",
        "ssh: Could not resolve hostname n3: Name or service not known",
    )
    failures = [("n4", "n4", f"train@n4: {denied}"), ("n4", "10.0.0.4", f"train@10.0.0.4: {denied}")]
    records = failure_records("n1", [*failures, ("n3", "n3", unresolved)])
    assert records == [
        {"host": "n1", "peer": "n4", "targets": "n4, 10.0.0.4", "reason": f"train@n4: {denied}"},
        {"host": "n1", "peer": "n3", "targets": "n3", "reason": unresolved},
    ]


def test_peers_are_tested_by_name_and_by_declared_address(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\necho "$2" >> {tmp_path}/tried\n')
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # One login at a time keeps the order of the lines.
    for addresses in ([], ["10.0.0.1"]):
        assert ssh_logins.logins("n1", ["localhost"], ME, 5, 1, addresses)["logins"] == 1
    assert ssh_logins.logins("n1", ["localhost"], ME, 5, 1, ["127.0.0.1", "::1"])["row"] == {"localhost": True}
    names = (tmp_path / "tried").read_text().split()
    assert names[:3] == ["localhost"] * 3 and len(names) == 4 and names[3] in ("127.0.0.1", "::1")
