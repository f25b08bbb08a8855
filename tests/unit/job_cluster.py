"""Real monitors with real processes on 127.0.0.1: each node of the test cluster is a folder and a monitor process.

All nodes share one machine, so each has a job id of its own: ending one must not end the processes of all.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

from ansible.module_utils.trainyard.job.file.job import NODE_OPTIONS
from ansible.module_utils.trainyard.job.run.decide.attempt_watch import REPORT_S
from ansible.module_utils.trainyard.job.run.logs.progress import DEFAULT_PATTERN
from ansible.module_utils.trainyard_node.job.record.node_plan import source_of
from ansible.module_utils.trainyard_node.job.run import packing
from ansible.module_utils.trainyard_node.job.run.monitor import connections, node_loop
from ansible.module_utils.trainyard_node.job.run.ranks import process_table
from ansible.module_utils.trainyard_node.job.run.ranks.rank_exits import read_exits
from ansible.module_utils.trainyard_node.machine.json_files import read_json, write_json

# How long a test waits for what must happen; nothing passes or fails by being faster.
PATIENCE_S = 240.0

# How long a monitor of the cluster may be silent. Half of it is the time in which the others report to a successor, and
# even a machine that is busy with other tests runs each of them in that time.
SILENT_S = 8

# A rank waits for `go` in its folder, then behaves as its first argument says.
RANK = """
import os, pathlib, signal, sys, time
mode = sys.argv[1]
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"up-{os.getpid()}").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
if mode == "train":
    for step in range(1, 6):
        print(f"step {step}/5 epoch 1 loss {1 / step:.4f} rate 100.5 samples/s", flush=True)
elif mode == "diverge":
    for step in range(1, 26):
        print(f"step {step}/25 loss {1 / step if step < 11 else float('nan'):.4f} rate 100.5", flush=True)
elif mode == "lost":
    # As PyTorch ends a rank whose peer is gone (tests/fixtures/torchrun).
    where = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553]"
    print(f"RuntimeError: {where} Connection closed by peer [127.0.0.1]:1431. This is typically caused by", flush=True)
    sys.exit(1)
elif mode.startswith("saves"):
    # It takes so many seconds to save, with a data loader worker that it needs for that.
    import subprocess
    asked = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: asked.append(number))
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(f"saves-{os.getpid()}").touch()
    while not asked:
        time.sleep(0.05)
    time.sleep(float(mode[5:]))
    again = " again" if len(asked) > 1 else ""
    alive = "with its worker" if worker.poll() is None else "without its worker"
    print(f"saved after {signal.Signals(asked[0]).name}{again} {alive}", flush=True)
    worker.kill()
elif mode == "late":
    while not pathlib.Path("late").exists():
        time.sleep(0.05)
    raise ValueError("it is too late")
elif mode.startswith("exit"):
    print("about to fail", flush=True)
    sys.exit(int(mode[4:]))
else:
    while True:
        time.sleep(0.05)
"""


def free_port():
    """Return a free port below the ephemeral range, from which an outgoing connection may take one at any time."""
    while True:
        port = 10000 + secrets.randbelow(20000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port


def wait_for(condition, what):
    """Wait until condition() is true and return its value."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s for: {what}")


# The report of a node with a rank that runs.
REPORT = {
    "ranks_running": 1, "done": False, "idle": False, "rankless": 0, "failures": [], "metrics": {},
    "loss_not_a_number": None, "attempts": {"": 0}, "ready_for": None, "cannot_write": None,
}  # fmt: skip


async def report_to(spec, host, lost=None):
    """Be the monitor of `host` on the wire, with a rank that runs, for as long as it takes; put `host` into `lost`
    each time a connection breaks. Without a process of its own: a head may have thousands of these."""
    where = spec["head_address"], spec["monitor_port"]
    while True:
        over = asyncio.Event()
        try:
            connection = await connections.connect(
                spec["token"], host, where, lambda *_: None, lambda _, over=over: over.set()
            )
        except (OSError, asyncio.TimeoutError):
            await asyncio.sleep(node_loop.RETRY_S)
            continue
        try:
            while not over.is_set():
                connection.update({"report": {**REPORT, "host": host}})
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(over.wait(), REPORT_S)
            if lost is not None:
                lost.append(host)
            await asyncio.sleep(node_loop.RETRY_S)
        finally:
            connection.abort()


# Each node needs the same one, and to build it takes as long as to start a monitor.
packed_runtime = functools.cache(packing.pack)


class Node:
    """One node of the test cluster."""

    def __init__(self, folder, spec):
        self.dir, self.spec, self.job_id = folder, spec, spec["job_id"]
        self.source = Path(source_of(folder))
        for path in (self.source, folder / "logs", folder / "exits"):
            path.mkdir(parents=True, exist_ok=True)
        (self.source / "rank.py").write_text(RANK)
        (folder / "trainyard.pyz").write_bytes(packed_runtime())
        write_json(folder / "node_plan.json", spec)
        self.monitor, self.environment = None, {}

    def start(self):
        self.monitor = subprocess.Popen(
            [sys.executable, "-IS", str(self.dir / "trainyard.pyz"), "monitor", str(self.dir)],
            env={"TRAINYARD_JOB_ID": self.job_id, **self.environment},
            stdin=subprocess.DEVNULL,
        )

    def go(self):
        (self.source / "go").touch()

    def up(self):
        """Whether all processes of this node run their script."""
        return len(list(self.source.glob("up-*"))) >= len(self.spec["processes"])

    def pid(self, name):
        return read_json(self.dir / "pids.json")[name]["pid"]

    def signal(self, number):
        self.monitor.send_signal(number)

    def read(self, name):
        return read_json(self.dir / name)

    def end(self):
        """How this node's monitor ended, None while it runs."""
        return (self.read("monitor.json") or {}).get("end")

    def exits(self):
        return {name: (ended["exit_code"], ended["signal"]) for name, ended in read_exits(self.dir).items()}

    def log(self):
        path = self.dir / "logs" / f"monitor_{self.spec['node_rank']}.log"
        return path.read_text() if path.exists() else ""

    def left(self):
        return process_table.of_job(self.job_id)


# Options of the jobs of clusters that differ from the defaults.
OPTIONS = {
    **{"timeout_s": 600, "rejoin_s": 30, "stop": {}, "progress_pattern": DEFAULT_PATTERN},
    **{"health_gate": False, "slow_ranks": False, "min_disk_mib": 0},
}


class Cluster:
    """Nodes n1, n2, ... `modes` has for each node the modes of its ranks. A `witness` is the last of `nodes`.

    `changes` are options of the job, and by host what its node plan has besides.

    They share `folder` if it is called `hosts`: each has a part of it then, and all have one working folder beside it.
    """

    def __init__(
        self, folder, *modes, silent_after_s=SILENT_S, max_restarts=0, spares=0, min_nodes=0, witness="", **changes
    ):
        base, port = f"test-{uuid.uuid4().hex[:12]}", free_port()
        hosts = [f"n{number + 1}" for number in range(len(modes) + spares)]
        # All have the same port.
        candidates = [[host, f"127.0.0.{number + 1}"] for number, host in enumerate(hosts[:5])]
        candidates = candidates if max_restarts and len(hosts) + bool(witness) > 2 else []
        first = [sum(map(len, modes[:number])) for number in range(len(modes))]

        def planned(host, place):
            """Return the processes of a host in this place."""
            here = folder / host
            return [
                {
                    "name": f"rank{rank}",
                    "ranks": [rank],
                    "argv": [sys.executable, "rank.py", mode],
                    "env": {
                        **{"TRAINYARD_JOB_ID": f"{base}-{host}", "PATH": os.defpath},
                        **({"RANK": f"{rank}", "WORLD_SIZE": str(sum(map(len, modes)))} if min_nodes else {}),
                    },
                    "log": str(here / "logs" / f"rank_{rank}.log"),
                    **({"numbered": {"RANK": "{rank}", "WORLD_SIZE": "{world_size}"}} if min_nodes else {}),
                }
                for rank, mode in enumerate(modes[place], first[place])
            ]

        fewer = {"min_nodes": min_nodes, "ranks": list(map(len, modes)), "first": [host for host, _ in candidates[1:]]}
        options = {**NODE_OPTIONS, **OPTIONS, "max_restarts": max_restarts}
        options |= {name: changes[name] for name in changes.keys() & options.keys()}
        self.nodes = []
        for number, host in enumerate([*hosts, *filter(None, [witness])]):
            here = folder / host
            job_id = f"{base}-{host}"
            stands_by = len(modes) <= number < len(hosts)
            processes = planned(host, number) if number < len(modes) else []
            places = {str(place): {"processes": planned(host, place), "files": []} for place in range(len(modes))}
            may_lead = number == 0 or number < len(candidates)
            spec = {
                **options,
                "job_id": job_id,
                "host": host,
                "node_rank": number,
                "hosts": hosts[: len(modes)] if may_lead else [],
                **({"spares": hosts[len(modes) :]} if may_lead else {}),
                **({"witness": witness} if witness and (may_lead or host == witness) else {}),
                **({"candidates": candidates} if candidates else {}),
                **({"places": places} if stands_by else {}),
                "head_host": "n1",
                "head_address": "127.0.0.1",
                "port": 29500,
                "monitor_port": port,
                "silent_after_s": silent_after_s,
                **({"fewer": fewer} if min_nodes and host != witness else {}),
                **({"as_first": {"processes": [], "files": []}} if min_nodes and may_lead and number else {}),
                "world_size": sum(map(len, modes)),
                "rank_log": "rank_{rank}.log",
                "unit": "",
                "job_dir": str(here),
                "devices": [],
                "token": "the token of this job",
                "base_env": {"HOME": str(here)},
                "secret_env": {},
                "processes": processes,
                **changes.get(host, {}),
            }
            self.nodes.append(Node(here, spec))

    @property
    def head(self):
        return self.nodes[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            if node.monitor is not None:
                with contextlib.suppress(ProcessLookupError):
                    node.monitor.kill()
                node.monitor.wait()
            process_table.end(node.job_id, grace_s=0.0)

    def start(self):
        """Start all monitors and wait until the head has heard of every rank and every rank runs."""
        for node in self.nodes:
            node.start()
        world_size = self.head.spec["world_size"]
        wait_for(lambda: (self.state() or {}).get("ranks_running") == world_size, f"{world_size} ranks")
        wait_for(lambda: all(node.up() for node in self.nodes), "all scripts to run")
        return self

    def state(self):
        return self.head.read("cluster.json")

    def over(self):
        """Wait until the head says how the job ended, and return that."""
        return wait_for(lambda: (self.state() or {}).get("end"), f"the end of the job; head's log: {self.head.log()}")

    def all_ended(self, but=()):
        """Wait until every monitor is gone, but those; then nothing may be left of the job."""
        for node in self.nodes:
            if node.spec["host"] not in but:
                node.monitor.wait(PATIENCE_S)
                assert not node.log(), node.log()
                assert node.left() == []


def heard(head, host):
    """Wait until the head has a report that a node has made after now: one that was on its way is from before."""
    since = time.time() + REPORT_S

    def heard_s():
        silent_s = head.read("cluster.json")["nodes"][host]["silent_s"]
        return 0 if silent_s is None else (head.dir / "cluster.json").stat().st_mtime - silent_s

    wait_for(lambda: heard_s() > since, f"{head.spec['host']} to hear of {host}")


def attempt(node, name="rank0"):
    """Which attempt of a process runs; None before the first."""
    return (node.read("pids.json") or {}).get(name, {}).get("attempt")
