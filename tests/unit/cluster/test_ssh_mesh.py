"""Rules of the ssh mesh: certificates, renewal, revocation."""

from __future__ import annotations

import base64
import hashlib

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.cluster.ssh_mesh import (
    Certificate,
    MeshNode,
    Policy,
    Request,
    fingerprint,
    mesh_findings,
    newest,
    parse_certificates,
    parse_duration,
    policy_error,
    reason_to_sign,
    revocation_list,
    to_be_revoked,
)
from ansible.module_utils.trainyard.cluster.ssh_names import (
    declared_addresses,
    declared_names,
    host_patterns,
    undeclared_addresses,
)
from hypothesis import given
from hypothesis import strategies as st

# Printed by OpenSSH 9.2 (TZ=UTC ssh-keygen -L -f FILE) for a file of two certificates.
TWO = """all:
        Type: ssh-ed25519-cert-v01@openssh.com host certificate
        Public key: ED25519-CERT SHA256:jWJqzOT7ao+l81wacd6Hn+jLn40FFxASU9/76p+a+DA
        Signing CA: ED25519 SHA256:5JlPOndBXHth9e6JxYdAoPQGtqdEFYdc2YPCredsAX0 (using ssh-ed25519)
        Key ID: "c:n1:host"
        Serial: 5
        Valid: from 2026-01-01T00:00:00 to 2027-01-01T00:00:00
        Principals: 
                n1
                10.0.0.1
        Critical Options: (none)
        Extensions: (none)
all:2:
        Type: ssh-ed25519-cert-v01@openssh.com user certificate
        Public key: ED25519-CERT SHA256:p2XMmNvpCTWxpji6wHmbFAyDger8NDcWsk4mBfWVJaw
        Signing CA: ED25519 SHA256:5JlPOndBXHth9e6JxYdAoPQGtqdEFYdc2YPCredsAX0 (using ssh-ed25519)
        Key ID: "a "quoted" id"
        Serial: 6
        Valid: forever
        Principals: (none)
        Critical Options: (none)
        Extensions: 
                permit-pty
"""  # noqa: W291 (as printed)

NOW = 1_767_225_600.0  # 2026-01-01
DAY = 86400
POLICY = Policy("c", 52 * 7 * DAY, 8 * 7 * DAY, {"host": "SHA256:H", "user": "SHA256:U"})
KEY = "ssh-ed25519 " + base64.b64encode(b"one").decode()


def certificate(**changes: object) -> Certificate:
    values = {"kind": "host", "key": fingerprint(KEY), "authority": "SHA256:H", "identity": "c:n1:host", "serial": 1}
    times = {"valid_from": NOW - 3600, "valid_to": NOW + 300 * DAY}
    return Certificate(**{**values, **times, "principals": ("n1",), **changes})


REQUEST = Request("n1", "host", KEY, ("n1",))


def test_certificates_are_parsed() -> None:
    host, user = parse_certificates(TWO)
    key, authority = (f"SHA256:{line.split('SHA256:')[1].split()[0]}" for line in TWO.splitlines()[2:4])
    assert host == Certificate("host", key, authority, "c:n1:host", 5, NOW, NOW + 365 * DAY, ("n1", "10.0.0.1"))
    assert (user.kind, user.identity, user.valid_to, user.principals) == ("user", 'a "quoted" id', float("inf"), ())
    assert (host.options, user.options) == ((), ("permit-pty",))


@given(st.text())
def test_any_other_text_is_no_certificate_or_an_error(text: str) -> None:
    try:
        assert parse_certificates(text) == []
    except ValueError as error:
        assert "ssh-keygen -L" in str(error)


@given(st.text(alphabet="0123456789smhdw +-.:", max_size=12))
def test_a_duration_is_parsed_completely_or_rejected(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        assert "is not a duration" in str(error)
    else:
        assert text[-1] in "smhdw"
        assert seconds >= 0
    assert (parse_duration("52w"), parse_duration("1w1d1h1m1s")) == (31449600, 694861)


@given(st.binary())
def test_fingerprint_is_the_hash_of_the_blob(blob: bytes) -> None:
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    line = f"ssh-ed25519 {base64.b64encode(blob).decode()} jürgen@n1"
    if blob:
        assert fingerprint(line) == f"SHA256:{digest}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"principals": ("n1", "n1")}, ""),
        ({"valid_to": NOW + 8 * 7 * DAY + 1}, ""),
        ({"valid_to": NOW + 8 * 7 * DAY}, "expires 2026-02-26"),
        ({"valid_to": NOW - DAY}, "expires 2025-12-31"),
        ({"valid_from": NOW + DAY}, "is not valid yet"),
        ({"valid_to": NOW + 400 * DAY}, "is valid until 2027-02-05, longer than ssh_mesh_validity"),
        ({"principals": ("n1", "10.0.0.9")}, "is valid for n1, 10.0.0.9; expected n1"),
        ({"options": ("permit-pty",)}, "allows permit-pty; expected nothing"),
        ({"identity": "c:old:host"}, "is known as c:old:host; expected c:n1:host"),
    ],
)
def test_reasons_for_a_new_certificate(changes: dict[str, object], reason: str) -> None:
    assert reason_to_sign(REQUEST, certificate(**changes), POLICY, NOW) == reason


def test_the_newest_certificate_of_key_kind_and_authority_is_used() -> None:
    issued = [certificate(), certificate(serial=3), certificate(serial=9, kind="user")]
    issued += [certificate(serial=8, authority="SHA256:X"), certificate(serial=7, key="SHA256:other")]
    assert newest(REQUEST, issued, POLICY) == 1
    assert newest(REQUEST, issued[2:], POLICY) is None
    assert newest(Request("n1", "host", "", ("n1",)), issued, POLICY) is None


def test_durations_that_would_renew_in_every_run_are_rejected() -> None:
    assert policy_error(10, 9) == ""
    assert "not shorter than ssh_mesh_validity" in policy_error(10, 10)
    assert "ssh_mesh_validity is 0" in policy_error(0, 0)


def mesh_node(name: str, **changes: object) -> MeshNode:
    record = {"addresses": ["10.0.0.1", "172.17.0.1"], "default_address": "10.0.0.1", "host_key": KEY, "user_key": ""}
    return MeshNode.from_dict(name, {**record, "findings": [], **changes})


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ({"name": "n1"}, ("n1",)),
        ({"name": "n1", "ansible_host": "127.0.0.1"}, ("n1",)),
        (
            {"name": "n1", "ansible_host": "10.0.0.1", "ssh_mesh_extra_principals": ["n1-ib", "10.0.0.1"]},
            ("n1", "10.0.0.1", "n1-ib"),
        ),
        # The first label is also a name of the node.
        ({"name": "gpu1.example.org"}, ("gpu1.example.org", "gpu1")),
        ({"name": "a", "ansible_host": "gpu1.example.org"}, ("a", "gpu1.example.org", "gpu1")),
    ],
)
def test_a_nodes_names_come_from_the_inventory(host: dict[str, object], names: tuple[str, ...]) -> None:
    assert declared_names([host]) == {host["name"]: names}


def test_a_first_label_of_several_nodes_is_no_name() -> None:
    names = ["gpu1.example.org", "GPU1", "n.a", "n.b"]
    assert declared_names([{"name": name} for name in names]) == {name: (name,) for name in names}


def test_undeclared_addresses_are_findings() -> None:
    """Addresses of container bridges do not count, as no other node uses them."""
    node = mesh_node("n1", addresses=["10.0.0.1", "10.0.0.7", "172.17.0.1"])

    def found(networks: list[str], *names: str) -> list[str]:
        return [finding.found for finding in undeclared_addresses([node], networks, {"n1": names})]

    assert found(["10.0.0.0/24"], "n1", "10.0.0.1") == ["10.0.0.7"]
    assert found(["10.0.0.0/24"], "n1", "10.0.0.1", "10.0.0.7") == []
    # Without a network, the default route counts where no other address is declared.
    assert (found([], "n1"), found([], "n1", "192.0.2.1")) == (["10.0.0.1"], [])


def test_clients_trust_the_authority_for_exactly_the_nodes() -> None:
    assert host_patterns(["n9", "10.0.0.7", "n9", "fd00:1::7"]) == ["10.0.0.7", "fd00:1::7", "n9"]
    # A pattern would widen the line, a comma or white space end it.
    assert host_patterns(["*", "n?", "!n1", "a,b", "a b"]) == []
    assert declared_addresses({"n1": ("n1", "10.0.0.7"), "n2": ("n2", "FD00:1::7")}) == ["10.0.0.7", "fd00:1::7"]


def test_all_problems_of_all_nodes_are_found() -> None:
    own = Finding(host="n2", check="sshd", found="a", expected="b", action="c")
    nodes = [mesh_node("n1"), mesh_node("n2", findings=[own.as_dict()])]
    requests = [Request("n1", "host", KEY, ("n1",)), Request("n2", "host", KEY, ("n2,root",))]
    found = mesh_findings(nodes, requests, {fingerprint(KEY): "n7"}, ["n1", "n7", "n9"], {"SHA256:1": "n1"})
    assert [(finding.host, finding.check) for finding in found] == [
        ("n2", "sshd"),
        ("n2", "name for the certificate"),
        ("", "host keys"),
        ("n1", "host key"),
        ("n1", "ssh_mesh_revoked"),
        ("", "ssh_mesh_revoked"),
    ]
    assert found[2].found.startswith("n1, n2 have the same key, SHA256:")
    assert "a revoked key of n7" in found[3].found
    assert found[5].found == "n9, which has no certificate of this authority"
    assert found[5].expected.startswith("one of n1, n7, or a fingerprint")


@pytest.mark.parametrize(
    "bad", ["ssh-ed25519", "ssh-ed25519 \xe9", "ssh-ed25519 not*base64", "no key at all", "\xe9 b25l"]
)
def test_a_bad_public_key_is_a_finding_of_its_node(bad: str) -> None:
    """Shared keys are still found beside it."""
    requests = [REQUEST, Request("n2", "user", bad, ("train",)), Request("n3", "host", KEY, ("n3",))]
    wrong, alike = mesh_findings([], requests, {}, [], {})
    assert (wrong.host, wrong.check, wrong.found) == ("n2", "user key", f"{bad!r}, which is not a public key")
    assert alike.found.startswith("n1, n3 have the same key")


def test_a_lost_key_is_revoked_while_its_node_stays() -> None:
    lost, issued = "SHA256:lost", [certificate(key="SHA256:lost"), certificate(), certificate(kind="user")]
    assert to_be_revoked(issued, {}, [lost], "c") == {lost: "n1"}
    assert to_be_revoked(issued, {lost: "n1"}, [lost], "c") == {}
    assert to_be_revoked(issued, {}, ["n1"], "c") == {lost: "n1", fingerprint(KEY): "n1"}
    assert to_be_revoked(issued, {}, ["n1"], "other") == {}
    known = {lost: "n1", fingerprint(KEY): "n1"}
    assert mesh_findings([mesh_node("n1")], [REQUEST], {}, [lost], known) == []
    (unknown,) = mesh_findings([], [], {}, ["SHA256:typo"], known)
    assert unknown.found.startswith("SHA256:typo, which has no certificate")


def test_a_node_that_still_uses_a_revoked_key_is_a_finding() -> None:
    found = mesh_findings([mesh_node("n1")], [REQUEST], {}, [fingerprint(KEY)], {fingerprint(KEY): "n1"})
    assert [each.found for each in found] == [f"{fingerprint(KEY)}, a revoked key of n1"]


def test_the_list_of_revoked_keys_is_sorted() -> None:
    assert revocation_list(["SHA256:b", "SHA256:a", "SHA256:b"]) == "hash: SHA256:a\nhash: SHA256:b\n"
