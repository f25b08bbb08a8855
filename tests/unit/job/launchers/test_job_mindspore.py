"""MindSpore's launchers: who is started where, with which place in the cluster, and what msrun cannot start."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.job.launchers import LAUNCHERS
from hypothesis import given
from hypothesis import strategies as st
from job_samples import VENV, briefly, make_job, make_plan, member, planned, processes, wrong


def mindspore_job(launcher="mindspore", **changes):
    times = {"join_timeout": 40, "heartbeat_timeout": 10, "message_timeout": 50}
    return make_job(launcher=launcher, **times, **changes)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12))
def test_one_scheduler_on_the_head_and_a_worker_for_each_rank(slots):
    members = [member(number, devices=count) for number, count in enumerate(slots)]
    plan = make_plan(mindspore_job(), members).as_dict()
    assert plan["rank_log"] == "worker_{rank}.log"
    (head, scheduler), *workers = processes(plan)
    assert (head["node_rank"], scheduler["name"], scheduler["ranks"]) == (0, "scheduler", [])
    assert scheduler["log"] == f"{plan['job_dir']}/logs/scheduler.log"
    assert (scheduler["env"]["MS_ROLE"], scheduler["env"]["MS_NODE_ID"]) == ("MS_SCHED", "sched")
    assert "DEVICE_ID" not in scheduler["env"]
    ranks = [rank for node in plan["nodes"] for rank in node["ranks"]]
    assert ranks == list(range(sum(slots)))
    assert [process["ranks"] for _, process in workers] == [[rank] for rank in ranks]
    for node, process in workers:
        (rank,) = process["ranks"]
        assert process["name"] == f"rank{rank}" and process["argv"] == ["python", "train.py"]
        assert process["log"] == f"{plan['job_dir']}/logs/worker_{rank}.log"
        assert (process["env"]["MS_ROLE"], process["env"]["MS_NODE_ID"]) == ("MS_WORKER", str(rank))
        assert process["env"]["DEVICE_ID"] == str(rank - node["ranks"][0])
    for node, process in processes(plan):
        env = {name: value for name, value in process["env"].items() if name.startswith("MS_")}
        # The scheduler, which knows who is missing, gives up before the workers.
        assert env.pop("MS_TOPO_TIMEOUT") == ("40" if env["MS_ROLE"] == "MS_SCHED" else "70")
        del env["MS_ROLE"], env["MS_NODE_ID"]
        assert env == {
            "MS_WORKER_NUM": str(sum(slots)),
            "MS_SERVER_NUM": "0",
            "MS_SCHED_HOST": "10.77.0.1",
            "MS_SCHED_PORT": str(plan["head"]["port"]),
            "MS_WORKER_IP": node["address"],
            "MS_NODE_TIMEOUT": "10",
            "MS_RECEIVE_MSG_TIMEOUT": "50",
        }


@pytest.mark.parametrize(
    ("facts", "workers"),
    [
        ({"devices": 1, "packages": {"mindspore": "2.2.14"}}, 30),
        # On the CPU, and from 2.6 on, a worker comes back only with the whole job.
        ({"packages": {"mindspore": "2.10.0"}}, None),
        ({"packages": {"mindspore": "2.2.14"}}, None),
    ],
)
def test_with_recovery_processes_come_back_alone_where_mindspore_takes_them(facts, workers):
    job = mindspore_job(recovery=True, max_restarts=3)
    plan = make_plan(job, [member(0, **facts), member(1, **facts)]).as_dict()
    for _, process in processes(plan):
        name = process["name"]
        assert process["env"]["MS_ENABLE_RECOVERY"] == "1"
        assert process["env"]["MS_RECOVERY_PATH"] == f"{plan['job_dir']}/attempt/recovery/{name}"
        assert process["recover_after_s"] == (0 if name == "scheduler" else workers)


def test_recovery_records_lie_in_job_recovery_path():
    job = mindspore_job(recovery=True, recovery_path="/shared/recovery/", max_restarts=3)
    plan = make_plan(job, [member(0)]).as_dict()
    for _, process in processes(plan):
        assert process["env"]["MS_RECOVERY_PATH"] == f"/shared/recovery/{plan['job_id']}/{process['name']}"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"recovery_path": "/shared/recovery"}, "/shared/recovery without job_recovery"),
        ({"recovery_path": "recovery", "recovery": True, "max_restarts": 1}, "recovery"),
    ],
)
def test_a_path_for_the_record_is_absolute_and_of_a_job_with_recovery(given, found):
    (finding,) = wrong(launcher="mindspore", **given)
    assert (finding.check, finding.found) == ("job_recovery_path", found)


def test_recovery_is_mindspores_own_and_counts_as_restarts():
    (launcher,) = wrong(launcher="torchrun", recovery=True, max_restarts=1)
    assert (launcher.check, launcher.found) == ("job_recovery", "true with job_launcher: torchrun")
    (budget,) = wrong(launcher="mindspore", recovery=True)
    assert budget.action == "set job_max_restarts, or leave job_recovery out"


def test_workers_on_the_cpu_have_no_device():
    plan = make_plan(mindspore_job(ranks_per_node=2), [member(0), member(1)]).as_dict()
    assert len(processes(plan)) == 5
    assert all("DEVICE_ID" not in process["env"] for _, process in processes(plan))


@given(st.integers(1, 12), st.integers(1, 8))
def test_msrun_is_started_once_on_each_node(nodes, slots):
    members = [member(number, devices=slots) for number in range(nodes)]
    job = mindspore_job("msrun", command=["train.py", "--epochs", 3])
    plan = make_plan(job, members).as_dict()
    assert plan["rank_log"] == "worker_{rank}.log"
    for node in plan["nodes"]:
        (agent,) = node["processes"]
        assert (agent["name"], agent["ranks"]) == ("agent", node["ranks"])
        assert agent["log"] == f"{plan['job_dir']}/logs/agent_{node['node_rank']}.log"
        assert " ".join(agent["argv"]) == (
            f"{VENV}/bin/python {plan['job_dir']}/trainyard.pyz agent mindspore.parallel.cluster.run "
            f"--worker_num={nodes * slots} "
            f"--local_worker_num={slots} --master_addr=10.77.0.1 --master_port={plan['head']['port']} "
            f"--node_rank={node['node_rank']} --log_dir={plan['job_dir']}/logs --join=True --cluster_time_out=40 "
            "train.py --epochs 3"
        )
        assert {name: value for name, value in agent["env"].items() if name.startswith("MS_")} == {
            "MS_SERVER_NUM": "0",
            "MS_WORKER_IP": node["address"],
            "MS_TOPO_TIMEOUT": "40",
            "MS_NODE_TIMEOUT": "10",
            "MS_RECEIVE_MSG_TIMEOUT": "50",
        }


def test_msrun_came_with_a_release():
    (finding,) = planned(mindspore_job("msrun"), [member(0, packages={"mindspore": "2.2.14"})])[1]
    assert (finding.host, finding.check, finding.action) == ("n1", "job_launcher", "use job_launcher: mindspore")
    assert "MindSpore 2.2.14 does not support msrun" in finding.found
    make_plan(mindspore_job("msrun"), [member(0, packages={"mindspore": "2.3.0"})])


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_release_without_a_build_for_the_devices_is_found_before_the_start(launcher):
    mpi = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
    members = [member(0, devices=2, packages={"mindspore": "2.10.0"}, mpi=mpi)]
    job = mindspore_job(launcher, packages=["mindspore"])
    finding = next(each for each in planned(job, members)[1] if each.check == "versions")
    assert briefly([finding]) == [("n1", "versions", "mindspore 2.10.0 without a build for gpu")]
    assert finding.expected == "for gpu, one of 1.7, 1.8, 1.9, 1.10, 2.0, 2.1, 2.2"
    assert "job_venv" in finding.action
    on_cpu = planned(mindspore_job(launcher, packages=["mindspore"], devices="none"), members)[1]
    assert not [each for each in on_cpu if each.check == "versions"]


@pytest.mark.parametrize(
    ("packages", "node_id"),
    [({"mindspore": "2.1.0"}, "1"), ({}, "1"), ({"mindspore-gpu": "1.8.1"}, "worker_1"), ({"mindspore": "x"}, "1")],
)
def test_node_ids_are_ranks_where_the_release_reads_them_so(packages, node_id):
    plan = make_plan(mindspore_job(), [member(0, devices=2, packages=packages)]).as_dict()
    assert plan["nodes"][0]["processes"][2]["env"]["MS_NODE_ID"] == node_id


@pytest.mark.parametrize("name", ["MS_ROLE", "MS_NODE_ID", "MS_SCHED_HOST", "MS_WORKER_IP", "MS_NODE_TIMEOUT"])
def test_a_job_file_sets_no_place_in_the_cluster(name):
    (finding,) = wrong(launcher="mindspore", env={name: "1"})
    assert (finding.check, finding.found) == ("job_env", f"{name}=1")
    assert finding.action == f"remove {name} from job_env"
