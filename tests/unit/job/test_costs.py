"""Count what a launch costs, without a clock. The limits are the costs of today: to raise one is a decision.

A node imports modules for each question, a preflight starts programs, and `launch.yml --check` visits nodes and has
Ansible collect the variables of hosts. The costs of one node must not grow with the number of nodes.
"""

from __future__ import annotations

import ast
import collections
import itertools
import os
import pwd
import subprocess
import sys
from collections import UserDict
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.job.plan import plan as plans
from ansible.module_utils.trainyard.job.run.wire.answers import checked
from ansible.module_utils.trainyard_controller.job import planning
from ansible.module_utils.trainyard_node.job.plan import obstacles
from job_samples import make_job, make_request, member, planned
from plays import PROJECT, patched
from test_prepare import Nodes

sys.path.append(str(PROJECT / "benchmarks"))
import scale

ME = pwd.getpwuid(os.getuid()).pw_name
TOP = (ast.Expr, ast.Import, ast.ImportFrom)
AGENT = PROJECT / "module_utils/trainyard_node/agent.py"

# Modules of ours that a node imports for a question, and to run a monitor.
MODULES = {"preflight": 92, "start": 77, "state": 87, "collect": 80, "follow": 62, "busy": 44, "monitor": 110}
# Programs that a preflight starts on a node to find the job's launcher, the module or script that it runs, and imports.
PROGRAMS = 1
# For one more node in `launch.yml --check`: questions to it, and how often Ansible collects its variables. A job whose
# facts are cached asks no `probe`.
FIRST = {"probe": 1, "preflight": 1, "get_vars": 1}
CACHED = {"preflight": 1, "get_vars": 1}
# Calls of functions of ours for one more node that answers, while a job is prepared.
CALLS = {"first": 266, "cached": 310}
# Numbers of simulated nodes. The login of the first 8 is read, where Ansible does not become root.
FEW, MANY = 9, 12


# ---- what a node imports and starts


def imports_of(question):
    """Return the statements by which the agent imports what a question always needs, at the top of its function."""
    if question == "monitor":
        return "from .job.run.monitor import monitor"
    functions = {node.name: node for node in ast.parse(AGENT.read_text()).body if isinstance(node, ast.FunctionDef)}
    names = [question, "probe"] if question == "preflight" else [question]
    tops = [itertools.takewhile(lambda node: isinstance(node, TOP), functions[name].body) for name in names]
    return "\n".join(ast.unparse(node) for top in tops for node in top if not isinstance(node, ast.Expr))


@pytest.mark.parametrize("question", MODULES)
def test_modules_that_a_node_imports(question):
    statements = imports_of(question)
    assert "import" in statements
    program = f"""
import sys
sys.path.insert(0, {str(PROJECT)!r})
import module_utils.trainyard_node.agent
exec({statements!r}, {{"__name__": "question", "__package__": "module_utils.trainyard_node"}})
print(*(name for name in sys.modules if name.startswith("module_utils.")))
"""
    done = subprocess.run([sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    assert len(found) <= MODULES[question], found


@pytest.mark.parametrize(
    "searched",
    [{"entry": {"script": "train.py", "imports": ["json"], "environment": {}}}, {"module": "json.tool"}],
    ids=["script", "module"],
)
def test_programs_that_a_preflight_starts(spec, tmp_path, searched):
    counted = tmp_path / "counted"
    python = tmp_path / "venv/bin/python"
    python.unlink()
    python.write_text(f'#!/bin/sh\necho >> {counted}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    spec.update(searched, launcher="torchrun", starter="json", packages=[])
    assert obstacles.preflight(spec, ME) == []
    assert len(counted.read_text().splitlines()) <= PROGRAMS


# ---- what the controller does for each node

COUNT = """
import json
from ansible import vars
from ansible.plugins.connection import ConnectionBase
from ansible.vars.manager import VariableManager
def count(what):
    with open({noted!r}, "a") as file:
        file.write(what + "\\n")
get_vars, exec_command = VariableManager.get_vars, ConnectionBase.exec_command
def counted_vars(self, play=None, *given, **named):
    count("get_vars of a play" if play else "get_vars")
    return get_vars(self, play, *given, **named)
def counted_visit(self, *given, in_data=None, **named):
    count(json.loads(in_data.partition(b"\\n")[0])["question"])
    return exec_command(self, *given, in_data=in_data, **named)
VariableManager.get_vars, ConnectionBase.exec_command = counted_vars, counted_visit
"""


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    """Return what two checks of a job on FEW and on MANY nodes cost, the first one and one with cached facts."""
    found = {}
    for nodes in (FEW, MANY):
        folder = tmp_path_factory.mktemp(f"nodes{nodes}")
        argv, settings = scale.simulated_launch(str(folder), nodes)
        command = patched(argv, COUNT.format(noted=str(folder / "noted")))
        for facts in ("first", "cached"):
            done = subprocess.run(
                command, cwd=PROJECT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0 and f"{8 * nodes} ranks" in done.stdout, done.stdout + done.stderr
            found[facts, nodes] = collections.Counter((folder / "noted").read_text().splitlines())
            (folder / "noted").unlink()
    return found


@pytest.mark.parametrize(("facts", "limits"), [("first", FIRST), ("cached", CACHED)])
def test_visits_and_variables_of_one_more_node(checks, facts, limits):
    few, many = checks[facts, FEW], checks[facts, MANY]
    more = {what: (many[what] - few[what]) / (MANY - FEW) for what in many | few}
    assert {what: number for what, number in more.items() if number > limits.get(what, 0)} == {}
    assert few["preflight"] == FEW and few["get_vars of a play"] > 0


# ---- nothing is done for each node that grows with the number of nodes


def calls(function):
    """Return how often functions of ours are called, without comprehensions, which only some Pythons call."""
    number = 0

    def count(frame, event, _):
        nonlocal number
        code = frame.f_code
        number += (
            event == "call" and "/module_utils/trainyard" in code.co_filename and not code.co_name.endswith("comp>")
        )

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


def for_one_more(cost):
    """Return what one more node costs, among few and among many."""
    few, more, many, most = (cost(nodes) for nodes in (10, 20, 60, 70))
    return (more - few) / 10, (most - many) / 10


@pytest.mark.parametrize("facts", ["first", "cached"])
def test_a_job_is_prepared_at_one_cost_for_each_node(tmp_path, facts):
    def cost(count):
        names = [f"n{number + 1}" for number in range(count)]
        nodes = Nodes(*names)

        def ask(question, own):
            return {host: checked(question, answer, host) for host, answer in nodes(question, own).items()}

        job = {"job_name": "digits", "job_command": ["/usr/bin/true"], "job_launcher": "torchrun"}
        job |= {"job_venv": "/venv", "job_packages": []}
        hosts = [planning.Host(name, f"10.77.0.{number + 1}") for number, name in enumerate(names)]
        request = make_request(tmp_path / str(count), job, hosts, check=True)

        def prepare():
            assert [each.found for each in planning.prepare(request, ask).findings] == []

        if facts == "cached":
            prepare()
        return calls(prepare)

    few, many = for_one_more(cost)
    assert many <= 1.02 * few and few <= CALLS[facts], (few, many)


JOBS = {
    "direct": {"launcher": "direct"},
    "torchrun": {"launcher": "torchrun"},
    "mpirun": {"launcher": "mpirun"},
    "spares": {"launcher": "direct", "max_restarts": 1, "spares": 2},
    "spares_of_mpirun": {"launcher": "mpirun", "max_restarts": 1, "spares": 2},
    "fewer_nodes": {"launcher": "torchrun", "max_restarts": 1, "min_nodes": 2},
    "proxy": {"env": {"http_proxy": "http://proxy:1"}},
}


@pytest.mark.parametrize("name", JOBS)
def test_a_plan_is_made_at_one_cost_for_each_node(name):
    job = make_job(**JOBS[name])

    def cost(count):
        mpi = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
        env = [{"no_proxy": f"10.77.0.0/16,n{number}.of{count}"} for number in range(count)]
        members = [member(number, mpi=mpi, env=env[number] if name == "proxy" else {}) for number in range(count)]

        def make():
            plan, findings = planned(job, members)
            assert findings == []
            plan.node_plans([])

        return calls(make)

    few, many = for_one_more(cost)
    assert many <= 1.02 * few, (few, many)


@pytest.mark.parametrize("name", ["spares", "fewer_nodes"])
def test_the_hosts_that_may_lead_are_chosen_once(name, monkeypatch):
    chosen = []
    choose = plans.candidates
    monkeypatch.setattr(plans, "candidates", lambda *given: chosen.append(given) or choose(*given))
    plan, findings = planned(make_job(**JOBS[name]), [member(number) for number in range(8)])
    plan.node_plans([])
    assert (findings, len(chosen)) == ([], 1)


class Counted(UserDict):
    """Cached facts that count how often all of them are read."""

    reads = 0

    def keys(self):
        Counted.reads += 1
        return super().keys()


def test_cached_facts_are_not_copied_for_each_node(tmp_path, monkeypatch):
    names = [f"n{number + 1}" for number in range(8)]
    nodes = Nodes(*names)
    monkeypatch.setattr(planning.CachedFacts, "read", lambda _: Counted(nodes.facts))
    job = {"job_name": "digits", "job_command": ["/usr/bin/true"], "job_venv": "/venv", "job_packages": []}
    hosts = [planning.Host(name, f"10.77.0.{number + 1}") for number, name in enumerate(names)]
    assert planning.prepare(make_request(tmp_path, job, hosts, check=True), nodes).findings == []
    assert 0 < Counted.reads < len(names)
    Counted.reads = 0
    # Stale facts of all nodes are replaced.
    monkeypatch.setattr(
        planning.CachedFacts,
        "read",
        lambda _: Counted({name: {**nodes.facts[name], "fingerprint": "old"} for name in names}),
    )
    assert planning.prepare(make_request(tmp_path, job, hosts, check=True), nodes).findings == []
    assert 0 < Counted.reads < len(names)


def test_an_inventory_is_checked_once_for_all_its_files(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.yml").write_text(f"compute: {{hosts: {{n{number}: {{}}}}}}")
    statements = f"""
from ansible.module_utils.trainyard_controller.inputs import input_files
read = input_files.inventory_findings
def counted(*given):
    with open({str(tmp_path / "noted")!r}, "a") as file:
        file.write("read\\n")
    return read(*given)
input_files.inventory_findings = counted
"""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    argv = [program, "playbooks/status.yml", "--list-hosts", "-i", str(folder)]
    done = subprocess.run(patched(argv, statements), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "noted").read_text().splitlines() == ["read"]
