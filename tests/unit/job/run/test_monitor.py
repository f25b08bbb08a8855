"""Real monitors with real processes: if one rank fails, the job stops on every node."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest import mock

import pytest
from ansible.module_utils.trainyard.job.run.decide import attempt_watch
from ansible.module_utils.trainyard_node.job.run.evidence import log_tail as tails
from ansible.module_utils.trainyard_node.job.run.monitor import life, node_loop
from ansible.module_utils.trainyard_node.job.run.monitor import monitor as monitors
from ansible.module_utils.trainyard_node.job.run.monitor.node_runner import NodeRunner
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.supervisor import Supervisor
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import PATIENCE_S, attempt, wait_for


def test_a_job_on_three_nodes_succeeds(cluster):
    job = cluster(["train", "train"], ["train", "train"], ["train", "train"]).start()
    assert job.state()["state"] == "running"
    for node in job.nodes:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert [node.end()["state"] for node in job.nodes] == ["succeeded"] * 3
    exits = [{f"rank{rank}": (0, None) for rank in (first, first + 1)} for first in (0, 2, 4)]
    assert [node.exits() for node in job.nodes] == exits
    state = job.state()
    assert (state["state"], state["ranks_running"], state["world_size"]) == ("succeeded", 0, 6)
    # Also the last line, written just before the end, counts.
    assert state["metrics"] == {"step": 5, "steps": 5, "epoch": 1, "loss": 0.2, "rate": 100.5}
    series = [json.loads(line) for line in (job.head.dir / "metrics.jsonl").read_text().splitlines()]
    assert [point["loss"] for point in series] == [1.0, 0.5, 0.3333, 0.25, 0.2]
    assert all(point["elapsed_s"] >= 0 for point in series)
    assert state["progress_rank"] == 0
    # A monitor that is started after the end changes nothing.
    before = {name: (job.head.dir / name).read_text() for name in ("monitor.json", "cluster.json", "node_plan.json")}
    job.head.start()
    assert job.head.monitor.wait() == 0
    assert {name: (job.head.dir / name).read_text() for name in before} == before


def test_the_first_rank_that_fails_ends_all_others(cluster):
    job = cluster(["wait", "wait"], ["wait", "exit7"], ["wait", "stubborn"]).start()
    job.nodes[1].go()
    end = job.over()
    assert end["state"] == "failed"
    failure = end["failure"]
    assert (failure["kind"], failure["host"], failure["rank"], failure["process"]) == ("exit", "n2", 3, "rank3")
    assert (failure["exit_code"], failure["signal"], failure["result"]) == (7, None, "exit-code")
    job.all_ended()
    # Every node knows why it ended.
    assert [node.end()["failure"]["rank"] for node in job.nodes] == [3, 3, 3]
    # One that ignores SIGTERM is killed.
    assert job.nodes[2].exits() == {"rank4": (None, 15), "rank5": (None, 9)}


def test_a_report_of_many_ranks_reaches_the_head(cluster):
    job = cluster(["wait"], ["exit1"])
    # 140 KB of ranks in one message: as many failed processes on a great node.
    job.nodes[1].spec["processes"][0]["ranks"] = list(range(1, 24001))
    for node in job.nodes:
        node.spec["world_size"] = 24001
        write_json(node.dir / "node_plan.json", node.spec)
    job.start()
    job.nodes[1].go()
    end = job.over()
    assert (end["failure"]["kind"], end["failure"]["host"]) == ("exit", "n2")
    job.all_ended()
    assert job.nodes[1].end()["failure"] == end["failure"]


def test_a_child_that_is_slow_to_become_a_zombie_is_reaped(tmp_path, monkeypatch):
    """A process gives its memory back first, and with it the job id by which it is found; then its end is told."""
    (tmp_path / "exits").mkdir()
    children = Supervisor(tmp_path, {"job_id": "j", "processes": []})
    child = subprocess.Popen(["sleep", "60"])
    children._running["rank0"] = child
    monkeypatch.setattr(process_table, "end", lambda job_id: child.terminate())
    children.end()
    assert json.loads((tmp_path / "exits/rank0.json").read_text())["signal"] == signal.SIGTERM


def test_a_process_gets_the_planned_environment_and_nothing_else(cluster):
    job = cluster(["wait"])
    process = job.head.spec["processes"][0]
    process["argv"] = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    process["env"].update(A="planned", HOME="/elsewhere")
    job.head.spec["secret_env"] = {"API_KEY": "secret"}
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    job.head.start()
    job.over()
    env = json.loads((job.head.dir / "logs" / "rank_0.log").read_text())
    env.pop("LC_CTYPE", None)  # set by Python itself where there is no locale
    own = {"TRAINYARD_NODE_DIR": str(job.head.dir), "API_KEY": "secret"}
    assert env == {**process["env"], "A": "planned", "HOME": "/elsewhere", **own}


def in_this_process(job, meanwhile=None):
    """Run the monitors of a job here, and what happens meanwhile in a thread; return how each node ended."""

    async def run():
        nodes = [monitors.Monitor(node.dir) for node in job.nodes]
        doings = [asyncio.to_thread(meanwhile, nodes)] if meanwhile else []
        # In one process, each would reap the other's ranks as orphans that it has adopted.
        with mock.patch.object(process_table, "reap_adopted"):
            await asyncio.wait_for(asyncio.gather(*(node.run() for node in nodes), *doings), PATIENCE_S)
        return [node.runner.end for node in nodes]

    return asyncio.run(run())


def test_the_monitor_finds_an_exit_that_the_kernel_does_not_report(cluster, monkeypatch):
    job = cluster(["exit7"])
    job.head.go()
    monkeypatch.setattr(process_table, "open_end", lambda pid, started: None)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])
    assert in_this_process(job)[0]["failure"]["exit_code"] == 7


def test_the_exit_of_a_rank_wakes_all_monitors(cluster, monkeypatch):
    job = cluster(["wait"], ["wait"], silent_after_s=2 * PATIENCE_S, max_restarts=1)
    monkeypatch.setattr(life, "TICK_S", 2 * PATIENCE_S)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])

    def kill(nodes):
        for number in (0, 1):
            runs = [(node, f"rank{rank}", number) for rank, node in enumerate(job.nodes)]
            wait_for(lambda runs=runs: all(attempt(*run[:2]) == run[2] for run in runs), f"attempt {number}")
            wait_for(lambda: len(nodes[0].loop.state.nodes.last) == 2, "both nodes")
            wait_for(lambda: all(node.runner.followed for node in nodes), "both runners")
            os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)

    ends = in_this_process(job, kill)
    # All of it without a look at the clock: the failure, the restart on both nodes, the second failure.
    assert [end["failure"]["rank"] for end in ends] == [1, 1]


def test_a_node_with_another_token_is_absent(cluster, monkeypatch):
    job = cluster(["wait"], ["wait"], n2={"token": "another token"})
    for module in (attempt_watch, node_loop):
        monkeypatch.setattr(module, "JOIN_S", 2.0)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])
    head, node = in_this_process(job)
    assert (head["failure"]["kind"], head["failure"]["host"]) == ("absent", "n2")
    # That somebody answers is not yet the head.
    assert node["failure"]["kind"] == "head_silent"
    assert job.state()["nodes"]["n2"] == {"ranks_running": None, "silent_s": None}


# ---- the log of rank 0


@pytest.fixture
def tail(tmp_path):
    (tmp_path / "logs").mkdir()
    follower = tails.Tail(tmp_path, "rank_0.log", r"step (?P<step>\d+)")

    def write(text):
        with (tmp_path / "logs" / "rank_0.log").open("ab") as log:
            log.write(text)
        follower.read(1.0)
        return follower.last

    follower.read(0.0)
    return write


def test_only_complete_lines_of_bounded_length_count(tail):
    assert tail(b"step 1") == {}
    assert tail(b"2\nst") == {"step": 12}
    assert tail(b"ep 13\nstep 14\n\xff\xfe\n") == {"step": 14}
    assert tail(b"x" * 5000 + b" step 7") == {"step": 14}
    assert tail(b"\n") == {"step": 14}
    assert tail(b"step 8\n") == {"step": 8}


@pytest.fixture
def node_logs(tmp_path):
    """Return a function that appends to the logs of ranks, reads them, and gives the rank whose progress counts."""
    (tmp_path / "logs").mkdir()
    plan = {"world_size": 8, "rank_log": "rank_{rank}.log", "progress_pattern": r"step (?P<step>\d+)"}
    followers = tails.RankTails(tmp_path, plan, ())

    def write(**texts):
        for name, text in texts.items():
            with (tmp_path / "logs" / f"{name}.log").open("a") as log:
                log.write(text)
        followers.read(1.0)
        return followers.rank, followers.shown.last

    return write


@pytest.mark.parametrize("age_s", [0, 3600])
def test_a_log_that_appears_is_found_whenever_its_folder_changed_before(node_logs, tmp_path, age_s):
    node_logs(rank_0="loading\n")
    changed = time.time() - age_s
    os.utime(tmp_path / "logs", (changed, changed))
    assert node_logs() == (None, {})
    (tmp_path / "logs/rank_5.log").write_text("step 1\nstep 2\n")
    if not age_s:
        # So soon that the time of the folder is the same.
        os.utime(tmp_path / "logs", (changed, changed))
    assert node_logs() == (5, {"step": 2})


def test_a_thread_of_the_kernel_is_no_process_of_a_job(tmp_path):
    for pid, flags in ((2, 0x208040), (9, 0x400000)):
        (tmp_path / f"{pid}").mkdir()
        numbers = ["S", "1", "1", "1", "0", "-1", str(flags), *["0"] * 12, "77"]
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a (b) c) {' '.join(numbers)} 0")
        (tmp_path / f"{pid}/environ").write_text("TRAINYARD_JOB_ID=x\0")
    assert process_table.of_job("x", proc=tmp_path) == [9]


@pytest.mark.parametrize(
    ("changed", "quiet"),
    [
        ({}, True),
        # The kernel does not report ends, or there is no process here (mpirun).
        ({"followed": set()}, False),
        ({"node_plan": {"processes": []}, "followed": set()}, False),
        ({"follows": ""}, False),
        ({"end": {"state": "stopped"}}, False),
        ({"next": SimpleNamespace(requested={"": 1}, attempts={"": 0})}, False),
    ],
)
def test_a_monitor_looks_less_often_only_where_it_is_told_of_all_ends(changed, quiet):
    usual = {
        "node_plan": {"processes": [{"name": "rank_0"}]}, "followed": {"rank_0"}, "follows": "n1", "end": {},
        "next": SimpleNamespace(requested={"": 0}, attempts={"": 0}),
    }  # fmt: skip
    assert NodeRunner.quiet.fget(SimpleNamespace(**{**usual, **changed})) is quiet


def steps_of(tmp_path):
    return [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def test_the_progress_of_whichever_rank_prints_it_counts(node_logs, tmp_path):
    assert node_logs(rank_0="loading\n", rank_7="loading\n", rank_9="step 1\n", rank_7_train="step 1\n") == (None, {})
    assert node_logs(rank_7="step 1\n") == (7, {"step": 1})
    # A line now and then is not the progress.
    assert node_logs(rank_0="step 1 was saved\n", rank_7="step 2\nstep 3\n") == (7, {"step": 3})
    assert steps_of(tmp_path) == [1, 2, 3]


def test_rank_0_counts_where_all_ranks_print(node_logs, tmp_path):
    assert node_logs(rank_5="step 1\nstep 2\n") == (5, {"step": 2})
    assert node_logs(rank_0="step 1\nstep 2\n", rank_5="step 3\n") == (0, {"step": 2})
    assert node_logs(rank_0="step 3\n") == (0, {"step": 3})
    assert steps_of(tmp_path) == [1, 2, 3]


def test_much_text_of_other_ranks_costs_little(node_logs, monkeypatch):
    read = []
    monkeypatch.setattr(tails.Tail, "_parse", lambda self, lines: read.append(len(lines)) or [])
    node_logs(rank_3="x\n" * (1 << 20))
    assert sum(read) <= tails.GLANCE // 2


def test_the_series_stays_small(tail, tmp_path):
    for start in range(0, 6000, 500):
        tail(b"".join(b"step %d\n" % step for step in range(start, start + 500)))
    series = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(series) == tails.MAX_METRICS + 2
    assert json.loads(series[-1])["step"] == 5999
