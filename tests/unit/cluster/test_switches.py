"""Which nodes are at which switch, by LLDP, ibnetdiscover and a file in the form of Slurm's topology.conf."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.cluster import switches
from ansible.module_utils.trainyard.slurm import switch_tree
from ansible.module_utils.trainyard_controller.runs import topologies
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify import facts
from job_samples import saved_verification


def neighbor(name, *capabilities, **more):
    forwards = [{"type": each, "enabled": True} for each in capabilities]
    about = {"id": {"type": "mac", "value": "00:11:22:33:44:55"}, "capability": forwards, **more}
    return {"via": "LLDP", "chassis": {name: about} if name else about, "port": {}}


def output(*entries):
    return json.dumps({"lldp": {"interface": list(entries) if len(entries) != 1 else entries[0]}})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (output({"eth0": neighbor("leaf1", "Bridge", "Router")}), {"eth0": "leaf1"}),
        (output({"eth0": neighbor("leaf1", "Bridge")}, {"eth1": neighbor("", "Bridge")}),
         {"eth0": "leaf1", "eth1": "00:11:22:33:44:55"}),
        # The processor of an adapter, and another server; the switch behind them on the same interface.
        (output({"eth0": neighbor("dpu", "Station")}, {"eth0": neighbor("leaf1", "Bridge")}), {"eth0": "leaf1"}),
        # A switch that does not say what it can do.
        (output({"eth0": {"chassis": {"leaf1": {}}}}), {"eth0": "leaf1"}),
        (output(), {}), ('{"lldp": {}}', {}), (output({"eth0": 7}, 8), {}),
    ],
)  # fmt: skip
def test_lldp(text, expected):
    assert switches.parse_neighbors(text) == expected


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"lldp": 7}', "[" * 100_000])
def test_what_is_no_output_of_lldpctl(text):
    with pytest.raises(ValueError, match="no output of lldpctl"):
        switches.parse_neighbors(text)


# In the form of rdma-core's ibnetdiscover, retyped.
FABRIC = """\
CA    44  1 0x0002c9030045f121 4x FDR - SW     2 17 0x0002c903006e1430 ( 'n1 mlx5_0' - 'leaf1' )
CA    45  1 0x0002c9030045f122 4x FDR - SW     3 17 0x0002c903006e1431 ( 'n1 mlx5_1' - 'leaf2' )
CA    46  1 0x0002c9030045f123 4x FDR - SW     4  1 0x0002c903006e1432 ( 'N2.lab HCA-1' - 'Quantum Technologies' )
CA    47  1 0x0002c9030045f124 4x FDR - SW     5  1 0x0002c903006e1433 ( 'n3 HCA-1' - 'Quantum Technologies' )
SW     2 19 0x0002c903006e1430 4x SDR                                    'leaf1'
SW     2  1 0x0002c903006e1430 4x FDR - SW     9  1 0x0002c903006e1439 ( 'leaf1' - 'spine' )
"""


def test_infiniband():
    guids = {"n2": "0x0002c903006e1432", "n3": "0x0002c903006e1433"}
    assert switches.parse_fabric(FABRIC) == {"n1": "leaf1+leaf2", **guids}
    assert switches.parse_fabric("ibwarn: no port\n" + FABRIC[:40]) == {}
    eight = [f"0x0002c903006e14{number:02}" for number in range(8)]
    names = {switches.joined(eight), switches.joined([*eight[:7], "0x0002c903006e1499"])}
    assert len(names) == 2 and {len(name) for name in names} == {64}


def test_most_nodes_must_know_their_switch():
    nodes = [{"host": f"gpu{at}", "hostname": f"n{at}.lab", "switch": "mgmt"} for at in (1, 2, 3)]
    found = switches.of_nodes(nodes)
    assert (found["source"], switches.text(found)) == ("lldp", "1 switch by LLDP: mgmt with 3 nodes")
    # InfiniBand says more; a name that two nodes have says nothing.
    found = switches.of_nodes([*nodes[:2], {**nodes[2], "fabric": switches.parse_fabric(FABRIC)}])
    assert [switch["hosts"] for switch in found["switches"]] == [["gpu1"], ["gpu2"], ["gpu3"]]
    # Nobody else says so.
    other = {**nodes[1], "fabric": {"n1": "leaf9", "n2": "leaf2", "n3": "leaf3"}}
    found = switches.of_nodes([nodes[0], other, {**nodes[2], "fabric": {"n1": "leaf1", "n2": "leaf2", "n3": "leaf3"}}])
    assert [switch["hosts"] for switch in found["switches"]] == [["gpu2"], ["gpu3"]]
    same = [{**node, "hostname": "n1", "switch": "", "fabric": {"n1": "leaf1"}} for node in nodes]
    assert switches.of_nodes(same) is switches.of_nodes([{"host": "n1", "fabric": 7}, nodes[0]]) is None


def test_a_node_reads_its_switch_below_bond_and_vlan(tmp_path):
    for name in ("bond0.7/lower_bond0", "bond0/lower_eth0", "bond0/lower_eth1", "eth0/lower_", "eth1"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/lldpctl.out").write_text(
        output({"eth0": neighbor("b", "Bridge")}, {"eth1": neighbor("a", "Bridge")}, {"mgmt": neighbor("m", "Bridge")})
    )
    tree = Tree(str(tmp_path))
    assert [facts._switch(tree, name) for name in ("bond0.7", "eth1", "lo", "")] == ["a+b", "a", "", ""]
    (tmp_path / "commands/ibnetdiscover.p.out").write_text(FABRIC)
    ports = [{"active": True, "link_layer": "InfiniBand"}]
    assert facts._fabric(tree, {"rdma": ports})["n1"] == "leaf1+leaf2" and facts._fabric(tree, {"rdma": []}) == {}


TREE = """\
# Two pods
SwitchName=leaf1 Nodes=n[1-2],n9  LinkSpeed=100
switchname=leaf2 nodes=n[3,5] # half full
SwitchName=leaf3 \\
    Nodes=n4
SwitchName=pod1 Switches=leaf[1,3]
SwitchName=pod2 Switches=leaf2
"""


def test_switches_of_a_file():
    paths = switch_tree.parse(TREE)
    assert paths["n9"] == ("pod1", "leaf1") and paths["n5"] == ("pod2", "leaf2") and len(paths) == 6
    hosts = ["n5", "n4", "n1", "n3", "n8", "n2"]
    found = switches.topology("file", paths, hosts)
    # A pod stays together, too; who is at no known switch keeps its place among them.
    assert switches.ordered(hosts, found) == ["n5", "n3", "n4", "n1", "n2", "n8"]
    assert switches.ordered(hosts, switches.topology("pairs", {}, hosts, "flat")) == hosts
    lines = switch_tree.lines(found, hosts)
    assert lines[0] == {"name": "leaf2", "nodes": ["n5", "n3"]}
    assert {"name": "trainyard-others", "nodes": ["n8"]} in lines
    assert lines[-1] == {"name": "trainyard-top", "switches": ["pod2", "pod1", "trainyard-others"]}


def test_names_of_switches_are_words_for_slurm():
    names = ["MF0;js01:SX60/U1", "MF0/js01;SX60:U1", "sw x" * 40, "=", "trainyard-top"]
    found = switches.topology(
        "lldp", {f"n{at}": [name] for at, name in enumerate(names)}, [f"n{at}" for at in range(5)]
    )
    made = [line["name"] for line in switch_tree.lines(found, ["n0", "n1", "n2", "n3", "n4"])]
    assert made[:2] == ["MF0-js01-SX60-U1", "MF0-js01-SX60-U1-2"] and len({*made}) == 6
    assert all(len(name) <= 64 and switch_tree.re.fullmatch(r"[A-Za-z0-9_.-]+", name) for name in made)
    assert switch_tree.lines(found, ["other"]) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NodeName=n1", "line 1 is 'NodeName=n1', expected SwitchName="),
        ("\nSwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "line 3"),
        ("SwitchName=a Nodes=n1 Switches=b", "line 1"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]", "line 2 has 'n1', which is below 'a', too"),
        ("SwitchName=a Switches=b", "no line has SwitchName=b, which is below a"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\nSwitchName=d Switches=c", None),
        ("SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c\nSwitchName=c Switches=b", "more than 16 switches"),
        ("SwitchName=a Nodes=n[1-9999999]", "more than 100000 hosts"),
        ("SwitchName=a Nodes=n[1-3", "line 1 has 'n[1-3', expected names"),
        ("SwitchName=a Nodes=n[3-1]", "expected names"),
    ],
)
def test_a_file_that_is_no_tree(tmp_path, text, found):
    (tmp_path / "topology.conf").write_text(text)
    if found is None:
        assert topologies.given(str(tmp_path / "topology.conf")) == {"n1": ("d", "c")}
        return
    with pytest.raises(UnusableError) as error:
        topologies.given(str(tmp_path / "topology.conf"))
    assert found in str(error.value)


def test_the_newest_topology_of_this_inventory_is_known(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def save(number, inventory, topology):
        folder = tmp_path / f"runs/verify-2026112{number}-101500"
        folder.mkdir(parents=True)
        report = saved_verification(folder.name, "lab", inventory=inventory, topology=topology)
        (folder / "report.json").write_text(json.dumps(report))

    old, new = (switches.topology("pairs", {"n1": [name]}, ["n1"]) for name in ("old", "new"))
    ways = ("", tmp_path / "runs", [str(tmp_path / "lab")], ["n1", "n2"])
    assert topologies.known(*ways) is None
    for number, inventory, topology in ((1, "-i lab", old), (2, "-i lab", new), (3, "-i lab", None), (4, "-i b", old)):
        save(number, inventory, topology)
    assert topologies.known(*ways) == new
    # A later verification of one node hides nothing of what was read of more nodes.
    read = switches.topology("lldp", {"n1": ["a"], "n2": ["b"]}, ["n1", "n2"])
    for number, topology in ((5, read), (6, switches.topology("lldp", {"n1": ["c"]}, ["n1"])), (7, new)):
        save(number, "-i lab", topology)
    assert topologies.known(*ways) == read
    (tmp_path / "tree").write_text(TREE)
    assert topologies.known(str(tmp_path / "tree"), *ways[1:])["switches"] == [
        {"path": ["pod1", "leaf1"], "hosts": ["n1", "n2"]}
    ]
