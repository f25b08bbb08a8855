"""Checks over all nodes of a cluster, and their names in a hosts file."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.cluster.hosts import (
    ClusterSettings,
    Entry,
    Node,
    inventory_findings,
    node_address,
    parse_memlock,
    plan_cluster,
    reachable_limit,
)
from ansible.module_utils.trainyard.cluster.hosts_file import rewrite_hosts
from hypothesis import given
from hypothesis import strategies as st

SETTINGS = ClusterSettings("train", 2000, "train", 2000, "", None, 1048576)


RECORD = {
    **{"connect": "10.0.0.1", "addresses": ["10.0.0.1"], "default_address": "10.0.0.1", "user": None, "uid_owner": ""},
    **{"gid_owner": "", "group_gid": None, "hard_limits": {"memlock": None, "nofile": 1048576}},
    **{"can_raise_limits": True, "nr_open": 1048576, "container": ""},
}


def node(name: str = "n1", **changes: object) -> Node:
    return Node.from_dict({**RECORD, "name": name, "names": [name], "hostname": name, **changes})


def at(name: str, address: str, **changes: object) -> Node:
    return node(name, connect=address, addresses=[address], **changes)


def texts(*nodes: Node, settings: ClusterSettings = SETTINGS) -> list[str]:
    return [f"{f.host}|{f.check}|{f.found}|{f.expected}" for f in plan_cluster(nodes, settings).findings]


def test_two_healthy_nodes_become_entries_in_inventory_order() -> None:
    nodes = [node("n2", names=["n2", "GPU-17"], hostname="gpu-17"), at("n1", "10.0.0.2", hostname="n1.site.example")]
    planned = plan_cluster(nodes, SETTINGS)
    assert planned.entries == (Entry("10.0.0.1", ("n2", "gpu-17")), Entry("10.0.0.2", ("n1",)))
    assert planned.findings == planned.exceptions == ()
    assert planned.limits["n2"] == {"memlock": None, "nofile": 1048576}


@pytest.mark.parametrize("hostname", ["localhost", "a b", "", "n2", "N2", "mirror.example.org", "n1x"])
def test_a_kernel_name_that_the_inventory_does_not_give_the_node_is_a_finding(hostname: str) -> None:
    nodes = [node(hostname=hostname), at("n2", "10.0.0.2")]
    assert [text.split("|")[:2] for text in texts(*nodes)] == [["n1", "kernel host name"]]
    assert plan_cluster(nodes, SETTINGS).entries[0].names == ("n1",)


def test_nodes_that_the_inventory_names_by_addresses_have_different_names() -> None:
    nodes = [at(f"10.0.0.{last}", f"10.0.0.{last}", hostname=name) for last, name in enumerate(["a", "A", "b", "n4"])]
    nodes.append(at("n4", "10.0.0.9"))
    assert [text.split("|")[:3] for text in texts(*nodes)] == [
        ["10.0.0.3", "kernel host name", "'n4', which the inventory calls another node"],
        ["10.0.0.0", "kernel host name", "'a'"],
        ["10.0.0.1", "kernel host name", "'a'"],
    ]
    assert [entry.names for entry in plan_cluster(nodes, SETTINGS).entries] == [(), (), (), (), ("n4",)]


def test_taken_ids_and_a_user_with_other_ids_are_findings() -> None:
    found = texts(
        node("n1", user={"uid": 1001, "gid": 2000}, uid_owner="alice"),
        at("n2", "10.0.0.2", gid_owner="staff2", group_gid=7),
    )
    assert found == [
        "n1|uid of the training user|train has uid 1001|uid 2000, the same on all nodes",
        "n1|uid of the training user|uid 2000 belongs to alice|uid 2000 free for train",
        "n2|group of the training user|group train has gid 7|gid 2000",
        "n2|group of the training user|gid 2000 belongs to group staff2|gid 2000 free for group train",
    ]


@pytest.mark.parametrize(("user", "uid"), [("root", 2000), ("train", 0)])
def test_root_is_rejected_as_training_user(user: str, uid: int) -> None:
    found = texts(node(), settings=ClusterSettings(user, uid, "train", 2000, "", None, 1024))
    assert found == [f"|training user|{user} with uid {uid}|an ordinary user"]


def test_an_existing_user_with_the_right_ids_is_accepted() -> None:
    assert texts(node(user={"uid": 2000, "gid": 2000}, uid_owner="train", gid_owner="train", group_gid=2000)) == []


@pytest.mark.parametrize(
    ("connect", "network", "address"),
    [
        ("10.0.0.1", "", "10.0.0.1"),
        ("n1.example.org", "", "192.168.1.5"),
        ("127.0.0.1", "", "192.168.1.5"),
        ("n1", "10.0.0.0/24", "10.0.0.1"),
        ("10.0.0.7", "10.0.0.0/24", "10.0.0.7"),
        ("10.0.0.1", "fd00::/64", "fd00::1"),
    ],
)
def test_the_address_of_a_node(connect: str, network: str, address: str) -> None:
    addresses = ["10.0.0.1", "10.0.0.7", "192.168.1.5", "fd00::1"]
    one = node(connect=connect, addresses=addresses, default_address="192.168.1.5")
    assert node_address(one, network) == (address, None)


@pytest.mark.parametrize(
    ("connect", "network", "default"),
    [("203.0.113.9", "", "10.0.0.1"), ("n1", "172.16.0.0/12", "10.0.0.1"), ("n1", "", "")],
)
def test_a_node_without_usable_address(connect: str, network: str, default: str) -> None:
    address, finding = node_address(node(connect=connect, default_address=default), network)
    assert address == "" and finding is not None and "trainyard_network" in finding.action


def test_two_nodes_at_one_address() -> None:
    assert "|address of the node|10.0.0.1 is the address of n1, n2|one node per address" in texts(node(), node("n2"))


def test_limits_that_cannot_be_raised_are_an_exception() -> None:
    hard = {"memlock": 8388608, "nofile": 20000}
    bare = node(hard_limits=hard, can_raise_limits=False, container="podman")
    planned = plan_cluster([bare], replace(SETTINGS, rdma=frozenset(["n1"])))
    assert planned.limits["n1"] == hard
    assert [text.split(":")[0] for text in planned.exceptions] == ["n1", "n1"]
    assert "memlock stays at 8192 KiB instead of unlimited" in planned.exceptions[0]
    assert "container (podman)" in planned.exceptions[0]
    # Nothing needs unlimited memlock there, and nobody asked for it.
    assert [text.split()[1] for text in plan_cluster([bare], SETTINGS).exceptions] == ["nofile"]
    requested = replace(SETTINGS, memlock=1 << 40)
    assert [text.split()[1] for text in plan_cluster([bare], requested).exceptions] == ["memlock", "nofile"]


def test_a_container_clock_is_an_exception_if_a_service_should_set_it() -> None:
    with_clock = ClusterSettings("train", 2000, "train", 2000, "", None, 1024, sets_clock=True)
    assert plan_cluster([node(container="lxc")], SETTINGS).exceptions == ()
    assert plan_cluster([node()], with_clock).exceptions == ()
    [text] = plan_cluster([node(container="lxc")], with_clock).exceptions
    assert text.startswith("n1: inside a container (lxc) the clock")


def test_more_files_than_the_kernel_allows() -> None:
    assert texts(node(nr_open=1000)) == ["n1|open files|fs.nr_open is 1000|at least node_baseline_nofile, 1048576"]


LIMITS = st.none() | st.integers(0, 2**40)


@given(LIMITS, LIMITS)
def test_a_limit_never_exceeds_a_hard_limit_that_cannot_be_raised(requested: int | None, hard: int | None) -> None:
    got = reachable_limit(requested, hard, can_raise=False)
    as_number = {None: float("inf")}
    assert as_number.get(got, got) == min(as_number.get(requested, requested), as_number.get(hard, hard))
    assert reachable_limit(requested, hard, can_raise=True) == requested


@given(st.sampled_from(["unlimited", "64"]) | st.text())
def test_memlock_is_unlimited_or_a_number(text: str) -> None:
    try:
        assert parse_memlock(text) == (None if text == "unlimited" else int(text) * 1024)
    except ValueError as error:
        assert "expected 'unlimited' or a number of KiB" in str(error)


ENTRIES = [Entry("10.0.0.1", ("n1",)), Entry("10.0.0.2", ("n2", "gpu-17"))]


def resolve(text: str, name: str) -> str | None:
    """Resolve as hosts(5) specifies: the first line that holds the name."""
    for line in text.split("\n"):
        fields = line.partition("#")[0].split()
        if name.lower() in [field.lower() for field in fields[1:]]:
            return fields[0]
    return None


def test_an_installers_loopback_line_loses_only_the_nodes_names() -> None:
    text, conflicts = rewrite_hosts("127.0.0.1 localhost\n127.0.1.1\tn1.example.org n1 # installer\n", ENTRIES, "c")
    assert conflicts == []
    assert text.startswith("127.0.0.1 localhost\n127.0.1.1 n1.example.org # installer\n# BEGIN trainyard c\n")
    assert text.endswith("10.0.0.1 n1\n10.0.0.2 n2 gpu-17\n# END trainyard c\n")


def test_a_contradicting_line_is_a_conflict_and_an_equal_one_is_not() -> None:
    _, conflicts = rewrite_hosts("10.0.0.1 N1\n10.9.9.9 gpu-17 other\n", ENTRIES, "c")
    assert conflicts == ["line 2 gives gpu-17 the address 10.9.9.9; this cluster gives it 10.0.0.2"]


def test_the_block_keeps_its_place_and_other_blocks_are_unchanged() -> None:
    before = "# BEGIN trainyard c\nold\n# END trainyard c\n# BEGIN trainyard d\n10.1.1.1 x\n# END trainyard d\n"
    text, _ = rewrite_hosts(before, ENTRIES, "c")
    assert text.startswith("# BEGIN trainyard c\n10.0.0.1 n1\n")
    assert text.endswith("# BEGIN trainyard d\n10.1.1.1 x\n# END trainyard d\n")


def test_nodes_outside_the_run_keep_their_lines() -> None:
    old = ["10.0.0.1 n1", "10.0.0.2 n2 gpu-2", "10.0.0.3 n3", "10.0.0.9 gone"]
    block = ["# BEGIN trainyard c", *old, "# END trainyard c", ""]
    some = [Entry("10.0.0.3", ("n3",)), Entry("10.0.0.1", ("n1", "gpu-1")), Entry("10.0.0.4", ("n4",))]
    after, conflicts = rewrite_hosts("\n".join(block), some, "c", ["n2"])
    assert conflicts == []
    assert after.splitlines()[1:-1] == ["10.0.0.1 n1 gpu-1", "10.0.0.2 n2 gpu-2", "10.0.0.3 n3", "10.0.0.4 n4"]
    assert rewrite_hosts(after, some, "c", ["n2"]) == (after, [])


def test_a_node_replaces_another_node_at_the_same_address() -> None:
    text = "# BEGIN trainyard c\n10.0.0.2 n2\n# END trainyard c\n"
    after, _ = rewrite_hosts(text, [Entry("10.0.0.2", ("n5",))], "c", ["n2"])
    assert after.splitlines()[1:-1] == ["10.0.0.2 n5"]


def test_a_block_without_an_end_is_rejected() -> None:
    with pytest.raises(ValueError, match="has no '# END trainyard c' after it"):
        rewrite_hosts("# BEGIN trainyard c\n10.0.0.1 n1\n", ENTRIES, "c")


WORDS = st.sampled_from(["n1", "N2", "gpu-17", "localhost", "other", "#", "127.0.1.1", "::1", "10.0.0.1", "10.9.9.9"])
FILES = st.lists(st.lists(WORDS, max_size=5).map(" ".join) | st.text(), max_size=8).map("\n".join)


@given(FILES)
def test_any_hosts_file_becomes_correct_or_a_conflict(before: str) -> None:
    text, conflicts = rewrite_hosts(before, ENTRIES, "c")
    assert rewrite_hosts(text, ENTRIES, "c") == (text, rewrite_hosts(text, ENTRIES, "c")[1])
    if not conflicts:
        for name, address in ((name, entry.address) for entry in ENTRIES for name in entry.names):
            found = resolve(text, name)
            assert found is not None and ipaddress.ip_address(found) == ipaddress.ip_address(address)
    ours = {"n1", "n2", "gpu-17"}
    for line in before.split("\n"):
        if line and not ours & {word.lower() for word in line.partition("#")[0].split()}:
            assert line in text.split("\n")


LOCAL = ["localhost", "LocalHost", "localhost4", "localhost.localdomain", "n1.localhost", "ip6-loopback"]
BROKEN = ["a b", "a\tb", "a\n", "a\n10.0.0.9 github.com", "a#b", "#", "", "a\x00", "n\u00e4", "-n1", "n1.", "n1:22"]


@pytest.mark.parametrize("name", [*LOCAL, *BROKEN])
def test_names_that_a_hosts_file_cannot_hold_are_rejected(name: str) -> None:
    assert [finding.found for finding in inventory_findings([name])] == [repr(name)]
    assert any(text.startswith(f"|name in the inventory|{name!r}|") for text in texts(node(name, hostname="n1")))
    for entries, block in (
        ([Entry("10.0.0.1", (name,))], "lab"),
        ([Entry(f"10.0.0.1 {name}", ("n1",))], "lab"),
        ([], "lab\n10.0.0.9 github.com"),
    ):
        with pytest.raises(ValueError, match="correct the names in the inventory"):
            rewrite_hosts("127.0.0.1 localhost\n", entries, block)


@pytest.mark.parametrize("name", ["n1", "GPU-07.example.org", "my_node", "10.0.0.1", "fd00::1", "7", "localhosts"])
def test_legal_inventory_names_are_accepted(name: str) -> None:
    assert inventory_findings([name]) == []
