"""The state of a job from composed objects in the API's format."""

import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.decide.restarts import restart_text
from ansible.module_utils.trainyard.job.schedulers.kubernetes import kubernetes_findings, state

sys.path.insert(0, str(Path(__file__).parents[3] / "fixtures" / "kubernetes"))
import courses

NOW = 1795291265.0


def settings(kind="Job", processes=1, pods=2):
    operator = "" if kind == "Job" else "an operator"
    return {"resource": kind, "ranks_per_pod": processes, "pods": pods, "name": "digits", "operator": operator}


def pod(name, status, role="worker", index=None, made="2026-11-21T20:00:05Z"):
    annotations = {} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}
    labels = {"trainyard-role": role}
    metadata = {"name": name, "labels": labels, "annotations": annotations, "creationTimestamp": made}
    return {"metadata": metadata, "spec": {}, "status": status}


def two(first, second):
    return [pod("digits-0-abcde", first, index=0), pod("digits-1-fghij", second, index=1)]


def read(status, pods, events=(), **given):
    return state.read(settings(**given), {"status": status}, pods, events, NOW)


def test_a_job_with_successful_pods_succeeded():
    found = read(courses.complete(), two(courses.ended(), courses.ended()))
    assert (found["state"], found["finished"] - found["started"], found["failure"]) == ("succeeded", 60, None)
    assert [node["processes"][0]["exit_code"] for node in found["nodes"]] == [0, 0]


def test_the_first_failed_rank_is_the_failure():
    pods = two(
        courses.ended(1, finished="2026-11-21T20:01:04Z"),
        courses.ended(137, "OOMKilled", finished="2026-11-21T20:01:01Z"),
    )
    found = read(courses.failed(), pods)
    assert found["state"] == "failed"
    failure = found["failure"]
    assert (failure["kind"], failure["rank"], failure["signal"], failure["result"]) == ("exit", 1, 9, "oom-kill")
    assert failure["exit_code"] is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [(courses.evicted(), "low on resource: memory"), (courses.unpack_failed(), "its code could not be unpacked")],
)
def test_a_pod_that_fails_without_its_ranks_has_a_reason(status, reason):
    assert reason in read(courses.failed(), two(status, courses.runs()))["failure"]["reason"]


def test_a_failure_without_pods_has_the_clusters_reason():
    found = read(courses.failed("PodFailurePolicy", "a rule matched"), [])
    assert found["failure"] == {"kind": "engine", "host": "digits", "reason": "PodFailurePolicy: a rule matched"}


@pytest.mark.parametrize(
    "condition",
    [
        ("DeadlineExceeded", "Job was active longer than specified deadline"),
        ("JobFailed", "Job digits has failed because it was active longer than specified deadline"),
    ],
)
def test_a_job_beyond_its_deadline_timed_out(condition):
    assert read(courses.failed(*condition), [])["state"] == "timed_out"


PENDING = [
    (courses.unschedulable(), "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", ""),
    (courses.waits("ErrImagePull", "manifest unknown"), "ErrImagePull: manifest unknown", ""),
    (courses.waits("ImagePullBackOff", "Back-off"), "check job_image", "ImagePullBackOff"),
    (courses.waits("CreateContainerConfigError", 'secret "x" not found'), 'secret "x" not found', "ConfigError"),
    (courses.waits("ContainerCreating"), "its pods are starting", ""),
]


@pytest.mark.parametrize(("status", "reason", "hopeless"), PENDING)
def test_pending_pods_have_the_clusters_reason(status, reason, hopeless):
    found = read(courses.active(), two(status, status))
    assert found["state"] == "pending" and reason in found["reason"]
    assert hopeless in found["hopeless"] and bool(hopeless) == bool(found["hopeless"])


def test_a_warning_is_the_reason_if_no_pod_has_one():
    event = {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: gpus", "lastTimestamp": "2"}
    other = {**event, "message": "of another job", "involvedObject": {"name": "other"}, "lastTimestamp": "3"}
    found = read(courses.active(), [], [{**event, "involvedObject": {"name": "digits"}}, other])
    assert found["reason"] == "FailedCreate: exceeded quota: gpus"


def test_an_idle_operator_is_named():
    assert read({}, [], kind="MSJob")["reason"] == "an operator has not processed it yet"


def test_a_suspended_job_waits_for_its_queue():
    found = state.read(settings(), {"spec": {"suspend": True}, "status": {}}, [], (), NOW)
    assert "queue has not admitted it" in found["reason"]


def test_a_job_with_ended_pods_is_not_pending():
    assert read(courses.active(), two(courses.ended(), courses.ended()))["state"] == "running"


def test_a_missing_resource_is_lost():
    assert state.read(settings(), None, [], (), NOW)["state"] == "lost"


def test_the_newest_pod_of_an_index_counts():
    old = pod("digits-0-aaaaa", courses.ended(1), index=0, made="2026-11-21T20:00:00Z")
    new = pod("digits-0-bbbbb", courses.runs(), index=0, made="2026-11-21T20:02:00Z")
    found = read(courses.active(), [new, old])
    assert [node["host"] for node in found["nodes"]] == ["digits-0-bbbbb"]


PLACES = [
    ("Job", pod("d-3-abcde", {}, index=3), 1, ("rank3", [3], "rank_3.log")),
    ("Job", pod("d-1-abcde", {}, index=1), 8, ("agent", list(range(8, 16)), "agent_1.log")),
    ("MSJob", pod("d-worker-2", {}), 1, ("worker2", [2], "worker_2.log")),
    ("MSJob", pod("d-scheduler-0", {}, role="scheduler"), 1, ("scheduler", [], "scheduler.log")),
    ("MSJob", pod("d-ps-1", {}, role="server"), 1, ("server1", [], "server_1.log")),
    ("MPIJob", pod("d-launcher-x7k2p", {}, role="launcher"), 2, ("mpirun", list(range(8)), "launcher.log")),
    ("MPIJob", pod("d-worker-1", {}), 2, ("sshd1", [], "sshd_1.log")),
]


@pytest.mark.parametrize(("kind", "one", "processes", "expected"), PLACES)
def test_pods_have_ranks_and_logs(kind, one, processes, expected):
    assert state.place(one, kind, processes, 4) == expected


def test_a_restarted_container_counts_with_its_last_exit():
    pods = [pod("d-worker-0", courses.again(courses.runs(), 2)), pod("d-worker-1", courses.runs())]
    found = state.read(settings("MSJob"), {"status": courses.active()}, pods, (), NOW)
    before, last = found["restarts"]
    assert (before["elapsed_s"], before["failure"]) == (None, None)
    assert "the cluster no longer has its exit" in before["reason"]
    assert (last["elapsed_s"], last["restarted"]) == (40.0, "rank 0")
    assert last["reason"] == "rank 0 on d-worker-0: killed by SIGKILL, out of memory"
    assert (last["failure"]["signal"], last["failure"]["result"]) == (9, "oom-kill")
    assert restart_text(last) == f"0:00:40   {last['reason']}, so rank 0 starts again"
    assert found["ranks_running"] == 2


def test_a_replaced_pod_is_a_restart():
    old = pod("d-launcher-aaaaa", courses.ended(7), role="launcher", made="2026-11-21T20:00:00Z")
    new = pod("d-launcher-bbbbb", courses.runs("mpi"), role="launcher", made="2026-11-21T20:02:00Z")
    found = state.read(settings("MPIJob", 2, 2), {"status": courses.active()}, [new, old], (), NOW)
    [restart] = found["restarts"]
    assert (restart["restarted"], restart["failure"]["exit_code"]) == ("the whole job", 7)
    evicted = state.read(settings(), {"status": courses.active()}, [
        pod("d-0-aaaaa", courses.evicted(), index=0, made="2026-11-21T20:00:00Z"),
        pod("d-0-bbbbb", courses.runs(), index=0),
    ], (), NOW)  # fmt: skip
    [restart] = evicted["restarts"]
    assert restart["reason"] == "rank 0 on d-0-aaaaa: The node was low on resource: memory."


def test_pods_of_two_roles_are_not_restarts():
    pods = [pod("d-scheduler-0", courses.runs(), role="scheduler"), pod("d-worker-0", courses.runs())]
    found = state.read(settings("MSJob"), {"status": courses.active()}, pods, (), NOW)
    assert (found["restarts"], found["ranks_running"]) == ([], 1)


def test_a_container_that_waits_for_its_restart_is_not_running():
    between = courses.again(courses.waits("CrashLoopBackOff", "back-off 10s restarting failed container"))
    between["phase"] = "Running"
    found = state.read(settings("MSJob"), {"status": courses.active()}, [pod("d-worker-0", between)], (), NOW)
    assert (found["state"], found["ranks_running"]) == ("running", 0)
    assert "CrashLoopBackOff: back-off 10s" in found["reason"]


def test_the_launcher_of_an_mpijob_counts_for_all_ranks():
    pods = [pod("d-launcher-x7k2p", courses.runs("mpi"), role="launcher"), pod("d-worker-0", courses.runs("mpi"))]
    found = state.read(settings("MPIJob", 2, 2), {"status": courses.active()}, pods, (), NOW)
    assert (found["state"], found["ranks_running"]) == ("running", 4)


@pytest.mark.parametrize(
    ("status", "body", "action"),
    [
        (401, b'{"kind":"Status","message":"Unauthorized","code":401}', "log in again"),
        (403, '{"kind":"Status","message":"pods is forbidden: User \\"x\\""}', "ask the administrator"),
        (422, '{"kind":"Status","message":"spec.x: Invalid value"}', "correct the variable"),
        (500, "<html>oops</html>", "check the cluster's own events"),
    ],
)
def test_errors_of_the_api_are_findings_with_its_message(status, body, action):
    finding = kubernetes_findings.api_error(status, body, "creating the job")
    assert action in finding.action
    assert kubernetes_findings.message_of(body) in finding.found and f"HTTP {status}" in finding.found
