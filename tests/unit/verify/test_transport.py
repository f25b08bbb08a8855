"""Which devices carried a benchmark's bytes: counters, and NCCL's own lines."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.hardware.traffic import moved
from ansible.module_utils.trainyard.nvidia.nccl_lines import read_nccl_lines
from ansible.module_utils.trainyard.verify import transport
from benchmark_samples import ALL, GIB, H100, HOSTS, checked, traffic

ACTIVE, NONE = dict.fromkeys(HOSTS, ALL), {"gpu-01": [], "gpu-02": []}
IB_LINES = [
    "gpu-01:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "gpu-01:1:2 [0] NCCL INFO Using network IB",
    "gpu-01:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/1/GDRDMA",
]
SOCKET_LINES = [
    "gpu-01:1:2 [0] NCCL INFO NET/IB : No device found.",
    "gpu-01:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "gpu-01:1:2 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/Socket/0",
]


def path(active=ACTIVE, moved=None, lines=(), backend="nccl", pairs=None):
    pairs = pairs or {host: (traffic(5), traffic(5 + count)) for host, count in (moved or {}).items()}
    return transport.check_transport(HOSTS, backend, GIB, active, pairs, lines)


@pytest.mark.parametrize(
    ("given", "state", "devices", "reason"),
    [
        ({"moved": {"gpu-01": 9 * GIB, "gpu-02": 9 * GIB}}, "pass", ALL, "RDMA counters grew by the bytes"),
        ({"moved": {"gpu-01": 9000, "gpu-02": 9000}}, "fail", ["TCP"], "active RDMA ports on gpu-01, gpu-02"),
        ({"moved": {"gpu-01": 9 * GIB, "gpu-02": 9000}}, "fail", ALL, "RDMA ports on gpu-02 (mlx5_0:1"),
        ({"lines": IB_LINES}, "pass", ["mlx5_1:1"], "NCCL says so (NET/IB, by GPUDirect RDMA)"),
        ({"lines": SOCKET_LINES}, "fail", ["eth0"], "NCCL sent over TCP (eth0) although RDMA ports were active"),
        ({"lines": [*IB_LINES, *SOCKET_LINES]}, "fail", ["eth0"], "NCCL sent over TCP (eth0) although"),
        ({"lines": SOCKET_LINES, "active": NONE}, "pass", ["eth0"], "no node has an active RDMA port"),
        ({"lines": SOCKET_LINES, "active": None}, "unknown", ["eth0"], "RDMA ports were not read"),
        ({"active": NONE}, "pass", ["TCP"], "no node has an active RDMA port"),
        ({}, "unknown", [], "neither RDMA counters nor NCCL's lines were there"),
        ({"backend": "gloo"}, "pass", ["TCP"], "gloo speaks TCP"),
    ],
)  # fmt: skip
def test_the_path_is_verified_by_counters_or_nccls_own_lines(given, state, devices, reason):
    found = path(**given)
    assert (found["state"], found["devices"]) == (state, devices)
    assert reason in found["reason"]


def test_idle_ports_are_named():
    active = {host: ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1"] for host in HOSTS}
    after = {**traffic(20 * GIB, 2), "mlx5_2:1": {"sent": 9, "received": 9}}
    found = path(active, pairs=dict.fromkeys(HOSTS, (traffic(0), after)))
    assert found["devices"] == ["mlx5_0:1", "mlx5_1:1"]
    assert "idle although active: mlx5_2:1 (gpu-01, gpu-02)" in found["reason"]


STUCK = (2**32 - 1) * 4


# A reset, a counter of 32 bits that is full, one that cannot be read: no verification that nothing was sent.
@pytest.mark.parametrize(("before", "after"), [(9 * GIB, 7), (STUCK, STUCK), (None, None)])
def test_a_counter_without_a_difference_is_unknown(before, after):
    port = tuple({"mlx5_0:1": {"sent": count, "received": count}} for count in (before, after))
    assert moved(*port) == {"mlx5_0:1": None}
    pairs = dict.fromkeys(HOSTS, port)
    found = path({host: ["mlx5_0:1"] for host in HOSTS}, pairs=pairs)
    assert (found["state"], found["devices"]) == ("unknown", [])
    assert "could not be read" in found["reason"]
    assert path(pairs=pairs, lines=IB_LINES)["state"] == "pass"


def test_one_host_and_hccl_have_no_path():
    assert transport.check_transport(["gpu-01"], "nccl", GIB, ACTIVE, {}, []) is None
    assert path(NONE, backend="hccl") is None


def test_nccls_lines_of_its_versions():
    lines = [
        "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_bond_0:1/RoCE [RO]; OOB bond0:10.0.0.1<0>",
        "n1:1:2 [0] NCCL INFO Using network IBext_v8",
        "n1:1:2 [0] NCCL INFO Channel 00 : 0[1b000] -> 8[1b000] [receive] via NET/IB/0",
        "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "n2:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [send] via NET/Libfabric/3/GDRDMA/Shared",
        "n3:1:2 [0] NCCL INFO Using network AWS Libfabric",
        "n3:1:2 [0] NCCL INFO Channel 00 : 0[101c0] -> 8[101c0] [receive] via NET/AWS Libfabric/0",
    ]
    found = read_nccl_lines(lines)
    assert found.networks == {"IBext_v8", "AWS Libfabric"}
    assert found.channels == {"IB": 1, "Libfabric": 1, "AWS Libfabric": 1} and found.gdrdma == 1 and not found.tcp
    assert found.devices["IB"] == {"mlx5_bond_0:1"}
    assert found.devices["Libfabric"] == {"Libfabric device 3"}
    assert found.devices["AWS Libfabric"] == {"AWS Libfabric device 0"}
    assert read_nccl_lines(["n1:1:2 [0] NCCL INFO Using network Socket"]).tcp


def test_tcp_although_rdma_was_there_fails_the_benchmark_with_that_reason():
    name = "2.19-all_reduce-tcp.txt"
    record = checked(name, nodes=H100, ranks=16, busbw=1.0)
    assert record["state"] == "fail" and record["path"]["state"] == "fail"
    assert record["reason"].startswith("NCCL sent over TCP (eth0) although RDMA ports were active on gpu-01, gpu-02 (")
    # Both are reported: the path first, then its bandwidth.
    assert any(text.startswith("busbw 4.60 GB/s") for text in checked(name, nodes=H100)["findings"])
    # If the ports were not read, the lines are reported, but check nothing.
    assert checked(name, busbw=1.0)["state"] == "pass"


def test_a_path_that_nothing_verifies_is_no_pass():
    record = checked("2.19-all_reduce-16-h100.txt", nodes=H100)
    assert record["state"] == "unknown" and "NCCL_DEBUG=INFO" in record["reason"]
