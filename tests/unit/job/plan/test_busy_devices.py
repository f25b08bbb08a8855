"""Devices that somebody else uses at a launch: a fake nvidia-smi names real processes; the wait has a fake clock."""

import os
import subprocess
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.base.findings import Finding, UnusableError
from ansible.module_utils.trainyard.job.file.variables import VARIABLES
from ansible.module_utils.trainyard.job.plan import busy_devices
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_controller.job.device_queue import DeviceQueue
from ansible.module_utils.trainyard_node import agent
from ansible.module_utils.trainyard_node.job.plan import obstacles, tickets
from ansible.module_utils.trainyard_node.job.run.evidence import device_holders, rank_failures
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import from_status
from ansible.module_utils.trainyard_node.machine.users import user_name
from captured_tree import unfold
from job_samples import make_request, node_facts

MINE, OLDER, YOUNGER = "digits-20261128-060324-d55e", "zoo-20261128-060323-ffff", "abc-20261128-060325-0000"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """Node plan of a job with GPU 0, and functions that set who holds which GPU by a fake nvidia-smi."""
    tool, apps, gpus = (tmp_path / name for name in ("nvidia-smi", "apps", "gpus"))
    tool.write_text(f"#!/bin/sh\n# A fake.\ncase $1 in *compute-apps*) cat {apps};; *) cat {gpus};; esac\n")
    tool.chmod(0o755)
    monkeypatch.setattr(device_holders, "FORGET_S", 0.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "jobs").mkdir()

    def hold(*rows, gpu="0, GPU-a, NVIDIA H200, 10, 143771, Disabled"):
        apps.write_text("".join(f"GPU-a, {row}\n" for row in rows))
        gpus.write_text(f"{gpu}\n")

    hold()
    plan = {"host": "n1", "job_id": MINE, "job_dir": str(tmp_path / "jobs" / MINE), "devices": [0]}
    return SimpleNamespace(plan=plan, hold=hold, jobs=tmp_path / "jobs")


@pytest.fixture
def program():
    """Run another program, and one of a job of ours."""
    started = []

    def start(**env):
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **env}))
        # The environment of the new program is there when its command line is.
        while b"sleep" not in open(f"/proc/{started[-1].pid}/cmdline", "rb").read():  # noqa: SIM115, PTH123
            pass
        return started[-1].pid

    yield start
    for each in started:
        each.kill()
        each.wait()


def found(plan):
    return [finding.found for finding in obstacles.device_findings(plan)]


def test_who_holds_a_gpu_is_named_with_user_program_and_memory(node, program):
    assert found(node.plan) == []
    other, ours = program(), program(TRAINYARD_JOB_ID="lost-1")
    me = user_name(os.getuid())
    node.hold(f"{other}, 129000, /usr/bin/python3", f"{ours}, 500, vllm", f"{1 << 22}, 500, elsewhere")
    (finding,) = obstacles.device_findings(node.plan)
    assert finding.check == busy_devices.CHECK
    assert set(finding.found.split("; ")) == {
        f"process {other} (python3) of {me} holds 126 GiB of GPU 0",
        f"process {ours} (vllm) of {me} (job lost-1) holds 500 MiB of GPU 0",
        f"process {1 << 22} (elsewhere) in another container holds 500 MiB of GPU 0",
    }
    assert "job_busy_devices: wait" in finding.action and "job_busy_devices: share" in finding.action
    node.hold(gpu="0, GPU-a, NVIDIA H200, 129000, 143771, Disabled")
    assert found(node.plan) == ["a process that the driver does not list holds 126 GiB of GPU 0"]
    assert found({**node.plan, "busy_devices": "share"}) == []
    assert found({**node.plan, "devices": []}) == []


def test_who_holds_an_npu_is_named(node, program, tmp_path):
    other, composed = program(), unfold("ascend8", tmp_path / "node") / "commands"
    table = composed / "npu-smi.info.out"
    table.write_text(table.read_text().replace("41823", f"{other:<5}"))
    (tmp_path / "nvidia-smi").rename(tmp_path / "npu-smi")
    script = f"#!/bin/sh\n# A fake.\ncase $* in *-m) cat {composed}/npu-smi.info-m.out;; *) cat {table};; esac\n"
    (tmp_path / "npu-smi").write_text(script)
    assert found(node.plan) == [f"process {other} (python3) of {user_name(os.getuid())} holds 118 MiB of NPU 0"]


def test_tools_of_ours_and_a_driver_that_does_not_answer_hold_nothing(node, program):
    node.hold(f"{program(TRAINYARD_OWN_TOOL='1')}, 500, all_reduce_perf")
    assert found(node.plan) == []
    (node.jobs.parent / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert found(node.plan) == []


def test_the_driver_has_time_to_forget_a_process_that_has_ended(node, monkeypatch):
    monkeypatch.setattr(device_holders, "FORGET_S", 600.0)
    monkeypatch.setattr(device_holders.time, "sleep", lambda _: node.hold())
    node.hold(f"{1 << 22}, 129000, python3")
    assert found(node.plan) == []


def test_without_memory_on_a_gpu_a_rank_names_who_has_it(node, program, tmp_path):
    other = program()
    node.hold(f"{other}, 129000, python3", f"{program(TRAINYARD_JOB_ID=MINE)}, 9000, python3")
    process = {"name": "rank0", "ranks": [0], "log": str(tmp_path / "rank_0.log")}
    plan = {**node.plan, "port": 29500, "world_size": 1, "rank_log": "rank_{rank}.log", "processes": [process]}
    part = rank_failures.Failures(tmp_path, plan, ())
    (tmp_path / "logs").mkdir()
    holder = f"process {other} (python3) of {user_name(os.getuid())} holds 126 GiB of GPU 0"
    for error, reason in (
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.53 GiB.", holder),
        ("MemoryError", ""),
    ):
        log = f'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n{error}\n'
        (tmp_path / "logs" / "rank_0.log").write_text(log)
        part.begin_attempt()
        assert (part.failure(process, from_status(1), "").get("reason") or "") == reason


def test_the_values_that_nodes_know_are_those_of_the_variable():
    assert {busy_devices.WAIT, busy_devices.SHARE} < set(VARIABLES["job_busy_devices"].choices)


def test_launches_that_wait_go_in_the_order_of_their_ids():
    ticket = {"devices": [0, 1], "starts": False}
    assert busy_devices.ahead(MINE, [0], {MINE: ticket, YOUNGER: ticket, OLDER: ticket}) == [OLDER]
    assert busy_devices.ahead(MINE, [2], {OLDER: ticket}) == []
    # One that has found its devices free starts: then nobody else does.
    assert busy_devices.ahead(MINE, [0], {YOUNGER: {**ticket, "starts": True}}) == [YOUNGER]


def test_tickets_on_a_node_count_until_nobody_renews_them(node):
    def busy(job_id, **settings):
        own = {**node.plan, "job_id": job_id, "job_dir": str(node.jobs / job_id)}
        return [each["found"] for each in agent.busy(node_plan=own, starts=False, **settings)["findings"]]

    assert busy(OLDER) == []
    assert busy(MINE) == [f"job {OLDER} waits for them and is next"]
    # A launch that does not wait goes behind those that do.
    assert found({**node.plan, "job_id": YOUNGER}) == [
        f"job {each} waits for them and is next" for each in (OLDER, MINE)
    ]
    own = node.jobs / tickets.FOLDER / os.uname().nodename
    os.utime(own / OLDER, (0, 0))
    (own / "x-1").write_text("{")
    assert busy(MINE) == []
    assert sorted(path.name for path in own.iterdir()) == [MINE, "x-1"]


class Clock:
    now = 0.0

    def sleep(self, seconds):
        self.now += seconds


class Cluster:
    """Fake nodes n1 and n2: n2 has busy devices until a time, and the job has GPU 0 on each."""

    def __init__(self, until=0.0):
        self.clock, self.until, self.said, self.visits, self.claims = Clock(), until, [], 0, 0

    def __call__(self, question, own):
        busy = Finding(
            busy_devices.CHECK, "process 7 (python3) of ann holds 126 GiB of GPU 0", "free", "wait", host="n2"
        )
        answers = {}
        for number, host in enumerate(own):
            facts = node_facts(number, devices=1, boot_id=None, container=None, npu=None, mpi=None, fingerprint="a")
            held = host == "n2" and self.clock.now < self.until
            answers[host] = {"findings": [busy.as_dict()] if held else []}
            if question == "probe":
                answers[host] = {"node": facts}
            elif question == "preflight":
                answers[host] |= {"programs": {}, "stale": False, "node": facts}
        self.visits += question == "busy"
        self.claims += question == "busy" and own["n1"]["starts"]
        return answers


def launch(tmp_path, monkeypatch, cluster, **job):
    def queue(ask, show, limit_s, stopped):
        return DeviceQueue(ask, cluster.said.append, limit_s, stopped, lambda: cluster.clock.now, cluster.clock.sleep)

    monkeypatch.setattr(planning, "DeviceQueue", queue)
    given = {"job_name": "digits", "job_command": ["hostname"], "job_launcher": "direct", **job}
    hosts = [planning.Host(f"n{number}", f"10.77.0.{number}", None) for number in (1, 2)]
    return planning.prepare(make_request(tmp_path, given, hosts), cluster)


def test_a_launch_waits_and_says_every_minute_whom_it_waits_for(tmp_path, monkeypatch):
    cluster = Cluster(until=150)
    made = launch(tmp_path, monkeypatch, cluster, job_busy_devices="wait")
    assert made.findings == [] and made.run_dir is not None
    assert (cluster.clock.now, cluster.visits, cluster.claims) == (150, 16, 1)
    starts = ("Waiting for devices (at most 86400 s", "Waiting for 1 minute for", "Waiting for 2 minutes for")
    assert all(text.startswith(start) for text, start in zip(cluster.said, starts, strict=True))
    assert all(text.endswith(": n2: process 7 (python3) of ann holds 126 GiB of GPU 0") for text in cluster.said)


def test_a_launch_does_not_wait_longer_than_it_may_or_if_it_was_not_asked(tmp_path, monkeypatch):
    cluster = Cluster(until=150)
    made = launch(tmp_path, monkeypatch, cluster, job_busy_devices="wait", job_wait_timeout=95)
    assert [finding.check for finding in made.findings] == ["job_wait_timeout", busy_devices.CHECK]
    assert cluster.clock.now == 95
    cluster = Cluster(until=150)
    assert [each.host for each in launch(tmp_path, monkeypatch, cluster).findings] == ["n2"]
    assert (cluster.clock.now, cluster.visits) == (0, 0)


def test_a_wait_is_stopped_and_knows_nodes_that_do_not_answer(tmp_path):
    clock, stop = Clock(), []
    queue = DeviceQueue(lambda *_: {"n1": {"unreachable": True, "msg": "gone"}}, stop.append, 1000, lambda: stop[1:])
    queue.clock, queue.sleep = lambda: clock.now, clock.sleep
    plans = {"n1": {"job_id": MINE, "job_dir": "/x", "host": "n1", "devices": [0], "busy_devices": "wait"}}
    with pytest.raises(UnusableError, match="was stopped"):
        queue.wait(plans, [Finding(busy_devices.CHECK, "x", "y", "z", host="n1")])
    assert "gone" in stop[1]
