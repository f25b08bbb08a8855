"""Parsers of a node's limits, addresses and names."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard_node.cluster.baseline_check import name_findings, parse_ulimit
from ansible.module_utils.trainyard_node.cluster.identity import parse_addresses, parse_hard_limits
from ansible.module_utils.trainyard_node.cluster.ssh_logins import Attempt, reach, ssh_command
from hypothesis import example, given
from hypothesis import strategies as st

# /proc/1/limits of a lab node, shortened.
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            1024                 20000                files
Max locked memory         8388608              unlimited            bytes
"""


def test_hard_limits_are_parsed() -> None:
    assert parse_hard_limits(LIMITS) == {"memlock": None, "nofile": 20000}


@given(st.text())
@example("Max locked memory")
@example("Max locked memory  soft  hard  bytes")
def test_any_other_limits_file_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="has no line"):
        parse_hard_limits(text)


def test_addresses_without_loopback_link_local_and_temporary_ones() -> None:
    inet6, inet = {"family": "inet6", "scope": "global"}, {"family": "inet", "scope": "global"}
    addresses = [
        {**inet6, "local": "fd00::1"},
        {**inet6, "local": "fd00::99", "temporary": True},
        {**inet6, "local": "fe80::1", "scope": "link"},
        {**inet, "local": "10.0.0.1"},
    ]
    loopback = {"ifname": "lo", "addr_info": [{**inet, "local": "127.0.0.1", "scope": "host"}]}
    links = [loopback, {"ifname": "eth0", "addr_info": addresses}, {}]
    assert parse_addresses(json.dumps(links)) == ["10.0.0.1", "fd00::1"]
    assert parse_addresses("") == []


def test_the_output_of_ulimit_is_parsed() -> None:
    assert parse_ulimit("unlimited\n1048576\n") == {"memlock": "unlimited", "nofile": "1048576"}
    with pytest.raises(ValueError, match="could not be measured: su: user train does not exist"):
        parse_ulimit("su: user train does not exist")


def test_a_name_with_another_address_is_a_finding() -> None:
    entries = [{"address": "192.0.2.1", "names": ["localhost"]}, {"address": "192.0.2.1", "names": ["nowhere.invalid"]}]
    loopback, nothing = name_findings("n1", entries)
    assert (loopback.host, loopback.check, loopback.expected) == ("n1", "name localhost", "192.0.2.1")
    assert "127.0.0.1" in loopback.found or "::1" in loopback.found
    assert nothing.found.startswith("nothing (")


def test_results_are_in_the_order_of_the_peers() -> None:
    calls = []

    def login(user: str, peer: str, target: str, timeout: int) -> Attempt:
        calls.append((user, timeout))
        return Attempt(peer, target, "refused" if peer == "192.0.2.2" else "")

    found = reach("train", ["192.0.2.1", "192.0.2.2"], 7, 2, login)
    assert found == [Attempt("192.0.2.1", "192.0.2.1", ""), Attempt("192.0.2.2", "192.0.2.2", "refused")]
    assert calls == [("train", 7), ("train", 7)]


def test_a_login_is_strict_and_shares_no_connection() -> None:
    argv = ssh_command("train", "-oProxyCommand=x", 5)
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "ControlPath=none", "ConnectTimeout=5"} <= set(argv)
    assert argv[-3:] == ["--", "-oProxyCommand=x", "true"]
