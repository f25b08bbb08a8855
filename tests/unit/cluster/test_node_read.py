"""Facts of captured machines (tests/fixtures/nodes) and of this one."""

import importlib.metadata
import json
import os
import socket
import sys

import pytest
from ansible.module_utils.trainyard.hardware.interfaces import nccl_ib_hca, select_interface
from ansible.module_utils.trainyard_node.cluster import node_identity
from ansible.module_utils.trainyard_node.cluster.node_identity import (
    fingerprint,
    free_port,
    package_versions,
    read_node,
)
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.hardware.network_discovery import read_networks
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import NODES, unfold

ALL = sorted(path.stem for path in NODES.glob("*.tree"))


@pytest.fixture
def captured(tmp_path):
    return lambda name: Tree(str(unfold(name, tmp_path / name)))


def facts(tree, **changes):
    return read_node(tree, **{"packages": [], "venv": None, "user": None, **changes})


def by_name(networks):
    return {item["name"]: item for item in networks["interfaces"]}


def by_port(networks):
    return {(item["device"], item["port"]): item for item in networks["rdma"]}


@pytest.mark.parametrize("name", ALL)
def test_the_facts_of_every_captured_machine_are_json(captured, name):
    node = facts(captured(name))
    assert json.loads(json.dumps(node)) == node
    assert node["hostname"] and node["boot_id"] and node["kernel"]
    assert node["cpus"] > 0 and node["memory_mib"] > 1000
    assert node["unused_ports"].endswith("-65535")
    assert node["networks"]["problems"] == []


def test_the_cuda_toolkit_of_the_role_is_found_beside_open_mpi(captured):
    tree = captured("plain")
    assert facts(tree, mpi_prefix="/opt/trainyard/openmpi")["cuda_home"] == ""
    (tree.path("/opt/trainyard/cuda/bin")).mkdir(parents=True)
    tree.path("/opt/trainyard/cuda/bin/nvcc").touch()
    assert facts(tree, mpi_prefix="/opt/trainyard/openmpi")["cuda_home"] == "/opt/trainyard/cuda"
    assert facts(tree)["cuda_home"] == ""


def test_a_plain_machine(captured):
    node = facts(captured("plain"))
    assert node["accelerators"] == {"vendor": "none", "driver": None, "devices": [], "problems": [], "notes": []}
    assert node["networks"]["rdma"] == []
    interfaces = by_name(node["networks"])
    eth0 = interfaces["eth0"]
    assert (eth0["up"], eth0["mtu"], eth0["mac"], eth0["kind"]) == (True, 1400, "02:fc:00:00:00:01", "physical")
    assert eth0["addresses"] == ["192.0.2.2/24", "fd00::2/64", "fe80::fc:ff:fe00:1/64"]
    assert (interfaces["lo"]["kind"], interfaces["lo"]["up"]) == ("loopback", True)
    assert (interfaces["ifb0"]["kind"], interfaces["ifb0"]["up"]) == ("virtual", False)
    assert interfaces["podman1"]["kind"] == "bridge"
    assert node["service_manager"] == "none"


def test_without_iproute2_only_ipv4_addresses_are_missing(captured):
    tree = captured("plain")
    by_ip = by_name(read_networks(tree))
    tree.path("commands/ip.address.out").unlink()
    networks = read_networks(tree)
    assert networks["problems"] == ["the captured tree has no commands/ip.address.out, so IPv4 addresses are unknown"]
    for name, interface in by_name(networks).items():
        expected = dict(by_ip[name])
        expected["addresses"] = [address for address in expected["addresses"] if ":" in address]
        assert sorted(interface.pop("addresses")) == sorted(expected.pop("addresses"))
        assert interface == expected


def test_eight_gpus_with_infiniband(captured):
    node = facts(captured("gpu8_infiniband"))
    accelerators = node["accelerators"]
    assert (accelerators["vendor"], accelerators["driver"]) == ("nvidia", "550.90.07")
    assert [device["index"] for device in accelerators["devices"]] == list(range(8))
    models = {(device["model"], device["memory_mib"]) for device in accelerators["devices"]}
    assert models == {("NVIDIA H100 80GB HBM3", 81559)}
    assert accelerators["devices"][0]["pci"] == "0000:1b:00.0"
    assert accelerators["problems"] == [] and accelerators["notes"] == []
    networks = node["networks"]
    port = by_port(networks)["mlx5_10", 1]
    assert (port["state"], port["rate_gbps"], port["link_layer"]) == ("ACTIVE", 400.0, "InfiniBand")
    assert port["netdev"] == "ib6" and port["active"] is True
    assert [item["device"] for item in networks["rdma"]][-3:] == ["mlx5_10", "mlx5_11", "mlx5_bond_0"]
    ports = [f"mlx5_{number}:1" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    assert nccl_ib_hca(networks["rdma"]) == "=" + ",".join(ports)
    kinds = {name: item["kind"] for name, item in by_name(networks).items()}
    assert kinds["bond0"] == "bond" and kinds["docker0"] == "bridge" and kinds["veth3f1c2aa"] == "virtual"
    assert by_name(networks)["bond0"]["speed_mbps"] == 200000
    assert networks["nccl_conf"] == ["/etc/nccl.conf"]
    assert networks["nccl_settings"] == {"NCCL_SOCKET_IFNAME": "docker0", "NCCL_DEBUG": "WARN"}
    assert select_interface(networks["interfaces"], "", "10.20.0.11") == ("bond0", "10.20.0.11")


def test_roce_over_a_bond(captured):
    node = facts(captured("roce_bond"))
    ports = by_port(node["networks"])
    assert ports["mlx5_bond_0", 1]["netdev"] == "bond0", "the bond, not the adapter's own interface"
    assert ports["mlx5_bond_0", 1]["link_layer"] == "Ethernet"
    assert ports["mlx5_2", 1]["netdev"] == "enp99s0f0np0", "the port, not the representor of a virtual function"
    assert nccl_ib_hca(node["networks"]["rdma"]) == "=mlx5_2:1,mlx5_bond_0:1"
    assert by_name(node["networks"])["ens1f0npf0vf0"]["speed_mbps"] is None
    devices = node["accelerators"]["devices"]
    assert [device["mig"] for device in devices] == [False, False, False, True]
    assert node["accelerators"]["problems"] == []
    assert node["accelerators"]["notes"][0].startswith("GPU 3: MIG is enabled")


def test_one_port_down(captured):
    node = facts(captured("port_down"))
    ports = by_port(node["networks"])
    down = ports["mlx5_0", 2]
    assert (down["state"], down["physical_state"], down["active"], down["netdev"]) == ("DOWN", "Disabled", False, "ib1")
    assert ports["mlx5_0", 1]["netdev"] == "ib0", "the port itself, not its partition ib0.8001"
    assert nccl_ib_hca(node["networks"]["rdma"]) == "=mlx5_0:1"
    assert by_name(node["networks"])["enp1s0f1"]["up"] is False
    assert node["accelerators"]["driver"] == "470.103.01"
    assert [device["mig"] for device in node["accelerators"]["devices"]] == [False] * 8


def test_gpu_links_are_limited_by_device_and_slot(captured):
    """In sysfs, a device is a link into its slot's folder."""
    tree = captured("gpu8_infiniband")
    pci = [device["pci"] for device in read_accelerators(tree)["devices"]]
    assert not any("link_gen_max" in device for device in read_accelerators(tree)["devices"])
    for address, slot in ((pci[0], ("16.0 GT/s PCIe", "8")), (pci[1], ("Unknown", "0"))):
        folder = tree.path(f"/sys/devices/pci0000:00/above-{address}/{address}")
        folder.mkdir(parents=True)
        link = tree.path(f"/sys/bus/pci/devices/{address}")
        for file in link.iterdir():
            file.rename(folder / file.name)
        link.rmdir()
        link.symlink_to(folder)
        for path, (speed, width) in ((folder, ("32.0 GT/s PCIe", "16")), (folder.parent, slot)):
            (path / "max_link_speed").write_text(f"{speed}\n")
            (path / "max_link_width").write_text(f"{width}\n")
    devices = {device["pci"]: device for device in read_accelerators(tree)["devices"]}
    found = [(devices[address].get("link_gen_max"), devices[address].get("link_width_max")) for address in pci[:3]]
    assert found == [(4, 8), (5, 16), (None, None)]


def test_eight_ascend_npus(captured):
    accelerators = facts(captured("ascend8"))["accelerators"]
    assert (accelerators["vendor"], accelerators["driver"], accelerators["problems"]) == ("ascend", "24.1.0", [])
    numbers = [(device["index"], device["physical_id"]) for device in accelerators["devices"]]
    assert numbers == [(number, number) for number in range(8)]
    device = accelerators["devices"][2]
    assert (device["model"], device["memory_mib"], device["pci"]) == ("Ascend 910B3", 65536, "0000:81:00.0")
    assert (device["physical_id"], device["health"], device["card"], device["chip"]) == (2, "OK", 2, 0)


def test_a_broken_or_missing_driver_is_a_problem(captured):
    tree = captured("broken_driver")
    found = read_accelerators(tree)
    assert (found["vendor"], found["devices"]) == ("nvidia", [])
    (problem,) = found["problems"]
    assert "nvidia-smi exited with status 9" in problem and "the PCI bus shows 2 NVIDIA GPU(s)" in problem
    tree.path("commands/nvidia-smi.query-gpu.out").unlink()
    found = read_accelerators(tree)
    (problem,) = found["problems"]
    assert found["vendor"] == "nvidia" and "(0000:3b:00.0, 0000:d8:00.0) but nvidia-smi is not installed" in problem


def test_an_old_driver_is_queried_again_without_mig(captured):
    tree = captured("port_down")
    query = tree.path("commands/nvidia-smi.query-gpu.out")
    query.with_name("nvidia-smi.query-gpu-before-mig.out").write_text(query.read_text().replace(", [N/A]", ""))
    query.write_text('Field "mig.mode.current" is not a valid field to query.\n')
    tree.path("commands/nvidia-smi.query-gpu.rc").write_text("2\n")
    found = read_accelerators(tree)
    assert len(found["devices"]) == 8
    assert found["problems"] == []


def test_a_gpu_that_fell_off_the_bus_is_a_problem(captured):
    tree = captured("gpu8_infiniband")
    query = tree.path("commands/nvidia-smi.query-gpu.out")
    query.write_text("".join(query.read_text().splitlines(keepends=True)[:7]))
    found = read_accelerators(tree)
    assert len(found["devices"]) == 7
    assert "nvidia-smi does not list 0000:df:00.0" in found["problems"][0]


def test_a_container_with_some_of_the_gpus_is_healthy(captured):
    tree = captured("gpu8_infiniband")
    query = tree.path("commands/nvidia-smi.query-gpu.out")
    query.write_text(query.read_text().splitlines(keepends=True)[0])
    for gpu in tree.names("/proc/driver/nvidia/gpus")[1:]:
        tree.path(f"/proc/driver/nvidia/gpus/{gpu}").rmdir()
    found = read_accelerators(tree)
    assert len(found["devices"]) == 1
    assert found["problems"] == []
    assert "not given to this system's driver: 0000:43:00.0" in found["notes"][0]


def test_a_module_older_than_the_user_space_is_a_problem(captured):
    tree = captured("gpu8_infiniband")
    tree.path("sys/module/nvidia/version").write_text("535.183.01\n")
    (problem,) = read_accelerators(tree)["problems"]
    assert "module is 535.183.01" in problem and "550.90.07: restart the node" in problem


def test_an_unreadable_port_is_a_problem(captured):
    tree = captured("port_down")
    tree.path("sys/class/infiniband/mlx5_0/ports/2/state").unlink()
    assert "RDMA port mlx5_0:2: its state cannot be read" in read_networks(tree)["problems"][0]


@pytest.mark.parametrize("euid", [0, 2000])
def test_systemd_is_used_by_root_only(captured, monkeypatch, euid):
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    assert facts(captured("gpu8_infiniband"))["service_manager"] == ("systemd" if euid == 0 else "none")


@pytest.mark.parametrize(
    ("folder", "name", "version"),
    [
        ("torch-2.13.0+cpu.dist-info", "Torch", "2.13.0+cpu"),
        ("scikit_learn-1.7.2.dist-info", "scikit-learn", "1.7.2"),
        ("old-1.0-py3.11.egg-info", "old", "1.0"),
        ("numpy", "numpy", None),
        # Builds of MindSpore before 2.0 have the device in their name.
        ("mindspore_gpu-1.10.0.dist-info", "mindspore", "1.10.0"),
        ("mindspore_ascend-1.10.0.dist-info", "mindspore", "1.10.0"),
    ],
)
def test_packages_are_read_from_folder_names(tmp_path, folder, name, version):
    (tmp_path / "opt/venv/lib/python3.11/site-packages" / folder).mkdir(parents=True)
    assert package_versions(Tree(str(tmp_path)), "/opt/venv", [name]) == {name: version}
    assert package_versions(Tree(str(tmp_path)), "/opt/none", ["torch"]) == {"torch": None}


def test_a_venv_may_include_the_systems_packages(tmp_path):
    (tmp_path / "opt/venv").mkdir(parents=True)
    config = tmp_path / "opt/venv/pyvenv.cfg"
    (tmp_path / "usr/lib/python3/dist-packages/mpi4py-3.1.4.egg-info").mkdir(parents=True)
    config.write_text("home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.2\n")
    assert package_versions(Tree(str(tmp_path)), "/opt/venv", ["mpi4py"]) == {"mpi4py": "3.1.4"}
    config.write_text("home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n")
    assert package_versions(Tree(str(tmp_path)), "/opt/venv", ["mpi4py"]) == {"mpi4py": None}
    venv = {"path": "/opt/venv", "exists": False, "python": "3.11.2"}
    assert facts(Tree(str(tmp_path)), venv="/opt/venv")["venv"] == venv


def test_versions_match_importlib():
    found = package_versions(Tree(), sys.prefix, ["hypothesis", "no-such-thing"])
    assert found == {"hypothesis": importlib.metadata.version("hypothesis"), "no-such-thing": None}


def test_unused_ports_are_neither_ephemeral_reserved_nor_used(tmp_path):
    for path, text in {
        "proc/sys/net/ipv4/ip_local_port_range": "10004\t65530",
        "proc/sys/net/ipv4/ip_local_reserved_ports": "10001,65532-65534",
        "proc/net/tcp": "  sl  local_address\n   0: 00000000:2710 00000000:0000 0A 0\n",  # 10000
        "proc/net/tcp6": "  sl\n   0: 00000000000000000000000000000000:2712 0:0 0A 0\n",  # 10002
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert facts(Tree(str(tmp_path)))["unused_ports"] == "10003-10003,65531-65531,65535-65535"
    ports = {free_port(Tree(str(tmp_path)), f"job-{number}") for number in range(20)}
    assert len(ports) > 1 and ports <= {10003, 65531, 65535}


def test_a_port_in_use_cannot_be_bound():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert node_identity._can_bind(server.getsockname()[1]) is False


@pytest.mark.parametrize(
    ("path", "content", "engine"),
    [
        ("run/systemd/container", "podman\n", "podman"),
        ("run/.containerenv", "", "podman"),
        (".dockerenv", "", "docker"),
        ("run/systemd/system/x", "", ""),
    ],
)
def test_a_container_is_recognized_by_its_engines_files(tmp_path, path, content, engine):
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(content)
    assert facts(Tree(str(tmp_path)))["container"] == engine


def test_the_fingerprint_changes_with_the_facts(captured):
    tree = captured("gpu8_infiniband")
    first = facts(tree)
    assert fingerprint({**first, "unused_ports": "10000-10001"}) == first["fingerprint"]
    without, removed = (json.loads(json.dumps(first)) for _ in range(2))
    for item in without["networks"]["interfaces"]:
        if item["name"].startswith("veth"):
            removed["networks"]["interfaces"].remove(item)
            item["addresses"] = []
    assert fingerprint(without) == fingerprint(removed), "containers come and go"
    tree.path("sys/class/infiniband/mlx5_0/ports/1/state").write_text("1: DOWN\n")
    assert facts(tree)["fingerprint"] != first["fingerprint"]


def test_reading_starts_one_process_at_most(monkeypatch):
    started = []
    command = Tree.command
    monkeypatch.setattr(Tree, "tool", lambda self, name: "/bin/true" if name == "ip" else None)
    monkeypatch.setattr(
        Tree, "command", lambda self, name, argv, timeout: started.append(name) or command(self, name, argv, timeout)
    )
    node = facts(Tree())
    assert [name for name in started if Tree().tool(name.split(".")[0])] == ["ip.address"]
    # `true` prints no JSON, so the kernel was read directly.
    assert "127.0.0.1/8" in by_name(node["networks"])["lo"]["addresses"]
    assert node["unused_ports"]
