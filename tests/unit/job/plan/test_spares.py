"""Spares: their plan for each place, their choice, and the jobs that cannot have any."""

import json
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.ascend import given_rank_table, rank_table
from ansible.module_utils.trainyard.job import launchers, schedulers
from ansible.module_utils.trainyard.job.plan.plan import describe, node_plans
from ansible.module_utils.trainyard.job.plan.spares import hosts
from ansible.module_utils.trainyard.job.run.decide.restarts import Restarts, restart_text
from ansible.module_utils.trainyard.job.run.lead.moved_addresses import file, process, text
from ansible.module_utils.trainyard.job.schedulers import ssh
from ansible.module_utils.trainyard.report.job_text import explain
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, node_facts, wrong
from job_samples import planned as planned_with
from rank_table_samples import MPI, server, table_job

SPARE = {"max_restarts": 1, "spares": 1}


def planned(nodes=4, **job):
    return make_plan(make_job(**SPARE, **job), [member(number) for number in range(nodes)]).as_dict()


@pytest.mark.parametrize("launcher", ["torchrun", "direct", "mindspore", "msrun"])
def test_a_spare_runs_the_processes_of_a_place_at_its_own_address(launcher):
    plan = planned(launcher=launcher)
    assert [node["host"] for node in plan["nodes"]] == ["n1", "n2", "n3"] and plan["world_size"] == 3
    (spare,) = plan["spares"]
    assert (spare["host"], spare["address"], sorted(spare["places"])) == ("n4", "10.77.0.4", ["0", "1", "2"])
    for place, had in spare["places"].items():
        node, processes = plan["nodes"][int(place)], had["processes"]
        assert had["files"] == []
        assert [each["ranks"] for each in processes] == [each["ranks"] for each in node["processes"]]
        for mine, theirs in zip(processes, node["processes"]):
            moved = [word.replace(node["address"], spare["address"]) for word in theirs["argv"]]
            assert mine["argv"] == moved and mine["log"] == theirs["log"]
            assert mine["env"]["MASTER_ADDR"] == (spare["address"] if place == "0" else plan["head"]["address"])
            assert mine["env"]["GLOO_SOCKET_IFNAME"] == spare["interface"]


def test_only_hosts_that_may_lead_know_the_others():
    sent = node_plans(planned())
    assert all(own["spares"] == ["n4"] and own["hosts"] == ["n1", "n2", "n3"] for own in sent.values())
    assert sent["n4"]["addresses"] == {f"n{number}": f"10.77.0.{number}" for number in range(1, 5)}
    assert sent["n4"]["processes"] == [] and set(sent["n4"]["places"]) == {"0", "1", "2"} and "places" not in sent["n2"]
    sent = node_plans(planned(8))
    assert [own["hosts"] != [] for own in sent.values()] == [True] * 5 + [False] * 3
    assert not any("spares" in sent[host] or sent[host]["addresses"] for host in ("n6", "n7", "n8"))

    assert describe(planned()).splitlines()[-2] == "  n4  address 10.77.0.4 on eth0, stands by as a spare"


ALL = {
    **{name: {"launcher": name} for name in ("torchrun", "direct", "mindspore", "msrun", "oneflow")},
    "hostfile": {"launcher": "mpirun"},
    "-H": {"launcher": "mpirun", "mpi_placement": "hosts"},
    "ONEFLOW_MACHINES": {"launcher": "oneflow", "oneflow_style": "address_list"},
}


def lose(plan, places):
    """Return the restart record of a job that lost the hosts of these places in turn, and the changed addresses."""
    count = len(plan["nodes"])
    restarts = Restarts(len(places), 300, None, hosts(plan)[:count], hosts(plan)[count:])
    for place in places:
        restarts.history.append({})
        assert restarts.replace(restarts.members[place], hosts(plan), "lost", 1.0)
    addresses = node_plans(plan)[hosts(plan)[0]]["addresses"]
    return restarts, {addresses[old]: addresses[new] for old, new in restarts.replaced.items()}


def put(node, moved):
    """Return the processes and files of a node with the present addresses."""
    processes = [process(each, moved) for each in node["processes"]]
    files = {each["path"]: (each["mode"], file(each, each["content"], moved)) for each in node["files"]}
    return processes, files


def test_every_launcher_is_among_the_cases():
    assert {each["launcher"] for each in ALL.values()} | {"rank_table"} == set(launchers.LAUNCHERS)


@pytest.mark.parametrize("case", ALL)
@given(data=st.data())
def test_after_any_replacement_the_plan_is_that_of_a_new_plan_for_the_members(case, data):
    nodes, standing_by = data.draw(st.integers(2, 12)), data.draw(st.integers(1, 3))
    places = data.draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=standing_by))
    # Addresses in the user's own command do not change.
    job = {"command": ["python", "train.py", "-H", "10.77.0.2", "10.77.0.3"], "max_restarts": 1, **ALL[case]}
    members = [member(number, mpi=MPI, devices=2, env={"JOB_N": str(number)}) for number in range(nodes + standing_by)]
    plan = make_plan(make_job(spares=standing_by, **job), members).as_dict()
    restarts, moved = lose(plan, places)
    by_host = {each.host: each for each in members}
    expected = make_plan(make_job(**job), [by_host[host] for host in restarts.members]).as_dict()
    spares = {spare["host"]: spare for spare in plan["spares"]}
    for place, host in enumerate(restarts.members):
        there = spares[host]["places"][str(place)] if host in spares else plan["nodes"][place]
        found = put(there, moved)
        assert found == put(expected["nodes"][place], {})
        # A second restart changes nothing.
        assert [process(each, moved) for each in found[0]] == found[0]
        assert {path: (mode, text(it, moved)) for path, (mode, it) in found[1].items()} == found[1]


def test_ranks_of_mpirun_start_on_a_spare_by_its_own_script_in_the_place_of_the_node():
    members = [member(number, mpi=MPI, devices=2) for number in range(4)]
    plan = make_plan(make_job(**SPARE, launcher="mpirun", mpi_parameters={"plm_rsh_agent": "ssh"}), members)
    (spare,) = plan.as_dict()["spares"]
    assert sorted(spare["places"]) == ["0", "1", "2"]
    assert [each["ranks"] for each in spare["places"].pop("0")["processes"]] == [[0, 1, 2, 3, 4, 5]]
    for place, had in spare["places"].items():
        script, *others = had["files"]
        assert [each["path"].rpartition("/")[2] for each in others] == ["mpi_agent", "mpi_daemon"]
        assert had["processes"] == [] and (script["mode"], script["path"].rpartition("/")[2]) == ("0755", "mpi_rank")
        assert f"export GROUP_RANK={place}\n" in script["content"]
    # Preflight checks the login to the spare, which must be reachable when it is needed.
    assert plan.node_plans([])["n1"]["ssh_peers"][-1] == {"host": "n4", "address": "10.77.0.4"}
    # A spare in the place of the head starts the ranks of all others.
    logs_in = {host: [peer["host"] for peer in own["ssh_peers"]] for host, own in plan.node_plans([]).items()}
    assert logs_in == {"n1": ["n2", "n3", "n4"], "n2": [], "n3": [], "n4": ["n1", "n2", "n3"]}


def test_variables_of_a_spare_alone_count_from_the_start():
    """mpirun sets its variables once for all nodes, so they must hold for the spare, too."""
    ports = [{"device": "mlx5_0", "port": 1, "active": True, "link_layer": "InfiniBand"}]
    ready = [{**node_facts(number, mpi=MPI)["networks"], "rdma": ports} for number in range(3)]
    members = [member(number, mpi=MPI, networks=networks) for number, networks in enumerate(ready)]
    other = node_facts(2)["networks"]
    other["interfaces"][0]["addresses"] = ["10.78.0.3/16"]
    job = make_job(**SPARE, launcher="mpirun")

    def argv(spare):
        return make_plan(job, [*members[:2], spare]).as_dict()["nodes"][0]["processes"][0]["argv"]

    assert "pml" not in argv(members[2])
    alone = argv(member(2, mpi=MPI, networks=other, env={"JOB_N": "3"}))
    assert "pml" in alone and "10.77.0.0/16,10.78.0.0/16" in alone


def entries(table):
    """Return the devices of each server of a table by its name, with their ranks."""
    servers = table["server_list"]
    return {each["server_id"]: [(it["device_ip"], it["rank_id"]) for it in each["device"]] for each in servers}


@given(st.sampled_from(["910b", "a3"]), st.integers(2, 11), st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_a_rank_table_has_the_devices_of_a_spare_with_the_ranks_and_the_name_of_the_place(chip, nodes, lost):
    lost = [1 + place % (nodes - 1) for place in lost]
    members = [server(number, devices=2, chip=chip) for number in range(nodes + len(lost))]
    plan = make_plan(table_job(max_restarts=1, spares=len(lost)), members).as_dict()
    restarts, moved = lose(plan, lost)
    planned_file, _ = plan["files"]
    table, before = json.loads(file(planned_file, planned_file["content"], moved)), json.loads(planned_file["content"])
    assert file(planned_file, json.dumps(table), moved) == rank_table.dumps(table)
    assert rank_table.validate(table, chip) == []
    assert [*entries(table)] == [*entries(before)] == [node["address"] for node in plan["nodes"]]
    spares = {spare["host"]: spare for spare in plan["spares"]}
    for place, (host, had, has) in enumerate(zip(restarts.members, entries(before).values(), entries(table).values())):
        number = int(host[1:])
        assert has == [(f"192.{index + 1}.0.{number}", rank) for index, (_, rank) in enumerate(had)]
        found = spares[host]["places"][str(place)] if host in spares else plan["nodes"][place]
        for index, each in enumerate(found["processes"]):
            env = each["env"]
            expected = (f"10.77.0.{number}", had[index][1], str(index))
            assert (env["HCCL_IF_IP"], env["RANK_ID"], env["DEVICE_ID"]) == expected
        if chip == "a3":
            entry = table["server_list"][place]
            assert entry["host_ip"] == f"10.77.0.{number}"
            assert [it["super_device_id"] for it in entry["device"]] == [str(number * 100 - each) for each in (100, 99)]


def test_a_spare_of_another_super_pod_stands_in_its_own():
    members = [server(number, chip="a3", devices=2) for number in range(4)]
    members[3].facts["npu"]["super_pod_id"] = "8"
    plan = make_plan(table_job(**SPARE), members).as_dict()
    _, moved = lose(plan, [1])
    planned_file, _ = plan["files"]
    table = json.loads(file(planned_file, planned_file["content"], moved))
    pods = {pod["super_pod_id"]: [each["server_id"] for each in pod["server_list"]] for pod in table["super_pod_list"]}
    assert pods == {"7": ["10.77.0.1", "10.77.0.3"], "8": ["10.77.0.2"]}


def test_spares_are_the_last_of_the_inventory_whatever_the_order_of_ranks():
    members = [server(2), server(9), server(0)]
    plan = make_plan(table_job(**SPARE), members).as_dict()
    assert hosts(plan) == ["n10", "n3", "n1"] and plan["spares"][0]["node_rank"] == 2


GPUS = [member(number, devices=count) for number, count in enumerate((2, 2, 1))]
TWIN = [server(0), server(1), server(2, device1={"device_ip": "192.2.0.1"})]


@pytest.mark.parametrize(
    ("job", "members", "host", "facts"),
    [
        (make_job(**SPARE, launcher="direct"), GPUS, "n3", ["1 process on a spare, 2 on n1"]),
        (table_job(**SPARE), TWIN, "n3", ["192.2.0.1", "with n3 in its place"]),
        (make_job(max_restarts=1, spares=2), [member(0), member(1)], "", ["2 spares of 2 hosts"]),
        (make_job(**SPARE), [member(0), member(1)], "", ["1 spare for n1 alone"]),
    ],
)
def test_spares_that_cannot_take_a_place_are_findings(job, members, host, facts):
    (finding,) = planned_with(job, members)[1]
    assert finding.host == host and all(fact in finding.found for fact in facts)


def test_a_table_of_the_users_own_has_nothing_of_spares():
    written, _ = make_plan(table_job(), [server(0), server(1)]).as_dict()["files"]
    own, _ = given_rank_table.read("/home/ops/table.json", written["content"])
    job = replace(table_job(**SPARE, rank_table="/home/ops/table.json"), given_table=own)
    (finding,) = planned_with(job, [server(0), server(1), server(2)])[1]
    assert finding.found.startswith("1 spare beside a job_rank_table")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"server_list": [{"server_id": "10.77.0.2"}]}'])
def test_a_damaged_rank_table_is_an_error(content):
    plan = make_plan(table_job(**SPARE), [server(0), server(1), server(2)]).as_dict()
    with pytest.raises(ValueError):
        file(plan["files"][0], content, {"10.77.0.2": "10.77.0.3"})


def test_spares_without_restarts_or_with_another_scheduler_are_found():
    assert [finding.check for finding in wrong(spares=1)] == ["job_spares"]
    assert [finding.check for finding in wrong(**SPARE, scheduler="kubernetes", launcher="mpirun")] == ["job_spares"]


EXIT = {"kind": "exit", "host": "n2", "rank": 1, "process": "rank1", "exit_code": 1, "signal": None}


@pytest.mark.parametrize(
    ("failure", "before", "host"),
    [
        ({"kind": "silent", "host": "n2", "after_s": 15}, None, "n2"),
        ({"kind": "gone", "host": "n2"}, None, "n2"),
        (EXIT, None, ""),
        (EXIT, EXIT, "n2"),
        (EXIT, {**EXIT, "host": "n3"}, ""),
        (EXIT, {"kind": "silent", "host": "n2", "after_s": 15}, ""),
        ({"kind": "frozen", "host": "n1", "after_s": 15}, None, ""),
    ],
)
def test_a_lost_node_is_replaced_at_once_and_one_whose_ranks_fail_the_second_time(failure, before, host):
    restarts = Restarts(3, 300)
    for each in filter(None, (before, failure)):
        assert restarts.take([each], 1.0, 60.0)
    assert restarts.host_to_replace(failure) == host


def test_the_restart_history_knows_places_and_replacements():
    restarts = Restarts(3, 300, None, ["n1", "n2", "n3"], ["n4", "n5"])
    assert restarts.take([{"kind": "silent", "host": "n2", "after_s": 15}], 1.0, 60.0)
    assert not restarts.replace("n2", set(), "lost", 1.0)
    assert restarts.excluded == {}
    assert restarts.replace("n2", {"n5"}, "node n2: no report for 15 s", 1.0)
    assert restart_text(restarts.history[-1]).endswith("so the whole job starts again; n5 takes the place of n2")
    again = Restarts(3, 300, restarts.as_dict(), ["n1", "n2", "n3"], ["n4", "n5"])
    assert (again.members, again.spares, again.place("n5")) == (["n1", "n5", "n3"], ["n4"], 1)
    assert again.place("n3") is again.place("n4") is None
    # A spare is replaced as any other.
    assert again.replace("n5", {"n4"}, "disk: 3 MiB free", 2.0) and again.members == ["n1", "n4", "n3"]
    assert restart_text(again.history[-1]).endswith("; n4 takes the place of n5 (disk: 3 MiB free)")
    assert {host: each["since"] for host, each in again.excluded.items()} == {"n2": 1.0, "n5": 2.0}
    assert again.excluded["n5"]["reason"] == "disk: 3 MiB free"


def test_the_state_shows_ranks_on_their_present_nodes():
    plan = planned()
    assert hosts(plan) == ["n1", "n2", "n3", "n4"]
    answer = {"known": True, "left": 0, "processes": [], "monitor": None, "monitor_alive": False, "cluster": None}
    head = {**answer, "cluster": {"restarts": {"history": [], "replaced": {"n2": "n4"}}, "end": None}}
    state = ssh.state(plan, {"n1": head, "n3": answer, "n4": answer}, {"n2": "no route"}, {})
    assert [(node["host"], node["ranks"], node["role"], node["state"]) for node in state["nodes"]] == [
        ("n1", [0], "", "ended"),
        ("n4", [1], "", "ended"),
        ("n3", [2], "", "ended"),
        ("n2", [], "n4 took its place", "unreachable"),
    ]
    text = explain(schedulers.summarize(plan, {**state, "state": "succeeded"}), "runs/digits", "", [])
    assert "3 ranks on 3 nodes." in text
    lost = {"kind": "not_back", "host": "n3", "hosts": ["n3"], "after_s": 300}
    text = explain(schedulers.summarize(plan, {**state, "state": "failed", "failure": lost}), "runs/digits", "", [])
    assert "check the machine, then start the job again" in text and "no spare was left for it" in text
    before = ssh.state(plan, {"n1": answer}, {}, {})
    assert [(node["host"], node["role"]) for node in before["nodes"]][-1] == ("n4", "spare")
