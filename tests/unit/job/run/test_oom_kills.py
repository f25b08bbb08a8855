"""The counters of the kernel's OOM killer: which are read, and what a failure says of them."""

import signal

import pytest
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run import failures as ends
from ansible.module_utils.trainyard_node.job.run import node_runner, oom_kills
from ansible.module_utils.trainyard_node.job.run.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.tree import Tree

SLICE = "trainyard-digits_1.slice"
UNIFIED = f"0::/trainyard.slice/{SLICE}/trainyard-digits-1-monitor.service\n"


def machine(folder, group="", events=None, vmstat="nr_free_pages 17\noom_kill 4\n"):
    files = {"proc/self/cgroup": group, "proc/vmstat": vmstat}
    if events is not None:
        files[f"sys/fs/cgroup/trainyard.slice/{SLICE}/memory.events"] = f"low 0\noom 9\noom_kill {events}\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Tree(str(folder))


@pytest.mark.parametrize(
    ("given", "slice_name", "found"),
    [
        ({"group": UNIFIED, "events": 2}, SLICE, {"machine": 4, "job": 2}),
        # No controller of memory there, the old hierarchy, no slice, an old kernel.
        ({"group": UNIFIED}, SLICE, {"machine": 4}),
        ({"group": f"4:memory:/trainyard.slice/{SLICE}\n0::/\n", "events": 2}, SLICE, {"machine": 4}),
        ({"group": "0::/user.slice\n", "events": 2}, "", {"machine": 4}),
        ({"group": UNIFIED, "vmstat": "nr_free_pages 17\n"}, SLICE, {}),
    ],
)
def test_the_counters_that_a_kernel_has(tmp_path, given, slice_name, found):
    assert oom_kills.read(machine(tmp_path, **given), slice_name) == found


def test_the_count_of_the_job_counts_where_there_is_one():
    assert oom_kills.since({"machine": 4, "job": 0}, {"machine": 6, "job": 1}) == {"oom_kills": 1, "oom_of_job": True}
    assert oom_kills.since({"machine": 4}, {"machine": 6, "job": 1}) == {"oom_kills": 2, "oom_of_job": False}
    assert oom_kills.since({}, {"machine": 6}) == {}


def test_a_failure_counts_from_the_start_of_its_attempt(cluster, tmp_path, monkeypatch):
    (node,) = cluster(["wait"]).nodes
    here = machine(tmp_path / "machine")
    monkeypatch.setattr(ends, "Tree", lambda: here)
    part = node_runner.NodeRunner(node.dir)
    (process,) = node.spec["processes"]
    machine(tmp_path / "machine", vmstat="oom_kill 5\n")
    failed = part.failure(process, from_status(-signal.SIGKILL))
    assert (failed["oom_kills"], failed["oom_of_job"]) == (1, False)
    # This node knows nothing about ranks that mpirun started on other nodes.
    node.spec["ranks_of"] = {"n2": [0]}
    part.node_plan.update(node.spec)
    assert "oom_kills" not in part.failure(process, from_status(-signal.SIGKILL))


KILLED = {"exit_code": None, "signal": signal.SIGKILL}
FAILED = {"exit_code": 1, "signal": None}


@pytest.mark.parametrize(
    ("ended", "kills", "of_job", "text"),
    [
        (KILLED, 2, True, "the kernel's OOM killer ended 2 processes of this job on n2"),
        (KILLED, 0, False, "SIGKILL comes from outside: a person or a program sent it,"),
        # A child of the rank was ended, for example a data loader.
        (FAILED, 1, False, "the kernel's OOM killer ended 1 process on n2 while the job ran: more memory,"),
        (FAILED, 0, False, None),
    ],
)
def test_the_cause_in_the_report(ended, kills, of_job, text):
    failure = {"kind": "exit", "host": "n2", "process": "rank1", "rank": 1, "ranks": [1], "result": "signal", **ended}
    failure.update(oom_kills=kills, oom_of_job=of_job)
    lines = job_text.cause({"failure": failure, "nodes": [{"host": "n2", "ranks": [1]}]}, "")[1:]
    assert lines == [] if text is None else lines[0].startswith(text)
