"""Servers with NPUs, and plans of jobs with a rank table."""

from __future__ import annotations

import json

from ansible.module_utils.trainyard.job.placement.placement import Member
from job_samples import make_job, node_facts

JOB_DIR = "/var/lib/trainyard/jobs/digits-20261120-101500/hosts/@trainyard-host@"


TABLE = f"{JOB_DIR}/rank_table.json"


MPI = {"version": "4.1.4", "path": "/usr/bin/mpirun"}


def server(number, *, devices=8, chip="910b", physical=None, env=None, **changes):
    """The member `number` with NPUs, at 10.77.0.(number + 1); `changes` are those of single devices, by index."""
    physical = physical or list(range(devices))
    npus = [
        {
            "index": index,
            "physical_id": physical[index],
            "device_ip": f"192.{physical[index] + 1}.0.{number + 1}",
            "health": "OK",
            "link": "up",
            "net_health": "Success",
            "super_device_id": f"{number * 100 + index}" if chip == "a3" else "",
            "visible": True,
            **changes.get(f"device{index}", {}),
        }
        for index in range(devices)
    ]
    facts = node_facts(number, mpi=MPI)
    facts["accelerators"] = {"vendor": "ascend", "devices": [{"index": each["index"]} for each in npus], "problems": []}
    facts["npu"] = {"chip": chip, "super_pod_id": "7" if chip == "a3" else "", "devices": npus, "problems": []}
    facts["packages"] = changes.get("packages", {})
    return Member(f"n{number + 1}", f"10.77.0.{number + 1}", facts, "", env or {})


def table_job(**changes):
    return make_job(launcher="rank_table", **changes)


def table_of(plan):
    file, _ = plan["files"]
    assert file["path"] == TABLE
    return json.loads(file["content"])


def environments(plan):
    return [process["env"] for node in plan["nodes"] for process in node["processes"]]
