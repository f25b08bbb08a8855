"""The role rdma: states of the nodes' ports, declared states, and nodes that differ."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.hardware.hardware_answers import RDMA
from ansible.module_utils.trainyard.hardware.rdma import check, parse_ibv_devices
from ansible.module_utils.trainyard_node.hardware.network_discovery import read_networks
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold
from filters import declared, of_hosts
from hypothesis import given
from hypothesis import strategies as st

# As ibv_devices of rdma-core prints it; the ids are invented.
IBV_DEVICES = """    device          \t   node GUID
    ------          \t----------------
    mlx5_0          \tb8599f0300c0ffee
    mlx5_bond_0     \tb8599f0300c0ffef
"""
# Composed: a node with eight compute ports of NDR and an Ethernet port for storage, as the kernel shows them.
COMPUTE = [f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)]


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """The networks of captured machines by name."""
    known = {}

    def read(name):
        if name not in known:
            known[name] = read_networks(Tree(str(unfold(name, tmp_path_factory.mktemp(name)))))
        return json.loads(json.dumps(known[name]))

    return read


def state(host, networks, **changes):
    given = {"expected": "auto", "ports": [], "rate_gbps": 0.0, "link_layer": ""}
    node = {"host": host, "networks": networks, "virtual": "", "verbs": None, **given, **changes}
    return declared(node, RDMA)


DECLARED = {"expected": "8", "rate_gbps": 400.0, "link_layer": "InfiniBand"}


def texts(findings):
    return [(finding.host, finding.check, finding.found, finding.expected) for finding in findings]


def test_a_number_of_ports_and_a_rate_are_a_declaration(networks):
    assert check([state("g1", networks("gpu8_infiniband")), state("g2", networks("gpu8_infiniband"))]) == []
    node = state("g1", networks("gpu8_infiniband"), **DECLARED)
    assert check([node]) == []
    more = {**node, "expected": "9"}
    assert texts(check([more])) == [("g1", "RDMA ports", "8", "9 of InfiniBand 400 Gb/s ACTIVE")]
    found = of_hosts("rdma_findings", [more, state("p1", networks("plain"))])
    assert [finding["host"] for finding in found] == ["g1", "p1"]


def test_a_slow_and_a_dead_port_of_one_node_are_named(networks):
    broken = networks("gpu8_infiniband")
    by_name = {port["device"]: port for port in broken["rdma"]}
    by_name["mlx5_3"]["rate_gbps"] = 200.0
    by_name["mlx5_9"].update(state="DOWN", physical_state="Polling", active=False)
    found = "mlx5_3:1 InfiniBand 200 Gb/s ACTIVE; mlx5_9:1 InfiniBand 400 Gb/s DOWN (Polling)"
    nodes = [state("g1", networks("gpu8_infiniband")), state("g2", broken), state("g3", networks("gpu8_infiniband"))]
    assert texts(check([{**node, **DECLARED} for node in nodes])) == [
        ("g2", "RDMA ports", f"6, and {found}", "8 of InfiniBand 400 Gb/s ACTIVE")
    ]
    # Without a declaration the ports of the other nodes are expected.
    expected = "mlx5_3:1 InfiniBand 400 Gb/s ACTIVE; mlx5_9:1 InfiniBand 400 Gb/s ACTIVE, as on g1, g3"
    assert texts(check(nodes)) == [("g2", "RDMA ports", found, expected)]


def test_ports_are_declared_one_by_one(networks):
    ports = [{"device": name, "rate_gbps": 400, "link_layer": "InfiniBand"} for name in COMPUTE]
    assert check([state("g1", networks("gpu8_infiniband"), ports=ports)]) == []
    declared = {"mlx5_0": {"rate_gbps": 800}, "mlx5_3": {"link_layer": "Ethernet"}, "mlx5_4": {"netdev": "ib7"}}
    declared |= {"mlx5_5": {"state": "DOWN"}, "mlx5_6": {"port": 2}, "mlx5_7": {}}
    ports = [{"device": name, **each} for name, each in declared.items()]
    node = state("g1", networks("gpu8_infiniband"), ports=ports, link_layer="InfiniBand")
    found = {check: (text, expected) for _, check, text, expected in texts(check([node]))}
    assert found["RDMA port mlx5_0:1"] == ("InfiniBand 400 Gb/s ACTIVE", "InfiniBand 800 Gb/s ACTIVE")
    assert found["RDMA port mlx5_3:1"] == ("InfiniBand 400 Gb/s ACTIVE", "Ethernet ACTIVE")
    assert found["RDMA port mlx5_4:1"] == ("InfiniBand 400 Gb/s ACTIVE, netdev ib2", "InfiniBand ACTIVE, netdev ib7")
    assert found["RDMA port mlx5_5:1"] == ("InfiniBand 400 Gb/s ACTIVE", "InfiniBand DOWN")
    assert found["RDMA port mlx5_6:2"][0].startswith("none; the node has mlx5_0:1, mlx5_3:1, ")
    assert found["RDMA port mlx5_7:1"][1] == "InfiniBand ACTIVE"
    assert len(found) == 6


def test_a_second_port_that_nobody_cabled_is_no_fault_unless_declared(networks):
    assert check([state("d1", networks("port_down"))]) == []
    found = check([state("d1", networks("port_down"), ports=[{"device": "mlx5_0", "port": 2, "rate_gbps": 100}])])
    assert texts(found) == [("d1", "RDMA port mlx5_0:2", "InfiniBand 10 Gb/s DOWN (Disabled)", "100 Gb/s ACTIVE")]


def test_a_rate_holds_for_every_active_port_of_the_layer(networks):
    roce = networks("roce_bond")
    assert check([state("r1", roce, link_layer="Ethernet")]) == []
    slow = texts(check([state("r1", roce, rate_gbps=100.0)]))
    assert slow == [("r1", "RDMA port mlx5_2:1", "Ethernet 25 Gb/s ACTIVE", "100 Gb/s")]
    (finding,) = check([state("r1", roce, link_layer="InfiniBand")])
    assert finding.expected == "at least one port that is InfiniBand ACTIVE"


@pytest.mark.parametrize(
    ("changes", "found", "action"),
    [
        ({}, "no RDMA device", "see lspci"),
        ({"virtual": "podman"}, "no RDMA device inside a container (podman)", "/dev/infiniband"),
        ({"virtual": "kvm", "expected": "4"}, "no RDMA device inside a virtual machine (kvm)", "virtual function"),
        ({"ports": [{"device": "mlx5_0"}]}, "no RDMA device", "rdma_expected: 0"),
    ],
)
def test_a_node_without_devices_is_told_from_one_that_has_none_on_purpose(networks, changes, found, action):
    (finding,) = check([state("p1", networks("plain"), **changes)])
    assert (finding.host, finding.found) == ("p1", found)
    assert action in finding.action
    assert check([state("p1", networks("plain"), **{"virtual": changes.get("virtual", ""), "expected": "0"})]) == []
    # Devices of a node that declares none.
    assert texts(check([state("r1", networks("port_down"), expected="0")]))[0][3] == "none: rdma_expected is 0"


def test_devices_that_programs_do_not_see(networks):
    assert parse_ibv_devices(IBV_DEVICES) == ["mlx5_0", "mlx5_bond_0"]
    assert check([state("d1", networks("port_down"), verbs=IBV_DEVICES)]) == []
    (finding,) = check([state("r1", networks("roce_bond"), verbs=IBV_DEVICES)])
    assert (finding.check, finding.found) == ("RDMA user space", "ibv_devices does not list mlx5_2")
    # Without ib_uverbs it fails and prints no table.
    (finding,) = check([state("r1", networks("roce_bond"), verbs="")])
    assert finding.found == "ibv_devices does not list mlx5_2, mlx5_bond_0"


def test_what_cannot_be_read_is_no_pass(networks):
    blind = networks("port_down")
    blind["problems"] = ["RDMA port mlx5_0:1: its state cannot be read", "eth0: something else"]
    (finding,) = check([state("d1", blind)])
    assert finding.found == "RDMA port mlx5_0:1: its state cannot be read"


PORTS = st.lists(st.fixed_dictionaries({"device": st.text(min_size=1), "port": st.integers(1, 4)}))


@given(PORTS, st.sampled_from(["auto", "0", "2"]))
def test_no_declaration_breaks_the_judgement(ports, expected):
    unknown = dict.fromkeys(("state", "physical_state", "rate_gbps", "link_layer", "netdev"))
    port = {"device": "mlx5_0", "port": 1, "active": False, **unknown}
    networks = {"interfaces": [], "rdma": [port], "nccl_conf": [], "nccl_settings": {}, "problems": []}
    findings = check([state("n1", networks, ports=ports, expected=expected)])
    assert findings and all(finding.found and finding.expected for finding in findings)
