"""The playbooks rank_table.yml and hostfile.yml: their rules, and the files that they write."""

import json
from dataclasses import asdict

import pytest
import yaml
from ansible.module_utils.trainyard.ascend import rank_table
from ansible.module_utils.trainyard.base.findings import faults
from ansible.module_utils.trainyard.job.placement import cluster_files
from ansible.module_utils.trainyard.job.placement.hostfile import parse
from rank_table_samples import server

SETTINGS = {"devices": "auto", "network": "", "server_ip": "", "path": "/ops/table.json", "folder": True}
HOSTFILE = {"slots": "auto", "flavor": "openmpi", "network": "", "path": "/ops/hostfile", "folder": True}


def record(number, **changes):
    """Return the results of the playbooks' tasks for a server of the samples."""
    member = server(number, **changes)
    return {
        "name": member.host,
        "ansible_host": member.address,
        "__asked_devices": {"npu": member.facts["npu"], "accelerators": member.facts["accelerators"]},
        "__asked_networks": {"networks": member.facts["networks"]},
    }


def table(records, **settings):
    """Return the table that the module writes from a plan."""
    plan = cluster_files.plan_rank_table(records, {**SETTINGS, **settings})
    assert plan["findings"] == []
    servers = [
        rank_table.Server(**{**each, "devices": tuple(rank_table.Device(**device) for device in each["devices"])})
        for each in plan["servers"]
    ]
    made = rank_table.build(servers, plan["chip"])
    assert faults(rank_table.validate(made, plan["chip"])) == []
    return made


def found(plan, *names):
    return [tuple(finding[name] for name in names or ("host", "check", "found")) for finding in plan["findings"]]


def test_a_single_server_is_127_0_0_1_as_the_guides_table_has_it():
    made = table([record(0)], devices="[4,8)")
    assert rank_table.file_name(made) == "hccl_4p_4567_127.0.0.1.json"
    devices = made["server_list"][0]["device"]
    assert [device["device_ip"] for device in devices] == [f"192.{number}.0.1" for number in (5, 6, 7, 8)]
    assert rank_table.file_name(table([record(0)], server_ip="10.77.0.1")) == "hccl_8p_01234567_10.77.0.1.json"
    assert "host_ip" not in table([record(0, chip="a3")])["server_list"][0]


def test_several_servers_are_known_by_their_addresses_in_dictionary_order():
    made = table([record(1), record(9)])
    assert [entry["server_id"] for entry in made["server_list"]] == ["10.77.0.10", "10.77.0.2"]
    assert rank_table.file_name(made) == "hccl_2s_16p.json"
    assert table([record(1, chip="a3"), record(2, chip="a3")])["server_list"][0]["host_ip"] == "10.77.0.2"


def test_devices_are_chosen_by_logic_id_and_written_by_physical_id():
    made = table([record(0, devices=4, physical=[4, 5, 6, 7])], devices=[0, 2])
    assert [device["device_id"] for device in made["server_list"][0]["device"]] == ["4", "6"]


@pytest.mark.parametrize("devices", ["[8,4)", "[4-8)", "none", [], [1, 1], "a", True, {}])
def test_an_invalid_range_is_one_finding(devices):
    plan = cluster_files.plan_rank_table([record(0)], {**SETTINGS, "devices": devices})
    assert found(plan, "check", "found", "action") == [("devices", repr(devices), "correct rank_table_devices")]


ILL = record(0, device3={"health": "Alarm"}, device4={"link": "down"})


def test_all_that_keeps_a_table_from_being_written_comes_at_once():
    plain = {**record(2), "__asked_devices": {"npu": {}}}
    silent = {**record(3), "__asked_devices": {"unreachable": True, "msg": "ssh: Connection refused"}}
    del silent["__asked_networks"]
    settings = {"devices": "[4,10)", "server_ip": "10.0.0.1", "folder": False, "network": "10.78.0.0/16"}
    plan = cluster_files.plan_rank_table([record(0), plain, silent], {**SETTINGS, **settings})
    assert found(plan) == [
        ("", "rank_table_path", "/ops/table.json, in no folder that is there"),
        ("n4", "reach", "ssh: Connection refused"),
        ("", "rank_table_server_ip", "10.0.0.1"),
        ("n1", "devices", "0, 1, 2, 3, 4, 5, 6, 7 on the node"),
        ("n1", "network", "eth0 10.77.0.1/16"),
        ("n3", "devices", "no Ascend device"),
        ("n3", "network", "eth2 10.77.0.3/16"),
    ]
    text = json.dumps(plan["findings"])
    assert "rank_table_network" in text and "job_" not in text


@pytest.mark.parametrize(
    ("records", "settings", "host", "expected"),
    [
        ([ILL, record(1)], {}, "n1", ["device 3 with health Alarm", "device 4 with its link down"]),
        ([record(0), record(2), record(1, chip="910")], {}, "n2", ["chip 910"]),
        ([record(0, chip="910")], {"devices": [0, 1, 2]}, "n1", ["3 devices: 0, 1, 2 (chip 910)"]),
        ([record(0, chip="910")], {"devices": [0, 4]}, "n1", ["2 devices: 0, 4 (chip 910)"]),
        # HCCL's parser takes these: the module that writes the table warns.
        ([record(0, chip="910")], {"devices": [0, 4], "any_device_set": True}, "n1", []),
    ],
)
def test_devices_that_a_job_could_not_use_are_in_no_table(records, settings, host, expected):
    plan = cluster_files.plan_rank_table(records, {**SETTINGS, **settings})
    assert found(plan) == [(host, "devices", text) for text in expected]
    assert "job_" not in json.dumps(plan["findings"])


def test_a_hostfile_has_the_addresses_and_the_number_of_devices():
    bare = record(1)
    bare["__asked_devices"]["accelerators"] = {"devices": [], "problems": []}
    plan = cluster_files.plan_hostfile([record(0), bare], HOSTFILE)
    assert plan == {"findings": [], "hosts": [{"name": "10.77.0.1", "slots": 8}, {"name": "10.77.0.2", "slots": 1}]}
    four = cluster_files.plan_hostfile([record(0), bare], {**HOSTFILE, "slots": "4"})
    assert [host["slots"] for host in four["hosts"]] == [4, 4]


def test_all_that_keeps_a_hostfile_from_being_written_comes_at_once():
    broken = record(0)
    broken["__asked_devices"]["accelerators"]["problems"] = ["nvidia-smi failed"]
    plan = cluster_files.plan_hostfile([broken], {**HOSTFILE, "flavor": "slurm", "network": "10.78.0.0/16"})
    assert found(plan) == [
        ("", "hostfile_flavor", "'slurm'"),
        ("n1", "devices", "nvidia-smi failed"),
        ("n1", "network", "eth0 10.77.0.1/16"),
    ]


@pytest.mark.parametrize("slots", ["0", -1, True, "many", 1.5])
def test_an_invalid_number_of_slots_is_a_finding(slots):
    plan = cluster_files.plan_hostfile([record(0)], {**HOSTFILE, "slots": slots})
    assert found(plan) == [("", "hostfile_slots", repr(slots))]


def inventory(text, **settings):
    hosts, problems = parse(text)
    read = {
        "hosts": [asdict(host) for host in hosts],
        "problems": [{"line": line, "text": each} for line, wrong in problems.items() for each in wrong],
    }
    given = {"hostfile": "/ops/hostfile", "path": "/ops/hosts.yml", "folder": True, "existing": "", "overwrite": False}
    return cluster_files.plan_inventory(read, {**given, **settings})


def test_an_inventory_has_the_hosts_of_a_hostfile_in_its_order():
    plan = inventory("worker-2 slots=8\n10.0.0.1 slots=8 max_slots=8\nno slots=8\nfd00::1 slots=8\nlocalhost slots=8\n")
    assert plan["findings"] == [] and not plan["differing"]
    made = yaml.safe_load(plan["text"])["compute"]
    assert made["vars"] == {"job_ranks_per_node": 8}
    assert list(made["hosts"]) == ["worker-2", "10.0.0.1", "no", "fd00::1", "localhost"]
    assert made["hosts"]["localhost"] == {"ansible_connection": "local"}
    assert inventory("n1 slots=8", existing=inventory("n1 slots=8")["text"])["findings"] == []


def test_different_slots_are_noted_at_each_host():
    plan = inventory("n1 slots=8\nn2 slots=4\nn3\n")
    assert plan["differing"] and "vars" not in yaml.safe_load(plan["text"])["compute"]
    notes = [line.strip() for line in plan["text"].splitlines() if "#" in line][1:]
    assert notes == ["n1:  # 8 slots", "n2:  # 4 slots"]


AT = "of /ops/hostfile"
TWICE = "n1 is in line 1 already"
NO_NUMBER = "slots 'x' is no number of processes"


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("n1 slots=8\nn1 slots=4\nn2 slots=x\n", {}, [f"line 2 {AT}: {TWICE}", f"line 3 {AT}: {NO_NUMBER}"]),
        ("# none\n", {}, ["no host in /ops/hostfile"]),
        ("n_1 slots=8\n", {"folder": False}, ["/ops/hosts.yml, in no folder that is there"]),
        ("ip6-localhost slots=8\n", {}, ["host 'ip6-localhost' in /ops/hostfile"]),
        ("n1 slots=8\n", {"existing": "---\n"}, ["/ops/hosts.yml is there and differs"]),
        ("n1 slots=8\n", {"existing": "---\n", "overwrite": True}, []),
    ],
)
def test_a_hostfile_that_makes_no_inventory(text, settings, expected):
    assert [each for (each,) in found(inventory(text, **settings), "found")] == expected
