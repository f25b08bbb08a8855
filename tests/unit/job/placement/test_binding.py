"""Ranks run on the cores next to their device (job_binding)."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.placement.binding import VARIABLE, cores
from ansible.module_utils.trainyard.job.run.wire.answers import NODE
from ansible.module_utils.trainyard_node.job.run.ranks import execute
from job_samples import captured_member, make_job, make_plan

TWO = [{"cpus": "0-3,8-11", "devices": [0, 1]}, {"cpus": "4-7,12-15", "devices": [2, 3]}]
FIRST, SECOND = "0-3,8-11", "4-7,12-15"


@pytest.mark.parametrize(
    ("domains", "devices", "ranks", "expected"),
    [
        (TWO, (0, 1, 2, 3), 4, [FIRST, FIRST, SECOND, SECOND]),
        # As many on each, in the order of the ranks.
        (TWO, (3, 0), 2, [SECOND, FIRST]),
        # One domain would be crowded and the other idle.
        (TWO, (0, 1, 2), 3, []),
        (TWO, (0, 1), 2, []),
        (TWO, (2,), 1, []),
        # One domain; a copy that has all devices; no devices; a device whose place is unknown.
        (TWO[:1], (0, 1), 2, []),
        (TWO, (0, 1, 2, 3), 1, []),
        (TWO, (), 4, []),
        ([*TWO[:1], {**TWO[1], "devices": [2]}], (0, 2, 3), 3, []),
        ([], (0, 1), 2, []),
    ],
)
def test_ranks_are_bound_where_each_domain_has_as_many(domains, devices, ranks, expected):
    assert cores(domains, devices, ranks) == ";".join(expected)


@pytest.mark.parametrize("launcher", ["direct", "torchrun"])
def test_the_plan_shows_the_cores_of_a_captured_machine(tmp_path, launcher):
    members = [captured_member(tmp_path, "gpu8_infiniband", f"n{number}", f"10.20.0.1{number}") for number in (1, 2)]
    assert {misfit(member.facts["numa"], NODE["?numa"]) for member in members} == {""}

    def bound(**changes):
        plan = make_plan(make_job(launcher=launcher, **changes), members)
        assert (VARIABLE in plan.describe()) == bool(plan.placement.head.cores)
        assert ";".join(plan.as_dict()["nodes"][1].get("cores", ())) == plan.placement.head.cores
        return plan.placement.head.cores

    assert bound() == ";".join(["0-7"] * 4 + ["8-15"] * 4)
    assert bound(binding="none") == bound(devices=[0, 1, 2]) == ""


def test_cores_that_a_node_cannot_have_sent_are_refused():
    for cpus in ("", "0-", "0-3;", "a", "1" * 6, "0," * 300 + "0"):
        assert misfit([{"cpus": cpus, "devices": []}], NODE["?numa"]), cpus


@pytest.mark.parametrize(
    ("value", "rank", "near"),
    [("{first};9999", "0", True), ("9999;{first}", "1", True), ("{first}-{first},9999", "0", True),
     # What this process may not have, a rank that is not there, and what is no list leave it as it was.
     ("9999", "0", False), ("{first}", "1", False), ("{first}", "", False), ("x-y", "0", False), ("", "0", False)],
)  # fmt: skip
def test_a_rank_runs_on_its_cores_as_far_as_it_may(value, rank, near):
    may = sorted(os.sched_getaffinity(0))
    env = {VARIABLE: value.format(first=may[0]), "LOCAL_RANK": rank}
    # Affinity is that of a thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(execute.bind, env).result()
        assert thread.submit(os.sched_getaffinity, 0).result() == set(may[:1] if near else may)


def test_a_process_without_the_variables_is_left_alone(monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("it was bound"))
    execute.bind({"LOCAL_RANK": "0"})
    execute.bind({VARIABLE: "0"})
