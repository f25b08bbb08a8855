# SPDX-License-Identifier: Apache-2.0
"""The cluster's objects as a job's state: the resource's conditions, what became of its pods, and why.

Objects are dictionaries as the API writes them. Source of the fields: Kubernetes' API reference for batch/v1 and pods;
JobStatus of kubeflow/common, which all three operators fill in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ....findings.findings import counted
from ...run.failure import first_failure
from ...run.failure import text as failure_text
from .pods import ROLE_LABEL

Data = Mapping[str, Any]

# Reasons of a waiting container that no patience ends; the others come and go while a pod starts.
HOPELESS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
# What to do about them, by the reason.
_ADVICE = {
    "ImagePullBackOff": "check job_image, and job_kubernetes.image_pull_secrets for a registry that asks who you are",
    "ErrImagePull": "check job_image, and job_kubernetes.image_pull_secrets for a registry that asks who you are",
    "InvalidImageName": "correct job_image",
    "ErrImageNeverPull": "load the image on the nodes, or leave job_kubernetes.image_pull_policy out",
    "CreateContainerConfigError": "make the Secret or ConfigMap that it names, in the job's namespace",
    "Unschedulable": "free what it asks for, lower it (cpu, memory, device_resource, node_selector), or wait",
}
_INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
_ORDINAL = re.compile(r"-(\d+)$")


def seconds(stamp: Any) -> float | None:
    """Read a time of the API, `2026-11-21T20:00:00Z`, as seconds since the epoch; None where there is none."""
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def advice(reason: str) -> str:
    """Say what to do about one of the cluster's reasons; "" where we know nothing better than its own message."""
    return _ADVICE.get(reason, "")


def pod_index(pod: Data) -> int:
    """Return the place of a pod among those of its role."""
    metadata = pod["metadata"]
    index = (metadata.get("annotations") or {}).get(_INDEX_ANNOTATION)
    ordinal = _ORDINAL.search(metadata["name"])
    return int(index) if index is not None else int(ordinal[1]) if ordinal else 0


def place(pod: Data, kind: str, processes: int, pods: int) -> tuple[str, list[int], str]:
    """Return what a pod is: name of its process, its ranks, and name of its log."""
    role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "worker")
    index = pod_index(pod) + (1 if kind == "PyTorchJob" and role == "worker" else 0)
    ranks = list(range(index * processes, (index + 1) * processes))
    if kind == "MPIJob":
        # mpirun in the launcher stands for all ranks; a worker only lets it log in.
        if role == "launcher":
            return "mpirun", list(range(pods * processes)), "launcher.log"
        return f"sshd{index}", [], f"sshd_{index}.log"
    if role == "scheduler":
        return "scheduler", [], "scheduler.log"
    if kind == "MSJob":
        return f"worker{index}", ranks, f"worker_{index}.log"
    if processes > 1:
        return "agent", ranks, f"agent_{index}.log"
    return f"rank{index}", ranks, f"rank_{index}.log"


def rank_log(kind: str, processes: int) -> str:
    """Name the log that rank 0 writes to, with `{rank}` where each rank has one."""
    if kind == "MPIJob":
        return "launcher.log"
    if kind == "MSJob":
        return "worker_{rank}.log"
    return "rank_{rank}.log" if processes == 1 else "agent_0.log"


def in_places(pods: Iterable[Data]) -> dict[tuple[str, int], list[Data]]:
    """Return the pods by role and place, the newest last: a restarted job leaves the failed ones of before."""
    places: dict[tuple[str, int], list[Data]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        role = (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, "worker")
        places.setdefault((role, pod_index(pod)), []).append(pod)
    return places


def latest(pods: Iterable[Data]) -> list[Data]:
    """Return the pods, of those in one place the newest."""
    places = in_places(pods)
    return [places[key][-1] for key in sorted(places)]


def _statuses(pod: Data) -> list[Data]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def waiting(pod: Data) -> tuple[str, str]:
    """Return the cluster's reason and words for a pod that does not run yet; "" and "" where it says nothing."""
    for container in _statuses(pod):
        why = (container.get("state") or {}).get("waiting") or {}
        if why.get("reason") and why["reason"] not in ("ContainerCreating", "PodInitializing"):
            return str(why["reason"]), str(why.get("message") or "")
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unschedulable"), str(condition.get("message") or "")
    return "", ""


def _end(end: Data) -> dict[str, Any]:
    """Return how a container ended: exit code or signal, result and time."""
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


def _ended(pod: Data) -> Data | None:
    """Return how the pod's ranks ended; None while they run."""
    status = pod.get("status") or {}
    for container in _statuses(pod):
        end = (container.get("state") or {}).get("terminated")
        # The containers before the ranks' own end, too; that is an end only where they failed.
        own = container in (status.get("containerStatuses") or ())
        if not end or (not own and not end.get("exitCode")):
            continue
        return {**_end(end), "container": container.get("name")}
    if status.get("phase") in ("Failed", "Succeeded"):
        # Evicted, or its node is lost: no container says how it ended.
        failed = status["phase"] == "Failed"
        return {
            "exit_code": None if failed else 0,
            "signal": None,
            "result": str(status.get("reason") or "lost") if failed else "success",
            "time": None,
            "text": str(status.get("message") or status.get("reason") or ""),
        }
    return None


_KEPT = ("exit_code", "signal", "result", "time")


def restarts(settings: Data, pods: Iterable[Data], started: float | None) -> list[dict[str, Any]]:
    """Return each restart so far, as in summary.json: of containers, and of pods that were made again in one place.

    Of a container the cluster keeps how it ended last, and counts the times before.
    """
    found = []
    for same in in_places(pods).values():
        for pod in same:
            name, ranks, _ = place(pod, settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"]))
            ends: list[dict[str, Any] | None] = []
            for container in _statuses(pod):
                last = (container.get("lastState") or {}).get("terminated")
                times = int(container.get("restartCount") or 0)
                ends += [None] * (times - 1) + [_end(last) if last else None] * min(times, 1)
            if pod is not same[-1]:
                replaced = _ended(pod)
                ends.append(dict(replaced) if replaced else None)
            for end in ends:
                found.append(_restart(pod["metadata"]["name"], name, ranks, end, started))
    return sorted(found, key=lambda one: one["elapsed_s"] or 0)


def _restart(host: str, name: str, ranks: Sequence[int], end: Data | None, started: float | None) -> dict[str, Any]:
    rank = ranks[0] if len(ranks) == 1 else None
    who = name if rank is None else f"rank {rank}"
    if end is None:
        # No time, so that it stands before those that are known.
        reason, at, failure = f"{who} on {host}: the cluster keeps no more of how it ended", None, None
    else:
        kept = {key: end[key] for key in _KEPT}
        failure = {"kind": "exit", "host": host, "process": name, "ranks": list(ranks), "rank": rank, **kept}
        reason, at = failure_text(failure), end["time"]
        if end["result"] == "oom-kill":
            reason += ", out of memory"
        elif end.get("text"):
            reason = f"{who} on {host}: {end['text']}"
    elapsed = round(at - started, 1) if at is not None and started is not None else None
    # mpirun starts all ranks; any other container its own.
    again = "the whole job" if name == "mpirun" else who
    return {"elapsed_s": elapsed, "reason": reason, "restarted": again, "failure": failure}


def _condition(resource: Data, kind: str) -> Data | None:
    """Return a condition of the resource that holds."""
    for condition in (resource.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind and condition.get("status") == "True":
            return dict(condition)
    return None


def _timed_out(failed: Data) -> bool:
    return failed.get("reason") == "DeadlineExceeded" or "longer than specified deadline" in str(failed.get("message"))


def _events(events: Iterable[Data], names: set[str]) -> list[str]:
    """Return what the cluster warns of, of these objects, the newest first."""
    told = [
        (str(event.get("lastTimestamp") or event.get("eventTime") or ""), event)
        for event in events
        if event.get("type") == "Warning" and (event.get("involvedObject") or {}).get("name") in names
    ]
    told.sort(key=lambda item: item[0], reverse=True)
    return [f"{event.get('reason', '')}: {' '.join(str(event.get('message', '')).split())}" for _, event in told]


def _pending(settings: Data, resource: Data, pods: Sequence[Data], events: Sequence[Data]) -> tuple[str, str]:
    """Return why the job does not run yet, in the cluster's own words, and the reason that nothing will end, or ""."""
    hopeless, told = "", []
    for pod in pods:
        reason, message = waiting(pod)
        if not reason:
            continue
        text = f"{pod['metadata']['name']}: {reason}" + (f": {' '.join(message.split())}" if message else "")
        if reason in HOPELESS:
            hopeless = hopeless or text + (f" ({advice(reason)})" if advice(reason) else "")
        told.append(text + (f" ({advice(reason)})" if advice(reason) else ""))
    if told:
        return told[0] + (f" (and {counted(len(told) - 1, 'more pod')})" if len(told) > 1 else ""), hopeless
    names = {settings["name"], *(pod["metadata"]["name"] for pod in pods)}
    suspended = _condition(resource, "Suspended")
    if suspended or (resource.get("spec") or {}).get("suspend"):
        return str((suspended or {}).get("message") or "suspended: its queue has not admitted it"), ""
    warned = _events(events, names)
    if warned:
        return warned[0], ""
    if not pods and not (resource.get("status") or {}).get("conditions") and settings["operator"]:
        return f"{settings['operator']} has not taken it up yet", ""
    return ("its pods are being made" if not pods else "its pods are starting"), ""


def read(
    settings: Data, resource: Data | None, pods: Sequence[Data], events: Sequence[Data], now: float
) -> dict[str, Any]:
    """Return the job's state (JobState of schedulers/__init__.py). `resource` is None where it is gone.

    `settings` are those of the scheduler's plan, `now` is the cluster's time, by the API's own clock.
    """
    kind, processes, wanted = settings["resource"], int(settings["ranks_per_pod"]), int(settings["pods"])
    everything, pods = pods, latest(pods)
    nodes, failures, running, begun = [], [], 0, False
    for pod in pods:
        name, ranks, log = place(pod, kind, processes, wanted)
        end = _ended(pod)
        phase = (pod.get("status") or {}).get("phase")
        if phase == "Running" and end is None:
            begun = begun or bool(ranks)
            # A container between two of its lives waits, in a pod that is called running. mpirun's pod stands for all
            # ranks, and an MPIJob's workers for none.
            running += len(ranks) if not waiting(pod)[0] else 0
        shown = {} if end is None else {key: end[key] for key in _KEPT}
        host = pod["metadata"]["name"]
        nodes.append(
            {
                "host": host,
                "state": "running" if end is None else "ended",
                "ranks": ranks,
                "processes": [{"name": name, "ranks": ranks, "log": log, **shown}],
            }
        )
        if end is not None and end["result"] != "success":
            failure = {"kind": "exit", "host": host, "process": name, "ranks": ranks, **shown}
            failure["rank"] = ranks[0] if len(ranks) == 1 else None
            said = end.get("text") or (
                f"its code could not be unpacked: container {end['container']}" if end["container"] == "unpack" else ""
            )
            if said:
                failure["reason"] = said
            failures.append(failure)
    started = seconds(((resource or {}).get("status") or {}).get("startTime"))
    made = {
        "engine_id": f"{kind} {settings['name']}",
        "started": started,
        "finished": None,
        "elapsed_s": round(now - started, 2) if started else None,
        "ranks_running": running,
        "nodes": nodes,
        "failure": None,
        "reason": "",
        "hopeless": "",
        "restarts": restarts(settings, everything, started),
    }
    if resource is None:
        return {**made, "state": "stopped" if settings.get("stopped") else "lost", "reason": "it is not in the cluster"}
    succeeded = _condition(resource, "Complete") or _condition(resource, "Succeeded")
    failed = _condition(resource, "Failed")
    status = resource.get("status") or {}
    end_time = seconds(status.get("completionTime") or (succeeded or failed or {}).get("lastTransitionTime"))
    if succeeded:
        return {**made, "state": "succeeded", "finished": end_time}
    if failed:
        words = ": ".join(str(failed[key]) for key in ("reason", "message") if failed.get(key))
        if _timed_out(failed):
            return {**made, "state": "timed_out", "finished": end_time, "reason": words}
        cause = first_failure(failures) or {"kind": "engine", "host": settings["name"], "reason": words}
        return {**made, "state": "failed", "finished": end_time, "reason": words, "failure": cause}
    if begun:
        reason, _ = _pending(settings, resource, pods, ()) if running < wanted * processes else ("", "")
        return {**made, "state": "running", "reason": "" if reason.startswith("its pods") else reason}
    if any(node["state"] == "ended" for node in nodes):
        # The resource's own status comes a moment after its pods have ended.
        return {**made, "state": "running", "reason": "its pods have ended"}
    reason, hopeless = _pending(settings, resource, pods, events)
    return {**made, "state": "pending", "reason": reason, "hopeless": hopeless}
