"""What rdma promises: tools on every node, ports that are what they should be, or who is odd.

The nodes have no adapter. Packages and tools are real; the ports that are judged are those of captured machines
(tests/fixtures/nodes), which the role reads in place of the node.
"""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from lab_jobs import host_list

PROJECT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(PROJECT / "tests/unit"))

from captured_tree import unfold  # noqa: E402

NOT_READY = "RDMA is not ready on all nodes:"
MACHINES = "/var/lib/rdma-lab-machines"
NDR = {"rdma_expected": "8", "rdma_rate_gbps": 400, "rdma_link_layer": "InfiniBand"}


@pytest.fixture(scope="module")
def machines(node, node_names, tmp_path_factory):
    """Captured machines on every node: gpu8_infiniband, and on the last one a slow and a dead port of it."""
    folder = tmp_path_factory.mktemp("machines")
    unfold("gpu8_infiniband", folder / "gpu8_infiniband")
    packed = subprocess.run(["tar", "-C", str(folder), "-cz", "."], check=True, capture_output=True).stdout
    for name in node_names:
        node(name).check_output(
            f"sudo sh -ec 'mkdir -p {MACHINES}; echo {base64.b64encode(packed).decode()} | base64 -d |"
            f" tar -C {MACHINES} -xz; cp -r {MACHINES}/gpu8_infiniband {MACHINES}/mine'"
        )
    ports = f"{MACHINES}/mine/sys/class/infiniband"
    node(node_names[-1]).check_output(
        f"sudo sh -ec 'echo 200 Gb/sec >{ports}/mlx5_3/ports/1/rate; echo 1: DOWN >{ports}/mlx5_9/ports/1/state;"
        f" echo 2: Polling >{ports}/mlx5_9/ports/1/phys_state'"
    )


@pytest.fixture(scope="module", autouse=True)
def leave_the_nodes_as_they_were(run_playbook):
    yield
    run_playbook("molecule/purge.yml", purge_since="/var/lib/rdma-lab", purge_paths=[MACHINES]).expect(0)


def test_the_tools_are_there(host):
    host.check_output("sudo sh -ec 'command -v ibv_devinfo ibstat perfquery ib_write_bw rping'")
    # The machine of the lab has no ib_uverbs, which is not what a missing library would say.
    asked = host.run("ibv_devices")
    assert "device" in asked.stdout + asked.stderr


def test_nodes_that_are_declared_to_have_none_are_a_state(run_playbook):
    run_playbook("changed.yml", step="verify", rdma_expected=0).expect(0).changes_nothing()


def test_nodes_without_an_adapter_are_noticed_in_containers(run_playbook, node_names):
    done = run_playbook("changed.yml", step="verify").fails()
    hosts = host_list(node_names)
    assert f"{NOT_READY} 1 finding. 1. RDMA ports on {hosts} found no RDMA device inside a container (" in done.text
    assert "do start the container with /dev/infiniband and the host's network, or set rdma_expected: 0" in done.text


def test_ports_as_declared_are_right(run_playbook, machines):
    run_playbook("changed.yml", step="verify", __rdma_root=f"{MACHINES}/gpu8_infiniband", **NDR).expect(0)


def test_a_slow_and_a_dead_port_of_one_node_are_named(run_playbook, machines, node_names):
    run_playbook("changed.yml", step="verify", __rdma_root=f"{MACHINES}/mine").fails(
        f"{NOT_READY} 1 finding. 1. RDMA ports on {node_names[-1]} found mlx5_3:1 InfiniBand 200 Gb/s ACTIVE; "
        "mlx5_9:1 InfiniBand 400 Gb/s DOWN (Polling) expected mlx5_3:1 InfiniBand 400 Gb/s ACTIVE; "
        f"mlx5_9:1 InfiniBand 400 Gb/s ACTIVE, as on {host_list(node_names[:-1])}"
    )


def test_bad_input_is_refused_with_what_to_do(run_playbook):
    given = {"rdma_expected": "some", "rdma_ports": [{"port": 1, "speed": 400}]}
    run_playbook("changed.yml", "--limit", "n1", **given).fails(
        "n1: rdma_expected is 'some', expected auto, 0 or a number of ports.",
        "n1: rdma_ports has an entry without device, expected such as {device: mlx5_0, port: 1, rate_gbps: 400}. "
        "n1: rdma_ports has speed, expected only device, port, rate_gbps, link_layer, state, netdev. Nothing was",
    ).changes_nothing()


def test_a_preview_says_what_would_be_installed(run_playbook, node):
    node("n1").check_output("sudo dpkg --remove --force-depends perftest")
    done = run_playbook("changed.yml", "--check", "--limit", "n1", rdma_expected=0)
    done.expect(0, "n1: to be installed: perftest")
    assert done.changes == {"n1": 1}
