# SPDX-License-Identifier: Apache-2.0
"""What nodes may answer, as far as the controller builds on it: a node's word is looked at before it is used."""

from __future__ import annotations

import ipaddress
from typing import Any

from .messages import STATES
from .shapes import NOTHING, ByKind, Each, Is, Shape, finite, misfit


def address(value: Any) -> None:
    """an address with its network"""
    if not isinstance(value, str):
        raise ValueError(value)
    ipaddress.ip_interface(value)


MAYBE_TEXT, MAYBE_INT, MAYBE_NUMBER = (str, NOTHING), (int, NOTHING), (float, NOTHING)
EXIT = {"exit_code": MAYBE_INT, "signal": MAYBE_INT, "result": str, "time": float}
_SILENT = {"host": str, "after_s": float}
FAILURE = ByKind(
    {
        **{
            f"?{name}": MAYBE_TEXT
            for name in ("host", "process", "result", "seen_by", "reason", "lost", "error", "who")
        },
        **{f"?{name}": MAYBE_NUMBER for name in ("after_s", "time", "recover_after_s", "ranks_running")},
        **{f"?{name}": MAYBE_INT for name in ("rank", "exit_code", "signal", "attempt", "fruitless")},
        "?ranks": [int],
        "?hosts": [str],
    },
    {
        "exit": {"host": str, "process": str, "ranks": [int], "result": str},
        "not_joined": {"host": str, "process": str, "who": str},
        "gone": {"host": str, "reason": str},
        "silent": _SILENT,
        "head_silent": {**_SILENT, "seen_by": str},
        "absent": _SILENT,
        "frozen": _SILENT,
        "rebooted": {"host": str},
        "not_back": {"hosts": [str], "after_s": float},
        "cannot_write": {"host": str, "folder": str, "reason": str},
    },
)
END = {
    "state": Is(STATES),
    "finished": float,
    "?host": MAYBE_TEXT,
    "?after_s": MAYBE_NUMBER,
    "?failure": (FAILURE, NOTHING),
    "?failures": [FAILURE],
}
# A loss that diverges is a number all the same.
METRICS = Each((finite, NOTHING))
NOT_A_NUMBER = {"since": (METRICS, NOTHING), "first": METRICS, "last": METRICS, "stretches": int, "steps": MAYBE_NUMBER}
RESTART = {
    "elapsed_s": MAYBE_NUMBER,
    "reason": str,
    "restarted": str,
    "failure": FAILURE,
    "?step": MAYBE_NUMBER,
    "?fruitless": MAYBE_INT,
    "?wait_s": MAYBE_NUMBER,
}
CLUSTER = {
    "started": float,
    "elapsed_s": float,
    "metrics": METRICS,
    "?loss_not_a_number": (NOT_A_NUMBER, NOTHING),
    "world_size": int,
    "ranks_running": int,
    "restarts": {"history": [RESTART]},
    "end": (END, NOTHING),
}
PORTS = Each({"sent": MAYBE_INT, "received": MAYBE_INT})
STATUS = {
    "known": bool,
    "monitor_alive": bool,
    "processes": [{"name": str, "ranks": [int], "exit": (EXIT, NOTHING)}],
    "monitor": ({"started": float, "end": (END, NOTHING), "?carried": {"before": PORTS, "now": PORTS}}, NOTHING),
    "cluster": (CLUSTER, NOTHING),
    "left": int,
}
FINDING = dict.fromkeys(("host", "check", "found", "expected", "action"), str)
INTERFACE = {"name": str, "up": bool, "mtu": MAYBE_INT, "kind": str, "addresses": [address]}
NODE = {
    "hostname": str,
    "boot_id": MAYBE_TEXT,
    "cpus": int,
    "memory_mib": MAYBE_INT,
    "service_manager": MAYBE_TEXT,
    "container": MAYBE_TEXT,
    "packages": Each(MAYBE_TEXT),
    "accelerators": {"vendor": MAYBE_TEXT, "devices": [{"index": int, "physical_id": MAYBE_INT}], "problems": [str]},
    "npu": ({"?devices": [{"index": int, "physical_id": int, "device_ip": MAYBE_TEXT}], "?chip": MAYBE_TEXT}, NOTHING),
    "networks": {"interfaces": [INTERFACE], "rdma": [{"device": str, "port": int, "active": bool}], "problems": [str]},
    "mpi": (Each(MAYBE_TEXT), NOTHING),
    "fingerprint": str,
    "free_ports": [int],
}
LOGS = Each(str)
FOLDER = {"job_id": str, "job_dir": str, "age_s": float, "running": bool, "size_mib": int}
SHAPES: dict[str, Shape] = {
    "probe": {"node": NODE},
    "preflight": {"findings": [FINDING], "programs": Each(Each(str)), "stale": bool, "?node": NODE},
    "start": {"changed": bool, **STATUS},
    "state": {**STATUS, "?line": str, "?restarts": [str]},
    "collect": {"changed": bool, **STATUS, "logs": LOGS},
    "remove": {"changed": bool, **STATUS},
    "folders": {"folders": [FOLDER]},
    "slurm_logs": {"logs": LOGS, "exits": [Each(object)]},
    "slurm_submit": {"engine_id": str},
    "slurm_end": {"changed": bool},
    "can_install": {"findings": [FINDING], "files": [str], "asks_index": bool},
    "in_use": {"uses": [str], "slurm": str},
}


def checked(question: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a node's answer to a question of the agent, or one that failed, with why it is none."""
    if answer.get("failed"):
        return {name: answer[name] for name in ("failed", "msg", "exception", "rc") if name in answer}
    wrong = misfit(answer, SHAPES.get(question, {}))
    if not wrong:
        return answer
    return {"failed": True, "msg": f"what it answers cannot be used: {wrong}; look at that node before it runs a job"}
