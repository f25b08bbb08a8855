"""Parsing of addresses, rates and states; the choice of a job's interface; NCCL's and Gloo's variables."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.hardware import interfaces as networks
from hypothesis import given
from hypothesis import strategies as st


def interface(name, *addresses, up=True, kind="physical"):
    state = {"up": up, "state": "up" if up else "down", "mtu": 1500, "mac": None, "speed_mbps": None}
    return {"name": name, "kind": kind, "addresses": list(addresses), **state}


LO = interface("lo", "127.0.0.1/8", "::1/128", kind="loopback")
ETH = interface("eth0", "10.77.0.2/24", "fe80::1/64")
IB = interface("ib0", "10.10.0.2/16")
# InfiniBand without assigned addresses.
BARE = interface("ib0", "fe80::1/64", "169.254.10.2/16")
DOCKER = interface("docker0", "172.17.0.1/16", kind="bridge")


def port(device, number=1, link_layer="InfiniBand", active=True):
    states = dict(zip(("state", "physical_state"), ("ACTIVE", "LinkUp") if active else ("DOWN", "Polling")))
    place = {"device": device, "port": number, "link_layer": link_layer}
    return {**place, "rate_gbps": 400.0, "netdev": None, "active": active, **states}


def test_rates_and_states():
    rates = {"400 Gb/sec (4X NDR)": 400.0, "2.5 Gb/sec (1X SDR)": 2.5, "10 Gb/sec (4X SDR)\n": 10.0}
    for text, rate in (rates | dict.fromkeys(("", "unknown", "-1 Gb/sec"))).items():
        assert networks.parse_rate(text) == rate
    states = {"4: ACTIVE\n": "ACTIVE", "5: LinkUp": "LinkUp", "1: DOWN": "DOWN", "ACTIVE": None, "": None}
    for text, state in states.items():
        assert networks.parse_state(text) == state


def test_representors():
    assert all(networks.is_representor(name) for name in ("pf0vf3", "c1pf0vf12", "pf0sf88"))
    assert not any(networks.is_representor(name) for name in ("p0", "pf0", ""))


@pytest.mark.parametrize(
    ("interfaces", "network", "host", "chosen"),
    [
        # The network of the host's address is the default.
        ([LO, ETH, IB, DOCKER], "", "10.77.0.2", ("eth0", "10.77.0.2")),
        ([LO, ETH, IB, DOCKER], "", "10.10.0.2", ("ib0", "10.10.0.2")),
        ([interface("e", "fd00::9/64")], "", "fd00:0:0::0009", ("e", "fd00::9")),
        # The only network that is no bridge.
        ([LO, ETH, DOCKER], "", "n1.example.org", ("eth0", "10.77.0.2")),
        ([LO, ETH, interface("vethb2", "10.1.0.1/24", kind="virtual")], "", "n1", ("eth0", "10.77.0.2")),
        ([DOCKER, interface("eth0", "172.20.0.9/24")], "172.16.0.0/12", "x", ("eth0", "172.20.0.9")),
        # A CIDR or a name.
        ([LO, ETH, IB], "10.10.0.0/16", "10.77.0.2", ("ib0", "10.10.0.2")),
        ([LO, ETH, IB], "ib0", "10.77.0.2", ("ib0", "10.10.0.2")),
        # A link that is down is no choice.
        ([interface("e", "10.1.0.1/24", up=False), interface("f", "10.1.0.2/24")], "10.1.0.0/24", "x",
         ("f", "10.1.0.2")),
        ([interface("e", "fe80::9/64", "fd00::9/64")], "e", "x", ("e", "fd00::9")),
        # A link-local IPv4 address is chosen only where the interface or its network is named.
        ([ETH, BARE], "ib0", "n1", ("ib0", "169.254.10.2")),
        ([ETH, BARE], "169.254.0.0/16", "n1", ("ib0", "169.254.10.2")),
        ([ETH, BARE], "", "n1", ("eth0", "10.77.0.2")),
        ([interface("ib0", "169.254.10.2/16", "10.9.0.2/24")], "ib0", "n1", ("ib0", "10.9.0.2")),
    ],
)  # fmt: skip
def test_the_choice_of_an_interface(interfaces, network, host, chosen):
    assert networks.select_interface(interfaces, network, host) == chosen


def test_a_host_with_a_name_and_two_networks_is_a_finding():
    with pytest.raises(networks.SelectionError) as caught:
        networks.select_interface([LO, ETH, IB], "", "n1.example.org")
    found = caught.value.finding.found
    assert "eth0 10.77.0.2/24" in found and "(n1.example.org)" in found
    assert "set job_network" in caught.value.finding.action


@pytest.mark.parametrize("others", [[], [ETH, IB], [interface("docker0", "172.18.0.1/16", kind="bridge")]])
def test_a_node_that_is_alone_needs_no_network(others):
    assert networks.select_interface([LO, *others], "", "here", alone=True) == ("lo", "127.0.0.1")
    assert networks.select_interface([LO, ETH], "", "here", alone=True) == ("eth0", "10.77.0.2")


def test_loopback_serves_one_node_only():
    assert networks.select_interface([LO, ETH], "", "127.0.0.1", alone=True) == ("lo", "127.0.0.1")
    assert networks.select_interface([LO, ETH], "", "localhost", alone=True) == ("lo", "127.0.0.1")
    with pytest.raises(networks.SelectionError, match="no other node can reach") as caught:
        networks.select_interface([LO, ETH], "", "127.0.0.1")
    assert caught.value.finding.check == "interface"


BRIDGES = ["docker0", "virbr0", "br-0123456789ab", "docker_gwbridge", "cni-podman0"]


@pytest.mark.parametrize("name", [*BRIDGES, "veth3ab01c", "vnet7"])
@pytest.mark.parametrize(
    ("network", "host", "by"),
    [
        ("{name}", "10.77.0.2", "job_network {name}"),
        ("172.18.0.0/16", "10.77.0.2", "job_network 172.18.0.0/16"),
        ("", "172.18.0.1", "the node's address in the inventory (172.18.0.1)"),
    ],
)
def test_an_interface_to_guests_of_the_node_is_rejected(name, network, host, by):
    kind = "bridge" if name in BRIDGES else "virtual"
    interfaces = [LO, ETH, interface(name, "172.18.0.1/16", kind=kind)]
    with pytest.raises(networks.SelectionError) as caught:
        networks.select_interface(interfaces, network.format(name=name), host)
    finding = caught.value.finding
    assert finding.check == "interface" and finding.found.startswith(f"{name} 172.18.0.1/16 (for containers or virtual")
    assert finding.found.endswith(f"chosen by {by.format(name=name)}")
    assert networks.select_interface(interfaces, name, host, alone=True) == (name, "172.18.0.1")


@pytest.mark.parametrize("name", ["br0", "vmbr0", "br-mgmt", "bond0.100", "eth0", "dockers", "ib0.8001", "lo0"])
def test_interfaces_that_may_lead_to_other_machines(name):
    assert networks.leads_nowhere(name) == ""
    assert networks.select_interface([interface(name, "10.9.0.1/24", kind="bridge")], name, "x") == (name, "10.9.0.1")


@pytest.mark.parametrize(
    ("value", "names"),
    [("=eth0,docker0", ["eth0", "docker0"]), ("eth, ib", ["eth", "ib"]), ("^docker,lo", []), ("", []), ("=", [])],
)
def test_names_in_variables_that_choose_interfaces(value, names):
    assert networks.named_interfaces(value) == names


@pytest.mark.parametrize(
    ("address", "kind", "host", "sign"),
    [
        # Published ports: Ansible reaches the machine, not the container.
        ("10.5.0.3/24", "virtual", "192.0.2.7", "it is reached as 192.0.2.7, which it does not have"),
        ("172.17.0.2/16", "virtual", "gpu1", "172.17.0.0/16 is what engines give to containers on every machine"),
        ("10.88.0.4/16", "virtual", "10.88.0.4", "10.88.0.0/16 is what engines give to containers on every machine"),
        # A network of its own, as in the lab; a name that may lead to it; the machine's own interface.
        ("10.77.0.2/24", "virtual", "10.77.0.2", ""),
        ("10.77.0.2/24", "virtual", "n1", ""),
        ("10.77.0.2/24", "physical", "192.0.2.7", ""),
        ("fd00::2/64", "virtual", "fd00:0::2", ""),
    ],
)
def test_signs_of_a_container_behind_its_machines_address(address, kind, host, sign):
    interfaces = [LO, interface("eth0", address, kind=kind)]
    assert networks.behind_nat(interfaces, "eth0", address.split("/")[0], host) == sign


@pytest.mark.parametrize(
    ("interfaces", "network", "found", "expected"),
    [
        ([LO, ETH], "10.99.0.0/24", "eth0 10.77.0.2/24", "an address in 10.99.0.0/24"),
        ([LO], "10.99.0.0/24", "no interface with an address", "an address in 10.99.0.0/24"),
        ([LO, ETH], "10.77.0.0/240", "job_network '10.77.0.0/240'", "a CIDR such as"),
        ([LO, ETH], "10.77.0.2/24", "has host bits set", "a CIDR such as"),
        ([LO, ETH], "eth1", "no interface eth1 (the node has lo, eth0)", "one address on interface eth1"),
        ([LO, interface("eth1")], "eth1", "no address on eth1", "one address on interface eth1"),
        ([interface("ib0", "fe80::1/64")], "ib0", "link-local ones of IPv6", "one address"),
        ([interface("ib0", "fe80::1/64"), ETH], "fe80::/64", "only link-local", "without the name of its interface"),
        ([interface("e", "10.1.0.1/24", "10.1.0.9/24")], "e", "2 addresses (e 10.1.0.1/24, e 10.1.0.9/24)", "on e"),
        ([interface("e", "10.1.0.1/24"), interface("f", "10.1.0.2/24")], "10.1.0.0/24", "2 addresses", "one address"),
        ([interface("e", "10.1.0.1/24", up=False)], "10.1.0.0/24", "e 10.1.0.1/24 is down (state down)", "is up"),
    ],
)
def test_a_network_that_does_not_fit_is_a_finding(interfaces, network, found, expected):
    with pytest.raises(networks.SelectionError) as caught:
        networks.select_interface(interfaces, network, "10.77.0.2")
    finding = caught.value.finding
    assert found in finding.found and expected in finding.expected
    assert finding.action and finding.found in str(caught.value)
    instead = finding.action.removeprefix("set job_network: ")
    if instead[:1].isdigit():
        assert networks.select_interface(interfaces, instead, "10.77.0.2")


def test_hca_list_is_exact_sorted_and_active_only():
    ports = [port("mlx5_10"), port("mlx5_2"), port("mlx5_1", active=False), port("mlx5_0", 2), port("mlx5_0", 1)]
    assert networks.nccl_ib_hca(ports) == "=mlx5_0:1,mlx5_0:2,mlx5_2:1,mlx5_10:1"
    assert networks.nccl_ib_hca([port("mlx5_1", active=False)]) == ""
    assert networks.nccl_ib_hca([]) == ""
    # InfiniBand and RoCE are never mixed.
    roce = port("mlx5_bond_0", link_layer="Ethernet")
    assert networks.nccl_ib_hca([roce, port("mlx5_0")]) == "=mlx5_0:1"
    assert networks.nccl_ib_hca([roce, port("mlx5_0", active=False)]) == "=mlx5_bond_0:1"


def test_nccl_conf():
    text = "# comment\nNCCL_DEBUG=WARN # why\n\n NCCL_SOCKET_IFNAME = =eth0 \nnonsense\n"
    assert networks.parse_nccl_conf(text) == {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "=eth0"}


def test_ip_address_keeps_prefixes_and_flags():
    addresses = [{"local": "10.0.0.1", "prefixlen": 24}, {"local": "fd00::1", "prefixlen": 64}, {}]
    record = {
        **{"ifname": "eth0", "flags": ["BROADCAST", "UP", "LOWER_UP"], "mtu": 1400, "operstate": "UP"},
        **{"address": "02:00:00:00:00:01", "addr_info": addresses},
    }
    (link,), problems = networks.parse_ip_address(json.dumps([record, {}]))
    assert problems == []
    assert link == {
        **{"name": "eth0", "up": True, "state": "up", "mtu": 1400, "mac": "02:00:00:00:00:01", "kind": "virtual"},
        "speed_mbps": None,
        "addresses": ["10.0.0.1/24", "fd00::1/64"],
    }


@pytest.mark.parametrize("text", ["", "{}", "Object not found", '[{"ifname": 3}]', "[7]", "[" * 100_000])
def test_bad_ip_output_is_a_problem(text):
    links, problems = networks.parse_ip_address(text)
    assert (links, len(problems)) == ([], 1)


NAMES = st.sampled_from(["ifname", "flags", "mtu", "address", "addr_info", "local", "prefixlen", "operstate"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=6),
    max_leaves=20,
)


@given(JSON.map(lambda value: json.dumps([value])) | st.text())
def test_no_ip_output_crashes(text):
    links, problems = networks.parse_ip_address(text)
    assert links or problems or text.strip() in ("[{}]", "[]")


@given(st.text())
def test_no_sysfs_text_crashes(text):
    rate = networks.parse_rate(text)
    assert rate is None or rate >= 0
    state = networks.parse_state(text)
    assert state is None or state in text
    assert isinstance(networks.parse_nccl_conf(text), dict)


ADDRESSES = st.ip_addresses(v=4).map(lambda ip: f"{ip}/24") | st.ip_addresses(v=6).map(lambda ip: f"{ip}/64")
NICS = st.sampled_from(["eth0", "eth1", "ib0", "docker0", "lo"])
KINDS = st.sampled_from(["physical", "bridge", "bond", "virtual", "loopback"])
INTERFACES = st.builds(interface, NICS, ADDRESSES, up=st.booleans(), kind=KINDS)


@given(
    st.lists(INTERFACES, max_size=4, unique_by=lambda item: item["name"]),
    st.sampled_from(["", "eth0", "ib0", "0.0.0.0/0", "::/0", "10.0.0.0/8"]) | st.text(max_size=12),
    st.text(max_size=12),
    st.booleans(),
)
def test_a_choice_is_an_address_of_the_node_or_an_explanation(interfaces, network, host, alone):
    try:
        name, address = networks.select_interface(interfaces, network, host, alone=alone)
    except networks.SelectionError as error:
        assert all((error.finding.found, error.finding.expected, error.finding.action))
    else:
        chosen = next(item for item in interfaces if item["name"] == name)
        assert chosen["up"]
        assert address in [text.split("/")[0] for text in chosen["addresses"]]
        assert alone or chosen["kind"] != "loopback"
