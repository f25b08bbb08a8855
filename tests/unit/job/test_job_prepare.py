"""Preparing a job: what the nodes are asked, what is kept of their answers, what is planned, written and refused."""

from __future__ import annotations

import json
import os
import tarfile

import pytest
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard_controller import planning
from job_samples import job_file, make_wanted, node_facts

GOOD = {"findings": [], "programs": {}, "stale": False}
DISK = {"host": "n1", "check": "disk", "found": "1 MiB", "expected": "more", "action": "make room"}
GONE = {"unreachable": True, "msg": "Connection timed out"}


class Nodes:
    """Answers as the nodes' agents do: `facts` and `checks` by host; who has neither does not answer."""

    def __init__(self, *hosts):
        self.facts = {host: {**node_facts(number), "fingerprint": "a"} for number, host in enumerate(hosts)}
        self.checks = {}
        self.asked = []

    def __call__(self, question, own):
        self.asked.append((question, list(own)))
        return {host: self._answer(question, host, given) for host, given in own.items()}

    def _answer(self, question, host, given):
        facts = self.facts.get(host)
        if facts is None:
            return GONE
        if question == "probe":
            return {"node": facts}
        stale = given["slice"]["fingerprint"] != facts["fingerprint"]
        answer = {**GOOD, "stale": stale, **self.checks.get(host, {})}
        return {**answer, "node": facts} if stale or answer["findings"] else answer

    def visits(self):
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def nodes():
    return Nodes("n1", "n2")


@pytest.fixture
def wanted(tmp_path):
    source = tmp_path / "source"
    (source / "__pycache__").mkdir(parents=True)
    (source / "__pycache__" / "train.pyc").touch()
    (tmp_path / "shared.py").write_text("print('shared')\n")
    (source / "train.py").write_text("print('train')\n")
    (source / "shared.py").symlink_to(tmp_path / "shared.py")

    def make(job=None, hosts=("n1", "n2"), env=None, **changes):
        given = job_file(source=str(source), launcher="direct")
        addresses = [f"10.77.0.{number + 1}" for number in range(len(hosts))]
        found = [planning.Host(host, at, (env or {}).get(host)) for host, at in zip(hosts, addresses)]
        return make_wanted(tmp_path, {**given, **(job or {})}, found, **changes)

    return make


def test_a_plan_is_written_with_the_source(wanted, nodes):
    made = planning.prepare(wanted(), nodes)
    assert made.findings == []
    assert nodes.visits() == [("probe", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    written = json.loads((made.run_dir / "plan.json").read_text())
    assert (written["job_id"], written["world_size"], written["asked_by"]) == (made.run_dir.name, 2, "launch.yml")
    assert written == made.plan and written["check"] is False
    with tarfile.open(made.run_dir / "source.tar.gz") as source:
        assert source.getnames() == ["shared.py", "train.py"]
        # A link to a file elsewhere on the controller travels as the file.
        assert source.extractfile("shared.py").read() == b"print('shared')\n"
        assert {info.uname for info in source} == {"root"}


def test_facts_are_kept_so_that_one_visit_is_enough(wanted, nodes):
    first = planning.prepare(wanted(), nodes)
    nodes.visits()
    second = planning.prepare(wanted(), nodes)
    assert nodes.visits() == [("preflight", ["n1", "n2"])]
    assert second.run_dir.name != first.run_dir.name and second.findings == []
    # For another environment they are of no use, and a host with another address is another one.
    planning.prepare(wanted({"job_venv": "/other"}), nodes)
    assert nodes.visits()[0] == ("probe", ["n1", "n2"])


def test_only_nodes_without_kept_facts_are_asked_for_them(wanted, nodes):
    planning.prepare(wanted(hosts=["n1"]), nodes)
    nodes.visits()
    assert planning.prepare(wanted(), nodes).findings == []
    assert nodes.visits() == [("probe", ["n2"]), ("preflight", ["n1", "n2"])]


def test_a_node_that_has_changed_is_planned_as_what_it_is_now(wanted, nodes):
    planning.prepare(wanted(), nodes)
    nodes.visits()
    nodes.facts["n2"] = {**node_facts(1, cpus=4), "fingerprint": "b"}
    made = planning.prepare(wanted(), nodes)
    # It has said so itself: nobody asks it once more for its facts.
    assert nodes.visits() == [("preflight", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    assert made.findings == []
    nodes.visits()
    planning.prepare(wanted(), nodes)
    assert nodes.visits() == [("preflight", ["n1", "n2"])]


def test_findings_by_kept_facts_are_those_of_what_the_nodes_are_now(wanted, nodes, tmp_path):
    planning.prepare(wanted(), nodes)
    nodes.visits()
    nodes.checks["n1"] = {"findings": [DISK]}
    refused = planning.prepare(wanted(), nodes)
    assert [finding.check for finding in refused.findings] == ["disk"]
    assert nodes.visits() == [("preflight", ["n1", "n2"]), ("preflight", ["n1", "n2"])]
    assert [item["check"] for item in json.loads((refused.run_dir / "findings.json").read_text())] == ["disk"]
    assert refused.headline == planning.NO_JOB


def test_a_node_that_is_gone_is_asked_once(wanted, nodes, tmp_path):
    planning.prepare(wanted(), nodes)
    nodes.visits()
    del nodes.facts["n2"]
    refused = planning.prepare(wanted(), nodes)
    assert [(finding.host, finding.check) for finding in refused.findings] == [("n2", "reach")]
    assert [hosts for _, hosts in nodes.visits()].count(["n1", "n2"]) == 1
    # And nobody who never answered is checked.
    (tmp_path / "facts.json").unlink()
    assert [finding.host for finding in planning.prepare(wanted(), nodes).findings] == ["n2"]
    assert ("preflight", ["n1", "n2"]) not in nodes.visits()


def test_what_was_found_elsewhere_comes_with_the_rest(wanted, nodes):
    nodes.checks["n1"] = {"findings": [DISK]}
    tls = Finding(check="tls", found="old", expected="new", action="renew")
    refused = planning.prepare(wanted(found=[tls], env={"n2": {"RANK": "1"}}), nodes)
    assert [finding.check for finding in refused.findings] == ["job_node_env", "tls", "disk"]


def test_check_mode_writes_the_plan_and_the_last_one_stays(wanted, nodes, tmp_path):
    started = planning.prepare(wanted(), nodes)
    other = {"job_name": "digits-2"}
    previews = [planning.prepare(wanted(job, check=True), nodes) for job in (other, {}, {}, {})]
    kept = {path.parent.name: json.loads(path.read_text())["check"] for path in tmp_path.glob("runs/*/plan.json")}
    assert kept == {started.run_dir.name: False, previews[0].run_dir.name: True, previews[-1].run_dir.name: True}


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"available": 0, "hosts": []}, "job_hosts", "no host in 'gpus'"),
        ({"job": {"job_nodes": 3}}, "job_nodes", "3 nodes asked for, 2 in group gpus"),
        ({"job": {"job_nodes": "two"}}, "job_nodes", "'two'"),
        ({"job": {"job_nodes": -1}}, "job_nodes", "-1"),
        ({"given": ["job_nmae"]}, "job file", "unknown variable job_nmae"),
        ({"job": {"job_source": "/nowhere"}}, "job_source", "no folder '/nowhere' on the controller"),
        ({"job": {"job_port": 1}}, "job_port", "1"),
        ({"job": {"job_scheduler": "k8s"}}, "job_scheduler", "'k8s'"),
        ({"env": {"n2": {"RANK": "1"}}}, "job_node_env", "RANK=1"),
        ({"env": {"n1": ["A=1"]}}, "job_node_env", "a list"),
    ],
)
def test_a_job_that_cannot_run_leaves_nothing(wanted, nodes, tmp_path, changes, check, found):
    changes = {**changes, "job": {**changes.get("job", {}), "job_hosts": "gpus"}}
    refused = planning.prepare(wanted(**changes), nodes)
    assert [(finding.check, finding.found) for finding in refused.findings] == [(check, found)]
    assert refused.run_dir is None and not (tmp_path / "runs").exists()


def test_a_job_file_that_cannot_be_read_asks_nobody(wanted, nodes):
    planning.prepare(wanted({"job_port": 1}), nodes)
    assert nodes.visits() == []


def test_findings_of_the_plan_leave_the_nodes_to_be_checked(wanted, nodes):
    nodes.checks["n1"] = {"findings": [DISK]}
    refused = planning.prepare(wanted(env={"n2": {"RANK": "1"}}), nodes)
    assert [(finding.host, finding.check) for finding in refused.findings] == [("n2", "job_node_env"), ("n1", "disk")]


def test_a_source_that_is_no_source(wanted, nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(ssh, "MOST_SOURCE", 1 << 20)
    (tmp_path / "source" / "data.bin").write_bytes(os.urandom(2 << 20))
    (finding,) = planning.prepare(wanted(), nodes).findings
    assert (finding.check, finding.found) == ("job_source", "2 MiB, packed")


def test_hosts_that_limit_leaves_out_are_told_as_such(wanted):
    def ask(question, own):
        every = {"probe": {"node": node_facts()}, "preflight": GOOD}[question]
        return {host: every if host == "n1" else {} for host in own}

    refused = planning.prepare(wanted(limit="n1,localhost"), ask)
    assert [(finding.host, finding.check) for finding in refused.findings] == [("n2", "limit")]


def test_two_launches_do_not_begin_with_the_same_port(wanted, nodes, tmp_path):
    for facts in nodes.facts.values():
        facts["free_ports"] = list(range(20000, 20064))
    planning.prepare(wanted(), nodes)
    ports = {planning.prepare(wanted(), nodes).plan["head"]["port"] for _ in range(20)}
    assert len(ports) > 1


def test_kept_facts_that_cannot_be_read_are_asked_again(wanted, nodes, tmp_path):
    planning.prepare(wanted(), nodes)
    (tmp_path / "facts.json").write_text("{half")
    nodes.visits()
    assert planning.prepare(wanted(), nodes).findings == []
    assert nodes.visits()[0] == ("probe", ["n1", "n2"])
