"""Nodes of one switch follow one another (job_rank_order: topology), and all that depends on their order agrees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.cluster.switches import topology
from ansible.module_utils.trainyard.job.placement import rank_order
from job_samples import make_job, member, planned

PATHS = {"n1": ["b"], "n2": ["a"], "n3": ["b"], "n4": ["a"]}
HOSTS = ["n1", "n2", "n3", "n4"]
MEMBERS = [member(number, mpi={"version": "4.1.4", "path": "/usr/bin/mpirun"}) for number in range(4)]


def job(**changes):
    made = make_job(rank_order="topology", **changes)
    return replace(made, topology=topology("lldp", PATHS, HOSTS))


def order(job):
    plan, findings = planned(job, MEMBERS)
    assert findings == []
    return plan


@pytest.mark.parametrize("launcher", ["torchrun", "direct", "mpirun", "msrun", "mindspore", "oneflow"])
def test_whatever_depends_on_the_order_agrees(launcher):
    made = order(job(launcher=launcher, ranks_per_node=2, packages=[])).as_dict()
    assert [node["host"] for node in made["nodes"]] == ["n1", "n3", "n2", "n4"]
    assert [node["ranks"] for node in made["nodes"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    addresses = [node["address"] for node in made["nodes"]]
    assert made["head"]["address"] == addresses[0] == "10.77.0.1"
    hosts = next(file for file in made["files"] if file["path"].endswith("/hosts"))
    assert hosts["content"].split() == addresses
    if launcher == "mpirun":
        (hostfile,) = [file["content"] for file in made["nodes"][0]["files"] if file["path"].endswith("hostfile")]
        assert [line.split()[0] for line in hostfile.splitlines() if line[:1].isdigit()] == addresses
    processes = [(node, process) for node in made["nodes"] for process in node["processes"]]
    assert {process["env"].get("MASTER_ADDR", addresses[0]) for _, process in processes} == {addresses[0]}
    assert all({*process["ranks"]} <= {*node["ranks"]} for node, process in processes if launcher != "mpirun")


def test_the_first_rank_moves_with_its_switch_and_spares_stay_last():
    paths = {"n1": ["b"], "n2": ["a"], "n3": ["a"], "n4": ["b"]}
    made = replace(job(max_restarts=1, spares=1), topology=topology("lldp", paths, HOSTS))
    plan = order(made).as_dict()
    assert [node["host"] for node in plan["nodes"]] == ["n1", "n2", "n3"]
    assert [spare["host"] for spare in plan["spares"]] == ["n4"]
    made = replace(made, topology=topology("lldp", {**paths, "n3": ["b"]}, HOSTS))
    assert [node["host"] for node in order(made).as_dict()["nodes"]] == ["n1", "n3", "n2"]


@pytest.mark.parametrize(
    ("known", "warned"),
    [
        (None, 1),
        (topology("pairs", {"other": ["a"]}, ["other"]), 1),
        # It is known that the order does not matter.
        (topology("pairs", {}, HOSTS, "flat"), 0),
    ],
)
def test_without_switches_the_order_is_that_of_the_inventory(known, warned):
    plan = order(replace(job(), topology=known))
    assert [node["host"] for node in plan.as_dict()["nodes"]] == HOSTS
    assert [each.check for each in plan.warnings] == ["job_rank_order"] * warned
    assert ("trainyard_topology" in plan.describe()) == bool(warned)
    assert order(make_job()).warnings == order(replace(make_job(), topology=topology("lldp", PATHS, HOSTS))).warnings


def test_a_launcher_with_an_order_of_its_own_keeps_it():
    ordered, (warned,) = rank_order.ordered(job(launcher="rank_table"), MEMBERS, own=True)
    assert ordered == MEMBERS and warned.found == "launcher rank_table, which orders ranks itself"
