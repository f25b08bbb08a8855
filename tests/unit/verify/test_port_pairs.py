"""Which port, path or switch rail of a simulated cluster is named, and that healthy clusters raise no alarm."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard.verify.port_pairs import NO_EQUAL, NO_TOOL, Pair, verify
from ansible.module_utils.trainyard_controller.verify.port_trials import try_ports

TIMEOUT = "Failed status transport retry counter exceeded (12) for wr_id 2"


def port(device, layer):
    """Return a port as a node reads it; `layer` is InfiniBand or Ethernet."""
    return {"device": device, "port": 1, "active": True, "link_layer": layer, "state": "ACTIVE", "rate_gbps": 400.0}


def node(at, layer="InfiniBand", rails=2, npus=0):
    """Return the answer of a healthy node."""
    roce = layer == "Ethernet"
    known = {
        "roce": roce,
        "type": "RoCE v2" if roce else "",
        "address": f"::ffff:10.0.0.{at % 256}",
        "mtu": 4096,
        "gid": 3,
    }
    known["pcie"] = {"width": 16.0, "width_max": 16.0, "speed": 32.0, "speed_max": 32.0}
    member = {"up": True, "used": True, "speed_mbps": 100000}
    ports = {
        **{"rdma": {f"mlx5_{rail}:1": known for rail in range(rails)}, "peer_memory": True, "acs": []},
        **{"iommu": {f"mlx5_{rail}": "identity" for rail in range(rails)}},
        "bonds": {"bond0": [{"name": name, **member} for name in ("eth0", "eth1")]},
    }
    cards = [{"physical_id": number, "device_ip": f"10.{number}.0.{at}"} for number in range(npus)]
    rdma = [port(f"mlx5_{rail}", layer) for rail in range(rails)]
    devices = {"vendor": "nvidia", "rdma": rdma, "npus": cards, "ports": ports}
    return {"network": {"address": f"10.0.{at // 256}.{at % 256}"}, "devices": devices}


def cluster(count, *kind):
    return {f"n{at}": node(at, *kind) for at in range(1, count + 1)}


def tried(nodes, reason=lambda *_: "", silent=(), unmet=False, with_tool=("n1", "n2", "n3", "n4")):
    """Try the ports of simulated nodes; `reason` says of device (NPU number), client and server why they fail."""
    asked = []

    def ask(_question, own, shared, _limit_s):
        question = shared["step"]
        asked.append((question, {host: len(*given.values()) for host, given in own.items()}))
        found = {}
        for host, given in own.items():
            if host in silent:
                found[host] = {"failed": True, "msg": "it hangs"}
            elif question == "serve":
                ready = {"pid": 7, "start_time": 7, "problem": ""}
                found[host] = {
                    "servers": [{"id": end["id"], "tcp": 10000 + end["id"] % 50000, **ready} for end in given["ends"]]
                }
            elif question == "ping":
                whys = [
                    (each["id"], reason(each.get("device", each.get("npu")), host, each["peer"]))
                    for each in given["calls"]
                ]
                found[host] = {"failures": [{"id": at, "reason": why} for at, why in whys if why], "left": []}
            else:
                found[host] = {"ended": 0, "waiting": [each["id"] for each in given["servers"]] if unmet else []}
        return {host: checked("try_ports", answer, host) for host, answer in found.items()}

    checks, spoiled = try_ports(ask, nodes, 10, 300, 240.0, "again", with_tool)
    bad = [each for each in checks if each.state not in ("pass", "skipped")]
    return SimpleNamespace(checks=checks, asked=asked, spoiled=spoiled, bad=bad)


def of_port(device, *bad):
    """Return the rule by which the ports of these hosts fail with everybody."""
    return lambda name, *hosts: TIMEOUT if name == device and set(hosts) & {*bad} else ""


@pytest.mark.parametrize("count", [3, 4, 16, 17, 100])
def test_a_bad_port_is_named_with_its_gid_and_address(count):
    found = tried(cluster(count, "Ethernet"), of_port("mlx5_1", "n2"))
    [check] = found.bad
    partners = {3: 2, 4: 3, 16: 15, 17: 8, 100: 12}[count]
    assert (check.name, check.state, check.hosts) == ("RoCE port mlx5_1:1", "fail", ("n2",))
    named = f"n2 RoCE port mlx5_1:1 (GID 3 10.0.0.2, RoCE v2) with {partners} of {partners}: {TIMEOUT}"
    assert check.found.startswith(named)
    assert check.reason == "a port fails with most of its partners" and "n2" in found.spoiled
    assert [question for question, _ in found.asked] == ["serve", "ping", "close"] * 2


def test_several_bad_ports_are_one_check_of_their_rail():
    [check] = tried(cluster(40), of_port("mlx5_0", "n7", "n9", "n30")).bad
    assert (check.name, sorted(check.hosts)) == ("InfiniBand port mlx5_0:1", ["n30", "n7", "n9"])


def test_a_bad_path_is_told_from_bad_ports():
    [check] = tried(
        cluster(24), lambda name, *hosts: TIMEOUT if (name, {*hosts}) == ("mlx5_0", {"n2", "n6"}) else ""
    ).bad
    assert (check.hosts, check.reason) == (("n2", "n6"), "both ports work with others")
    assert "n2 InfiniBand port mlx5_0:1 (GID 3 10.0.0.2) -> n6 InfiniBand port mlx5_0:1" in check.found
    [check] = tried(cluster(2), of_port("mlx5_0", "n1")).bad
    assert (check.hosts, check.reason) == (("n1", "n2"), "one of both ports, or the way between them")


def test_a_dead_switch_rail_blames_no_port():
    found = tried(cluster(16), of_port("mlx5_1", *(f"n{at}" for at in range(1, 17))))
    [check] = found.bad
    assert (check.reason, len(check.hosts)) == ("none of 120 pairs gets through", 16)
    assert found.checks[-1].found == "120 pairs on 1 rail between 16 nodes"


@pytest.mark.parametrize("count", [8, 16, 64])
@pytest.mark.parametrize("more", [(), ("n2",)])
def test_switches_without_a_way_between_them_are_shown_as_groups(count, more):
    nodes, second = cluster(count), {f"n{at}" for at in range(count // 2 + 2, count + 1)}
    found = tried(nodes, lambda name, *hosts: (name == "mlx5_0" and (
        len(second.intersection(hosts)) == 1 or set(hosts) & {*more}) and TIMEOUT) or "").bad  # fmt: skip
    assert (set(found[0].hosts), found[0].reason) == (second, "ports get through within these groups only")
    assert [each.hosts for each in found[1:]] == [more] * bool(more)


def test_one_failure_of_two_tries_is_no_fault_and_is_shown():
    once = itertools.chain([TIMEOUT], itertools.repeat(""))
    [check] = tried(cluster(4), lambda *_: next(once)).checks
    assert check.state == "pass" and "; passed only when tried again: n1 InfiniBand port mlx5_0:1" in check.found


@pytest.mark.parametrize("why", ["Couldn't connect to 10.0.0.2:10001", "it is not installed"])
def test_what_says_nothing_about_a_port_is_unknown(why):
    found = tried(cluster(4), lambda *hosts: why if "n2" in hosts else "").bad
    assert [(each.name, each.state) for each in found] == [("port pairs", "unknown")]


def test_silent_nodes_are_unknown_and_ports_without_an_equal_are_skipped():
    nodes = cluster(4)
    nodes["n4"]["devices"]["rdma"][1]["device"] = "mlx5_9"
    nodes["n4"]["devices"]["ports"]["rdma"]["mlx5_9:1"] = nodes["n4"]["devices"]["ports"]["rdma"].pop("mlx5_1:1")
    nodes["n5"] = {**node(5), "devices": {"vendor": "", "rdma": [], "npus": []}}
    check, passed = tried(nodes).checks
    assert (check.state, check.hosts, check.reason) == ("skipped", ("n4",), NO_EQUAL)
    assert (passed.state, check.found) == ("pass", "InfiniBand port mlx5_9:1")
    found = tried(cluster(4), silent=("n3",)).bad
    assert {each.state for each in found} == {"unknown"} and all("n3" in each.hosts for each in found)


def test_npus_are_tried_without_servers():
    found = tried(cluster(4, "InfiniBand", 0, 2), of_port(1, "n4"))
    assert [(each.name, each.hosts) for each in found.bad] == [("NPU 1", ("n4",))]
    assert {question for question, _ in found.asked} == {"ping"}


def test_what_is_no_address_is_never_called():
    nodes = cluster(2, "InfiniBand", 0, 1)
    nodes["n2"]["devices"]["npus"][0]["device_ip"] = "--help"
    assert [(each.found, each.reason) for each in tried(nodes).checks] == [("NPU 0", NO_EQUAL)]
    nodes = cluster(2)
    nodes["n2"]["network"]["address"] = "10.0.0.2/24"
    found = tried(nodes)
    assert [each.state for each in found.bad] == ["unknown"] and found.asked == []


@pytest.mark.parametrize("nodes", [cluster(1), cluster(3, "InfiniBand", 0), {}])
def test_nothing_to_try_is_one_line_and_no_visit(nodes):
    found = tried(nodes)
    assert ([each.state for each in found.checks], found.asked) == (["skipped"], [])


def test_both_sides_use_packets_that_both_ports_take():
    nodes, given = cluster(2), []
    nodes["n2"]["devices"]["ports"]["rdma"]["mlx5_0:1"] = {
        **node(2)["devices"]["ports"]["rdma"]["mlx5_0:1"],
        "mtu": 1024,
    }
    try_ports(lambda question, own, *_: given.append(own) or {}, nodes, 10, 300, 240.0, "")
    assert [end["mtu"] for end in given[0]["n2"]["ends"]] == [1024, 4096]


def test_a_thousand_nodes_take_three_visits_and_few_tries_each():
    found = tried(cluster(1000, "Ethernet", 8))
    assert ([each.state for each in found.checks], found.spoiled) == (["pass"], [])
    assert len(found.asked) == 3 and all(set(count.values()) == {72} for _, count in found.asked)


@pytest.mark.parametrize(("unmet", "state"), [(True, "unknown"), (False, "fail")])
def test_a_firewall_that_drops_packets_is_no_fault_of_a_port(unmet, state):
    found = tried(cluster(3), lambda *hosts: "no answer within 10 s" if "n2" in hosts else "", unmet=unmet)
    assert {each.state for each in found.bad} == {state} and bool(found.spoiled) is not unmet


def test_only_nodes_of_the_group_rdma_must_have_the_tool():
    found = tried(cluster(4), lambda _, host, peer: "it is not installed" if host == "n1" else "", with_tool=("n2",))
    assert [(each.state, each.reason) for each in found.checks] == [("skipped", NO_TOOL), ("pass", "")]


@pytest.mark.parametrize(
    ("whys", "states"),
    [
        (["Couldn't connect to 10.0.0.2", ""], ["pass"]),
        ([TIMEOUT, "Couldn't connect to 10.0.0.2"], ["unknown"]),
        ([TIMEOUT, ""], ["pass"]),
    ],
)
def test_the_second_try_counts(whys, states):
    again = itertools.chain(whys, itertools.repeat(""))
    assert [each.state for each in tried(cluster(2, "InfiniBand", 1), lambda *_: next(again)).checks] == states


def test_a_port_counts_by_the_pairs_that_were_tried():
    # The bad port of n1 meets only n2, n3 and n20, three of its 8 partners.
    far, why = {"n5", "n9", "n13", "n17", "n19"}, "Couldn't connect to it"
    [check, unmet] = tried(cluster(20), lambda name, *hosts: (
        (why if far & {*hosts} else TIMEOUT) if name == "mlx5_0" and "n1" in hosts else "")).bad  # fmt: skip
    assert (check.hosts, check.reason, unmet.state) == (("n1",), "a port fails with most of its partners", "unknown")
    assert "with 3 of 3" in check.found
    # The port of a has only this pair.
    pairs = [Pair("r", "a", "b"), Pair("r", "b", "c"), Pair("r", "c", "d")]
    [check, _] = verify(pairs, {host: {"r": {"shown": ""}} for host in "abcd"}, {0: TIMEOUT, 1: "", 2: ""}, {}, {})
    assert check.reason == "one of both ports, or the way between them"


@pytest.mark.parametrize(
    "answer", [{"servers": [], "failures": 5}, {"failures": [{"id": 1, "reason": "x" * 201}], "left": []}]
)
def test_answers_of_no_step_are_unusable(answer):
    assert checked("try_ports", answer, "n1")["failed"]


@pytest.mark.parametrize(
    "change", [{"npus": 7}, {"rdma": [{}]}, {"ports": {**node(1)["devices"]["ports"], "rdma": {"x": {}}}}]
)
def test_readings_that_ports_cannot_use_are_unusable(change):
    known = {"host": "n1", "devices": {**node(1)["devices"], **change}}
    assert checked("verify", known, "n1")["failed"]
    assert "failed" not in checked("verify", {**known, "devices": node(1)["devices"]}, "n1")
