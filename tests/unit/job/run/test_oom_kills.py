"""The counters of the kernel's OOM killer: which are read, and what a failure says of them."""

import json
import signal

import pytest
from ansible.module_utils.trainyard.report import job_text
from ansible.module_utils.trainyard_node.job.run.evidence import rank_failures
from ansible.module_utils.trainyard_node.job.run.monitor import node_runner
from ansible.module_utils.trainyard_node.job.run.ranks import execute, oom_kills
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.tree import Tree
from test_causes import under_mpirun

UNIT = "trainyard-digits-1.service"
UNIFIED = f"0::/trainyard.slice/{UNIT}\n"


def machine(folder, group="", events=None, vmstat="nr_free_pages 17\noom_kill 4\n", container=None):
    files = {"proc/self/cgroup": group, "proc/vmstat": vmstat}
    if container is not None:
        files["sys/fs/cgroup/memory.events"] = f"oom_kill {container}\n"
    if events is not None:
        files[f"sys/fs/cgroup/trainyard.slice/{UNIT}/memory.events"] = f"low 0\noom 9\noom_kill {events}\n"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Tree(str(folder))


@pytest.mark.parametrize(
    ("given", "unit", "found"),
    [
        ({"group": UNIFIED, "events": 2}, UNIT, {"machine": 2, "job": 2}),
        # No controller of memory there, the old hierarchy, no unit, an old kernel.
        ({"group": UNIFIED}, UNIT, {"machine": 4}),
        ({"group": f"4:memory:/trainyard.slice/{UNIT}\n0::/\n", "events": 2}, UNIT, {"machine": 4}),
        ({"group": "0::/user.slice\n", "events": 2}, "", {"machine": 4}),
        ({"group": UNIFIED, "vmstat": "nr_free_pages 17\n"}, UNIT, {}),
        # In a container that counts, the machine's counter has the kills of all other containers, too.
        ({"group": UNIFIED, "events": 2, "container": 3}, UNIT, {"machine": 2, "job": 2}),
        ({"group": UNIFIED, "container": 3}, UNIT, {"machine": 3}),
        ({"group": "0::/\n", "container": 3}, "", {"machine": 3}),
    ],
)
def test_the_counters_that_a_kernel_has(tmp_path, given, unit, found):
    assert oom_kills.read(machine(tmp_path, **given), unit) == found


def test_the_count_of_the_job_counts_where_there_is_one():
    assert oom_kills.since({"machine": 4, "job": 0}, {"machine": 6, "job": 1}) == {"oom_kills": 1, "oom_of_job": True}
    assert oom_kills.since({"machine": 4}, {"machine": 6, "job": 1}) == {"oom_kills": 2, "oom_of_job": False}
    assert oom_kills.since({}, {"machine": 6}) == {}


def test_a_failure_counts_from_the_start_of_its_attempt(cluster, tmp_path, monkeypatch):
    (node,) = cluster(["wait"]).nodes
    here = machine(tmp_path / "machine")
    monkeypatch.setattr(rank_failures, "Tree", lambda: here)
    part = node_runner.NodeRunner(node.dir)
    (process,) = node.spec["processes"]
    machine(tmp_path / "machine", vmstat="oom_kill 5\n")
    failed = part.failure(process, from_status(-signal.SIGKILL))
    assert (failed["oom_kills"], failed["oom_of_job"]) == (1, False)
    # This node's counters say nothing about ranks that mpirun started on other nodes.
    node.spec["ranks_of"] = {"n2": [0]}
    part.node_plan.update(node.spec)
    assert "oom_kills" not in part.failure(process, from_status(-signal.SIGKILL))


def test_the_counters_of_another_node_under_mpirun_come_with_the_log(cluster):
    program = "touch up-1; until [ -e go ]; do sleep 0.1; done; echo trainyard: rank 1 ended with status 137; "
    program += "echo trainyard: rank 1 oom kills: 1; exit 1"
    job = under_mpirun(cluster, program, 2, ranks_of={"n2": [1]})
    job.head.go()
    cause = job.over()["failure"]
    assert (cause["host"], cause["rank"], cause["oom_kills"], cause["oom_of_job"]) == ("n2", 1, 1, True)


@pytest.mark.parametrize(
    ("status", "kills", "container", "printed"),
    [
        ("137", 1, None, ["oom kills: 1"]),
        ("137", 0, None, ["oom kills: 0"]),
        # The group of a container may lie elsewhere.
        ("137", 0, {"program": "podman"}, []),
        ("137", None, None, []),
        ("1", 1, None, ["error: ValueError: no picture", "oom kills: 1"]),
    ],
)
def test_a_rank_under_mpirun_prints_its_counters(tmp_path, monkeypatch, capsys, status, kills, container, printed):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/rank_3.log").write_text("ValueError: no picture\n")
    (tmp_path / "node_plan.json").write_text(json.dumps({"container": container}))
    # Two were ended before this attempt.
    (tmp_path / "oom_kills.json").write_text('{"job": 2, "machine": 7}')
    monkeypatch.setattr(oom_kills, "read", lambda *_: {"machine": 9} if kills is None else {"job": 2 + kills})
    execute.print_end(str(tmp_path), "3", status)
    assert capsys.readouterr().out == "".join(f"trainyard: rank 3 {line}\n" for line in printed)


KILLED = {"exit_code": None, "signal": signal.SIGKILL}
FAILED = {"exit_code": 1, "signal": None}


@pytest.mark.parametrize(
    ("ended", "kills", "of_job", "text"),
    [
        (KILLED, 2, True, "the kernel's OOM killer ended 2 processes of this job on n2"),
        (KILLED, 0, False, "SIGKILL comes from outside: a person or a program sent it,"),
        # A child of the rank was ended, for example a data loader.
        (FAILED, 1, True, "the kernel's OOM killer ended 1 process of this job on n2 while the job ran: more memory,"),
        # It may have been a process of another container.
        (FAILED, 1, False, None),
        (
            KILLED,
            1,
            False,
            "SIGKILL comes from outside: mostly the kernel's OOM killer, for want of memory (journalctl",
        ),
        (FAILED, 0, False, None),
    ],
)
def test_the_cause_in_the_report(ended, kills, of_job, text):
    failure = {"kind": "exit", "host": "n2", "process": "rank1", "rank": 1, "ranks": [1], "result": "signal", **ended}
    failure.update(oom_kills=kills, oom_of_job=of_job)
    lines = job_text.cause({"failure": failure, "nodes": [{"host": "n2", "ranks": [1]}]}, "")[1:]
    assert lines == [] if text is None else lines[0].startswith(text)
