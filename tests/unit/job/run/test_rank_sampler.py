"""How often real ranks are found asleep, and what monitors tell each other of it."""

import subprocess
import sys

import pytest
from ansible.module_utils.trainyard.job.run.wire import messages
from ansible.module_utils.trainyard_node.job.run.evidence import rank_sampler
from job_cluster import wait_for
from test_stack_samples import begun, hanging

# Activities of a process, and whether it then sleeps for another thread.
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
def test_a_process_that_waits_for_another_thread_is_asleep(what, sleeps):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, what], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            # Until it is there, it computes, and who computes may sleep for a moment.
            looks = [sleeps] * 3
            wait_for(lambda: [rank_sampler.asleep(process.pid) for _ in looks] == looks, f"{what}: {sleeps}")
        finally:
            process.kill()
    assert rank_sampler.asleep(process.pid) is None


def report_of(sampler):
    """Return the counts of a sampler once it has seen both ranks, with stacks."""
    found = {}

    def both():
        for each in (sampler.report() or {"ranks": ()})["ranks"]:
            found[each["rank"]] = each
        return len(found) == 2 and all(each["looks"] and each["dumps"] for each in found.values())

    wait_for(both, "looks at both ranks")
    return found


def test_samples_and_stacks_of_real_ranks_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_sampler, "SAMPLE_S", 0.05)
    monkeypatch.setattr(rank_sampler, "DUMP_S", 0.05)
    monkeypatch.setattr(rank_sampler, "STACKS_PERIOD_S", 0.3)
    with hanging(tmp_path, ["lock", "spin"]) as job:
        node = begun(job).nodes[0]
        sampler = rank_sampler.Sampler(node.dir, {**node.spec, "slow_ranks": True})
        sampler.sample_stacks = True
        found = report_of(sampler)
        messages.check_from_node({"samples": {"ranks": list(found.values()), "node": []}}, "n1", 2, 0)
        # flock(2) waits for no thread, and neither is in a collective.
        assert [(each["asleep"], each["waited"]) for each in found.values()] == [(0, 0)] * 2
        assert found[1]["at"].startswith("is in spin (rank.py")
        assert found[0]["at"].startswith("is in lock (rank.py")
