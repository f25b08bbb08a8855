"""Plans for captured machines, and what is said of a plan."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.job.plan import describe
from hypothesis import given, settings
from hypothesis import strategies as st
from job_samples import captured_member, make_job, make_plan, member, planned, processes


@pytest.fixture
def gpu_members(tmp_path):
    return [
        captured_member(tmp_path, "gpu8_infiniband", "gpu1", "10.20.0.11"),
        captured_member(tmp_path, "gpu8_infiniband", "gpu2", "10.20.0.12"),
    ]


def test_plan_of_two_captured_machines_is_the_reviewed_one(gpu_members, golden):
    job = make_job(env={"NCCL_DEBUG": "WARN"}, progress_pattern="step (?P<step>[0-9]+)")
    plan = make_plan(job, gpu_members).as_dict()
    golden(plan, "plans/torchrun-two-gpu8-nodes.json")


def test_direct_on_captured_machines_has_a_process_for_each_device(gpu_members):
    plan = make_plan(make_job(launcher="direct"), gpu_members).as_dict()
    assert [process["name"] for _, process in processes(plan)] == [f"rank{rank}" for rank in range(16)]
    for _, process in processes(plan):
        assert process["env"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
        assert process["env"]["NCCL_IB_HCA"].startswith("=mlx5_")


def test_ascend_devices_are_hidden_by_their_own_variable(tmp_path):
    node = captured_member(tmp_path, "ascend8", "a1", "localhost")
    plan = make_plan(make_job(devices=[0, 1]), [node]).as_dict()
    env = plan["nodes"][0]["processes"][0]["env"]
    assert env["ASCEND_RT_VISIBLE_DEVICES"] == "0,1" and "CUDA_VISIBLE_DEVICES" not in env


def test_the_broken_driver_is_reported_for_its_node(tmp_path, gpu_members):
    node = captured_member(tmp_path, "broken_driver", "gpu3", "localhost")
    _, findings = planned(make_job(network="10.20.0.0/24"), [*gpu_members, node])
    assert ("gpu3", "devices") in [(item.host, item.check) for item in findings]


def test_describe_says_what_is_shared_once(golden):
    plan = make_plan(make_job(launcher="direct", secret_env=["KEY"]), [member(0, devices=2), member(1)]).as_dict()
    golden(f"{describe(plan)}\n", "plans/described.txt")


def test_nothing_is_explained_that_is_not_shown():
    plan = make_plan(make_job(launcher="direct", env={"NCCL_SOCKET_IFNAME": "eth0"}), [member(0)]).as_dict()
    assert "NCCL_SOCKET_IFNAME=eth0" in describe(plan) and "NCCL's own" not in describe(plan)


@settings(max_examples=50)
@given(st.permutations(range(6)))
def test_ranks_follow_the_inventory_whatever_the_names(order):
    members = [member(number) for number in order]
    plan = make_plan(make_job(launcher="direct"), members).as_dict()
    assert [(node["host"], node["processes"][0]["ranks"]) for node in plan["nodes"]] == [
        (item.host, [rank]) for rank, item in enumerate(members)
    ]
