#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the controller with many simulated nodes: print one measurement as JSON.

scale.py plan 4000          the plan of a job over this many nodes of 8 GPUs, as a pure function, and what it renders
scale.py check 1000         launch.yml --check on an inventory of this many hosts that answer at once (simulated/), and
                            once more with the facts that the first one cached
scale.py join 4000          this many monitors' connections, made at once, to one real head on this machine
scale.py elect 1000         a real head of this many nodes is killed, and a real candidate leads in its place
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ansible.module_utils

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "tests/unit"))
# As Ansible itself finds them.
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
JOB = {
    "job_name": "scale",
    "job_command": ["/usr/bin/true"],
    "job_venv": "/opt/trainyard/venvs/pytorch",
    "job_packages": ["torch"],
    "job_env": {"NCCL_DEBUG": "INFO"},
}


def address(number: int) -> str:
    """Return the address of a simulated node."""
    return f"10.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def node_facts() -> dict[str, Any]:
    """Return the facts of a captured machine with 8 GPUs and InfiniBand, as a node answers them."""
    from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
    from ansible.module_utils.trainyard_node.machine.tree import Tree
    from captured_tree import unfold

    with tempfile.TemporaryDirectory() as folder:
        facts = read_node(
            Tree(str(unfold("gpu8_infiniband", Path(folder)))),
            packages=[],
            venv="/opt/trainyard/venvs/pytorch",
            user="train",
        )
    facts["packages"] = {"torch": "2.13.0"}
    facts["venv"] = {"path": "/opt/trainyard/venvs/pytorch", "exists": True, "python": "3.11.2"}
    facts["service_manager"] = "systemd"
    eth0 = {"name": "eth0", "up": True, "state": "up", "mtu": 9000, "mac": "02:00:00:00:00:01", "kind": "physical",
            "speed_mbps": 100000, "addresses": []}  # fmt: skip
    facts["networks"]["interfaces"] = [one for one in facts["networks"]["interfaces"] if one["name"] == "lo"] + [eth0]
    return facts


def peak_mib() -> int:
    """Return the most memory that this process had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def plan(count: int) -> dict[str, Any]:
    """Plan a job under each of some launchers; return seconds, sizes and the peak of memory."""
    from ansible.module_utils.trainyard.job import schedulers
    from ansible.module_utils.trainyard.job.placement.placement import Member
    from ansible.module_utils.trainyard.job.plan.plan import build, describe

    facts = json.dumps(node_facts())
    members = []
    for number in range(count):
        own = json.loads(facts)
        own["hostname"] = f"node{number}"
        own["networks"]["interfaces"][-1]["addresses"] = [f"{address(number)}/8"]
        own["free_ports"] = [20000, 20001, 20002]
        own["mpi"] = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
        members.append(Member(f"node{number}", address(number), own, "", {}, ""))
    before, found = peak_mib(), {}
    for launcher in ("direct", "torchrun", "mpirun"):
        job, wrong = schedulers.parse({**defaults(), **JOB, "job_launcher": launcher})
        if job is None:
            raise SystemExit(f"not a job: {wrong}")
        began = time.perf_counter()
        made, findings = build(job, "scale-20261121-000000", "", "/var/lib/trainyard", members)
        planned = time.perf_counter()
        if made is None or findings:
            raise SystemExit(f"no plan: {findings[:3]}")
        written = json.dumps(made.as_dict())
        node_plans = json.dumps(made.node_plans([]))
        text = describe(json.loads(written))
        found[launcher] = {
            "plan_s": round(planned - began, 3),
            "render_s": round(time.perf_counter() - planned, 3),
            "MiB": round((len(written) + len(node_plans) + len(text)) / (1 << 20), 1),
        }
    return {"nodes": count, "launchers": found, "facts MiB": before, "peak MiB": peak_mib()}


def defaults() -> dict[str, Any]:
    """Return the defaults of the role job that a plan reads."""
    import yaml

    values = yaml.safe_load((PROJECT / "roles/job/defaults/main.yml").read_text())
    return {name: value for name, value in values.items() if "{{" not in str(value)}


def simulated_launch(folder: str, count: int) -> tuple[list[str], dict[str, str]]:
    """Return the command and the settings in the environment of launch.yml --check on this many simulated nodes."""
    facts, inventory = Path(folder, "facts.json"), Path(folder, "hosts.json")
    facts.write_text(json.dumps(node_facts()))
    hosts = {f"node{number}": {"simulated_address": address(number), "ansible_host": address(number)}
             for number in range(count)}  # fmt: skip
    shared = {
        "ansible_connection": "nowhere", "ansible_python_interpreter": "/usr/bin/python3",
        "simulated_facts": str(facts), "trainyard_become": False,
    }  # fmt: skip
    inventory.write_text(json.dumps({"compute": {"hosts": hosts, "vars": shared}}))
    settings = {**JOB, "job_launcher": "torchrun", "trainyard_runs": f"{folder}/runs"}
    environment = {
        "ANSIBLE_PIPELINING": "true",
        "ANSIBLE_CONNECTION_PLUGINS": str(PROJECT / "benchmarks/simulated"),
        "ANSIBLE_LOG_PATH": f"{folder}/log",
        "ANSIBLE_NOCOLOR": "1",
    }
    argv = ["launch.yml", "--check", "-i", str(inventory), "-e", json.dumps(settings)]
    return [str(Path(sys.executable).with_name("ansible-playbook")), *argv], environment


def check(count: int) -> dict[str, Any]:
    """Run launch.yml --check twice, the second time with cached facts, as launches do that are not the first one.

    Return of each the seconds, those of the processors, and the peak of memory of all its processes.
    """
    sys.path.insert(0, str(PROJECT / "benchmarks"))
    from bench import peak_memory

    found: dict[str, Any] = {"nodes": count}
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        argv, environment = simulated_launch(folder, count)
        os.environ.update(environment)
        log = Path(environment["ANSIBLE_LOG_PATH"])
        for facts in ("asked", "cached"):
            log.write_text("")
            began, used = time.perf_counter(), cpu_of_children()
            peak = peak_memory(argv)
            seconds, cpu = time.perf_counter() - began, cpu_of_children() - used
            found[facts] = {"s": round(seconds, 1), "cpu s": round(cpu, 1), "peak MiB": peak}
            said = log.read_text()
            if f"{8 * count} rank" not in said and f"world size {8 * count}" not in said:
                raise SystemExit(f"launch.yml --check made no plan:\n{said[-3000:]}")
    return found


def cpu_of_children() -> float:
    """Return the CPU seconds of all processes that have ended, below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def join(count: int) -> dict[str, Any]:
    """Let clients with the monitors' protocol come to one real head; return when all are in, and what it costs then.

    The clients share this one process, all start at once and report once a second, as monitors do. Where it may, the
    head begins with the limit of open files that it has without systemd.
    """
    from ansible.module_utils.trainyard_node.job.run.monitor.connections import OWN_FILES, make_room
    from job_cluster import Cluster

    hosts = [f"n{number + 1}" for number in range(count)]
    make_room(count + OWN_FILES)
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        job = Cluster(Path(folder), ["wait"], silent_after_s=15.0)
        job.head.spec.update(hosts=hosts, world_size=count)
        job.head.dir.joinpath("node_plan.json").write_text(json.dumps(job.head.spec))
        with job:
            room = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, room[0]), room[1]))
            try:
                job.head.start()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, room)
            return {"nodes": count, **asyncio.run(_join(job.head, hosts[1:]))}


async def _join(head: Any, hosts: list[str]) -> dict[str, Any]:
    """Have all join, wait until the head has heard each, then look at it for 20 s."""
    from ansible.module_utils.trainyard.job.run.decide.attempt_watch import JOIN_S
    from job_cluster import report_to

    lost: list[str] = []
    while not (head.dir / "cluster.json").exists():
        await asyncio.sleep(0.05)
    began = time.monotonic()
    clients = [asyncio.create_task(report_to(head.spec, host, lost)) for host in hosts]
    try:
        while (state := head.read("cluster.json"))["state"] == "starting":
            if time.monotonic() - began > JOIN_S:
                break
            await asyncio.sleep(0.1)
        joined = time.monotonic() - began
        before, lost_joining = cpu_seconds(head.monitor.pid), len(lost)
        await asyncio.sleep(20)
        after, state = cpu_seconds(head.monitor.pid), head.read("cluster.json")
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    if state["state"] != "running":
        raise SystemExit(f"not all joined: {state['state']}, {state['end']}\n{head.log()[-2000:]}")
    silent = max(node["silent_s"] for node in state["nodes"].values())
    return {
        "joined_s": round(joined, 1),
        "connections lost": [lost_joining, len(lost) - lost_joining],
        "head, cores": round((after - before) / 20, 3),
        "longest silence_s": silent,
        "head MiB": peak_of(head.monitor.pid),
    }


def elect(count: int) -> dict[str, Any]:
    """Kill the head of a job of many nodes; return when another one leads, and what copies of the state cost the head.

    Head and candidate are real monitors. All other nodes share this process, and have the monitors' protocol alone.
    """
    from ansible.module_utils.trainyard_node.job.run.monitor.connections import OWN_FILES, make_room
    from job_cluster import Cluster

    hosts = [f"n{number + 1}" for number in range(count)]
    make_room(2 * count + OWN_FILES)
    found: dict[str, Any] = {"nodes": count}
    for copies in (False, True):
        with tempfile.TemporaryDirectory(prefix="scale-") as folder:
            job = Cluster(Path(folder), ["wait"], ["wait"], ["wait"], silent_after_s=15.0, max_restarts=1)
            for node in job.nodes:
                node.spec.update(hosts=hosts, world_size=count)
                if not copies:
                    node.spec["candidates"] = []
                node.dir.joinpath("node_plan.json").write_text(json.dumps(node.spec))
            with job:
                for node in job.nodes[:2]:
                    node.start()
                found.update(asyncio.run(_elect(job.head, job.nodes[1], hosts[2:], copies)))
    return found


async def _elect(head: Any, second: Any, hosts: list[str], copies: bool) -> dict[str, Any]:
    """Have all join, look at the head for 20 s; with `copies`, kill it, and wait until the second node leads."""
    while not (head.dir / "cluster.json").exists():
        await asyncio.sleep(0.05)
    clients = [asyncio.create_task(_follow(head.spec, host)) for host in hosts]
    try:
        while head.read("cluster.json")["state"] == "starting":
            await asyncio.sleep(0.1)
        before = cpu_seconds(head.monitor.pid)
        await asyncio.sleep(20)
        cores = round((cpu_seconds(head.monitor.pid) - before) / 20, 3)
        if not copies:
            return {"head without copies, cores": cores}
        head.monitor.kill()
        killed = time.monotonic()
        while not (second.dir / "cluster.json").exists():
            await asyncio.sleep(0.05)
        led = time.monotonic() - killed
        return {"head with copies, cores": cores, "leads after silence_s": round(led - head.spec["silent_after_s"], 1)}
    finally:
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def _follow(spec: dict[str, Any], host: str) -> None:
    """Report as a node does: to the head, and where that is silent to one candidate after the other."""
    from ansible.module_utils.trainyard.job.run.lead.succession import CALL_S, Search
    from ansible.module_utils.trainyard_node.job.run.monitor import connections
    from job_cluster import REPORT, REPORT_S

    addresses = dict(spec["candidates"] or [["n1", spec["head_address"]]])
    search, heard, limit_s = Search(addresses), time.monotonic(), spec["silent_after_s"]

    def receive(*_: Any) -> None:
        nonlocal heard
        heard = time.monotonic()

    while True:
        over = asyncio.Event()
        where = addresses[search.target], spec["monitor_port"]
        calling = connections.connect(spec["token"], host, where, receive, lambda _, over=over: over.set())
        try:
            connection = await asyncio.wait_for(calling, CALL_S)
            called = time.monotonic()
            while not over.is_set() and time.monotonic() - max(heard, called) < limit_s:
                connection.update({"report": {**REPORT, "host": host}})
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(over.wait(), REPORT_S)
            connection.abort()
        except (OSError, asyncio.TimeoutError):
            pass
        if time.monotonic() - heard > limit_s:
            search.go_on()
        await asyncio.sleep(0.2)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_of(pid: int) -> int:
    """Return the most memory that another process has had, in MiB."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) // 1024 if found else 0


def main() -> None:
    """Measure one thing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["plan", "check", "join", "elect"])
    parser.add_argument("nodes", type=int)
    given = parser.parse_args()
    print(json.dumps({"plan": plan, "check": check, "join": join, "elect": elect}[given.what](given.nodes)))


if __name__ == "__main__":
    main()
