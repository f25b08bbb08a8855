"""Going on with fewer nodes: ranks, environments, options and files of the nodes that are left, for each launcher."""

import json
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.ascend import given_rank_table, rank_table
from ansible.module_utils.trainyard.job import launchers
from ansible.module_utils.trainyard.job.placement.placement import MAX_CANDIDATES
from ansible.module_utils.trainyard.job.plan.plan import node_plans
from ansible.module_utils.trainyard.job.run.lead.node_numbers import of_node
from hypothesis import given
from hypothesis import strategies as st
from job_samples import make_job, make_plan, member, packed, wrong
from job_samples import planned as planned_with
from rank_table_samples import MPI, server, table_job

FEWER = {"max_restarts": 3, "min_nodes": 1}
COMMAND = ["python", "train.py", "-n", "3", "-H", "10.77.0.2,10.77.0.3", "--node-rank", "0"]
ALL = {
    **{name: {"launcher": name} for name in ("torchrun", "direct", "mindspore", "msrun", "oneflow")},
    "hostfile": {"launcher": "mpirun"},
    "-H": {"launcher": "mpirun", "mpi_placement": "hosts"},
    "ONEFLOW_MACHINES": {"launcher": "oneflow", "oneflow_style": "address_list"},
}
PLANNED = "TRAINYARD_PLANNED_WORLD_SIZE"


def derived(node_plan, absent, moved=None):
    """Return the processes of a node, and the files that change by path, as the node derives them."""
    processes, files = of_node(node_plan, absent, moved or {})
    assert of_node(node_plan, absent, moved or {}) == (processes, files)
    return processes, {each["path"]: content for each, content in files}


def fresh(job, members, world_size):
    """Return the node plans of a new plan for these members, which were planned with so many ranks."""
    plans = node_plans(make_plan(make_job(**job), members).as_dict())
    for node in plans.values():
        for process in node["processes"]:
            assert process["env"][PLANNED] == str(sum(node["fewer"]["ranks"]))
            process["env"][PLANNED] = str(world_size)
    return plans


def test_every_launcher_is_among_the_cases():
    assert {each["launcher"] for each in ALL.values()} | {"rank_table"} == set(launchers.LAUNCHERS)


@pytest.mark.parametrize("case", ALL)
@given(data=st.data())
def test_without_some_nodes_the_plan_is_that_of_a_new_plan_for_the_others(case, data):
    nodes = data.draw(st.integers(1, 12))
    # Only a node that may lead the job can be the first one.
    first = data.draw(st.integers(0, min(nodes, MAX_CANDIDATES) - 1)) if nodes > 2 else 0
    absent = {*range(first), *data.draw(st.sets(st.integers(first + 1, max(first + 1, nodes - 1)), max_size=nodes - 1))}
    absent.intersection_update(range(nodes))
    moved = {"10.77.0.1": f"10.77.0.{first + 1}"} if first else {}
    job = {"command": COMMAND, **FEWER, **ALL[case]}
    members = [member(number, mpi=MPI, devices=2, env={"JOB_N": str(number)}) for number in range(nodes)]
    plans = node_plans(make_plan(make_job(**job), members).as_dict())
    left = [each for number, each in enumerate(members) if number not in absent]
    expected = fresh(job, left, 2 * nodes)
    for number, each in enumerate(members):
        processes, files = derived(plans[each.host], absent, moved)
        if number in absent:
            assert (processes, files) == ([], {})
            continue
        new = expected[each.host]
        assert processes == new["processes"]
        changing = {file["path"]: file["content"] for file in new["files"]}
        assert files == {path: changing[path] for path in files}
        # Files that are not written again are right as they are.
        before = {file["path"]: file["content"] for file in plans[each.host]["files"]}
        assert {**before, **files} == changing


def test_nodes_with_different_numbers_of_ranks_keep_them():
    members = [member(number, devices=count) for number, count in enumerate((2, 3, 1))]
    plans = node_plans(make_plan(make_job(launcher="direct", **FEWER), members).as_dict())
    processes, _ = derived(plans["n3"], [1])
    (process,) = processes
    assert (process["name"], process["ranks"], process["log"].rpartition("/")[2]) == ("rank2", [2], "rank_2.log")
    wanted = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", PLANNED)
    assert [process["env"][name] for name in wanted] == ["2", "3", "0", "1", "1", "6"]


@given(st.sampled_from(["910b", "a3"]), st.integers(2, 11), st.sets(st.integers(1, 10), max_size=9))
def test_a_rank_table_is_built_again_without_the_nodes(chip, nodes, absent):
    absent = {1 + place % (nodes - 1) for place in absent}
    members = [server(number, devices=2, chip=chip) for number in range(nodes)]
    plan = make_plan(table_job(**FEWER), members)
    host_at = {node["node_rank"]: node["host"] for node in plan.as_dict()["nodes"]}
    gone = {host_at[place] for place in absent}
    left = [each for each in members if each.host not in gone]
    job = {"launcher": "rank_table", **FEWER}
    expected, plans = fresh(job, left, 2 * nodes), node_plans(plan.as_dict())
    file, _ = plan.as_dict()["files"]
    wanted, _ = make_plan(table_job(**FEWER), left).as_dict()["files"]
    for each in left:
        processes, files = derived({**plans[each.host], "files": [file]}, absent)
        assert processes == expected[each.host]["processes"]
        assert files == {file["path"]: wanted["content"]}
        assert rank_table.validate(json.loads(files[file["path"]]), chip) == []


def test_a_spare_in_a_place_is_numbered_as_the_node_was_and_is_listed_in_its_place():
    members = [member(number, mpi=MPI, devices=2) for number in range(5)]
    plan = make_plan(make_job(launcher="mpirun", mpi_placement="hosts", spares=1, **FEWER), members).as_dict()
    sent = node_plans(plan)
    moved = {"10.77.0.4": "10.77.0.5"}
    # n5 has the place of n4, and n2 is lost.
    (mpirun,), files = derived(sent["n1"], [1], moved)
    assert mpirun["ranks"] == [0, 1, 2, 3, 4, 5]
    assert mpirun["argv"][mpirun["argv"].index("-H") + 1] == "10.77.0.1:2,10.77.0.3:2,10.77.0.5:2"
    assert files["/var/lib/trainyard/jobs/digits-20261120-101500/hosts/@trainyard-host@/hostfile"].splitlines() == [
        f"10.77.0.{number} slots=2" for number in (1, 3, 5)
    ]
    place = sent["n5"]["places"]["3"]
    spare = {**sent["n5"], "processes": place["processes"], "files": place["files"], "place": 3, "places": {}}
    processes, files = derived(spare, [1], moved)
    assert processes == []
    (script,) = files.values()
    assert "export GROUP_RANK=2\n" in script
    # A spare that has no place has no part in it.
    assert derived(sent["n5"], [1], moved) == ([], {})


def test_a_spare_that_has_a_place_is_the_first_one_without_those_before():
    members = [member(number, mpi=MPI, devices=2) for number in range(5)]
    by_ssh = {"plm_rsh_agent": "ssh"}
    plan = make_plan(make_job(launcher="mpirun", mpi_parameters=by_ssh, spares=1, **FEWER), members)
    sent = node_plans(plan.as_dict())
    place = sent["n5"]["places"]["1"]
    spare = {**sent["n5"], "processes": place["processes"], "files": place["files"], "place": 1, "places": {}}
    # n5 has the place of n2, and n1 is lost.
    (mpirun,), files = derived(spare, [0], {"10.77.0.2": "10.77.0.5", "10.77.0.1": "10.77.0.5"})
    assert (mpirun["ranks"], mpirun["env"]["MASTER_ADDR"]) == ([0, 1, 2, 3, 4, 5], "10.77.0.5")
    assert files["/var/lib/trainyard/jobs/digits-20261120-101500/hosts/@trainyard-host@/hostfile"].splitlines() == [
        f"10.77.0.{number} slots=2" for number in (5, 3, 4)
    ]
    # From each host that may be the first one, mpirun logs in to all others.
    peers = {host: [each["host"] for each in own["ssh_peers"]] for host, own in plan.node_plans([]).items()}
    assert all(peers[host] == [other for other in sent if other != host] for host in sent)


@pytest.mark.parametrize(
    ("job", "ranks"),
    [
        (
            {"launcher": "mpirun", "mpi_placement": "hosts"},
            (2, 2, 2),
        ),  # mpirun of Open MPI 5 calls its own node localhost
        ({"launcher": "direct"}, (2, 1, 1)),
    ],
)
def test_who_cannot_do_what_the_first_node_does_never_becomes_the_first(job, ranks):
    mpi = {**MPI, "version": "5.0.3"}
    members = [member(number, mpi=mpi, devices=count) for number, count in enumerate(ranks)]
    sent = node_plans(make_plan(make_job(**job, **FEWER), members).as_dict())
    assert sent["n1"]["fewer"]["first"] == [] and not any("as_first" in each for each in sent.values())


def test_the_plan_of_an_ordinary_job_says_nothing_of_this():
    members = [member(number, mpi=MPI) for number in range(3)]
    for case in ALL.values():
        plan = make_plan(make_job(max_restarts=1, spares=1, **case), members).as_dict()
        text = json.dumps([plan, node_plans(plan)])
        assert not any(name in text for name in ("numbered", "min_nodes", "fewer", "as_first", PLANNED))


def test_a_users_own_variable_is_not_numbered():
    job = make_job(launcher="direct", env={"NODE_RANK": "x"}, **FEWER)
    plans = node_plans(make_plan(job, [member(number) for number in range(3)]).as_dict())
    ((process,), _) = derived(plans["n3"], [1])
    assert process["env"]["NODE_RANK"] == "x" and process["env"]["RANK"] == "1"


MPIJOB = {"scheduler": "kubernetes", "launcher": "mpirun"}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"min_nodes": 2}, "2 with job_max_restarts: 0"),
        ({**FEWER, **MPIJOB}, "1 with an MPIJob, whose operator starts all ranks itself"),
        ({**FEWER, "launcher": "mindspore", "recovery": True}, "1 with job_recovery: true"),
        ({"min_nodes": -1, "max_restarts": 1}, "-1"),
        ({"min_nodes": "two", "max_restarts": 1}, "'two'"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_found(changes, found):
    assert [finding.found for finding in wrong(**changes) if finding.check == "job_min_nodes"] == [found]


SCRIPTS = {
    "run.sh": "#!/bin/sh\nexport WORLD_SIZE=4\npython train.py\n",
    "nested.sh": "torchrun --nnodes $NNODES --node-rank $NODE_RANK train.py\n",
    "free.sh": "# NNODES=4\nexport OMP_NUM_THREADS=4\npython train.py --world-size $WORLD_SIZE\n",
    "train.py": "",
}

STARTS = "which starts the ranks itself"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"min_nodes": 4}, "4"),
        ({"command": ["bash", "run.sh"]}, "1 with WORLD_SIZE=4 in run.sh"),
        ({"command": ["bash", "nested.sh"]}, f"1 with torchrun in nested.sh, {STARTS}"),
        ({"command": ["bash", "-c", "python train.py --num_nodes 3"]}, "1 with --num_nodes 3 in job_command"),
        ({"command": ["python", "train.py", "--world_size", "3"]}, "1 with --world_size 3 in job_command"),
        ({"command": ["torchrun", "--nnodes", "3", "train.py"]}, f"1 with torchrun in job_command, {STARTS}"),
        ({"env": {"NNODES": "3"}}, "1 with NNODES=3 in job_env"),
        ({"command": ["bash", "free.sh"]}, None),
    ],
)  # fmt: skip
def test_numbers_that_no_node_can_change_are_found(changes, found):
    source = packed(SCRIPTS)
    job = make_job(**{**FEWER, "launcher": "direct", "ranks_per_node": 1, **changes})
    findings = planned_with(job, [member(number) for number in range(3)], source=source)[1]
    assert [each.found for each in findings if each.check == "job_min_nodes"] == ([found] if found else [])


def test_a_table_of_the_users_own_is_not_built_again():
    written, _ = make_plan(table_job(), [server(0), server(1)]).as_dict()["files"]
    own, _ = given_rank_table.read("/home/ops/table.json", written["content"])
    job = replace(table_job(**FEWER, rank_table="/home/ops/table.json"), given_table=own)
    (finding,) = planned_with(job, [server(0), server(1)])[1]
    assert finding.found == "1 with a job_rank_table, which is used as it is"
