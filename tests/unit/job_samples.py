"""Jobs, nodes and plans for tests."""

from __future__ import annotations

import io
import re
import tarfile

import yaml
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement.placement import Member
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import unfold

VENV = "/opt/trainyard/venvs/pytorch"


def job_file(**changes):
    """Return a job file; `name=value` sets job_name and so on."""
    given = {"job_name": "digits", "job_command": ["python", "train.py"], "job_venv": VENV}
    return {**given, **{f"job_{name}": value for name, value in changes.items()}}


def make_job(**changes):
    job, findings = schedulers.parse(job_file(**changes))
    assert findings == []
    return job


def wrong(**changes):
    """Return the findings of a job file that must have some."""
    job, findings = schedulers.parse(job_file(**changes))
    assert job is None and findings
    for finding in findings:
        for followed in ways(finding.action):
            given = {name: value for name, value in {**job_file(**changes), **followed}.items() if value is not None}
            left = [(each.check, each.found) for each in schedulers.parse(given)[1]]
            assert (finding.check, finding.found) not in left, f"{finding.action} does not help: {given}"
    return findings


def ways(action):
    """Yield what the advice of a finding has its reader set in a job file; None where a variable is left out."""
    for alternative in re.split(r",? or |; ", action):
        values = re.findall(r"\bset (job_\w+): ([\w./-]+)(?=,|$| and)", alternative)
        left_out = re.findall(r"\bleave (job_\w+) out", alternative)
        if values or left_out:
            yield {**{name: yaml.safe_load(value) for name, value in values}, **dict.fromkeys(left_out)}


def node_facts(number=0, *, devices=0, cpus=8, **changes):
    """Return the facts of the node `number`: one Ethernet interface, 10.77.x.y, and `devices` GPUs."""
    address = f"10.77.{number // 250}.{number % 250 + 1}"
    return {
        "hostname": f"n{number + 1}",
        "cpus": cpus,
        "uid": 0,
        "accelerators": {
            "vendor": "nvidia" if devices else "none",
            "devices": [{"index": index} for index in range(devices)],
            "problems": [],
        },
        "networks": {
            "interfaces": [
                {
                    "name": f"eth{number % 3}",
                    "up": True,
                    "state": "up",
                    "mtu": 1500,
                    "mac": None,
                    "kind": "physical",
                    "speed_mbps": None,
                    "addresses": [f"{address}/16"],
                }
            ],
            "rdma": [],
        },
        "packages": {},
        "unused_ports": "20000-20063",
        "free_ports": [20000, 20001, 20002, 20003],
        **changes,
    }


def member(number=0, *, env=None, unreachable="", **changes):
    facts = None if unreachable else node_facts(number, **changes)
    address = f"10.77.{number // 250}.{number % 250 + 1}"
    answer = {"unreachable": True, "msg": unreachable} if unreachable else {}
    return Member(f"n{number + 1}", address, facts, answer, env or {})


def captured_member(tmp_path, tree, host, address, **facts):
    """Return a member: the captured machine `tree` under another name and address."""
    folder = unfold(tree, tmp_path / host)
    addresses = folder / "commands" / "ip.address.out"
    addresses.write_text(addresses.read_text().replace('"10.20.0.11"', f'"{address}"'))
    read = read_node(Tree(str(folder)), packages=["torch"], venv=VENV, user=None)
    # The captured machine has no ports to look at: those of the machine that runs the test must not matter.
    return Member(host, address, {**read, "hostname": host, "free_ports": [29500, 29501], **facts}, {}, {})


def packed(files):
    """Return a packed job_source of files: texts by name."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o644 if name.endswith(".plain.sh") else 0o755
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return Source([*files], content.getvalue())


def planned(job, members, files=("train.py",), source=None):
    """Return the plan and the findings of a job on members."""
    where = Where("digits-20261120-101500", "2026-11-20T10:15:00+0000", "", "/var/lib/trainyard", "train")
    return schedulers.plan(job, members, source or Source(files), where)


def make_plan(job, members, files=("train.py",)):
    plan, findings = planned(job, members, files)
    assert findings == []
    return plan


def summary_of(plan, results, unreachable=None, not_started=None, **asked):
    """Return the summary of a job over ssh from the `results` of its hosts."""
    return schedulers.summarize(plan, ssh.state(plan, results, unreachable or {}, not_started or {}, **asked))


def briefly(findings):
    """Return each finding as (host, check, found)."""
    return [(item.host, item.check, item.found) for item in findings]


def make_request(folder, job, hosts, **changes):
    """Return the request of a launch with its runs in `folder`/runs."""
    given = {
        "given": list(job),
        "available": len(hosts),
        "runs_dir": folder / "runs",
        "state_dir": "/var/lib/trainyard",
        "user": "train",
        "mpi_prefix": "/opt/trainyard/openmpi",
        "all_reduce": "/opt/trainyard/nccl-tests/bin/all_reduce_perf_mpi",
        "venvs": "/opt/trainyard/venvs",
        "asked_by": "launch.yml",
        "facts_file": folder / "facts.json",
    }
    return planning.Request(job=job, hosts=hosts, **{**given, **changes})


def saved_plan(job_id, ranks=None, **changes):
    """Return a plan as in plan.json; `ranks` are those of each host, the head first."""
    plan = make_plan(make_job(), [member(0), member(1)]).as_dict()
    found = ranks or {node["host"]: node["ranks"] for node in plan["nodes"]}
    nodes = [
        {**plan["nodes"][0], "host": host, "node_rank": number, "ranks": list(own)}
        for number, (host, own) in enumerate(found.items())
    ]
    head = {**plan["head"], "host": nodes[0]["host"]}
    plan = {**plan, "job_id": job_id, "head": head, "nodes": nodes, "candidates": []}
    return {**plan, "world_size": sum(map(len, found.values())), **changes}


def submitted(kind="slurm", **settings):
    """Return what the plan of a job for a scheduler has instead of nodes."""
    own = {"slurm": {"shared": False, "user": "train"}}
    texts = ("api_version", "name", "namespace", "kubeconfig", "context", "container", "operator")
    own["kubernetes"] = {**dict.fromkeys(texts, "x"), "resource": "Job", "pods": 2, "ranks_per_pod": 1}
    engine = {"kind": kind, "starts": "torchrun", "submit_host": "login", "nodes": 2, "ranks_per_node": 1}
    return {"nodes": [], "candidates": [], "engine": {**engine, "settings": {**own[kind], **settings}}}


def saved_record(job_id, nodes=(), **changes):
    """Return a record as in summary.json; `nodes` are hosts, on which nothing is left."""
    found = [{"host": host, "state": "ended", "why": "", "ranks": [], "processes": []} for host in nodes]
    about = {"job_id": job_id, "job_name": "digits", "launcher": "torchrun", "rank_log": "rank_{rank}.log"}
    counts = {"world_size": 2, "ranks_running": 0, "max_restarts": 0, "restarts": [], "metrics": {}, "failure": None}
    times = {"started": 1000.0, "finished": 1010.0, "elapsed_s": 10.0}
    return {**about, **counts, **times, "state": "succeeded", "nodes": found, **changes}


def saved_verification(name, cluster, **changes):
    """Return a report as in report.json."""
    about = {"schema": "trainyard-verify-1", "id": name, "cluster": cluster, "state": "pass"}
    empty = {**{key: [] for key in ("nodes", "phases", "benchmarks")}, "stragglers": None, "versions": {}}
    return {**about, **empty, "started": 1795000000.0, "elapsed_s": 9.0, "hosts": ["n1", "n2"], **changes}


def processes(plan):
    return [(node, process) for node in plan["nodes"] for process in node["processes"]]
