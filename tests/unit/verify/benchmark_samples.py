"""Nodes and outputs of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.trainyard.nvidia.nccl_tests_output import parse
from ansible.module_utils.trainyard.verify.benchmark import Request, verify
from job_samples import saved_plan, saved_record

OUTPUTS = Path(__file__).parents[2] / "fixtures/nccl_tests_output"
GIB = 1 << 30


def read(name):
    return (OUTPUTS / name).read_text()


def port(device="mlx5_0", rate=400.0, layer="InfiniBand", active=True):
    return {"device": device, "port": 1, "rate_gbps": rate, "link_layer": layer, "active": active, "netdev": None}


def nic(name="eth0", kind="physical", speed=10000):
    return {"name": name, "kind": kind, "speed_mbps": speed, "up": True, "addresses": []}


def node(host, ports=(), gpus=(), interface="eth0", interfaces=None, **more):
    given = [nic()] if interfaces is None else interfaces
    return {"host": host, "networks": {"rdma": list(ports), "interfaces": given}, "gpus": list(gpus),
            "interface": interface, **more}  # fmt: skip


def gpus(model="NVIDIA H100 80GB HBM3", number=8, **link):
    return [{"model": model, **link} for _ in range(number)]


PORTS = [port(f"mlx5_{index}") for index in range(8)]
H100 = [node(host, PORTS, gpus(), hostname=host) for host in ("gpu-01", "gpu-02")]


def two(**options):
    return [node("n1", **options), node("n2", **options)]


HOSTS = ["gpu-01", "gpu-02"]
ALL = [f"mlx5_{index}:1" for index in range(8)]


def checked(name, **asked):
    return verify(parse(read(name)), Request(**asked))


def traffic(count, ports=8):
    return {f"mlx5_{index}:1": {"sent": count, "received": count} for index in range(ports)}


def write_run(folder, logs, hosts, state="succeeded", failure=None):
    """Write the folder of a run that has ended: texts of logs by rank, ranks by host."""
    plan = saved_plan("benchmark-1", hosts, rank_log="worker_{rank}.log", job_dir="/jobs/benchmark-1")
    record = saved_record("benchmark-1", hosts, state=state, failure=failure, world_size=plan["world_size"])
    for node, ranks in zip(record["nodes"], hosts.values()):
        node["ranks"] = list(ranks)
    (folder / "logs").mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "summary.json").write_text(json.dumps(record))
    for rank, log in logs.items():
        (folder / f"logs/worker_{rank}.log").write_text(log)
    return str(folder)
