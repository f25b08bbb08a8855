"""Over which network a job's bytes went: NCCL's lines and the ports' counters, in summary, text and page."""

import json

import pytest
from ansible.module_utils.trainyard.hardware.traffic import grown, node_traffic
from ansible.module_utils.trainyard.job.file.specification import parse
from ansible.module_utils.trainyard.job.run.wire.answers import STATUS, misfit
from ansible.module_utils.trainyard.nvidia.nccl_lines import is_of_transport, read_nccl_lines
from ansible.module_utils.trainyard.report import job_traffic
from ansible.module_utils.trainyard_controller.job import reporting
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job

IB = [
    "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "n1:1:2 [0] NCCL INFO Using network IB",
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
    "n1:1:2 [0] NCCL INFO Channel 01/0 : 1[1] -> 9[1] [send] via NET/IB/1/GDRDMA",
]
SOCKET = [
    "n1:1:2 [0] NCCL INFO NET/IB : No device found.",
    "n1:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",
    "n1:1:2 [0] NCCL INFO Using network Socket",
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
]


def summary(lines=(), **carried):
    nodes = [{"host": host, "carried": ports} for host, ports in (carried or {"n1": None}).items()]
    return {"nccl": read_nccl_lines(lines).as_dict(), "nodes": nodes}


def ports(rdma, eth=1000):
    return {"mlx5_0:1": {"sent": rdma, "received": rdma}, "eth0": {"sent": eth, "received": eth}}


def test_the_record_and_text_of_nccls_choice():
    job = summary(IB, n1=ports(2 * 10**9), n2=ports(10**9))
    devices = {"networks": ["IB"], "channels": {"IB": 1}, "devices": {"IB": ["mlx5_1:1"]}}
    assert job["nccl"] == {**devices, "gdrdma": 1, "inside": {"P2P": 1}}
    assert job_traffic.lines(job) == [
        "NCCL went between nodes over IB (mlx5_1:1), by GPUDirect RDMA; inside nodes over GPU to GPU (P2P)",
        "ports of all nodes: mlx5_0:1 sent 3 GB, received 3 GB; eth0 sent 2 kB, received 2 kB",
    ]


def test_tcp_beside_rdma_ports_is_a_warning_and_without_them_none():
    assert job_traffic.lines(summary(SOCKET, n1={"eth0": {"sent": 5, "received": 6}})) == [
        "NCCL went between nodes over TCP (eth0)",
        "ports of all nodes: eth0 sent 5 B, received 6 B",
    ]
    (*_, warning) = job_traffic.lines(summary(SOCKET, n1=ports(0), n2=None))
    assert warning.startswith("NCCL sent over TCP although n1 have RDMA ports")


def test_counters_that_went_back_are_full_or_missing_count_nothing():
    full = (2**32 - 1) * 4
    before = {"a:1": {"sent": 10, "received": None}, "b:1": {"sent": 5, "received": full}}
    after = {"a:1": {"sent": 4, "received": 7}, "b:1": {"sent": 9, "received": full}, "c:1": {"sent": 1, "received": 1}}
    unknown = {"sent": None, "received": None}
    assert grown(before, after) == {"a:1": unknown, "b:1": {"sent": 4, "received": None}, "c:1": unknown}
    assert "(not all nodes could be read)" in job_traffic.ports_text({"nodes": [{"carried": grown(before, after)}]})


def test_names_of_ports_are_checked():
    names = ["mlx5_0:1", "\x1b[31m", "a" * 65, *(f"p{number}" for number in range(300))]
    odd = {name: {"sent": 1, "received": 1} for name in names}
    found = node_traffic({"before": odd, "now": odd})
    assert len(found) <= 256 and "mlx5_0:1" in found and "\x1b[31m" not in found and "a" * 65 not in found
    assert node_traffic(None) is None


@pytest.mark.parametrize("carried", [{}, {"before": {}}, {"before": {}, "now": {"a": {"sent": "1", "received": 1}}}, 5])
def test_counters_of_another_form_are_refused(carried):
    assert misfit({"started": 1.0, "end": None, "carried": carried}, STATUS["monitor"])
    assert not misfit({"started": 1.0, "end": None, "carried": {"before": {}, "now": {}}}, STATUS["monitor"])
    assert not misfit({"started": 1.0, "end": None}, STATUS["monitor"])


def test_logs_that_nodes_sent_are_read_for_it_and_others_where_none_did(tmp_path):
    assert reporting.nccl_networks(tmp_path) is None
    tmp_path.joinpath("rank_0.log").write_text("\n".join(SOCKET))
    assert reporting.nccl_networks(tmp_path)["networks"] == ["Socket"]
    tmp_path.joinpath("nccl_n1.log").write_text("\n".join(IB))
    assert reporting.nccl_networks(tmp_path)["networks"] == ["IB"]


@given(st.lists(st.text(max_size=80) | st.sampled_from(IB + SOCKET), max_size=40))
def test_any_output_of_ranks_gives_a_json_record(lines):
    record = read_nccl_lines(lines).as_dict()
    json.dumps(record)
    assert record == read_nccl_lines([line for line in lines if is_of_transport(line)]).as_dict()
    job_traffic.lines({"nccl": record, "nodes": []})


def test_job_nccl_info_sets_nccl_debug():
    env = make_job(nccl_info=True).env
    assert (env["NCCL_DEBUG"], env["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    assert "NCCL_DEBUG" not in make_job().env
    assert make_job(nccl_info=True, env={"NCCL_DEBUG": "TRACE"}).env["NCCL_DEBUG"] == "TRACE"
    given = {"job_name": "a", "job_command": ["a"], "job_nccl_info": True, "job_env": {"NCCL_DEBUG": "WARN"}}
    _, (finding,) = parse(given)
    assert (finding.check, finding.found) == ("job_nccl_info", "true with NCCL_DEBUG: WARN in job_env")
