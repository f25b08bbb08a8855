# SPDX-License-Identifier: Apache-2.0
"""Describe the state of a whole job, as the head's monitor keeps it in cluster.json."""

from __future__ import annotations

from . import silence
from .head_state import HeadState
from .messages import Message
from .orders import Now

_WHY = {"held": "waits for its devices", "excluded": "does not pass the health check", "": ""}


def cluster_state(head: HeadState, now: Now) -> Message:
    """Return the state of the job: all of cluster.json but the events."""
    nodes, restarts = head.nodes, head.restarts
    # Time after the end is no part of the job's.
    now_s = head.ended_s if head.end else now.s
    elapsed_s = now_s - head.started.s
    host, kind, reason = nodes.in_the_way()
    silent = silence.line(nodes.silent_s(now_s), nodes.silent_after_s)
    return {
        "job_id": head.plan["job_id"],
        "state": head.end.get("state") or ("starting" if nodes.absent() else "running"),
        "started": head.started.epoch_s,
        "elapsed_s": round(elapsed_s, 2),
        "metrics": nodes.metrics(),
        "loss_not_a_number": nodes.first("loss_not_a_number"),
        "checkpoints": nodes.checkpoints(),
        "held": f"{host} {_WHY[kind]}: {reason}" if kind else silent or None,
        "goodput": restarts.goodput(elapsed_s),
        "slow_ranks": head.slow_ranks.named,
        "printing": head.hang.printing,
        "world_size": head.plan["world_size"],
        "ranks_running": sum(report.get("ranks_running", 0) for report in nodes.of_members().values()),
        "nodes": {
            host: {
                "ranks_running": nodes.last.get(host, {}).get("ranks_running"),
                "silent_s": round(now_s - nodes.last_contact[host], 1) if host in nodes.last_contact else None,
            }
            for host in (*restarts.members, *restarts.spares)
        },
        "restarts": restarts.as_dict(),
        "end": head.end or None,
    }
