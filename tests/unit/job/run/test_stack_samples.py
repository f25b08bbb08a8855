"""Where real ranks are, read by py-spy and from /proc: each hangs in a way of its own, and nothing disturbs them."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.run.logs import stacks as rules
from ansible.module_utils.trainyard_node.job.run.evidence import stack_samples
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from job_cluster import Cluster, wait_for

# A rank that trains with others: its barrier is a pipe into which nobody writes as long as one of them does not come.
HANGS = """
import fcntl, os, pathlib, sys, time

def barrier():
    os.read(os.open("never", os.O_RDWR), 1)

def sleep(seconds):
    time.sleep(seconds)

def lock():
    for _ in range(2):
        fcntl.flock(os.open("rank.py", os.O_RDWR), fcntl.LOCK_EX)

def load_batch():
    open("batches").read()

def spin():
    while True:
        sum(range(1000))

def step(how):
    ways = {"barrier": barrier, "sleep": lambda: sleep(3600), "lock": lock, "fifo": load_batch, "spin": spin}
    ways[how]()

pathlib.Path(f"up-{os.getpid()}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print("step 1/9 loss 0.5", flush=True)
step(sys.argv[1])
"""


# Functions in which its ranks stay.
WAYS = ("barrier", "sleep", "lock", "load_batch", "spin")


def hanging(folder, *modes, **settings):
    """A job of which each node has these ranks."""
    job = Cluster(folder, *modes, **settings)
    for node in job.nodes:
        source = node.dir / "source"
        (source / "rank.py").write_text(HANGS)
        for pipe in ("never", "batches"):
            os.mkfifo(source / pipe)
    return job


def begun(job):
    """Start such a job, and let its ranks make their step once all of them run: the limits count from the first one."""
    job.start()
    for node in job.nodes:
        node.go()
    return job


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Give py-spy more time than on nodes, as it may share this machine with other tests."""
    monkeypatch.setattr(stack_samples, "DUMP_S", 20.0)
    monkeypatch.setattr(stack_samples, "LIMIT_S", 300.0)


def taken(node):
    """Return the records of a node's ranks, taken without its monitor."""
    return stack_samples.take(node.dir, node.spec, apart_s=0.05)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job of four ranks, which no test disturbs."""
    with hanging(tmp_path_factory.mktemp("job"), ["barrier", "barrier"], ["barrier", "fifo"]) as job:
        yield begun(job)


def test_a_rank_that_is_elsewhere_is_named_with_its_line_and_all_of_them_go_on(job):
    found = {}

    def all_wait():
        found.update({node.spec["host"]: taken(node)[0] for node in job.nodes})
        return all(record["frames"] and record["frames"][0][0] in WAYS for each in found.values() for record in each)

    wait_for(all_wait, "each rank to be where it waits")
    most, odd = rules.groups(found)
    assert most.text().startswith("3 ranks (0 to 2) are in barrier (rank.py:")
    line = next(number for number, text in enumerate(HANGS.splitlines(), 1) if 'open("batches")' in text)
    assert odd.text() == f"rank 3 on n2 is in load_batch (rank.py:{line})"
    assert all(record["problem"] == "" for records in found.values() for record in records)
    assert job.state()["ranks_running"] == 4
    for node in job.nodes:
        assert not node.exits()


def test_a_launcher_with_one_rank_and_its_scheduler_are_no_ranks(tmp_path):
    argv, job = [sys.executable, "-c", "import sys; sys.stdin.read()"], {"TRAINYARD_JOB_ID": "under-msrun"}
    with contextlib.ExitStack() as started:
        launcher, _, worker = (
            started.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, env={**job, **env}))
            for env in ({}, *({"RANK_ID": "0", "MS_ROLE": role} for role in ("MS_SCHED", "MS_WORKER")))
        )
        pid = {"pid": launcher.pid, "start_time": process_table.start_time(launcher.pid)}
        (tmp_path / "pids.json").write_text(json.dumps({"agent": pid}))
        node_plan = {"job_id": "under-msrun", "processes": [{"name": "agent", "ranks": [0]}]}
        found = stack_samples.of_job(tmp_path, node_plan)
        assert [(rank.rank, rank.pid) for rank in found] == [(0, worker.pid)]


@pytest.mark.parametrize(
    ("env", "device"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,6", "LOCAL_RANK": "1"}, "6"),
        ({"CUDA_VISIBLE_DEVICES": "4,6", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "4"),
        # MindSpore's workers know their place among the visible ones by this name alone; msrun sets it without devices.
        ({"ASCEND_RT_VISIBLE_DEVICES": "4,6", "DEVICE_ID": "1"}, "6"),
        ({"RANK_TABLE_FILE": "rank_table.json", "DEVICE_ID": "6", "LOCAL_RANK": "1"}, "6"),
        ({"CUDA_VISIBLE_DEVICES": "4", "LOCAL_RANK": "1"}, "4"),
        ({"CUDA_VISIBLE_DEVICES": "4,6", "LOCAL_RANK": "2"}, ""),
        *((env, "") for env in ({"CUDA_VISIBLE_DEVICES": "4,6"}, {"DEVICE_ID": "0"}, {"LOCAL_RANK": "0"})),
    ],
)
def test_the_device_is_the_one_that_the_rank_sees(env, device):
    assert stack_samples.device(env) == device


def test_without_py_spy_state_and_place_in_the_kernel_are_reported(job, monkeypatch):
    monkeypatch.setattr(stack_samples, "TOOL", "no-such-tool")
    (record,) = [each for each in taken(job.nodes[1])[0] if each["rank"] == 3]
    assert record["frames"] == []
    assert record["state"] == "S"
    assert rules.lines({"n2": [record]}, 1, {})[0].startswith("rank 3 on n2 sleeps in the kernel's ")


@pytest.fixture
def bare_rank(tmp_path):
    """A rank whose Python has no py-spy beside it, nor on its PATH, and a folder of environments of which one has."""
    tools = tmp_path / "venvs" / "verify" / "bin"
    tools.mkdir(parents=True)
    (tmp_path / "venvs" / "cuda").mkdir()
    shutil.copy(shutil.which(stack_samples.TOOL), tools)
    python = tmp_path / "python"
    python.symlink_to(Path(sys.executable).resolve())
    code = "import sys\ndef wait():\n    print('up', flush=True)\n    sys.stdin.read()\nwait()"
    env = {"TRAINYARD_JOB_ID": "bare", "RANK": "0", "PATH": str(tmp_path)}
    with subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as rank:
        try:
            rank.stdout.readline()
            yield tools / stack_samples.TOOL
        finally:
            rank.kill()


def record_of_bare(tmp_path, tool):
    (record,), _ = stack_samples.take(
        tmp_path, {"job_id": "bare", "processes": [], "venvs": str(tool.parents[2])}, looks=1
    )
    return record


def test_the_tool_of_any_environment_of_the_node_reads_a_rank_whose_own_has_none(tmp_path, bare_rank):
    record = record_of_bare(tmp_path, bare_rank)
    assert (record["problem"], record["frames"][0][0]) == ("", "wait")


@pytest.mark.parametrize(
    ("change", "trusted"),
    [
        (lambda tool: None, True),
        (lambda tool: tool.chmod(0o775), False),
        (lambda tool: tool.parent.chmod(0o777), False),
        (lambda tool: tool.parents[2].chmod(0o777), False),
        (lambda tool: tool.chmod(0o644), False),
        (lambda tool: (tool.rename(tool.with_name("spy")), tool.symlink_to("spy")), True),
        (lambda tool: (tool.unlink(), tool.mkdir()), False),
        (lambda tool: (tool.unlink(), os.mkfifo(tool, 0o755)), False),
    ],
)
def test_a_tool_that_others_could_exchange_is_not_run(bare_rank, change, trusted):
    change(bare_rank)
    assert stack_samples.of_environments(str(bare_rank.parents[2])) == (str(bare_rank.resolve()) if trusted else None)


def test_a_loop_is_reported_with_its_function_and_its_cpu(tmp_path):
    with hanging(tmp_path, ["spin"]) as job:
        head = begun(job).head
        # A machine that is busy may not run it between two looks.
        wait_for(lambda: taken(head)[0][0]["cpu_percent"] > 2, "its CPU")
        wait_for(lambda: taken(head)[0][0]["frames"][0][0] == "spin", "its function")


def test_a_tool_that_hangs_or_prints_nonsense_is_bounded(job, tmp_path, monkeypatch):
    folder = tmp_path / "tools"
    folder.mkdir()
    hangs, speaks = (
        ("exec sleep 600", 0.3, "py-spy took longer than 0.3 s"),
        ("echo no", 20.0, "py-spy says: it printed"),
    )
    for script, limit_s, problem in (hangs, speaks):
        monkeypatch.setattr(stack_samples, "DUMP_S", limit_s)
        tool = folder / "py-spy"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setattr(stack_samples, "tool", lambda *_, path=str(tool): path)
        assert taken(job.nodes[1])[0][0]["problem"].startswith(problem)


def test_the_setting_that_allows_py_spy_is_named(tmp_path):
    scope = tmp_path / "sys/kernel/yama/ptrace_scope"
    scope.parent.mkdir(parents=True)
    scope.write_text("1\n")
    said = stack_samples._why_not(
        "Error: Permission Denied: Try running again with elevated permissions", str(tmp_path)
    )
    assert "sysctl kernel.yama.ptrace_scope=0" in said
    scope.write_text("0\n")
    assert stack_samples._why_not("Error: Permission denied", str(tmp_path)) == "py-spy says: Permission denied"


def test_a_pipe_in_place_of_the_log_blocks_nothing(job):
    node = job.nodes[1]
    pipe = node.dir / "logs" / f"stacks_{node.spec['node_rank']}.log"
    os.mkfifo(pipe)
    taker = stack_samples.Taker(node.dir, node.spec)
    told = wait_for(lambda: taker.take(7), "the ranks, though nobody reads the pipe")
    assert [record["rank"] for record in told] == [2, 3]
    # Asked again for the same order, it says the same at once; another order is another look.
    assert taker.take(7) is told
    assert taker.take(8) is None
    wait_for(lambda: taker.take(8), "the other look")
