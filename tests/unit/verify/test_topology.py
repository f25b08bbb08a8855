"""Ways between GPUs and adapters, compared among nodes: the published table of 4 V100 and 2 HCAs, and faults in it."""

from pathlib import Path

import pytest
from ansible.module_utils.trainyard.hardware.nvidia_topology import parse_topology
from ansible.module_utils.trainyard.verify.devices import verify
from ansible.module_utils.trainyard.verify.topology import check_topology, describe
from captured_tree import NODES, unfold
from machine_samples import read

TABLE = (Path(__file__).resolve().parents[2] / "fixtures" / "nvidia_topology" / "v100_4_nics_2.txt").read_text()


def node(*changes, table=TABLE):
    for before, after in changes:
        assert before in table
        table = table.replace(before, after)
    return {"gpus": [{}] * 4, "topology": parse_topology(table)}


# The second adapter sits where the first one is: every way to it is another one.
MOVED = (
    ("GPU0\t X \tNV2\tNV2\tNV2\tPIX\tSYS", "GPU0\t X \tNV2\tNV2\tNV2\tPIX\tPHB"),
    ("NIC1\tSYS\tSYS\tPIX\tPIX", "NIC1\tPHB\tSYS\tPIX\tPIX"),
)


def topology(groups=None, **nodes):
    (check,) = check_topology(nodes, groups or {}, "-i hosts")
    return check


def test_nodes_with_the_same_topology_pass():
    check = topology(n1=node(), n2=node(), n3=node())
    assert check.state == "pass"
    assert check.found == "3 nodes: GPU to GPU NV2 6; GPU to mlx5_0 PIX 2, SYS 2; GPU to mlx5_1 PIX 2, SYS 2"


@pytest.mark.parametrize(
    ("others", "hosts", "found"),
    [
        ({"n3": node()}, ("n2",), "n2: GPU0 to mlx5_1 PHB, SYS on most"),
        # None of two is odd.
        ({}, ("n1", "n2"), "GPU0 to mlx5_1 SYS, and no way that most have"),
    ],
)
def test_nodes_that_differ_are_named_with_the_pair(others, hosts, found):
    check = topology(n1=node(), n2=node(*MOVED), **others)
    assert (check.state, check.hosts) == ("fail", hosts) and found in check.found


def test_nodes_of_another_kind_are_not_compared():
    assert topology({"n1": "a", "n2": "b"}, n1=node(), n2=node(*MOVED)).state == "pass"


def test_an_incomplete_table_is_unknown_and_not_compared():
    cut = node(table=TABLE[: TABLE.index("GPU3\tNV2")])
    check = topology(n1=node(), n2=cut, n3=node())
    assert (check.state, check.hosts) == ("unknown", ("n2",))
    assert topology(n1={"gpus": [{}] * 2, "topology": None}).state == "unknown"


@pytest.mark.parametrize("gpus", [[], [{}]])
def test_a_node_without_two_gpus_has_nothing_to_compare(gpus):
    assert check_topology({"n1": {"gpus": gpus, "topology": None}}, {}, "") == []


def test_a_captured_machine_can_be_checked(tmp_path):
    machine = read(unfold("gpu2", tmp_path, NODES.parent / "verify"))
    assert describe(machine["devices"]["topology"]) == (
        "GPU to GPU NV18 1; GPU to mlx5_0 PIX 1, SYS 1; GPU to mlx5_3 PIX 1, SYS 1; GPU to mlx5_4 SYS 2"
    )
    found = {check.name: check for check in verify({"n1": machine}, groups={"kind": ["n1"]}, allowed={})}
    assert found["GPU topology"].state == "pass"
