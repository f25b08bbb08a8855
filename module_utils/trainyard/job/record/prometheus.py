# SPDX-License-Identifier: Apache-2.0
"""Metrics of a job on each node, as text for the textfile collector of node_exporter.

Sources: Prometheus' text format 0.0.4; its advice on names and base units. An unknown fact has no sample; a loss that
is not a number is NaN. Times are seconds. docs/events.md lists all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..run.logs.progress import is_number

# Values by metric, each with its labels.
Samples = dict[str, list[tuple[Mapping[str, str], float]]]
State = Mapping[str, Any]

# Printed metrics that have a metric of their own; all others share one, with their name as a label.
_OWN = ("step", "steps", "epoch", "loss", "rate")
# All are gauges, as each restarts with every job.
HELP = {
    "trainyard_node_ranks": "Ranks that the plan has on this node.",
    "trainyard_node_ranks_running": "Ranks of these whose processes run.",
    "trainyard_node_head_silent_seconds": "Time since the last message from the head of the job.",
    "trainyard_job_info": "A job that runs, on its head node.",
    "trainyard_job_ready": "1 once the monitors of all nodes are there.",
    "trainyard_job_elapsed_seconds": "Time since the job started.",
    "trainyard_job_ranks": "Ranks of the job.",
    "trainyard_job_ranks_running": "Ranks of the job whose processes run.",
    "trainyard_job_node_silent_seconds": "Time since the last message from a node.",
    "trainyard_job_restarts": "How often the job, or a process of it, was started again.",
    "trainyard_job_restarts_left": "How often it may be started again.",
    "trainyard_job_step": "Last step that a rank printed.",
    "trainyard_job_steps": "Steps of the whole run, as a rank printed them.",
    "trainyard_job_epoch": "Last epoch that a rank printed.",
    "trainyard_job_loss": "Last loss that a rank printed; NaN where it was not a number.",
    "trainyard_job_rate": "Last rate that a rank printed, in the unit of the program.",
    "trainyard_job_metric": "Last value of another metric that a rank printed.",
    "trainyard_job_left_seconds": "Time that the rest of the steps takes at the pace so far.",
    "trainyard_job_goodput_ratio": "Share of the job's time that went into steps that count.",
    "trainyard_job_slow_rank": "1 while the others wait for ranks of this node.",
    "trainyard_job_checkpoint_step": "Step of the newest complete checkpoint.",
    "trainyard_job_checkpoint_timestamp_seconds": "When the newest complete checkpoint was written, since 1970.",
    "trainyard_job_events_waiting": "Events that wait for a receiver of job_events.",
    "trainyard_job_events_lost": "Events that did not reach a receiver of job_events.",
}


def node_samples(host: str, report: State, ranks: int, head_silent_s: float | None) -> Samples:
    """Return the samples of one node; `report` is its monitor's, `head_silent_s` is None on the head."""
    where = {"node": host}
    return {
        "trainyard_node_ranks": [(where, float(ranks))],
        "trainyard_node_ranks_running": [(where, float(report.get("ranks_running", 0)))],
        "trainyard_node_head_silent_seconds": [] if head_silent_s is None else [(where, round(head_silent_s, 1))],
    }


def job_samples(state: State, head: str, launcher: str) -> Samples:
    """Return the samples of the whole job; `state` is the head's cluster.json."""
    metrics, restarts = state["metrics"], state["restarts"]
    newest = (state.get("checkpoints") or {}).get("newest") or {}
    single = {
        "ready": float(state["state"] != "starting"),
        "elapsed_seconds": state["elapsed_s"],
        "ranks": state["world_size"],
        "ranks_running": state["ranks_running"],
        "restarts": len(restarts["history"]),
        "restarts_left": max(0, restarts.get("budget", 0) - len(restarts["history"])),
        **{name: metrics.get(name) for name in _OWN},
        "left_seconds": state.get("left_s"),
        "goodput_ratio": (state.get("goodput") or {}).get("share"),
        "checkpoint_step": newest.get("step"),
        "checkpoint_timestamp_seconds": newest.get("time"),
    }
    found: Samples = {f"trainyard_job_{name}": [({}, float(v))] for name, v in single.items() if is_number(v)}
    if "loss" in metrics and metrics["loss"] is None:
        found["trainyard_job_loss"] = [({}, math.nan)]
    found["trainyard_job_info"] = [({"head": head, "launcher": launcher}, 1.0)]
    found["trainyard_job_node_silent_seconds"] = [
        ({"node": host}, node["silent_s"]) for host, node in state["nodes"].items() if is_number(node["silent_s"])
    ]
    slow = [each for each in state.get("slow_ranks") or () if each["until_s"] is None]
    found["trainyard_job_slow_rank"] = [({"node": each["host"]}, 1.0) for each in slow]
    others = {name: value for name, value in metrics.items() if name not in _OWN and is_number(value)}
    found["trainyard_job_metric"] = [({"name": name}, value) for name, value in others.items()]
    for count in ("waiting", "lost"):
        by_name: dict[str, float] = {}
        for each in state.get("events") or ():
            # Two webhooks of one host share a name.
            by_name[each["to"]] = by_name.get(each["to"], 0.0) + each[count]
        found[f"trainyard_job_events_{count}"] = [({"to": to}, value) for to, value in by_name.items()]
    return found


def render(job_id: str, *of: Samples) -> str:
    """Write samples, each with the job's id among its labels."""
    samples = {name: each for group in of for name, each in group.items() if each}
    lines: list[str] = []
    for name, text in HELP.items():
        if name in samples:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
            lines += [f"{name}{_labels({'job_id': job_id, **own})} {_number(value)}" for own, value in samples[name]]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    written: Iterable[str] = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(written) + "}"


def _escaped(value: str) -> str:
    text = value.encode("utf-8", "replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "NaN" if value != value else repr(float(value)).replace("inf", "Inf")
