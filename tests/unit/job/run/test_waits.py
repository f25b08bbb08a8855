"""How often real ranks are found asleep, and what monitors tell each other of it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from ansible.module_utils.trainyard.job.run import messages, slow_ranks
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.run import monitor as monitors
from ansible.module_utils.trainyard_node.job.run import slow_ranks as waits
from job_cluster import Cluster, wait_for
from test_stacks_live import hanging

# What a process does, and whether it then sleeps for another thread.
DOES = {
    "threading.Lock().acquire() and lock.acquire()": True,
    "time.sleep(3600)": False,
    "os.read(os.pipe()[0], 1)": False,
    "spin()": False,
    "threading.Thread(target=spin).start() or lock.acquire()": False,
    "threading.Thread(target=lock.acquire).start() or lock.acquire()": True,
}
PROGRAM = """
import os, sys, threading, time

def spin():
    while True:
        sum(range(1000))

lock = threading.Lock()
lock.acquire()
print("up", flush=True)
eval(sys.argv[1])
"""


@pytest.mark.parametrize(("what", "sleeps"), DOES.items())
def test_asleep_for_another_thread_is_told_from_what_else_a_process_does(what, sleeps):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, what], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            # Until it is there, it computes, and who computes may sleep for a moment.
            wait_for(lambda: waits.asleep(process.pid) is sleeps, f"{what} to be asleep: {sleeps}")
            assert [waits.asleep(process.pid) for _ in range(3)] == [sleeps] * 3
        finally:
            process.kill()
    assert waits.asleep(process.pid) is None


def told_of(looker):
    """What a looker tells once it has seen both ranks, with stacks."""
    found = {}

    def both():
        for each in (looker.told() or {"ranks": ()})["ranks"]:
            found[each["rank"]] = each
        return len(found) == 2 and all(each["looks"] and each["dumps"] for each in found.values())

    wait_for(both, "looks at both ranks")
    return found


def test_light_looks_and_stacks_of_real_ranks_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(waits, "LOOK_S", 0.05)
    monkeypatch.setattr(waits, "DUMP_S", 0.05)
    monkeypatch.setattr(waits, "CLOSE_PERIOD_S", 0.3)
    with hanging(tmp_path, ["lock", "spin"]) as job:
        node = job.start().nodes[0]
        looker = waits.Looker(node.dir, {**node.spec, "slow_ranks": True})
        looker.closer = True
        found = told_of(looker)
        messages.check_from_node({"waits": {"ranks": list(found.values()), "node": []}}, "n1", 2, 0)
        # flock(2) waits for no thread, and neither is in a collective.
        assert [(each["asleep"], each["waited"]) for each in found.values()] == [(0, 0)] * 2
        assert found[1]["at"].startswith("is in spin (rank.py")
        assert found[0]["at"].startswith("is in lock (rank.py")


def test_without_the_variable_nobody_looks(tmp_path):
    with Cluster(tmp_path, ["wait"]) as job:
        looker = waits.Looker(job.head.dir, job.head.spec)
        assert looker.told() is None and looker._thread is None


@pytest.fixture
def head(tmp_path):
    """The monitor of the head of a job of two nodes that runs, as far as it decides."""
    with Cluster(tmp_path, ["wait"], ["wait"], silent_after_s=10_000, n1={"slow_ranks": True}) as job:
        made = monitors.Monitor(job.head.dir)
        made.look()
        made.seen["n2"] = time.monotonic()
        made.reports["n2"] = {"host": "n2", "attempts": {"": 0}, "ranks_running": 1, "done": False}
        yield made


def counted(rank, **counts):
    return {"rank": rank, "device": "", "at": "", "looks": 0, "asleep": 0, "dumps": 0, "waited": 0, **counts}


class Line:
    """The connection of a node, as far as the head uses it."""

    host = "n2"

    def __init__(self):
        self.told = []

    def tell(self, message):
        self.told.append(message)


def test_the_head_orders_a_closer_look_and_names_who_is_slow(head):
    line, now = Line(), time.monotonic()
    head.report = {**head.report, "done": False, "ranks_running": 1}
    judged = 0
    while not head.slow_ranks.current and judged < 25:
        judged += 1
        now += slow_ranks.PERIOD_S
        closer = {"dumps": 8, "waited": 6} if head.slow_ranks.closer else {}
        head.slow_ranks.hear("n1", [counted(0, looks=20, asleep=12, **closer)])
        slow = counted(1, looks=20, asleep=1, at="is in load (train.py:8)", **{**closer, "waited": 0})
        head.hear_node(line, {"waits": {"ranks": [slow], "node": ["load 9.1 (processors: 2)"]}})
        head.seen = dict.fromkeys(("n1", "n2"), now)
        head.judge(now)
        orders = head._orders("n2")
        messages.check_from_head(orders, ["rank1"], 0)
        assert orders.get("closer", False) == head.slow_ranks.closer == head.looker.closer
    state = head.save_cluster()
    (named,) = state["slow_ranks"]
    assert (named["host"], named["ranks"], named["shares"]) == ("n2", [1], [[0, 75], [1, 0]])
    assert named["node"] == ["load 9.1 (processors: 2)"]
    # What a watcher's line of progress and status.yml show.
    line_of = agent.state(job_id=head.spec["job_id"], job_dir=str(head.job_dir))["line"]
    assert line_of.endswith("   slow: rank 1 on n2")
    # Who counts is answered by the next report.
    assert line.told == []
    head.slow_ranks.begin(now, 500.0)
    assert head.save_cluster()["slow_ranks"][0]["until_s"] == 500.0


def test_what_a_node_counts_that_has_no_place_is_not_heard(head):
    line = Line()
    line.host = "n9"
    head.hear_node(line, {"waits": {"ranks": [counted(1, looks=20)], "node": []}})
    assert head.slow_ranks._sums.of == {}
