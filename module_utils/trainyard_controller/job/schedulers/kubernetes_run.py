# SPDX-License-Identifier: Apache-2.0
"""Create a job in a cluster, read its state and logs, and remove it."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ....trainyard.job.run.decide.restarts import restart_text
from ....trainyard.job.run.logs.failures import exit_text, root_cause
from ....trainyard.job.run.logs.hang import last_printed
from ....trainyard.job.run.logs.progress import DEFAULT_PATTERN, clock, leading, progress_line, strict
from ....trainyard.job.run.logs.progress_reader import Reader, merged, read_lines
from ....trainyard.job.run.wire.answers import checked
from ....trainyard.job.schedulers.kubernetes import pod_log, state
from ....trainyard.job.schedulers.kubernetes.manifests import objects
from ....trainyard_node.machine.regex_limit import TooLongError, cpu_at_most
from .kubernetes_cluster import Cluster, ClusterError

# The arguments of a question by host.
Arguments = Mapping[str, Mapping[str, Any]]
# What all of them wait for at first; and the log with
# what the first one has to say.
PLANS = "its pods check themselves and plan"
LOG = "pods.log"
# Pods that are asked at the same time, and how long an answer may take beside its question, in seconds.
_AT_ONCE, _BESIDE_S = 16, 20.0
# How long the cluster may take to report the end of a pod, in seconds.
_ENDS_S = 5.0
_NO_OUTPUTS = {
    "files": {},
    "left_out": [{"name": "job_outputs (the log of the pod lacks them: mount a volume for them)", "size": 0}],
    "more": 0,
}
# Number of lines of rank 0's log that are searched for progress.
_TAIL = 200
# CPU seconds that reading progress out of a log may take.
PARSE_S = 20.0
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
    found.setdefault("metrics", {})
    # The pods of a plain Job answer for their ranks.
    begun = settings["resource"] != "Job" and found["state"] in ("running", "succeeded", "failed", "timed_out")
    if begun:
        log = _first_log(cluster, settings, pods, tail_lines=_TAIL)
        found["metrics"] = _metrics(log, pattern)
        printed = last_printed(log) if quotes and not found["metrics"] else ""
    failure = found["failure"]
    if begun and failure and failure["kind"] == "exit" and failure["rank"] is None and len(failure["ranks"]) > 1:
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
    if found["state"] == "running" and settings["resource"] == "Job":
        return f"{clock(found['elapsed_s'] or 0)}   {found['reason'] or PLANS}"
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


def answers(
    cluster: Cluster, settings: Mapping[str, Any], question: str, arguments: Arguments, limit_s: float
) -> dict[str, dict[str, Any]]:
    """Ask pods of a plain Job, by their names in the plan; those that have ended have printed their answers."""
    pods = _by_host(cluster, settings)

    def ask(host: str) -> dict[str, Any]:
        pod, own = pods.get(host), arguments[host]
        if pod is None:
            return {"failed": True, "msg": "the cluster has no such pod any more"}
        name = pod["metadata"]["name"]
        try:
            end = state.ended(pod)
            if end is not None:
                return _printed(cluster, settings, question, own, name, end)
            command = ["python3", "-IS", f"{own['job_dir']}/trainyard.pyz", "answer", question, f"{limit_s:g}"]
            found = json.loads(cluster.ask(name, settings["container"], command, json.dumps(own), limit_s + _BESIDE_S))
        except ClusterError as error:
            with contextlib.suppress(ClusterError):
                end = _end_of(cluster, settings, host)
                if end is not None:
                    return _printed(cluster, settings, question, own, name, end)
            return {"unreachable": True, "msg": str(error)}
        except (ValueError, RecursionError):
            return {"failed": True, "msg": "an answer that is none"}
        return checked(question, found, host) if isinstance(found, dict) else {"failed": True, "msg": "no answer"}

    with ThreadPoolExecutor(_AT_ONCE) as side_by_side:
        return dict(zip(arguments, side_by_side.map(ask, arguments)))


def _by_host(cluster: Cluster, settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {f"{settings['name']}-{state.pod_index(pod)}": pod for pod in state.latest(cluster.pods(settings["name"]))}


def _end_of(cluster: Cluster, settings: Mapping[str, Any], host: str) -> Mapping[str, Any] | None:
    """Return how a pod ended that has given no answer, None while it runs: `exec` ends with its pod, as at a stop."""
    deadline = time.monotonic() + _ENDS_S
    while time.monotonic() < deadline:
        pod = _by_host(cluster, settings).get(host)
        end = state.ended(pod) if pod else None
        if end is not None:
            return end
        time.sleep(1.0)
    return None


def _printed(
    cluster: Cluster,
    settings: Mapping[str, Any],
    question: str,
    asked: Mapping[str, Any],
    pod: str,
    end: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the answer of a pod that has ended, from its log; without one, as of a node whose monitor was killed."""
    printed = pod_log.read(cluster.log(pod, settings["container"]).splitlines())
    if question == "planned":
        return {"plan": json.dumps(printed.records.get(pod_log.PLAN)), "logs": _texts(printed)}
    how = f"{end['reason'] or 'it ended'} (pod {pod}, {exit_text(end)})"
    nothing = {"known": True, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None, "left": 0}
    lost = {**nothing, "changed": False, "kernel": [], "monitor_lost": {"restarted": False, "how": how}}
    found = printed.records.get(pod_log.ANSWER)
    answer = found if isinstance(found, dict) and question == "collect" else lost
    if question == "collect" and asked.get("outputs"):
        answer = {**answer, "outputs": printed.records.get(pod_log.OUTPUTS, _NO_OUTPUTS)}
    own = answer.get("logs") or {}
    logs = {name: _encoded(lines) for name, lines in printed.logs.items()}
    return checked(question, {**answer, "logs": {**(own if isinstance(own, dict) else {}), **logs}}, pod)


def _texts(printed: pod_log.Printed) -> dict[str, str]:
    return {LOG: _encoded(printed.texts)} if printed.texts else {}


def _encoded(lines: Sequence[str]) -> str:
    return base64.b64encode("".join(f"{line}\n" for line in lines).encode()).decode()


def job_logs(cluster: Cluster, settings: Mapping[str, Any], limit: int, pattern: str) -> dict[str, Any]:
    """Return `logs` by name in base64, cut to their end at the limit, and a `warning`, or "".

    Among them is metrics.jsonl with the progress of rank 0, or of the last rank where that is the one that prints it.
    """
    logs: dict[str, bytes] = {}
    series: dict[int, list[str]] = {}
    warning, last = "", int(settings["pods"]) * int(settings["ranks_per_pod"]) - 1
    found = state.latest(cluster.pods(settings["name"]))
    if settings["resource"] == "Job":
        # They could not plan, and the first one says why.
        logs_of = (cluster.log(pod["metadata"]["name"], settings["container"]) for pod in found)
        printed = [pod_log.read(text.splitlines()) for text in logs_of]
        return {"logs": next(filter(None, map(_texts, printed)), {})}
    for pod in found:
        _, ranks, name = state.place(pod, settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"]))
        text = cluster.log(pod["metadata"]["name"], settings["container"], timestamps=True)
        if not text:
            # The init container may say why there is none.
            text = cluster.log(pod["metadata"]["name"], "unpack", timestamps=True)
        stamped = [line.partition(" ") for line in text.splitlines()]
        content = "".join(f"{line}\n" for _, _, line in stamped).encode()
        if content:
            logs[name] = content[-limit:]
        rank = next((rank for rank in (0, last) if rank in ranks), None)
        if rank is not None:
            try:
                with cpu_at_most(PARSE_S):
                    series[rank] = list(_progress([(stamp, line) for stamp, _, line in stamped], pattern))
            except TooLongError:
                warning = f"job_progress_pattern took {PARSE_S:g} s for the log of rank {rank}: progress is not read"
    counts = leading({rank: len(points) for rank, points in series.items()})
    if counts is not None:
        logs["metrics.jsonl"] = "".join(series[counts]).encode()
    encoded = {name: base64.b64encode(content).decode() for name, content in logs.items()}
    return {"logs": encoded, "warning": warning}


def _progress(stamped: Iterable[tuple[str, str]], pattern: str) -> Iterator[str]:
    reader, begun = Reader(pattern or DEFAULT_PATTERN), None
    for stamp, line in stamped:
        # Python before 3.11 cannot parse nanoseconds.
        at = state.seconds(stamp[:19] + "Z" if "." in stamp else stamp)
        begun = begun or at
        metrics = reader.read(line)
        if metrics and at is not None and begun is not None:
            yield json.dumps({"elapsed_s": round(at - begun, 3), **strict(metrics)}) + "\n"
