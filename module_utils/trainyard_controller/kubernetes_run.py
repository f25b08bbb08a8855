# SPDX-License-Identifier: Apache-2.0
"""Create a job in a cluster, read its state and logs, and remove it."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..trainyard.job.run.failure import root_cause
from ..trainyard.job.run.hang import last_printed
from ..trainyard.job.run.progress import DEFAULT_PATTERN, progress_line, strict
from ..trainyard.job.run.progress_reader import Reader, merged, read_lines
from ..trainyard.job.run.restarts import restart_text
from ..trainyard.job.schedulers.kubernetes import state
from ..trainyard.job.schedulers.kubernetes.manifests import objects
from ..trainyard_node.machine.regex_limit import TooLongError, cpu_at_most
from .kubernetes_cluster import Cluster, ClusterError

# Number of lines of rank 0's log that are searched for progress.
_TAIL = 200
# Number of lines of a log that are searched for the rank that failed first.
_TAIL_OF_FAILURE = 2000


def submit(cluster: Cluster, manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Create all objects of a job, or none. Raises ClusterError, which names those that could not be removed again."""
    ours: list[tuple[str, str, str]] = []
    for manifest in manifests:
        each = (manifest["apiVersion"], manifest["kind"], manifest["metadata"]["name"])
        try:
            cluster.create(manifest)
        except ClusterError as error:
            # An object may exist although its response was lost. One that existed before is not ours.
            ours += [] if error.status == 409 else [each]
            left = [f"{kind} {name}" for version, kind, name in ours if not _deleted(cluster, version, kind, name)]
            if left:
                found = f"{error.finding.found}; may be left: {', '.join(left)}"
                raise ClusterError(replace(error.finding, found=found)) from None
            raise
        ours.append(each)
    return {}


def _deleted(cluster: Cluster, version: str, kind: str, name: str) -> bool:
    try:
        cluster.delete(version, kind, name)
    except ClusterError:
        return False
    return True


def remove(cluster: Cluster, settings: Mapping[str, Any], only: str) -> dict[str, Any]:
    """Remove all objects of a job, its pods first, or those of one kind. Raises ClusterError."""
    for version, kind, name in objects(settings):
        if only in ("", kind):
            cluster.delete(version, kind, name, settings.get("stop_grace_s", 0))
    return {"changed": True}


def job_state(
    cluster: Cluster, settings: Mapping[str, Any], pattern: str, waits: bool, quotes: bool = False
) -> dict[str, Any]:
    """Return the job's state with `line` and `metrics`.

    Where no metrics are found, `line` has the last line of rank 0's log, if that may be quoted (`quotes`).
    If the caller `waits` for its end, a job that can never start has failed; its pods would pull the image forever.
    """
    resource, pods = cluster.resource(settings), cluster.pods(settings["name"])
    warnings = cluster.warnings() if resource is not None and not _all_run(pods, settings) else []
    found = state.read(settings, resource, pods, warnings, cluster.now)
    if found["state"] == "pending" and found["hopeless"] and waits:
        found["failure"] = {"kind": "engine", "host": "", "reason": found["hopeless"]}
        found.update(state="failed", reason=found["hopeless"])
    printed = ""
    if found["state"] in ("running", "succeeded", "failed", "timed_out") and not found.get("metrics"):
        log = _first_log(cluster, settings, pods, tail_lines=_TAIL)
        found["metrics"] = _metrics(log, pattern)
        printed = last_printed(log) if quotes and not found["metrics"] else ""
    failure = found["failure"]
    if failure and failure["kind"] == "exit" and failure["rank"] is None and len(failure["ranks"]) > 1:
        found["failure"] = {**failure, **_first_rank(cluster, settings, failure["host"])}
    return {
        **found,
        "line": _line(found, settings, printed),
        "told": [restart_text(each) for each in found["restarts"] or ()],
    }


def _all_run(pods: list[dict[str, Any]], settings: Mapping[str, Any]) -> bool:
    running = sum(1 for pod in pods if (pod.get("status") or {}).get("phase") == "Running")
    return running >= int(settings["pods"])


def _first_log(cluster: Cluster, settings: Mapping[str, Any], pods: list[dict[str, Any]], **options: Any) -> str:
    for pod in state.latest(pods):
        _, ranks, _ = state.place(pod, settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"]))
        if ranks and ranks[0] == 0:
            return cluster.log(pod["metadata"]["name"], settings["container"], **options)
    return ""


def _first_rank(cluster: Cluster, settings: Mapping[str, Any], pod: str) -> dict[str, Any]:
    """Find the rank of a pod that failed first in the log of its launcher; {} if it is not there."""
    cause = root_cause(cluster.log(pod, settings["container"], tail_lines=_TAIL_OF_FAILURE)) or {}
    keys = ("rank", "exit_code", "signal", "reason")
    return {key: cause[key] for key in keys if key in cause} if cause.get("rank") is not None else {}


def _metrics(log: str, pattern: str) -> dict[str, float | None]:
    with contextlib.suppress(TooLongError), cpu_at_most(2.0):
        return strict(merged(read_lines(log, pattern or DEFAULT_PATTERN)))
    return {}


def _line(found: Mapping[str, Any], settings: Mapping[str, Any], printed: str) -> str:
    if found["state"] == "pending":
        return f"pending: {found['reason']}"
    if found["state"] == "running":
        world = int(settings["pods"]) * int(settings["ranks_per_pod"])
        line = progress_line(found["ranks_running"], world, found["elapsed_s"] or 0, found["metrics"])
        return "   ".join(filter(None, [line, found["reason"], printed]))
    return ""


def after_deletion(cluster: Cluster, settings: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a removed job: stopped if it had not ended. Remaining pods count as running."""
    left = {pod["metadata"]["name"] for pod in cluster.pods(settings["name"])}
    nodes = [{**node, "state": "running" if node["host"] in left else "ended"} for node in before["nodes"]]
    stopped = before["state"] in ("pending", "running")
    finished = before.get("finished") or (cluster.now if stopped else None)
    unchanged = ("engine_id", "started", "elapsed_s", "metrics", "restarts", "hopeless")
    return {
        **{key: before[key] for key in unchanged if key in before},
        "ranks_running": 0,
        "state": "stopped" if stopped else before["state"],
        "finished": finished,
        "failure": None if stopped else before.get("failure"),
        "reason": "" if stopped else before.get("reason", ""),
        "nodes": nodes,
        "line": "",
    }


def job_logs(cluster: Cluster, settings: Mapping[str, Any], limit: int, pattern: str) -> dict[str, Any]:
    """Return `logs` by name in base64, cut to their end at the limit, and metrics.jsonl with rank 0's progress."""
    logs: dict[str, bytes] = {}
    for pod in state.latest(cluster.pods(settings["name"])):
        _, ranks, name = state.place(pod, settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"]))
        text = cluster.log(pod["metadata"]["name"], settings["container"], timestamps=True)
        if not text:
            # The init container may say why there is none.
            text = cluster.log(pod["metadata"]["name"], "unpack", timestamps=True)
        stamped = [line.partition(" ") for line in text.splitlines()]
        content = "".join(f"{line}\n" for _, _, line in stamped).encode()
        if content:
            logs[name] = content[-limit:]
        if ranks and ranks[0] == 0:
            lines = _progress([(stamp, line) for stamp, _, line in stamped], pattern)
            if lines:
                logs["metrics.jsonl"] = lines
    return {"logs": {name: base64.b64encode(content).decode() for name, content in logs.items()}}


def _progress(stamped: list[tuple[str, str]], pattern: str) -> bytes:
    reader = Reader(pattern or DEFAULT_PATTERN)
    begun, lines = None, []
    with contextlib.suppress(TooLongError), cpu_at_most(10.0):
        for stamp, line in stamped:
            # Python before 3.11 cannot parse nanoseconds.
            at = state.seconds(stamp[:19] + "Z" if "." in stamp else stamp)
            begun = begun or at
            metrics = reader.read(line)
            if metrics and at is not None and begun is not None:
                lines.append(json.dumps({"elapsed_s": round(at - begun, 3), **strict(metrics)}))
    return "".join(f"{line}\n" for line in lines).encode()
