"""Launcher rank_table: the table and environment of each rank, and the devices that no job can have."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.trainyard.ascend import rank_table
from ansible.module_utils.trainyard.job import schedulers
from ansible.module_utils.trainyard.job.placement.placement import Member
from ansible.module_utils.trainyard.job.plan.plan import describe
from ansible.module_utils.trainyard.job.run.logs import progress_reader
from hypothesis import given
from hypothesis import strategies as st
from job_samples import briefly, captured_member, make_job, make_plan, node_facts, planned
from rank_table_samples import JOB_DIR, TABLE, environments, server, table_job, table_of

PROJECT = Path(__file__).resolve().parents[4]


def ranks_of(table):
    """(server, device) of each rank in a table, in the order of ranks."""
    found = {
        int(device["rank_id"]): (server["server_id"], device["device_id"])
        for server in table["server_list"]
        for device in server["device"]
    }
    return [found[rank] for rank in range(len(found))]


@given(st.permutations([0, 1, 8, 9, 10, 98, 99]), st.integers(1, 8))
def test_every_rank_finds_itself_in_the_table_whatever_the_order_of_the_inventory(order, devices):
    plan = make_plan(table_job(), [server(number, devices=devices) for number in order]).as_dict()
    table = table_of(plan)
    assert rank_table.validate(table, "910b") == []
    # 10.77.0.10 stands before 10.77.0.2.
    addresses = sorted(f"10.77.0.{number + 1}" for number in order)
    assert [node["address"] for node in plan["nodes"]] == addresses
    assert plan["head"]["address"] == addresses[0] and plan["nodes"][0]["node_rank"] == 0
    assert ranks_of(table) == [(address, str(device)) for address in addresses for device in range(devices)]
    found = environments(plan)
    assert [(env["HCCL_IF_IP"], env["DEVICE_ID"]) for env in found] == ranks_of(table)
    for rank, env in enumerate(found):
        sizes = dict.fromkeys(("RANK_SIZE", "WORLD_SIZE"), 7 * devices)
        sizes |= dict.fromkeys(("DEVICE_NUM", "LOCAL_WORLD_SIZE"), devices)
        place = {"RANK_ID": rank, "RANK": rank, "LOCAL_RANK": rank % devices, "GROUP_RANK": rank // devices}
        expected = {name: str(number) for name, number in {**sizes, **place, "HCCL_WHITELIST_DISABLE": 1}.items()}
        expected |= {"RANK_TABLE_FILE": TABLE, "MASTER_ADDR": addresses[0]}
        assert {name: env[name] for name in expected} == expected
        assert "ASCEND_RT_VISIBLE_DEVICES" not in env
    processes = [process for node in plan["nodes"] for process in node["processes"]]
    assert [process["ranks"] for process in processes] == [[rank] for rank in range(len(found))]
    logs = [f"{JOB_DIR}/logs/rank_{rank}.log" for rank in range(len(found))]
    assert [process["log"] for process in processes] == logs


def test_one_file_for_all_nodes_with_its_digest():
    plan = make_plan(table_job(), [server(0), server(1)])
    written = plan.as_dict()
    assert [node["files"] for node in written["nodes"]] == [[], []]
    assert len(written["files"][0]["sha256"]) == 64
    # The table is sent once for all nodes and is in no node plan.
    assert "files" in plan.node_plans([])["n1"] and "rank_id" not in json.dumps(plan.node_plans([]))
    lines = describe(written).splitlines()
    at = lines.index(f"  file {TABLE} (0644) on every node")
    assert lines[at + 1 : at + 3] == ["    | {", '    |   "version": "1.0",']
    assert lines[at + 21].startswith("    | ... (")


@pytest.mark.parametrize("devices", [[4, 5, 6, 7], "[4,8)", "4,5,6,7"])
def test_devices_4_to_7_keep_their_numbers(devices):
    plan = make_plan(table_job(devices=devices), [server(0)]).as_dict()
    assert plan["nodes"][0]["devices"] == [4, 5, 6, 7]
    assert ranks_of(table_of(plan)) == [("10.77.0.1", device) for device in "4567"]
    found = [(env["RANK_ID"], env["DEVICE_ID"], env["DEVICE_NUM"]) for env in environments(plan)]
    assert found == [(str(rank), str(rank + 4), "4") for rank in range(4)]


def test_tables_have_physical_ids_where_a_container_counts_its_devices_from_0():
    plan = make_plan(table_job(devices=[0, 2]), [server(0, devices=4, physical=[4, 5, 6, 7])]).as_dict()
    assert ranks_of(table_of(plan)) == [("10.77.0.1", "4"), ("10.77.0.1", "6")]
    addresses = [device["device_ip"] for device in table_of(plan)["server_list"][0]["device"]]
    assert addresses == ["192.5.0.1", "192.7.0.1"]
    assert [env["DEVICE_ID"] for env in environments(plan)] == ["4", "6"]


def test_a_table_for_super_pods():
    plan = make_plan(table_job(), [server(number, chip="a3", devices=16) for number in (0, 1)]).as_dict()
    table = table_of(plan)
    assert rank_table.validate(table, "a3") == []
    assert (table["version"], table["server_list"][1]["host_ip"]) == ("1.2", "10.77.0.2")
    assert table["server_list"][1]["device"][3]["super_device_id"] == "103"
    assert [pod["super_pod_id"] for pod in table["super_pod_list"]] == ["7"]


def test_a_host_may_have_its_own_address_for_hccl():
    plan = make_plan(table_job(), [server(0), server(1, env={"HCCL_IF_IP": "10.99.0.2"})]).as_dict()
    assert {env["HCCL_IF_IP"] for env in environments(plan)} == {"10.77.0.1", "10.99.0.2"}


def test_the_example_on_captured_npu_machines(tmp_path):
    text = (PROJECT / "jobs/mindspore-resnet50-ascend.yml").read_text()
    job_file = yaml.safe_load(text.replace("{{ trainyard_state }}", "/var/lib/trainyard"))
    short = {"job_venv": "/opt/trainyard/venvs/mindspore", "job_progress_pattern": "step: (?P<step>[0-9]+)"}
    job, findings = schedulers.parse({**job_file, **short})
    assert findings == []

    def captured(host, address, device_net):
        member = captured_member(tmp_path, "ascend8", host, address, packages={"mindspore": "2.4.0"})
        facts = json.dumps(member.facts).replace('"10.0.0.12/', f'"{address}/').replace('"192.', f'"{device_net}.')
        return replace(member, facts=json.loads(facts))

    # The dictionary order of addresses puts the second one first.
    members = [captured("npu2", "10.0.0.2", 192), captured("npu12", "10.0.0.12", 193)]
    plan = make_plan(job, members, files=("mindspore/train.py",)).as_dict()
    addresses = [address for address, _ in ranks_of(table_of(plan))]
    assert addresses == ["10.0.0.12"] * 8 + ["10.0.0.2"] * 8
    assert [node["host"] for node in plan["nodes"]] == ["npu12", "npu2"]
    last = plan["nodes"][1]["processes"][-1]["env"]
    assert (last["RANK_ID"], last["DEVICE_ID"], last["RANK_SIZE"]) == ("15", "7", "16")


# ---- the guide of MindOCR: tools/train.py on [0,8), on [4,8), and two ranks under mpirun


# What its callbacks print (mindocr/utils/callbacks.py), composed: with the data sink and without.
MINDOCR_LINES = """\
[2024-05-01 10:00:00] mindocr.train INFO - epoch: [3/1200], loss: 1.372001, epoch time: 20.100 s, per step time: \
319.047 ms, fps per card: 31.34 img/s
[2024-05-01 10:00:20] mindocr.train INFO - epoch: [4/1200] step: [20/63], loss: 1.360000, lr: 0.004000, per step \
time: 300.100 ms, fps per card: 33.30 img/s
"""


def mindocr_job(**changes):
    text = (PROJECT / "jobs/mindocr-ascend.yml").read_text()
    given = yaml.safe_load(text.replace("{{ trainyard_state }}", "/var/lib/trainyard"))
    venv = {"job_venv": "/opt/trainyard/venvs/mindspore"}
    job, findings = schedulers.parse({**given, **venv, **{f"job_{name}": value for name, value in changes.items()}})
    assert findings == []
    return job


def mindocr_member(tmp_path):
    """Return the captured machine with addresses in 169.254.0.0/16, as some single servers have."""
    mpi = {"version": "4.1.4", "path": "/usr/bin/mpirun"}
    member = captured_member(tmp_path, "ascend8", "npu1", "10.0.0.12", packages={"mindspore": "2.2.14"}, mpi=mpi)
    facts = re.sub(r'"device_ip": "192\.[0-9]+\.0\.', '"device_ip": "169.254.10.', json.dumps(member.facts))
    facts = re.sub(r'("physical_id": ([0-9]), "device_ip": "169\.254\.10\.)[0-9]+', r"\g<1>1\g<2>", facts)
    return replace(member, facts=json.loads(facts))


@pytest.mark.parametrize(("devices", "size"), [("auto", 8), ("[4,8)", 4)])
def test_an_ocr_training_gets_the_variables_of_the_loop_in_its_guide(tmp_path, devices, size):
    plan = make_plan(mindocr_job(devices=devices), [mindocr_member(tmp_path)], files=()).as_dict()
    first = 8 - size
    names = ("DEVICE_NUM", "RANK_SIZE", "RANK_ID", "DEVICE_ID")
    expected = [("8", str(size), str(rank), str(first + rank)) for rank in range(size)]
    assert [tuple(env[name] for name in names) for env in environments(plan)] == expected
    table = table_of(plan)
    assert [device["device_id"] for device in table["server_list"][0]["device"]] == list(map(str, range(first, 8)))
    assert table["server_list"][0]["device"][0]["device_ip"].startswith("169.254.")
    assert {tuple(process["argv"][5:8]) for node in plan["nodes"] for process in node["processes"]} == {
        ("python", "tools/train.py", "--config=configs/det/dbnet/db_r50_icdar15.yaml")
    }


def test_an_ocr_training_under_mpirun(tmp_path):
    job = mindocr_job(launcher="mpirun", ranks_per_node=2)
    plan = make_plan(job, [mindocr_member(tmp_path)], files=()).as_dict()
    (process,) = plan["nodes"][0]["processes"]
    assert process["argv"][process["argv"].index("-n") + 1] == "2" and "tools/train.py" in process["argv"]
    (script,) = [file["content"] for file in plan["nodes"][0]["files"] if file["path"].endswith("mpi_rank")]
    assert "export ASCEND_RT_VISIBLE_DEVICES=0,1\n" in script
    assert "RANK_TABLE_FILE" not in json.dumps(plan)


def test_lines_of_an_ocr_training_are_progress():
    assert progress_reader.read_lines(MINDOCR_LINES, mindocr_job().progress_pattern) == [
        {"epoch": 3.0, "loss": 1.372001, "rate": 31.34},
        {"epoch": 4.0, "step": 20.0, "steps": 63.0, "loss": 1.36, "rate": 33.3},
    ]


@pytest.mark.parametrize("number", ["3", "-8", "eight", ""])
def test_device_num_is_no_less_than_the_ranks_of_a_node(number):
    _, findings = planned(table_job(devices="[4,8)", env={"DEVICE_NUM": number}), [server(0)])
    assert briefly(findings) == [("n1", "job_env", f"DEVICE_NUM={number}")]
    _, findings = planned(table_job(), [server(0, env={"DEVICE_NUM": "4"})])
    assert [item.check for item in findings] == ["job_node_env"]


def test_device_num_is_by_default_the_ranks_of_the_node():
    plan = make_plan(table_job(), [server(0), server(1, env={"DEVICE_NUM": "16"})]).as_dict()
    assert [env["DEVICE_NUM"] for env in environments(plan)] == ["8"] * 8 + ["16"] * 8


BOTH = "2 devices that are both in {0,1,2,3} or both in {4,5,6,7}"
ALL = "8 devices {0-7} on each server, since there are several servers"


@pytest.mark.parametrize(
    ("servers", "devices", "expected", "rejected"),
    [
        (1, [0, 1, 2], "1, 2, 4 or 8 devices", True),
        (1, [2, 3, 4, 5], "{0,1,2,3} or {4,5,6,7} for 4 devices", True),
        (2, [0, 1, 2, 5, 6, 7], ALL, True),
        (1, [0, 4], BOTH, False),
        (1, [3, 4], BOTH, False),
        (2, [4, 5, 6, 7], ALL, False),
    ],
)
@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("launcher", ["rank_table", "mpirun", "mindspore", "direct"])
def test_sets_that_a_910_does_not_join_are_refused(launcher, servers, devices, expected, rejected, accepted):
    """With job_any_device_set those that HCCL's parser takes become warnings."""
    job = make_job(launcher=launcher, devices=devices, any_device_set=accepted)
    plan, findings = planned(job, [server(number, chip="910") for number in range(servers)])
    refused = rejected or not accepted
    shown = [finding.as_dict() for finding in findings] if refused else plan.as_dict()["warnings"]
    assert bool(findings) is refused
    found = f"{len(devices)} devices: {', '.join(map(str, devices))} (chip 910)"
    assert [(each["host"], each["check"], each["found"], each["expected"]) for each in shown] == [
        (f"n{number + 1}", "devices", found, expected) for number in range(servers)
    ]
    assert all(("job_any_device_set: true" in each["action"]) is not (rejected or accepted) for each in shown)
    assert refused or f"     found     {found}\n     expected  {expected}\n" in describe(plan.as_dict())
    assert make_plan(job, [server(number) for number in range(servers)]).as_dict()["warnings"] == []


def test_nodes_without_npus_and_a_job_without_devices():
    gpus = Member("n2", "10.77.0.2", node_facts(1, devices=8), {}, {})
    _, findings = planned(table_job(), [server(0), gpus])
    assert briefly(findings) == [("n2", "devices", "no Ascend device")]
    _, findings = planned(table_job(devices="none"), [server(0)])
    assert [(item.host, item.found) for item in findings] == [("n1", "no device for the job")]


@pytest.mark.parametrize(
    ("chips", "found"),
    [
        (("910b", "a3", "910b"), [("n2", "chip a3", "910b, as on the other nodes")]),
        (("", ""), [(f"n{at}", "chip of no known kind", "one of 910, 910b, a3") for at in (1, 2)]),
    ],
)
def test_nodes_of_several_kinds(chips, found):
    plan, findings = planned(table_job(), [server(number, chip=chip) for number, chip in enumerate(chips)])
    assert [(item.host, item.found, item.expected) for item in findings] == found
    assert plan.as_dict()


def test_devices_that_hccl_cannot_use():
    ill = server(0, device3={"health": "Alarm"}, device4={"link": "down"}, device5={"link": "unknown"})
    silent = server(1, device7={"device_ip": ""})
    _, findings = planned(table_job(), [ill, silent])
    assert briefly(findings) == [
        ("n1", "devices", "device 3 with health Alarm"),
        ("n1", "devices", "device 4 with its link down"),
        ("n2", "rank table", "server 10.77.0.2, device 7, rank 15: no device_ip"),
    ]
    # Devices of one super pod need no network, those of several do.
    pods = [server(number, chip="a3", **{f"device{at}": {"device_ip": ""} for at in range(8)}) for number in range(2)]
    make_plan(table_job(), pods)
    pods[1].facts["npu"]["super_pod_id"] = "8"
    _, findings = planned(table_job(), pods)
    assert {(item.host, item.check, item.found.partition(": ")[2]) for item in findings} == {
        (host, "rank table", "no device_ip") for host in ("n1", "n2")
    }
    # Alone, a node needs no network between its devices.
    make_plan(table_job(), [server(0, device4={"link": "down"}, device7={"device_ip": ""})])


def test_nodes_with_fewer_devices_than_others():
    _, findings = planned(table_job(), [server(0), server(1), server(2, devices=4)])
    assert briefly(findings) == [("n3", "rank table", "server 10.77.0.3: 4 devices")]
    make_plan(table_job(ranks_per_node=4), [server(0), server(1, devices=4)])


def test_variables_that_place_a_process_are_the_launchers():
    job = table_job(env={"DEVICE_ID": 3, "HCCL_IF_IP": "10.77.0.1"})
    hidden = server(1, env={"ASCEND_RT_VISIBLE_DEVICES": "0", "HCCL_IF_IP": "10.77.0.2"})
    _, findings = planned(job, [server(0), hidden])
    assert briefly(findings) == [
        ("", "job_env", "DEVICE_ID=3"),
        ("n2", "job_node_env", "ASCEND_RT_VISIBLE_DEVICES=0"),
        ("", "job_env", "HCCL_IF_IP=10.77.0.1 for 2 nodes"),
    ]


def test_under_mpirun_ranks_take_the_visible_devices_from_0_upwards():
    members = [server(0, env={"HCCL_WHITELIST_DISABLE": "0"}), server(1)]
    plan = make_plan(make_job(launcher="mpirun", devices="[4,8)"), members).as_dict()
    (process,) = [process for node in plan["nodes"] for process in node["processes"]]
    assert process["ranks"] == list(range(8))
    for node, whitelist in zip(plan["nodes"], "01"):
        (script,) = [file["content"].splitlines() for file in node["files"] if file["path"].endswith("mpi_rank")]
        assert "export ASCEND_RT_VISIBLE_DEVICES=4,5,6,7" in script
        # One value for all nodes, which -x would give them, would be wrong for all but one.
        assert f"export HCCL_IF_IP={node['address']}" in script
        assert f"export HCCL_WHITELIST_DISABLE={whitelist}" in script
    assert "HCCL_IF_IP" not in process["env"] and "RANK_TABLE_FILE" not in json.dumps(plan)


def test_under_mpirun_equal_variables_are_passed_by_mpirun():
    plan = make_plan(make_job(launcher="mpirun"), [server(0), server(1)]).as_dict()
    argv = plan["nodes"][0]["processes"][0]["argv"]
    assert "HCCL_WHITELIST_DISABLE" in [argv[at + 1] for at, word in enumerate(argv) if word == "-x"]
    assert plan["nodes"][0]["processes"][0]["env"]["HCCL_WHITELIST_DISABLE"] == "1"


def test_mindspore_under_mpirun_is_for_ascend_too():
    members = [server(0, packages={"mindspore": "2.4.0"})]
    make_plan(make_job(launcher="mpirun", packages=["mindspore"]), members)


def test_with_other_vendors_and_on_the_cpu_nothing_of_hccl_is_set():
    gpus = Member("n1", "10.77.0.1", node_facts(0, devices=2), {}, {})
    for job, node in ((make_job(), gpus), (make_job(devices="none"), server(0))):
        (env,) = environments(make_plan(job, [node]).as_dict())
        assert not [name for name in env if name.startswith("HCCL_")]
