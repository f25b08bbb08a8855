# SPDX-License-Identifier: Apache-2.0
"""Launcher `rank_table`: Ascend NPUs, a process for each device, which finds its peers in one rank table.

Every node gets the same file. Ranks follow the dictionary order of server_id, which is the node's address, as MindSpore
demands; with a table that the user gives, the table's own order. Programs select their device by DEVICE_ID, which is
the physical id and must be the table's: so ASCEND_RT_VISIBLE_DEVICES, which numbers devices anew, is not set.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from ...ascend.rank_table import CHIPS, dumps
from ...base.findings import Finding, counted
from ..file.job import Job
from ..placement import job_rank_table
from ..placement.placement import VISIBLE_DEVICES, Node, Placement, common_environment, rank_process
from ..placement.process import File, Process

RANK_TABLE = "rank_table.json"
_VISIBLE = VISIBLE_DEVICES["ascend"]
# Variables that place a process in the table.
_OWN = ("RANK_TABLE_FILE", "RANK_SIZE", "RANK_ID", "DEVICE_ID", _VISIBLE)
# Some programs divide the data by this number, others take it for the devices of a server, so that a job on four of
# eight devices may have to set it.
_DEVICE_NUM = "DEVICE_NUM"


def rank_order(job: Job) -> Callable[[Node], Any]:
    """Order nodes as the ranks of the table are."""
    given = job.given_table

    def key(node: Node) -> tuple[int, str]:
        place = given.place(node.address) if given else 0
        # Findings refuse a node that the given table does not have.
        return (len(given.servers) if given and place is None else place or 0), node.address

    return key


def check(job: Job, placement: Placement) -> list[Finding]:
    """Find nodes without usable Ascend devices of one kind, and a table that is wrong or does not fit the job."""
    findings = _environment_findings(job, placement) + job_rank_table.device_findings(placement)
    expected = "Ascend devices on every node of the job"
    action = "correct job_devices or job_hosts, or choose another job_launcher"
    obstacles = []
    for node in placement.nodes:
        if not node.npu.get("devices") or not node.devices:
            found = "no device for the job" if node.npu.get("devices") else "no Ascend device"
            obstacles.append(Finding("devices", found, expected, action, host=node.host))
    obstacles = obstacles or job_rank_table.chip_findings(placement)
    if not obstacles and job.restarts.spares and job.given_table:
        found = f"{counted(job.restarts.spares, 'spare')} beside a job_rank_table, which is used as it is"
        action = "leave job_rank_table out, as the launcher then builds the table, or leave job_spares out"
        obstacles = [Finding("job_spares", found, "a table that nodes write anew with a spare's devices", action)]
    if obstacles:
        return findings + obstacles
    together = placement.with_spares(job.restarts.spares)
    return findings + job_rank_table.table_findings(together, job.given_table, _trains_with_mindspore(job))


def _trains_with_mindspore(job: Job) -> bool:
    named = (PurePosixPath(job.venv).name, *job.packages)
    return any(name.startswith("mindspore") for name in named)


def _environment_findings(job: Job, placement: Placement) -> list[Finding]:
    settings = [("", "job_env", job.env), *((node.host, "job_node_env", node.env) for node in placement.nodes)]
    findings = []
    for host, key, env in settings:
        for name in filter(env.__contains__, _OWN):
            expected = f"{name} as the rank table has it" if name != _VISIBLE else f"no {name}: it renumbers devices"
            action = f"remove {name} from {key}; job_devices chooses the devices"
            findings.append(Finding(key, f"{name}={env[name]}", expected, action, host=host))
    for node in placement.nodes:
        number = {**job.env, **node.env}.get(_DEVICE_NUM, str(node.rank_count))
        if not re.fullmatch("[0-9]{1,6}", number) or int(number) < node.rank_count:
            key = "job_node_env" if _DEVICE_NUM in node.env else "job_env"
            expected = f"a number from {node.rank_count} up, as the node has {counted(node.rank_count, 'rank')}"
            action = (
                f"leave {_DEVICE_NUM} out, or set the devices of a server or ranks of the job, as the program takes it"
            )
            findings.append(Finding(key, f"{_DEVICE_NUM}={number}", expected, action, host=node.host))
    if "HCCL_IF_IP" in job.env and len(placement.nodes) > 1:
        found = f"HCCL_IF_IP={job.env['HCCL_IF_IP']} for {len(placement.nodes)} nodes"
        action = "remove HCCL_IF_IP from job_env: job_network chooses the network; or set it in job_node_env of each "
        action += "host"
        findings.append(Finding("job_env", found, "each node's own address, which is set for it", action))
    return findings


def shared_files(job: Job, placement: Placement) -> list[File]:
    """The rank table."""
    if job.given_table:
        return [File(RANK_TABLE, job.given_table.text)]
    # Findings refuse other chips; the plan is built all the same, to find what else is wrong.
    if job_rank_table.chip(placement) not in CHIPS:
        return []
    table, servers = job_rank_table.build(placement), job_rank_table.spare_tables(placement)
    return [File(RANK_TABLE, dumps(table), lists_nodes=True, servers=servers)]


def _device_ids(job: Job, node: Node) -> list[int]:
    """Return the device of each rank of the node, as the table has them."""
    devices = job_rank_table.physical_ids(node)
    place = job.given_table.place(node.address) if job.given_table else None
    if job.given_table and place is not None:
        entries = sorted(job.given_table.servers[place].devices, key=lambda device: device.rank or 0)
        in_table = [device.device_id for device in entries if device.device_id is not None]
        return in_table if sorted(in_table) == sorted(devices) else devices
    return devices


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """One process for each device of the node."""
    common = {
        _DEVICE_NUM: str(node.rank_count),
        **common_environment(job, placement, node),
        "RANK_TABLE_FILE": f"{placement.node_dir}/{RANK_TABLE}",
        "RANK_SIZE": str(placement.world_size),
    }
    common.pop(_VISIBLE, None)
    return [
        rank_process(job, placement, node, rank, {**common, "RANK_ID": str(rank), "DEVICE_ID": str(device)})
        for rank, device in zip(node.ranks, _device_ids(job, node))
    ]
