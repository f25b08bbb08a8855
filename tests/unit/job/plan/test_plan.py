"""Placement, launchers and plan: any number of nodes and slots, every rule with its message, captured machines."""

import itertools
import json
import re

import pytest
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement.placement import Member
from ansible.module_utils.trainyard.job.plan.plan import describe
from ansible.module_utils.trainyard.job.schedulers.records import Source, Where
from hypothesis import given
from hypothesis import strategies as st
from job_samples import VENV, briefly, make_job, make_plan, member, node_facts, planned, processes

NEEDED = ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS", "PATH")
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).map(lambda name: "JOB_" + name)
environments = st.dictionaries(names, st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8))


def check_every_process(plan, members, slots):
    """Check that the plan has each rank once, and that no environment misses a variable."""
    assert [node["host"] for node in plan["nodes"]] == [item.host for item in members]
    assert [node["node_rank"] for node in plan["nodes"]] == list(range(len(members)))
    ranks = [rank for _, process in processes(plan) for rank in process["ranks"]]
    assert ranks == list(range(sum(slots))) and plan["world_size"] == len(ranks)
    assert plan["head"] == {"host": "n1", "address": "10.77.0.1", "port": plan["head"]["port"]}
    for number, (node, item) in enumerate(zip(plan["nodes"], members)):
        assert sum(len(process["ranks"]) for process in node["processes"]) == slots[number]
        interface = f"eth{number % 3}"
        assert (node["address"], node["interface"]) == (item.address, interface)
        assert node["devices"] == list(range(slots[number]))
        for process in node["processes"]:
            env = process["env"]
            assert all(env[name] for name in NEEDED)
            assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.77.0.1", str(plan["head"]["port"]))
            assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"]) == (interface, f"={interface}")
            assert env["OMP_NUM_THREADS"] == str(max(1, 8 // (2 * slots[number])))
            assert env["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, range(slots[number])))
            assert env["PATH"].startswith(f"{VENV}/bin:") and env["VIRTUAL_ENV"] == VENV
            assert env["TRAINYARD_JOB_ID"] == plan["job_id"]


def check_precedence(plan, job_env, members):
    for (node, process), item in ((pair, members[pair[0]["node_rank"]]) for pair in processes(plan)):
        expected = {**job_env, **item.env}
        assert {name: process["env"][name] for name in expected} == expected, node["host"]


def gpu_nodes(counts, envs):
    """Return nodes with these numbers of GPUs and, as far as there are some, these variables."""
    pairs = itertools.zip_longest(counts, envs[: len(counts)], fillvalue={})
    return [member(number, devices=count, env=env) for number, (count, env) in enumerate(pairs)]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=12), environments, st.lists(environments, max_size=12))
def test_direct_gives_every_rank_its_place(slots, job_env, node_envs):
    members = gpu_nodes(slots, node_envs)
    plan = make_plan(make_job(launcher="direct", env=job_env), members).as_dict()
    check_every_process(plan, members, slots)
    check_precedence(plan, job_env, members)
    for node, process in processes(plan):
        rank = process["ranks"][0]
        assert process["name"] == f"rank{rank}" and process["argv"] == ["python", "train.py"]
        assert process["log"] == f"{plan['job_dir']}/logs/rank_{rank}.log"
        first = node["processes"][0]["ranks"][0]
        expected = {"RANK": rank, "WORLD_SIZE": sum(slots), "LOCAL_RANK": rank - first}
        expected |= {"LOCAL_WORLD_SIZE": slots[node["node_rank"]]}
        expected |= {"GROUP_RANK": node["node_rank"], "NODE_RANK": node["node_rank"]}
        # Some programs start a launcher when they find NNODES: only where it would be the only one of its node.
        assert process["env"].get("NNODES") == (str(len(slots)) if set(slots) == {1} else None)
        assert {name: process["env"][name] for name in expected} == {name: str(v) for name, v in expected.items()}


@given(st.integers(1, 12), st.integers(1, 8), environments, st.lists(environments, max_size=12))
def test_torchrun_gives_every_node_one_agent(nodes, slots, job_env, node_envs):
    members = gpu_nodes([slots] * nodes, node_envs)
    plan = make_plan(make_job(env=job_env), members).as_dict()
    check_every_process(plan, members, [slots] * nodes)
    check_precedence(plan, job_env, members)
    for node in plan["nodes"]:
        (agent,) = node["processes"]
        pyz = f"{plan['job_dir']}/trainyard.pyz"
        assert " ".join(agent["argv"]) == (
            f"{VENV}/bin/python {pyz} agent torch.distributed.run --nnodes {nodes} --nproc-per-node {slots} "
            f"--rdzv-backend static --node-rank {node['node_rank']} --master-addr 10.77.0.1 --master-port "
            f"{plan['head']['port']} --local-addr {node['address']} --log-dir {plan['job_dir']}/attempt/agent "
            f"--no-python {VENV}/bin/python -IS {pyz} rank python train.py"
        )


def test_torchrun_with_restarts_keeps_its_ranks_where_they_are():
    with_restarts, without = (make_plan(make_job(max_restarts=n), [member(0), member(1)]).as_dict() for n in (3, 0))
    assert with_restarts["nodes"][1]["processes"][0]["argv"] == without["nodes"][1]["processes"][0]["argv"]


def test_an_ipv6_head_is_written_in_brackets_where_a_port_follows():
    facts = node_facts(0)
    facts["networks"]["interfaces"][0]["addresses"] = ["fd00::1/64"]
    plan = make_plan(make_job(max_restarts=1), [Member("n1", "fd00::1", facts, {}, {})]).as_dict()
    argv, env = plan["nodes"][0]["processes"][0]["argv"], plan["nodes"][0]["processes"][0]["env"]
    assert ("--master-addr", "fd00::1") in itertools.pairwise(argv) and env["MASTER_ADDR"] == "fd00::1"
    assert "  rendezvous  [fd00::1]:20000 on n1" in describe(plan).splitlines()


@given(st.sampled_from(["direct", "torchrun"]), st.integers(1, 4), environments, environments)
def test_plan_is_json_and_readable_and_holds_no_secret(launcher, nodes, job_env, node_env):
    job = make_job(launcher=launcher, env=job_env, secret_env=["API_KEY"])
    plan = make_plan(job, [member(number, env=node_env) for number in range(nodes)])
    written = plan.as_dict()
    assert json.loads(json.dumps(written)) == written
    assert written["secret_env"] == ["API_KEY"]
    assert not any("API_KEY" in process["env"] for _, process in processes(written))
    assert "    API_KEY=(secret)" in describe(written).splitlines()


@given(st.sampled_from(["direct", "torchrun"]), st.integers(2, 40))
def test_a_node_plan_does_not_grow_with_the_number_of_nodes(launcher, nodes):
    def sent(count):
        own = make_plan(make_job(launcher=launcher), [member(number) for number in range(count)]).node_plans([])
        # World size and number of nodes stand in every node plan; only their digits may differ.
        return (len(re.sub(r"\d+", "0", json.dumps(own["n2"]))), own["n2"]["hosts"], own["n1"]["hosts"])

    size, others, everybody = sent(nodes)
    assert (size, others) == (sent(2)[0], [])
    assert everybody == [f"n{number + 1}" for number in range(nodes)]


def test_a_node_plan_agrees_with_the_plan():
    plan = make_plan(make_job(launcher="direct", data=["/data/a"]), [member(0, devices=2), member(1, devices=1)])
    written, node_plans = plan.as_dict(), plan.node_plans(["train.py"])
    shared = {name: written[name] for name in ("job_id", "monitor_port", "world_size", "data")}
    shared |= {"head_host": "n1", "head_address": "10.77.0.1", "port": written["head"]["port"], "program": "python"}
    for node in written["nodes"]:
        assert node_plans[node["host"]].items() >= {**node, **shared}.items()


def test_job_env_wins_over_the_choices_of_the_plan_and_node_env_over_job_env():
    job = make_job(env={"OMP_NUM_THREADS": "3", "A": "job", "B": "job"})
    plan = make_plan(job, [member(0, env={"B": "node"})]).as_dict()
    env = plan["nodes"][0]["processes"][0]["env"]
    assert (env["OMP_NUM_THREADS"], env["A"], env["B"]) == ("3", "job", "node")


def test_ports():
    assert make_plan(make_job(), [member(0)]).placement.port == 20000
    chosen = make_plan(make_job(port=20000), [member(0)]).placement
    assert (chosen.port, chosen.monitor_port) == (20000, 20001)
    assert make_plan(make_job(port=29500), [member(0, free_ports=[20000])]).placement.monitor_port == 20000
    plan, findings = planned(make_job(), [member(0, free_ports=[20000]), member(1)])
    assert plan is None
    assert briefly(findings) == [("n1", "ports", "1 free TCP port")]


@pytest.mark.parametrize(("restarts", "spares", "nodes", "expected"), [
    (0, 0, 4, []), (1, 0, 1, []), (1, 0, 2, []), (1, 0, 3, ["n1", "n2", "n3"]), (1, 1, 3, ["n1", "n2", "n3"]),
    (1, 2, 4, ["n1", "n2", "n3", "n4"]), (3, 1, 9, ["n1", "n2", "n3", "n4", "n5"]),
])  # fmt: skip
def test_hosts_that_may_lead_a_job(restarts, spares, nodes, expected):
    job = make_job(launcher="direct", max_restarts=restarts, **({"spares": spares} if spares else {}))
    plan = make_plan(job, [member(number) for number in range(nodes)])
    assert plan.as_dict()["candidates"] == expected
    known = [node_plan.get("candidates") for node_plan in plan.node_plans([]).values()]
    pairs = [[host, f"10.77.0.{number}"] for number, host in enumerate(expected, 1)]
    assert known == [pairs or None] * nodes


def test_all_hosts_that_may_lead_know_who_gets_events():
    job = make_job(launcher="direct", max_restarts=1, events=[{"url": "https://example.org/hook"}])
    sent = make_plan(job, [member(number) for number in range(7)]).node_plans([])
    assert [bool(sent[f"n{number}"]["events"]) for number in range(1, 8)] == [True] * 5 + [False] * 2
    alone = make_plan(make_job(events=[{"url": "https://example.org/hook"}]), [member(0), member(1)]).node_plans([])
    assert alone["n1"]["events"] and not alone["n2"]["events"]


def test_ports_are_free_on_all_hosts_that_may_lead():
    free = {"free_ports": [20000, 20001, 20002, 20003]}
    others = [{"unused_ports": "20001-20063"}, {"unused_ports": "10000-20001,20003-20003"}]

    def ports(*more, **job):
        members = [member(number, **facts) for number, facts in enumerate([free, *others, *more])]
        placement = make_plan(make_job(**{"max_restarts": 1, **job}), members).placement
        return placement.port, placement.monitor_port

    assert ports() == (20001, 20003)
    assert ports(port=20003) == (20003, 20001)
    assert ports(max_restarts=0) == (20000, 20001)
    # Without common ports those of the head are taken, and each host checks them.
    assert ports({"unused_ports": "30000-30001"}) == (20000, 20001)


def test_devices_are_those_requested():
    def chosen(**changes):
        node = make_plan(make_job(launcher="direct", **changes), [member(0, devices=8)]).as_dict()["nodes"][0]
        env = node["processes"][0]["env"]
        return node["devices"], len(node["processes"]), env.get("CUDA_VISIBLE_DEVICES")

    assert chosen() == (list(range(8)), 8, "0,1,2,3,4,5,6,7")
    assert chosen(ranks_per_node=2) == ([0, 1], 2, "0,1")
    assert chosen(devices=[5, 3]) == ([5, 3], 2, "5,3")
    # Without devices nothing may be visible, or the framework would take them all the same.
    assert chosen(devices="none", ranks_per_node=3) == ([], 3, "")
    without = make_plan(make_job(ranks_per_node=2), [member(0)]).as_dict()["nodes"][0]
    assert without["devices"] == [] and "CUDA_VISIBLE_DEVICES" not in without["processes"][0]["env"]


def test_all_faults_of_all_nodes_are_found_at_once():
    members = [
        member(0, unreachable="Failed to connect to the host via ssh: Connection timed out"),
        member(1, hostname="twin"),
        member(2, hostname="twin", packages={"torch": "2.13.0"}),
        member(3, packages={"torch": "2.12.0"}),
        member(4, packages={"torch": "2.13.0"}),
    ]
    plan, findings = planned(make_job(packages=["torch"], command=["python", "tain.py"]), members)
    assert plan is None
    assert briefly(findings) == [
        ("", "job_command", "no tain.py in an empty job_source"),
        ("n1", "reach", "Connection timed out"),
        ("n2", "names", "host name 'twin', which n3 has too"),
        ("n3", "names", "host name 'twin', which n2 has too"),
        ("n2", "versions", f"torch missing in {VENV}"),
        ("n4", "versions", f"torch 2.12.0 in {VENV}"),
    ]
    assert findings[1].expected.endswith("10.77.0.1") and findings[0].expected == "one of train.py"


BROKEN = {"vendor": "nvidia", "devices": [], "problems": ["nvidia-smi: could not communicate"]}
TWIN = Member("n2", "10.77.0.1", node_facts(0, hostname="n2"), {}, {})
FOUR = {"launcher": "direct", "ranks_per_node": 4}
MANY, ON_CPU = {"ranks_per_node": 500}, {"ranks_per_node": 17, "devices": "none"}
SAME, PAIR = "address 10.77.0.1, which ", (("n1", "n2"), ("n2", "n1"))


def gpus(*counts):
    return [member(number, devices=count) for number, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("job", "members", "check", "found"),
    [
        ({"packages": ["torch"]}, gpus(0, 0), "versions", {"n1": f"no torch in {VENV}", "n2": f"no torch in {VENV}"}),
        (FOUR, gpus(4, 2), "devices", {"n2": "2 devices"}),
        (FOUR, gpus(4, 1), "devices", {"n2": "1 device"}),
        ({"devices": [1, 2]}, gpus(2, 0), "devices", {"n1": "0, 1 on the node", "n2": "no device on the node"}),
        ({"devices": [5]}, gpus(1), "devices", {"n1": "0 on the node"}),
        ({"devices": [0]}, gpus(0), "devices", {"n1": "no device on the node"}),
        ({}, [member(0, accelerators=BROKEN)], "devices", {"n1": "nvidia-smi: could not communicate"}),
        # A launcher that needs as many devices on each node.
        ({}, gpus(4, 2, 4), "devices", {"n1": "4 devices", "n3": "4 devices"}),
        (MANY, [member(0, cpus=2), member(1, cpus=32)], "job_ranks_per_node", {"n1": "500 processes on 2 processors"}),
        (ON_CPU, [member(0, cpus=1, devices=4)], "job_ranks_per_node", {"n1": "17 processes on 1 processor"}),
        ({"network": "10.99.0.0/16"}, gpus(0, 0), "network", {"n1": "eth0 10.77.0.1/16", "n2": "eth1 10.77.0.2/16"}),
        ({}, [member(0), TWIN], "network", {host: f"{SAME}{other} has too" for host, other in PAIR}),
        ({"venv": ""}, gpus(0), "job_venv", {"": "nothing"}),
    ],
)
def test_each_rule_has_its_findings(job, members, check, found):
    findings = planned(make_job(**job), members)[1]
    assert briefly(findings) == [(host, check, text) for host, text in found.items()]


def test_findings_of_a_node_are_complete_without_its_network():
    _, findings = planned(make_job(network="eth7", devices=[0]), [member(0)])
    assert [item.check for item in findings] == ["devices", "network"]


@pytest.mark.parametrize(
    ("source", "files", "check", "found"),
    [
        ("training", None, "job_source", "no folder 'training' on the controller"),
        ("training", ["a.py", "b/c.py"], "job_command", "no train.py in training"),
        ("", [], "job_command", "no train.py in an empty job_source"),
    ],
)
def test_a_missing_source_is_a_finding(source, files, check, found):
    assert briefly(planned(make_job(source=source), [member(0)], files=files)[1]) == [("", check, found)]


@pytest.mark.parametrize(
    ("job", "facts"),
    [
        *(({"command": ["python", script]}, {}) for script in ("./train.py", "/opt/train.py")),
        ({"command": ["python", "/opt/train.py", "--config=eval.py"]}, {}),
        *(({"command": command}, {}) for command in (["python", "-m", "train"], ["./train.py"])),
        # A driver that does not answer stops only a job that uses devices.
        ({"devices": "none"}, {"accelerators": BROKEN}),
        # A few processes for each processor are how one tries a program; with devices each process has its own.
        ({"ranks_per_node": 32}, {"cpus": 2}),
        ({}, {"cpus": 1, "devices": 24}),
    ],
)
def test_jobs_without_a_finding(job, facts):
    make_plan(make_job(**job), [member(0, **facts)])


def test_every_node_plan_names_the_folder_of_environments():
    where = Where("digits-1", "now", "", "/var/lib/trainyard", "train", venvs="/opt/trainyard/venvs")
    members = [member(number) for number in range(3)]
    plan, findings = schedulers.plan(make_job(spares=1, max_restarts=1), members, Source(("train.py",)), where)
    assert findings == []
    assert {part["venvs"] for part in plan.node_plans([]).values()} == {"/opt/trainyard/venvs"}


def test_the_health_check_runs_a_collective_on_two_gpus_or_more():
    program = "/opt/trainyard/nccl-tests/bin/all_reduce_perf_mpi"

    def sums(*members, **changes):
        where = Where("digits-1", "now", "", "/var/lib/trainyard", "train", all_reduce=program)
        plan, findings = schedulers.plan(make_job(**changes), members, Source(("train.py",)), where)
        assert findings == []
        parts = plan.node_plans([])
        return [parts[each.host]["local_collective"] for each in members]

    here, there = sums(member(0, devices=2), member(1, devices=2, env={"NCCL_P2P_DISABLE": "1"}), env={"A": "b"})
    assert here["argv"] == there["argv"] and here["argv"][0] == program and here["argv"][-2:] == ["-g", "2"]
    devices = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert here["env"] == {**devices, "NCCL_SOCKET_IFNAME": "=eth0"}
    assert there["env"] == {**here["env"], "NCCL_SOCKET_IFNAME": "=eth1", "NCCL_P2P_DISABLE": "1"}
    *_, spare = sums(*(member(number, devices=2) for number in range(3)), spares=1, max_restarts=1)
    assert spare["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert sums(member(0, devices=1)) == sums(member(0)) == sums(member(0, devices=2), health_gate=False) == [{}]
