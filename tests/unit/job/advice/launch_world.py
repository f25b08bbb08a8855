"""A launch with all that it reads: job file, inventory, source, nodes. Tests change one of them and launch again."""

from __future__ import annotations

import json
import os
import pwd
import sys

from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_node.job.plan import obstacles
from ansible.module_utils.trainyard_node.job.run.evidence import health_gate
from job_cluster import free_port
from job_samples import job_file, make_plan, make_request, node_facts
from rank_table_samples import MPI, server, table_job, table_of

ME = pwd.getpwuid(os.getuid()).pw_name
NOBODY = pwd.getpwuid(65534).pw_name if os.geteuid() == 0 else ME
UNREACHABLE = {"unreachable": True, "msg": "No route to host"}


class World:
    """Job file and inventory, and what the nodes answer; `groups` and `facts` are by name."""

    def __init__(self, count=2, /, *, gpus=0, each=None, **job):
        names = [f"n{number}" for number in range(1, count + 1)]
        self.job = {**job_file(launcher="direct"), **{f"job_{name}": value for name, value in job.items()}}
        self.facts = {name: node_facts(number, devices=gpus, mpi=MPI) for number, name in enumerate(names)}
        for name, changes in (each or {}).items():
            self.facts[name] |= changes
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
        self.groups = {"compute": names, "all": names}
        self.files = {"train.py": "print('train')\n"}
        self.env = {}
        # Further options of the request.
        self.given = {}
        # Findings of a node about its plan, the checksums of its programs, and its facts for what it is asked about.
        self.finds = lambda _: []
        self.programs = {}
        # The folder that all nodes share, and whether warnings count as findings.
        self.shared, self.warned = "", False
        # Offsets of the nodes' clocks, in seconds.
        self.clocks = {}
        self.answers = lambda facts, _: facts

    def having(self, **changes):
        for name, value in changes.items():
            setattr(self, name, value)
        return self

    def launch(self, folder):
        """Return the findings of a launch, whose controller has an empty folder."""
        for name, text in self.files.items():
            path = folder / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        job = {"job_source": str(folder / "source"), **self.job}
        job = {name: value for name, value in job.items() if value is not None}
        group = self.groups.get(job.get("job_hosts", "compute"), [])
        # As roles/job/tasks/prepare.yml.
        is_ssh = job.get("job_scheduler", "ssh") == "ssh"
        most = job["job_nodes"] + job.get("job_spares", 0) if job.get("job_nodes") and is_ssh else None
        hosts = [planning.Host(name, self.addresses[name], self.env.get(name)) for name in group[:most]]
        given = {"available": len(group), "known": [*self.addresses], "state_dir": str(folder), **self.given}
        made = planning.prepare(make_request(folder, job, hosts, **given), self._ask)
        warnings = made.plan.get("warnings", ()) if self.warned else ()
        return [*made.findings, *made.left_out, *map(Finding.from_dict, warnings)]

    def _ask(self, question, own):
        limit = self.given.get("limit")
        return {
            host: self._answer(question, host, about) if not limit or host in limit.split(",") else {}
            for host, about in own.items()
        }

    def _answer(self, question, host, about):
        facts = self.facts.get(host, {})
        if facts is None:
            return UNREACHABLE
        if question == "probe":
            others = {"boot_id": None, "container": None, "npu": None, "fingerprint": "a"}
            return {"node": {**others, **self.answers(facts, about)}}
        if question == "slurm_probe":
            return {"facts": facts, "findings": []}
        if question == "bring_image":
            self.brought = True
            return {"done": True, "problem": "", "id": "", "line": ""}
        if question == "forget_tokens":
            return {"left": []}
        if self.shared and "sharing" in about:
            return {"findings": [], "programs": {}, "stale": False, "folders": self._folders(host, **about["sharing"])}
        found = [each.on(host).as_dict() for each in self.finds(about["node_plan"])]
        clock = {"clock": {"offset_s": self.clocks[host], "margin_s": 0.0}} if host in self.clocks else {}
        return {"findings": found, "programs": self.programs.get(host, {}), "stale": False, **clock}

    def _folders(self, host, folders, **_):
        local = {"kernel": True, "place": host[1:].zfill(32), "token": "", "wrote": False}
        shared = {"kernel": False, "place": "", "token": "f" * 32, "wrote": host == "n1"}
        return {folder: shared if folder.startswith(self.shared) else local for folder in folders}


def interface(name, *addresses, up=True, kind="physical"):
    about = {"mtu": 1500, "mac": None, "kind": kind, "speed_mbps": None, "state": "up" if up else "down"}
    return {"name": name, "up": up, "addresses": list(addresses), **about}


def on(*interfaces):
    """Return the fact of a node with these interfaces."""
    return {"networks": {"interfaces": list(interfaces), "rdma": []}}


def linked(*kinds, **job):
    """Return a launch on two nodes, whose interfaces are made by functions of the number of their host."""
    return World(each={f"n{number}": on(*(kind(number) for kind in kinds)) for number in (1, 2)}, **job)


def eth0(number):
    return interface("eth0", f"10.77.0.{number}/16")


def eth1(number, up=True):
    return interface("eth1", f"10.88.0.{number}/16", up=up)


def alone(folder, **job):
    """Return a launch on this machine, which really checks its part of the plan."""
    unused = ",".join(f"{port}-{port}" for port in (free_port(), free_port(), free_port()))
    facts = {**on(interface("lo", "127.0.0.1/8", kind="loopback")), "unused_ports": unused}
    world = World(1, each={"n1": facts}, venv=environment(folder, "venv"), min_disk_mib=1, **job)
    return world.having(addresses={"n1": "127.0.0.1"}, finds=checks)


def checks(node_plan):
    """Return what this machine finds of a node plan."""
    tree = health_gate.Tree()
    return [
        *obstacles.preflight(node_plan, ME),
        *health_gate.disk_findings(node_plan),
        *health_gate.limit_findings(tree, node_plan),
    ]


def environment(folder, name, *modules, programs=()):
    """Make a Python environment with modules and programs; return its folder."""
    (folder / name / "bin").mkdir(parents=True, exist_ok=True)
    for program in programs:
        (folder / name / "bin" / program).touch(0o755)
    for module in modules:
        (folder / name / "lib" / module).mkdir(parents=True, exist_ok=True)
        (folder / name / "lib" / module / "__init__.py").touch()
    python = folder / name / "bin/python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder / name / "lib"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(folder / name)


def npus(count=2, /, chip="910b", changes=None, **job):
    """Return a launch on nodes with eight NPUs each; `changes` are those of single devices, on all nodes."""
    world = World(count, **{"launcher": "rank_table", **job})
    for number, name in enumerate(world.facts):
        world.facts[name] |= server(number, chip=chip, **(changes or {})).facts
    return world


def write_table(folder, change=lambda table: None, nodes=2, devices=None):
    """Write a table for this many of `npus()`, after a change of it; return its path."""
    job = table_job(devices=devices) if devices else table_job()
    table = table_of(make_plan(job, [server(number) for number in range(nodes)]).as_dict())
    change(table)
    (folder / "table.json").write_text(json.dumps(table))
    return str(folder / "table.json")
