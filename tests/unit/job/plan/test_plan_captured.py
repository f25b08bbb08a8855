"""Plans for captured machines, and their texts."""

import json
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.job.plan.plan import describe
from ansible.module_utils.trainyard.job.run.wire import answers
from ansible.module_utils.trainyard_node.cluster.node_identity import read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree
from captured_tree import NODES, unfold
from hypothesis import given
from hypothesis import strategies as st
from job_samples import captured_member, make_job, make_plan, member, planned, processes


@pytest.fixture
def gpu_members(tmp_path):
    return [captured_member(tmp_path, "gpu8_infiniband", f"gpu{at}", f"10.20.0.1{at}") for at in (1, 2)]


def test_options_reach_the_nodes_that_need_them(gpu_members):
    given = {"data": ["/data"], "stop_grace": 5, "rejoin_timeout": 9, "metrics_folder": "/m", "hang_timeout": "off"}
    plan = make_plan(make_job(outputs=["*.csv"], secret_env=["KEY"], **given), gpu_members)
    expected = {"data": ["/data"], "stop": {"signal": "TERM", "grace_s": 5}, "rejoin_s": 9, "hang": None}
    expected |= {"metrics_folder": "/m", "health_gate": True, "busy_devices": "refuse"}
    for each in (plan.as_dict(), *plan.node_plans([]).values()):
        assert each.items() >= expected.items()
    assert plan.as_dict().items() >= {"outputs": ["*.csv"], "secret_env": ["KEY"], "outputs_limit_mib": 64}.items()
    assert not any({"outputs", "secret_env", "events_s"} & each.keys() for each in plan.node_plans([]).values())


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


def test_an_environment_of_conda_is_planned_with_its_own_python(tmp_path):
    """It has no pyvenv.cfg; the guides make one, with conda's mindspore 2.0.0a0."""
    conda = "/opt/conda/envs/guide"
    tree = unfold("plain", tmp_path)
    for name in (
        "bin/python",
        "conda-meta/history",
        "lib/python3.9/site-packages/mindspore-2.0.0a0.dist-info/METADATA",
    ):
        (tree / f"{conda}/{name}".lstrip("/")).parent.mkdir(parents=True)
        (tree / f"{conda}/{name}".lstrip("/")).touch()
    facts = read_node(Tree(str(tree)), packages=["mindspore"], venv=conda, user=None)
    assert facts["venv"]["exists"] and facts["packages"] == {"mindspore": "2.0.0a0"}
    job = make_job(launcher="mindspore", venv=conda, packages=["mindspore"], ranks_per_node=8, devices="none")
    node = replace(member(0), facts={**member(0).facts, "packages": facts["packages"]})
    plan = make_plan(job, [node])
    assert plan.as_dict()["venv"] == conda and len(processes(plan.as_dict())) == 9
    assert {process["env"]["PATH"].split(":")[0] for _, process in processes(plan.as_dict())} == {f"{conda}/bin"}


def test_the_broken_driver_is_reported_for_its_node(tmp_path, gpu_members):
    node = captured_member(tmp_path, "broken_driver", "gpu3", "localhost")
    _, findings = planned(make_job(network="10.20.0.0/24"), [*gpu_members, node])
    assert ("gpu3", "devices") in [(item.host, item.check) for item in findings]


def in_a_container(facts):
    interfaces = [{**each, "kind": "virtual"} for each in facts["networks"]["interfaces"] if each["name"] != "lo"][:1]
    networks = {**facts["networks"], "interfaces": interfaces}
    return {**facts, "container": "podman", "boot_id": facts["hostname"], "networks": networks}


def with_links_down(facts):
    interfaces = [{**each, "up": False, "state": "down"} for each in facts["networks"]["interfaces"]]
    return {**facts, "networks": {**facts["networks"], "interfaces": interfaces}}


def in_a_super_pod(facts):
    return {**facts, "npu": {**facts["npu"], "chip": "a3", "super_pod_id": "7"}} if facts["npu"] else facts


@pytest.mark.parametrize("tree", sorted(path.stem for path in NODES.glob("*.tree")))
def test_cached_facts_make_the_same_plan_as_all_facts(tmp_path, tree):
    """The facts of all nodes are held at once, and a plan needs few facts of a node with 8 GPUs."""
    software = {"packages": {"torch": "2.13.0"}, "mpi": {"version": "4.1.4", "path": "/opt/mpi/bin/mpirun"}}
    read = [captured_member(tmp_path, tree, f"n{at}", f"10.20.0.1{at}", **software) for at in (1, 2)]
    for change, address in ((dict, ""), (in_a_container, "10.99.0.1"), (with_links_down, ""), (in_a_super_pod, "")):
        complete = [replace(each, facts=change(each.facts), address=address or each.address) for each in read]
        reported = [answers.checked("probe", {"node": each.facts}, each.host)["node"] for each in complete]
        # The planner draws the ports.
        cached = [replace(each, facts={**own, "free_ports": [29500, 29501]}) for each, own in zip(complete, reported)]
        names = json.dumps([each.facts for each in cached])
        assert "mac" not in names and "uuid" not in names and "fingerprint" in names
        for launcher in ("direct", "torchrun", "mpirun", "mindspore", "oneflow", "rank_table"):
            job = make_job(launcher=launcher, packages=["torch"])
            (plan, findings), (same, again) = planned(job, complete), planned(job, cached)
            assert again == findings
            assert (same and same.as_dict()) == (plan and plan.as_dict())
            assert (same and same.node_plans([])) == (plan and plan.node_plans([]))


def test_the_plan_for_reading_shows_shared_variables_once():
    plan = make_plan(make_job(launcher="direct", secret_env=["KEY"]), [member(0, devices=2), member(1)]).as_dict()
    lines = describe(plan).splitlines()
    once = ("    WORLD_SIZE=3", "    MASTER_ADDR=10.77.0.1", "    KEY=(secret)", "    rank2 (rank 2)  python train.py")
    assert [lines.count(each) for each in (*once, "      CUDA_VISIBLE_DEVICES=0,1")] == [1, 1, 1, 1, 2]


def test_nothing_is_explained_that_is_not_shown():
    plan = make_plan(make_job(launcher="direct", env={"NCCL_SOCKET_IFNAME": "eth0"}), [member(0)]).as_dict()
    assert "NCCL_SOCKET_IFNAME=eth0" in describe(plan) and "NCCL's own" not in describe(plan)


@given(st.permutations(range(6)))
def test_ranks_follow_the_inventory_whatever_the_names(order):
    members = [member(number) for number in order]
    plan = make_plan(make_job(launcher="direct"), members).as_dict()
    assert [(node["host"], node["processes"][0]["ranks"]) for node in plan["nodes"]] == [
        (item.host, [rank]) for rank, item in enumerate(members)
    ]
