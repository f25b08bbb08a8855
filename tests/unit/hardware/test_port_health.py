"""What slows down RDMA on a node, read from composed machines and judged."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.hardware.port_health import choose_gid
from ansible.module_utils.trainyard.verify.devices import verify
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify.facts import read_machine
from captured_tree import unfold

FOUR = "0000:0000:0000:0000:0000:ffff:c0a8:2811"
DEVICE, BRIDGE = "sys/class/infiniband/mlx5_bond_0", "sys/devices/pci0000:40/0000:44:01.0"
# Files that the tree roce_bond lacks; with them it is healthy.
MORE = {
    "sys/class/infiniband/mlx5_2/ports/1/state": "1: DOWN",
    **{f"{DEVICE}/ports/1/gids/{at}": text for at, text in enumerate(["fe80::1", "fe80::1", FOUR, FOUR])},
    **{f"{DEVICE}/ports/1/gid_attrs/types/{at}": ("IB/RoCE v1", "RoCE v2")[at % 2] for at in range(4)},
    **{f"{DEVICE}/device/{name}_link_width": "16" for name in ("current", "max")},
    **{f"{DEVICE}/device/current_link_speed": "16.0 GT/s PCIe", f"{DEVICE}/device/max_link_speed": "32.0 GT/s PCIe"},
    # The bridge above it is the limit.
    f"{BRIDGE}/max_link_speed": "16.0 GT/s PCIe",
    f"{DEVICE}/device/iommu_group/type": "identity",
    **{"sys/class/net/bond0/bonding/slaves": "ens1f0np0 ens1f1np1", "sys/class/net/bond0/bonding/ad_aggregator": "1"},
    **{f"sys/class/net/{name}/bonding_slave/mii_status": "up" for name in ("ens1f0np0", "ens1f1np1")},
    **{f"sys/class/net/{name}/bonding_slave/ad_aggregator_id": "1" for name in ("ens1f0np0", "ens1f1np1")},
    "commands/ibv_devinfo.out": "hca_id:\tmlx5_bond_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t4096 (5)\n",
    "commands/lspci.vvv.out": "0000:44:01.0 PCI bridge: x\n\tExpress (v2) Downstream Port\n\t\tACSCtl:\tReqRedir-\n",
    "sys/module/nvidia_peermem/version": "535.183.01",
}
ACS = "0000:44:01.0 PCI bridge: x\n\tExpress (v2) Downstream Port\n\t\tACSCtl:\tSrcValid+ ReqRedir+ CmpltRedir+\n"


@pytest.fixture
def machine(tmp_path):
    """Read a machine with these files beside those of MORE, without those that are None."""

    def read(host="n1", **changes):
        folder = unfold("roce_bond", tmp_path / host)
        (folder / BRIDGE).mkdir(parents=True)
        (folder / DEVICE / "device").rename(folder / BRIDGE / "0000:45:00.0")
        (folder / DEVICE / "device").symlink_to(folder / BRIDGE / "0000:45:00.0")
        for path, text in {**MORE, **{path.replace("~", DEVICE): text for path, text in changes.items()}}.items():
            if text is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(f"{text}\n")
        whole = {"root": "/opt", "venvs": "/v", "user": "", "ascend_root": "/a", "network": "", "host_address": ""}
        return read_machine(Tree(str(folder)), host=host, **whole)

    return read


def faults(**nodes):
    checks = verify(nodes, groups={}, allowed={})
    names = ("RDMA PCIe", "RoCE GID", "RDMA MTU", "GPUDirect RDMA", "IOMMU", "PCIe ACS", "bond members")
    found = {check.name: check for check in checks if check.name in names}
    assert {*found, "PCIe ACS"} == set(names) and all(check.action for check in found.values() if check.state == "fail")
    return {name: (check.state, check.found) for name, check in found.items() if check.state != "pass"}


def test_a_healthy_machine_passes_and_its_gid_is_that_of_its_address(machine):
    node = machine()
    assert faults(n1=node) == {}
    known = node["devices"]["ports"]["rdma"]["mlx5_bond_0:1"]
    assert (known["gid"], known["type"], known["mtu"]) == (3, "RoCE v2", 4096)


MTU = "hca_id:\tmlx5_bond_0\n\t\tport:\t1\n\t\t\tactive_mtu:\t\t1024 (3)\n"


@pytest.mark.parametrize(
    ("changes", "name", "found"),
    [
        ({"~/device/current_link_width": "8"}, "RDMA PCIe", "mlx5_bond_0:1 x8 of x16"),
        ({"~/device/current_link_speed": "8.0 GT/s PCIe"}, "RDMA PCIe", "mlx5_bond_0:1 8 GT/s of 16"),
        ({"etc/nccl.conf": "NCCL_IB_GID_INDEX=2"}, "RoCE GID", "mlx5_bond_0:1 GID 2 is IB/RoCE v1, RoCE v2 on most"),
        ({"etc/nccl.conf": "NCCL_IB_GID_INDEX=9"}, "RoCE GID", "mlx5_bond_0:1 has no GID"),
        ({"commands/ibv_devinfo.out": MTU}, "RDMA MTU", "mlx5_bond_0:1 1024, 4096 on most"),
        ({"sys/module/nvidia_peermem/version": None}, "GPUDirect RDMA", "neither"),
        ({"~/device/iommu_group/type": "DMA-FQ"}, "IOMMU", "mlx5_bond_0 DMA-FQ"),
        ({"commands/lspci.vvv.out": ACS}, "PCIe ACS", "0000:44:01.0"),
        ({"sys/class/net/ens1f1np1/bonding_slave/mii_status": "down"}, "bond members", "bond0 ens1f1np1 is down"),
        (
            {"sys/class/net/ens1f1np1/bonding_slave/ad_aggregator_id": "2"},
            "bond members",
            "bond0 ens1f1np1 is up, but not part of the active aggregate",
        ),
        ({"sys/class/net/ens1f1np1/speed": "25000"}, "bond members", "bond0 ens1f1np1 25000 Mb/s of 100000"),
    ],
)
def test_each_fault_is_named_with_its_port(machine, changes, name, found):
    assert faults(n1=machine("n1"), n2=machine("n2", **changes), n3=machine("n3")) == {name: ("fail", f"n2: {found}")}


def test_dma_buf_is_as_good_as_the_module(machine):
    open_modules = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15"
    node = machine(**{"sys/module/nvidia_peermem/version": None, "proc/driver/nvidia/version": open_modules})
    assert node["devices"]["ports"]["peer_memory"]


@pytest.mark.parametrize("text", [None, "0000:44:01.0 PCI bridge: x\n\tCapabilities: <access denied>\n"])
def test_nothing_is_claimed_of_bridges_that_cannot_be_read(machine, text):
    node = machine(**{"commands/lspci.vvv.out": text})
    assert node["devices"]["ports"]["acs"] is None and faults(n1=node) == {}


def test_bridges_above_other_devices_and_spares_of_bonds_raise_no_alarm(machine):
    spare = {"sys/class/net/bond0/bonding/mode": "active-backup 1", "sys/class/net/ens1f1np1/speed": "1000"}
    ports = machine(**spare, **{"commands/lspci.vvv.out": ACS.replace("44:", "46:")})["devices"]["ports"]
    assert (ports["acs"], ports["bonds"]) == ([], {})


def test_ports_of_another_kind_are_left_out(machine):
    assert machine(**{"~/node_type": "4: RNIC"})["devices"]["ports"]["rdma"] == {}


def test_a_gid_that_is_set_counts_and_else_the_first_of_v2_with_an_ipv4_address():
    entries = [(0, "fe80::1", "RoCE v2"), (1, FOUR, "IB/RoCE v1"), (2, "fd00::1", "RoCE v2"), (3, FOUR, "RoCE v2")]
    assert [choose_gid(entries, index) for index in (None, 1, 7)] == [entries[3], entries[1], None]
    assert choose_gid(entries[:3], None) == entries[2]
    assert choose_gid([(0, "0000:0000:0000:0000:0000:0000:0000:0000", "")], None) is None
