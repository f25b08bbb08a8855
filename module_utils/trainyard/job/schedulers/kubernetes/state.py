# SPDX-License-Identifier: Apache-2.0
"""Read a job's state from the cluster's objects: the conditions of its resource, and its pods.

Objects are dictionaries as in the API. Their fields are those of Kubernetes' batch/v1 and pods, and of JobStatus in
kubeflow/common, which both operators use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ....base.findings import counted
from ....base.shapes import TIME, misfit
from ...run.logs.failures import failure_text, first_failure
from .pods import ROLE_LABEL

Data = Mapping[str, Any]

# Reasons of a waiting container that never resolve; others come and go while a pod starts.
HOPELESS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName",
     "RunContainerError"}
)  # fmt: skip
# Actions by reason.
_ADVICE = {
    "ImagePullBackOff": "check job_image, and job_kubernetes.image_pull_secrets for a registry that requires a login",
    "ErrImagePull": "check job_image, and job_kubernetes.image_pull_secrets for a registry that requires a login",
    "InvalidImageName": "correct job_image",
    "ErrImageNeverPull": "load the image on the nodes, or leave job_kubernetes.image_pull_policy out",
    "CreateContainerConfigError": "create the Secret or ConfigMap that it names in the job's namespace",
    "Unschedulable": "free resources, request fewer (cpu, memory, device_resource, node_selector), or wait",
}
_INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_ORDINAL = re.compile(r"-(\d+)$")


def seconds(stamp: Any) -> float | None:
    """Return a time of the API, `2026-11-21T20:00:00Z`, as seconds since the epoch, or None."""
    try:
        found = datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except (OverflowError, ValueError):
        return None
    # A time that was never set is in the year 1.
    return None if misfit(found, TIME) else found


def pod_index(pod: Data) -> int:
    """Return the index of a pod in its role."""
    metadata = pod["metadata"]
    index = (metadata.get("annotations") or {}).get(_INDEX_ANNOTATION)
    ordinal = _ORDINAL.search(metadata["name"])
    return int(index) if index is not None else int(ordinal[1]) if ordinal else 0


def place(pod: Data, kind: str, ranks_per_pod: int, pods: int) -> tuple[str, list[int], str]:
    """Return the name of a pod's process, its ranks, and the name of its log."""
    role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "worker")
    index = pod_index(pod)
    ranks = list(range(index * ranks_per_pod, (index + 1) * ranks_per_pod))
    if kind == "MPIJob":
        # mpirun in the launcher counts for all ranks; workers only accept its logins.
        if role == "launcher":
            return "mpirun", list(range(pods * ranks_per_pod)), "launcher.log"
        return f"sshd{index}", [], f"sshd_{index}.log"
    if role == "scheduler":
        return "scheduler", [], "scheduler.log"
    if role == "server":
        return f"server{index}", [], f"server_{index}.log"
    if kind == "MSJob":
        return f"worker{index}", ranks, f"worker_{index}.log"
    if ranks_per_pod > 1:
        return "agent", ranks, f"agent_{index}.log"
    return f"rank{index}", ranks, f"rank_{index}.log"


def rank_log(kind: str, launcher: str) -> str:
    """Return the name of rank 0's log, with `{rank}` if each rank has its own."""
    if kind == "MPIJob":
        return "launcher.log"
    return "worker_{rank}.log" if launcher in ("mindspore", "msrun") else "rank_{rank}.log"


def in_places(pods: Iterable[Data]) -> dict[tuple[str, int], list[Data]]:
    """Return the pods by role and index, the newest last, as failed pods of a restarted job remain."""
    places: dict[tuple[str, int], list[Data]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "worker")
        places.setdefault((role, pod_index(pod)), []).append(pod)
    return places


def latest(pods: Iterable[Data]) -> list[Data]:
    """Return the newest pod of each role and index."""
    places = in_places(pods)
    return [places[key][-1] for key in sorted(places)]


def _statuses(pod: Data) -> list[Data]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def waiting(pod: Data) -> tuple[str, str]:
    """Return the cluster's reason and message for a pod that does not run yet, or "" and ""."""
    for container in _statuses(pod):
        why = (container.get("state") or {}).get("waiting") or {}
        if why.get("reason") and why["reason"] not in ("ContainerCreating", "PodInitializing"):
            return str(why["reason"]), str(why.get("message") or "")
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unschedulable"), str(condition.get("message") or "")
    return "", ""


def _end(end: Data) -> dict[str, Any]:
    code = int(end.get("exitCode") or 0)
    number = int(end.get("signal") or 0) or (code - 128 if code > 128 else 0)
    reason = str(end.get("reason") or "")
    return {
        "exit_code": None if number else code,
        "signal": number or None,
        "result": {"OOMKilled": "oom-kill", "Completed": "success"}.get(
            reason, "signal" if number else "exit-code" if code else "success"
        ),
        "time": seconds(end.get("finishedAt")),
    }


def ended(pod: Data) -> Data | None:
    """Return the exit of the pod's ranks; None while they run."""
    status = pod.get("status") or {}
    for container in _statuses(pod):
        end = (container.get("state") or {}).get("terminated")
        # The exit of an init container counts only if it failed.
        own = container in (status.get("containerStatuses") or ())
        if not end or (not own and not end.get("exitCode")):
            continue
        return {**_end(end), "container": container.get("name"), "reason": str(end.get("reason") or "")}
    if status.get("phase") in ("Failed", "Succeeded"):
        # The pod was evicted or its node is lost, so no container has an exit.
        failed = status["phase"] == "Failed"
        return {
            "exit_code": None if failed else 0,
            "signal": None,
            "result": str(status.get("reason") or "lost") if failed else "success",
            "time": None,
            "reason": str(status.get("reason") or ""),
            "text": str(status.get("message") or status.get("reason") or ""),
        }
    return None


_EXIT_KEYS = ("exit_code", "signal", "result", "time")


def restarts(settings: Data, pods: Iterable[Data], started: float | None) -> list[dict[str, Any]]:
    """Return the restarts of containers and pods as in summary.json; the cluster has only the last exit of each."""
    found = []
    for same in in_places(pods).values():
        for pod in same:
            name, ranks, _ = place(pod, settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"]))
            ends: list[Data | None] = []
            for container in _statuses(pod):
                last = (container.get("lastState") or {}).get("terminated")
                times = int(container.get("restartCount") or 0)
                ends += [None] * (times - 1) + [_end(last) if last else None] * min(times, 1)
            ends += [] if pod is same[-1] else [ended(pod)]
            found += [_restart(pod["metadata"]["name"], name, ranks, end, started) for end in ends]
    return sorted(found, key=lambda one: one["elapsed_s"] or 0)


def _restart(host: str, name: str, ranks: Sequence[int], end: Data | None, started: float | None) -> dict[str, Any]:
    process = f"rank {ranks[0]}" if len(ranks) == 1 else name
    if end is None:
        # Without a time, it is sorted before the known ones.
        reason, at, failure = f"{process} on {host}: the cluster no longer has its exit", None, None
    else:
        failure = _failure(host, name, ranks, end)
        reason, at = failure_text(failure), end["time"]
        if end["result"] == "oom-kill":
            reason += ", out of memory"
        elif end.get("text"):
            reason = f"{process} on {host}: {end['text']}"
    elapsed = round(at - started, 1) if at is not None and started is not None else None
    # mpirun starts all ranks, any other container its own.
    restarted = "the whole job" if name == "mpirun" else process
    return {"elapsed_s": elapsed, "reason": reason, "restarted": restarted, "failure": failure}


def _failure(host: str, name: str, ranks: Sequence[int], end: Data) -> dict[str, Any]:
    rank = ranks[0] if len(ranks) == 1 else None
    exit_fields = {key: end[key] for key in _EXIT_KEYS}
    return {"kind": "exit", "host": host, "process": name, "ranks": list(ranks), "rank": rank, **exit_fields}


def _condition(resource: Data, kind: str) -> Data | None:
    for condition in (resource.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            return dict(condition)
    return None


def _timed_out(failed: Data) -> bool:
    return failed.get("reason") == "DeadlineExceeded" or "longer than specified deadline" in str(failed.get("message"))


def _events(events: Iterable[Data], names: set[str]) -> list[str]:
    """Return the warnings about these objects, the newest first."""
    warnings = [
        (str(event.get("lastTimestamp") or event.get("eventTime") or ""), event)
        for event in events
        if event.get("type") == "Warning" and (event.get("involvedObject") or {}).get("name") in names
    ]
    warnings.sort(key=lambda item: item[0], reverse=True)
    return [f"{event.get('reason', '')}: {' '.join(str(event.get('message', '')).split())}" for _, event in warnings]


def _pods_reason(pods: Sequence[Data]) -> tuple[str, str]:
    """Return why pods do not run, and the first reason that never resolves; each may be ""."""
    hopeless, texts = "", []
    for pod in pods:
        reason, message = waiting(pod)
        if not reason:
            continue
        text = f"{pod['metadata']['name']}: {reason}" + (f": {' '.join(message.split())}" if message else "")
        text += f" ({_ADVICE[reason]})" if reason in _ADVICE else ""
        if reason in HOPELESS:
            hopeless = hopeless or text
        texts.append(text)
    more = f" (and {counted(len(texts) - 1, 'more pod')})" if len(texts) > 1 else ""
    return (texts[0] + more if texts else ""), hopeless


def _suspended(resource: Data) -> str:
    suspended = _condition(resource, "Suspended")
    if suspended or (resource.get("spec") or {}).get("suspend"):
        return str((suspended or {}).get("message") or "suspended: its queue has not admitted it")
    return ""


def _pending(settings: Data, resource: Data, pods: Sequence[Data], events: Sequence[Data]) -> str:
    warnings = _events(events, {settings["name"], *(pod["metadata"]["name"] for pod in pods)})
    known = _suspended(resource) or next(iter(warnings), "")
    if known:
        return known
    if not pods and not (resource.get("status") or {}).get("conditions") and settings["operator"]:
        return f"{settings['operator']} has not processed it yet"
    return "its pods are starting" if pods else "its pods are being created"


def _node(pod: Data, settings: Data) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a pod as a node of summary.json, and the failure of its ranks."""
    kind, ranks_per_pod, count = settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"])
    name, ranks, log = place(pod, kind, ranks_per_pod, count)
    end, host = ended(pod), pod["metadata"]["name"]
    exit_fields = {} if end is None else {key: end[key] for key in _EXIT_KEYS}
    node = {
        "host": host,
        "state": "running" if end is None else "ended",
        "ranks": ranks,
        "processes": [{"name": name, "ranks": ranks, "log": log, **exit_fields}],
    }
    if end is None or end["result"] == "success":
        return node, None
    failure = _failure(host, name, ranks, end)
    if end.get("text"):
        failure["reason"] = end["text"]
    elif end.get("container") == "unpack":
        failure["reason"] = "its code could not be unpacked: container unpack"
    return node, failure


def read(
    settings: Data, resource: Data | None, pods: Sequence[Data], events: Sequence[Data], now: float
) -> dict[str, Any]:
    """Return the JobState. `resource` is None if it no longer exists, `now` is the time of the API's clock."""
    newest = latest(pods)
    pairs = [_node(pod, settings) for pod in newest]
    nodes, failures = [node for node, _ in pairs], [failure for _, failure in pairs if failure]
    alive = [
        (node, pod)
        for node, pod in zip(nodes, newest)
        if node["state"] == "running" and (pod.get("status") or {}).get("phase") == "Running"
    ]
    # A container that waits for its restart is in a running pod. The launcher of an MPIJob counts for all ranks.
    running = sum(len(node["ranks"]) for node, pod in alive if not waiting(pod)[0])
    status = (resource or {}).get("status") or {}
    started = seconds(status.get("startTime"))
    found = {
        "engine_id": f"{settings['resource']} {settings['name']}",
        "started": started,
        "finished": None,
        "elapsed_s": round(now - started, 2) if started else None,
        "ranks_running": running,
        "nodes": nodes,
        "failure": None,
        "reason": "",
        "hopeless": "",
        "restarts": restarts(settings, pods, started),
    }
    if resource is None:
        return {
            **found,
            "state": "stopped" if settings.get("stopped") else "lost",
            "reason": "it is not in the cluster",
        }
    ended = _end_of_job(settings, resource, failures)
    if ended:
        return {**found, **ended}
    reason, hopeless = _pods_reason(newest)
    if any(node["ranks"] for node, _ in alive):
        complete = running >= int(settings["pods"]) * int(settings["ranks_per_pod"])
        return {**found, "state": "running", "reason": "" if complete else reason or _suspended(resource)}
    if any(node["state"] == "ended" for node in nodes):
        # The status of the resource follows a moment after the exits of its pods.
        return {**found, "state": "running", "reason": "its pods have ended"}
    reason = reason or _pending(settings, resource, newest, events)
    return {**found, "state": "pending", "reason": reason, "hopeless": hopeless}


def _end_of_job(settings: Data, resource: Data, failures: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the final state of a job by the conditions of its resource, or None."""
    succeeded = _condition(resource, "Complete") or _condition(resource, "Succeeded")
    failed = _condition(resource, "Failed")
    status = resource.get("status") or {}
    finished = seconds(status.get("completionTime") or (succeeded or failed or {}).get("lastTransitionTime"))
    if succeeded:
        return {"state": "succeeded", "finished": finished}
    if not failed:
        return None
    reason = ": ".join(str(failed[key]) for key in ("reason", "message") if failed.get(key))
    if _timed_out(failed):
        return {"state": "timed_out", "finished": finished, "reason": reason}
    cause = first_failure(failures) or {"kind": "engine", "host": settings["name"], "reason": reason}
    return {"state": "failed", "finished": finished, "reason": reason, "failure": cause}
