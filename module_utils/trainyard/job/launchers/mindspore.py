# SPDX-License-Identifier: Apache-2.0
"""Launcher `mindspore`: MindSpore's dynamic cluster, without MPI: one scheduler, and a worker for each rank.

The scheduler on the head node runs the same program as the workers; it connects and watches them instead of training.
Workers find it by its address, as MindSpore does not resolve names.
"""

from __future__ import annotations

import re

from ...base.findings import Finding
from ...software import mindspore_releases
from ..file.job import Job
from ..placement.placement import Node, Placement, common_environment
from ..placement.process import Process, rank_log

# As MindSpore's own documents and msrun call it.
RANK_LOG = "worker_{rank}.log"
# Seconds after a worker's death during which the scheduler rejects its id.
WORKER_BACK_AFTER_S = 30
_NUMBERED = {"MS_WORKER_NUM": "{world_size}"}
# Variables with the address of the head.
_OF_HEAD = ("MASTER_ADDR", "MS_SCHED_HOST")


def release(node: Node) -> tuple[str, str]:
    """Return version and device of a node's MindSpore; the version is "" where it is not known (job_packages)."""
    device = mindspore_releases.DEVICE_OF_VENDOR.get(node.vendor, "cpu") if node.devices else "cpu"
    names = ("mindspore", *mindspore_releases.FORMER_NAMES)
    version = next((node.packages[name] for name in names if name in node.packages), "")
    return version if re.match(r"\d+\.\d+", version) else "", device


def _lacks_build(node: Node) -> bool:
    version, device = release(node)
    known = mindspore_releases.RELEASES.get(mindspore_releases.minor(version)) if version else None
    return known is not None and device != "cpu" and device not in known.devices


def build_findings(placement: Placement) -> list[Finding]:
    """Find nodes whose MindSpore has no build for their devices, with any launcher."""
    findings = []
    for node in filter(_lacks_build, placement.nodes):
        version, device = release(node)
        names = ", ".join(name for name, other in mindspore_releases.RELEASES.items() if device in other.devices)
        found, expected = f"mindspore {version} without a build for {device}", f"for {device}, one of {names}"
        action = "set job_devices: none to train on the CPU, or job_venv to an environment with such a build"
        findings.append(Finding("versions", found, expected, action, host=node.host))
    return findings


def feature_findings(placement: Placement, feature: str) -> list[Finding]:
    """Find nodes whose MindSpore has a build for their devices, and not `feature` (of the catalog)."""
    findings = []
    for node in placement.nodes:
        version, device = release(node)
        found = mindspore_releases.why_not(version, device, feature) if version and not _lacks_build(node) else ""
        if found:
            expected, action = "a launcher that this release has", "use job_launcher: mindspore"
            findings.append(Finding("job_launcher", found, expected, action, host=node.host))
    return findings


def timeouts(job: Job) -> dict[str, str]:
    """Return the variables for how long processes wait for each other, in seconds."""
    return {
        "MS_TOPO_TIMEOUT": str(job.join_timeout_s),
        "MS_NODE_TIMEOUT": str(job.heartbeat_timeout_s),
        "MS_RECEIVE_MSG_TIMEOUT": str(job.message_timeout_s),
    }


def cluster_environment(job: Job, node: Node) -> dict[str, str]:
    """Return the variables that msrun does not set."""
    # Parameter servers are another way of training, with processes of their own.
    return {"MS_SERVER_NUM": "0", "MS_WORKER_IP": node.address, **timeouts(job)}


def recovery_environment(job: Job, placement: Placement, name: str) -> dict[str, str]:
    """Return the variables for MindSpore's recovery of a process; the runtime adds the attempt to the path."""
    if not job.restarts.recovery:
        return {}
    records = f"{placement.node_dir}/attempt/recovery"
    if job.restarts.recovery_path:
        records = f"{job.restarts.recovery_path}/{placement.job_id}"
    return {"MS_ENABLE_RECOVERY": "1", "MS_RECOVERY_PATH": f"{records}/{name}"}


def processes(job: Job, placement: Placement, node: Node) -> list[Process]:
    """Return a process per rank, and before them the scheduler on the head node."""
    shared = {
        **common_environment(job, placement, node),
        **cluster_environment(job, node),
        "MS_WORKER_NUM": str(placement.world_size),
        "MS_SCHED_HOST": placement.head.address,
        "MS_SCHED_PORT": str(placement.port),
    }
    version, device = release(node)
    # Releases that do not read a number as the rank assign ranks in the order of arrival.
    numbered = not version or mindspore_releases.supports(version, device, "rank_from_node_id")
    scheduler = Process(
        name="scheduler",
        ranks=(),
        argv=job.command,
        log=f"{placement.node_dir}/logs/scheduler.log",
        env={
            **shared,
            "MS_ROLE": "MS_SCHED",
            "MS_NODE_ID": "sched",
            **recovery_environment(job, placement, "scheduler"),
        },
        numbered=_NUMBERED,
        recover_after_s=0 if job.restarts.recovery else None,
        lists_nodes=_OF_HEAD,
    )
    comes_back = job.restarts.recovery and version and mindspore_releases.supports(version, device, "recovery")
    workers = [
        Process(
            name=f"rank{rank}",
            ranks=(rank,),
            argv=job.command,
            log=rank_log(placement.node_dir, rank, RANK_LOG),
            env={
                **shared,
                # The scheduler gives up first: it knows who is missing.
                "MS_TOPO_TIMEOUT": str(job.join_timeout_s + 30),
                "MS_ROLE": "MS_WORKER",
                "MS_NODE_ID": str(rank) if numbered else f"worker_{rank}",
                # An index into the devices that the process sees, from 0.
                **({"DEVICE_ID": str(local_rank)} if node.devices else {}),
                **recovery_environment(job, placement, f"rank{rank}"),
            },
            recover_after_s=WORKER_BACK_AFTER_S if comes_back else None,
            numbered={**_NUMBERED, "MS_NODE_ID": "{rank}" if numbered else "worker_{rank}"},
            lists_nodes=_OF_HEAD,
        )
        for local_rank, rank in enumerate(node.ranks)
    ]
    return [scheduler, *workers] if node is placement.head else workers
