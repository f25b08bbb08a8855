"""Outcomes of phases and roles, which roles are verified where, which hosts run jobs, and the phases' names."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.base.checks import PHASES, STATES, outcomes, worst
from ansible.module_utils.trainyard.verify.phases import first_job, job_hosts, phase_outcome, verified_roles
from ansible.module_utils.trainyard.verify.report import FIRST_PHASES
from ansible.module_utils.trainyard.verify.software import check_role

PROJECT = Path(__file__).resolve().parents[3]
ROLE = PROJECT / "roles/verify"
HOSTS = [f"n{number}" for number in range(1, 30)]
AGAIN = "ansible-playbook playbooks/verify.yml -i mine"


def outcome(states, reasons=("why",), skipped=""):
    reasons = [*reasons, *reasons[-1:] * len(states)]
    checks = [{"state": state, "reason": reason} for state, reason in zip(states, reasons)]
    return phase_outcome(checks, "drift", skipped, AGAIN)


@pytest.mark.parametrize(
    "states", [states for number in range(1, len(STATES) + 1) for states in combinations(STATES, number)]
)
def test_a_phase_has_the_outcome_of_the_report(states):
    found = outcome(states)
    assert found["state"] == worst(states)
    if found["state"] != "skipped":
        assert found["text"] == f"{worst(states).replace('_', ' ')}, {outcomes(states)}"


def test_a_phase_without_any_outcome_has_a_reason():
    skipped = outcome(["skipped"] * 3, ["no GPU", "no NPU", "no GPU"])
    assert (skipped["reason"], skipped["text"]) == ("no GPU; no NPU", "does not apply, no GPU; no NPU")
    assert outcome(["skipped", "pass"])["reason"] == ""
    assert outcome([], skipped="one node")["text"] == "does not apply, one node"
    assert phase_outcome(None, "drift", "one node", AGAIN)["checks"] == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_that_something_stopped_is_unknown(phase):
    found = phase_outcome(None, phase, "", AGAIN)
    (check,) = found["checks"]
    assert (found["state"], found["text"]) == ("unknown", "unknown, 1 unknown")
    assert (check["phase"], check["reason"], check["command"]) == (phase, "the phase did not finish", AGAIN)


def test_hosts_stay_in_the_order_of_the_inventory():
    groups = {"nvidia": ["n0", *HOSTS], "rdma": HOSTS[3:]}
    asked = (["openmpi", "container_runtime", "pytorch"], ["nvidia_driver", "cuda_toolkit", "nccl", "cudnn"])
    roles = verified_roles(HOSTS, groups, *asked, manage_system=True, fresh=False)
    first = ["nvidia_stack", "nvidia_driver", "cuda_toolkit", "pytorch", "nccl", "cudnn", "rdma"]
    assert list(roles) == [*first, "node_baseline", "openmpi", "container_runtime"]
    assert (roles["rdma"], roles["nccl"], roles["openmpi"]) == (HOSTS[3:], HOSTS, HOSTS)
    fresh = verified_roles(HOSTS, groups, *asked, manage_system=True, fresh=True)
    assert list(fresh) == first[:4]
    assert list(verified_roles(HOSTS, {}, ["pytorch"], ["nccl"], manage_system=False, fresh=False)) == ["pytorch"]


def jobs(usable, phases=PHASES, frameworks=("openmpi", "pytorch"), pair_venv=False, **devices):
    answers = {host: {"facts": {}, "devices": {"vendor": "none", **devices}} for host in HOSTS}
    return job_hosts(usable, answers, phases, frameworks, pair_venv=pair_venv)


def test_jobs_run_on_usable_hosts_and_only_for_the_requested_phases():
    two = ["n1", "n2"]
    found = jobs(two)
    assert found["collectives"] == {"pytorch": two, "mpi": two}
    assert (found["bandwidth"], found["inside"], found["pairs"], found["no_pairs"]) == (two, [], two, "")
    assert found["backend"] == "gloo"
    found = jobs(two, phases=["drift"])
    assert (found["collectives"], found["bandwidth"], found["inside"], found["pairs"]) == ({}, [], [], [])
    found = jobs(two, vendor="nvidia", gpus=[{}, {}])
    assert (found["inside"], found["backend"]) == (two, "auto")
    assert jobs(two, frameworks=["openmpi"])["backend"] == "mpi"


def test_devices_are_measured_with_pytorch_or_else_with_mindspore():
    for frameworks in ["mindspore"], ["mindspore", "pytorch"]:
        found = jobs(["n1"], frameworks=frameworks)
        assert (found["compute"], found["measuring"]) == (["n1"], frameworks[-1])
    assert "add pytorch or mindspore" in jobs(["n1"], frameworks=["oneflow"])["no_compute"]


@pytest.mark.parametrize(("usable", "given", "why"), [
    (["n1"], {}, "there are no two nodes that jobs can use"),
    ([], {"frameworks": ["openmpi"]}, "there are no two nodes that jobs can use"),
    (["n1", "n2"], {"frameworks": ["openmpi"]}, "pairs need PyTorch on every node: add pytorch to"),
    (["n1", "n2"], {"frameworks": ["openmpi"], "pair_venv": True}, ""),
])  # fmt: skip
def test_missing_pairs_have_a_reason(usable, given, why):
    found = jobs(usable, **given)
    assert found["no_pairs"].startswith(why) and bool(found["no_pairs"]) == bool(why)
    assert bool(found["pairs"]) == (not why)


def phases_of(place):
    """The phases as they stand in a file, in its order."""
    text = (PROJECT / place).read_text()
    if place.endswith(".md"):
        table = text.partition("| phase |")[2].partition("\n\n")[0]
        return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    if place.endswith(".json"):
        return json.loads(text)["$defs"]["phase_name"]["enum"]
    if place.startswith("playbooks"):
        return re.search(r"# Phases: ([\w, ]+)\.", text)[1].split(", ")
    found = yaml.safe_load(text)
    if "argument_specs" in found:
        return found["argument_specs"]["begin"]["options"]["verify_phases"]["default"]
    return found.get("verify_phases") or list(found["__verify_about"])


@pytest.mark.parametrize("place", [
    "roles/verify/defaults/main.yml", "roles/verify/meta/argument_specs.yml", "roles/verify/vars/main.yml",
    "docs/verify.md", "docs/report.schema.json", "playbooks/verify.yml",
])  # fmt: skip
def test_the_phases_are_the_same_everywhere(place):
    assert tuple(phases_of(place)) == PHASES


def test_every_phase_runs_and_has_its_place_among_those_to_begin_with():
    assert sorted(FIRST_PHASES) == sorted(PHASES)
    tasks = [
        task for name in ("measure", "repetition") for task in yaml.safe_load((ROLE / f"tasks/{name}.yml").read_text())
    ]
    assert ("software", *(task["vars"]["verify_phase"] for task in tasks if "vars" in task)) == PHASES
    assert all((ROLE / f"tasks/{phase}.yml").is_file() for phase in PHASES)


@pytest.mark.parametrize(
    ("hosts", "frameworks", "job"),
    [
        (["n1"], ["pytorch"], "jobs/digits.yml"),
        (["n1", "n2"], ["openmpi", "pytorch", "mindspore"], "jobs/digits-cluster.yml"),
        (["n1"], ["mindspore"], "jobs/mindspore-digits.yml"),
        (["n1", "n2", "n3"], ["mindspore"], "jobs/mindspore-cluster.yml"),
        (["n1", "n2"], ["oneflow"], "jobs/oneflow-digits.yml"),
        (["n1", "n2"], ["openmpi"], ""),
        (["n1"], [], ""),
    ],
)
def test_the_first_job_fits_the_cluster(hosts, frameworks, job):
    assert first_job(hosts, frameworks) == job
    assert not job or (PROJECT / job).is_file()


PASSED = {"fault": ""}


def test_a_role_that_passes_everywhere_is_one_check():
    (check,) = check_role("nccl", HOSTS, dict.fromkeys(HOSTS, PASSED), AGAIN)
    assert (check.state, check.hosts, check.name) == ("pass", (), "nccl")


def test_equal_faults_of_nodes_are_one_check_that_names_them():
    # As an answer has it: the lines of findings are one line.
    text = "PyTorch differs: 1 finding. 1. torch on n1 found     2.12.0 expected  2.13.0"
    fault = {"fault": text, "all": False}
    results = {"n1": fault, "n2": PASSED, "n3": fault, "n4": {"fault": "no environment", "all": False}}
    checks = check_role("pytorch", list(results), results, AGAIN)
    assert [(check.state, check.hosts, check.reason) for check in checks] == [
        ("fail", ("n1", "n3"), "PyTorch differs: 1 finding."),
        ("fail", ("n4",), "no environment"),
    ]
    assert checks[0].found == "PyTorch differs: 1 finding. 1. torch on n1 found 2.12.0 expected 2.13.0"
    assert checks[0].action.endswith(f"{AGAIN} --tags pytorch")


@pytest.mark.parametrize(
    ("result", "state", "named"),
    [
        ({"n1": {"fault": "NCCL is not the same", "all": True}}, "fail", ()),
        ({"n1": {"fault": "NCCL is not the same", "all": False}}, "fail", ("n1",)),
        # A node without a result is unknown and never a pass.
        ({"n1": PASSED, "n2": PASSED}, "unknown", ("n3",)),
    ],
)
def test_a_fault_ends_the_verification_of_nodes_without_a_result(result, state, named):
    (check,) = check_role("nccl", HOSTS[:3], result, AGAIN)
    assert (check.state, check.hosts) == (state, named)
