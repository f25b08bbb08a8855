"""Rank tables: built as HCCL wants them, each rule with its fault and message, merged, repaired; any JSON judged."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.ascend import rank_table_rules
from ansible.module_utils.trainyard.ascend.rank_table import (
    Device,
    Server,
    build,
    device_set_problems,
    dumps,
    file_name,
    loads,
    merge,
    path_problems,
    repair,
    validate,
)
from hypothesis import given
from hypothesis import strategies as st

PROJECT = Path(__file__).resolve().parents[3]


def server(number, devices=2, **more):
    ids = range(devices) if isinstance(devices, int) else devices
    members = tuple(Device(at, f"192.{at + 1}.0.{number}", str(number * 100 + at)) for at in ids)
    return Server(f"10.0.0.{number}", members, **more)


def a2(servers=2, devices=2):
    return build([server(number + 1, devices) for number in range(servers)], "910b")


def a3(pods=("0", "0")):
    return build([server(at + 1, host_ip=f"10.9.0.{at + 1}", super_pod_id=pod) for at, pod in enumerate(pods)], "a3")


# ---- built


def test_the_table_of_two_servers(golden):
    # Word for word what HCCL's documents show for version 1.0.
    servers = [
        Server("10.0.0.2", (Device(0, "192.1.0.8"), Device(1, "192.2.0.8"))),
        Server("10.0.0.1", (Device(0, "192.1.0.6"), Device(1, "192.2.0.6"))),
    ]
    golden(dumps(build(servers, "910b")), "rank-table-two-servers.json")


def test_the_table_of_super_pods():
    table = build(
        [
            Server("node_1", (Device(0, super_device_id="4"),), host_ip="10.0.0.2", super_pod_id="7"),
            Server("node_0", (Device(0, "192.1.0.6", "4"),), super_pod_id="3"),
            Server("node_2", (Device(0, "192.1.0.7", "5"),), super_pod_id="3"),
        ],
        "a3",
    )
    assert table["version"] == "1.2"
    assert table["super_pod_list"] == [
        {"super_pod_id": "3", "server_list": [{"server_id": "node_0"}, {"server_id": "node_2"}]},
        {"super_pod_id": "7", "server_list": [{"server_id": "node_1"}]},
    ]
    assert table["server_list"][0] == {
        "server_id": "node_0",
        "device": [{"device_id": "0", "device_ip": "192.1.0.6", "super_device_id": "4", "rank_id": "0"}],
    }
    assert table["server_list"][1] == {
        "server_id": "node_1",
        "host_ip": "10.0.0.2",
        "device": [{"device_id": "0", "super_device_id": "4", "rank_id": "1"}],
    }


def test_servers_stand_in_dictionary_order_and_devices_as_given():
    table = build([server(2, [7, 5]), server(10, [4, 6]), server(1, [0, 1])], "910b")
    assert [
        (entry["server_id"], [(device["rank_id"], device["device_id"]) for device in entry["device"]])
        for entry in table["server_list"]
    ] == [
        ("10.0.0.1", [("0", "0"), ("1", "1")]),
        ("10.0.0.10", [("2", "4"), ("3", "6")]),
        ("10.0.0.2", [("4", "7"), ("5", "5")]),
    ]


def test_the_version_can_be_chosen():
    assert [build([], chip)["version"] for chip in ("910", "910b", "a3")] == ["1.0", "1.0", "1.2"]
    assert build([], "910b", "1.2")["version"] == "1.2"
    with pytest.raises(ValueError, match=re.escape("version '1.1': expected auto or one of 1.0, 1.2")):
        build([], "910b", "1.1")
    for call in (lambda: build([], "v100"), lambda: validate({}, "v100"), lambda: device_set_problems([0], "v100", 1)):
        with pytest.raises(ValueError, match="chip 'v100': expected one of 910, 910b, a3"):
            call()


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (build([Server("127.0.0.1", tuple(Device(at) for at in range(8)))], "910"), "hccl_8p_01234567_127.0.0.1.json"),
        (build([Server("127.0.0.1", tuple(Device(at) for at in range(4, 8)))], "910"), "hccl_4p_4567_127.0.0.1.json"),
        (a2(2, 8), "hccl_2s_16p.json"),
        (build([Server("../n1\n", (Device(15),))], "910b"), "hccl_1p_15_.._n1_.json"),
    ],
)
def test_conventional_names(table, name):
    assert file_name(table) == name


def test_a_device_takes_a_line():
    lines = dumps(a2()).splitlines()
    assert '        {"device_id": "0", "device_ip": "192.1.0.1", "rank_id": "0"},' in lines
    assert len(lines) == 4 + 2 * (4 + 2 + 2) + 3


# ---- judged: one fault for each rule


def edit(table, path, value):
    """Return a copy with one field set, or taken out where the value is None."""
    changed = copy.deepcopy(table)
    *way, last = path
    inner = changed
    for step in way:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed


FIRST = ("server_list", 0, "device", 0)
SECOND = ("server_list", 1, "device", 1)
ON_FIRST = "server 10.0.0.1, device 0, rank 0"
ON_SECOND = "server 10.0.0.2, device 1, rank 3"
FAULTS = [
    # structure
    ([], "", "structure", "table", "[]", "a JSON object"),
    (
        edit(a2(1), ["server_list", 0, "device"], []), "", "structure", "server 10.0.0.1", "device []",
        "device, a list with an entry for each device",
    ),
    (
        edit(a2(1), ["server_list", 0, "device"], None), "", "structure", "server 10.0.0.1", "no device",
        "device, a list with an entry for each device",
    ),
    (
        {**a2(), "server_list": {}, "server_count": "0"}, "", "structure", "table", "server_list {}",
        "server_list, a list with an entry for each server",
    ),
    ({**a2(), "server_list": [*a2()["server_list"], "n3"], "server_count": "3"}, "", "structure", "server_list[2]",
     '"n3"', "an object"),
    (edit(a2(1), [*FIRST[:3], 1], 5), "", "structure", "server 10.0.0.1, device[1]", "5", "an object"),
    # string
    (edit(a2(), [*FIRST, "rank_id"], 0), "", "string", ON_FIRST, "rank_id is 0, a number", "a string in quotes"),
    (edit(a2(), ["server_count"], 2), "", "string", "table", "server_count is 2, a number", "a string in quotes"),
    (edit(a2(), ["version"], 1.0), "910b", "string", "table", "version is 1.0, a number", "a string in quotes"),
    (edit(a2(), [*FIRST, "board"], True), "", "string", ON_FIRST, "board is true, true or false", "a string in quotes"),
    (edit(a2(), ["server_list", 1, "server_id"], 20), "", "string", "server 20", "server_id is 20, a number",
     "a string in quotes"),
    (edit(a3(), ["super_pod_list", 0, "super_pod_id"], 0), "", "string", "super_pod_list[0]",
     "super_pod_id is 0, a number", "a string in quotes"),
    (edit(edit(a3(), ["server_list", 1, "server_id"], "20"), ["super_pod_list", 0, "server_list", 1, "server_id"], 20),
     "", "string", "super_pod_list[0], server_list[1]", "server_id is 20, a number", "a string in quotes"),
    # version
    (edit(a2(), ["version"], "2.0"), "", "version", "table", "version 2.0", "1.0 or 1.2"),
    (edit(a2(), ["version"], None), "910b", "version", "table", "no version", "1.0 for chip 910b"),
    (a2(), "a3", "version", "table", "version 1.0", "1.2 for chip a3"),
    (a3(), "910b", "version", "table", "version 1.2", "1.0 for chip 910b"),
    (edit(a2(), ["version"], ["1.0"]), "", "version", "table", 'version ["1.0"]', "1.0 or 1.2"),
    # status
    (edit(a2(), ["status"], "initializing"), "", "status", "table", 'status "initializing"', "completed"),
    (edit(a2(), ["status"], None), "", "status", "table", "no status", "completed"),
    # server_count
    (edit(a2(), ["server_count"], "3"), "", "server_count", "table", "server_count 3", "2, the length of server_list"),
    (edit(a2(), ["server_count"], None), "", "server_count", "table", "no server_count",
     "2, the length of server_list"),
    # server_id
    (edit(a2(1), ["server_list", 0, "server_id"], None), "", "server_id", "server_list[0]", "no server_id",
     "a name or an address"),
    (edit(a2(1), ["server_list", 0, "server_id"], ""), "", "server_id", "server_list[0]", 'server_id ""',
     "a name or an address"),
    (edit(a2(), ["server_list", 1, "server_id"], "n" * 65), "", "server_id_length", "server_list[1]",
     f'server_id "{"n" * 65}" of 65 characters', "at most 64 characters"),
    (edit(a2(), ["server_list", 1, "server_id"], "10.0.0.1"), "", "server_id_unique", "server_list[1]",
     'server_id "10.0.0.1", which server_list[0] has', "each server_id once"),
    # rank_id
    (edit(a2(), [*FIRST, "rank_id"], None), "", "rank_id", "server 10.0.0.1, device 0", "no rank_id",
     "a number from 0, as a string"),
    (edit(a2(), [*FIRST, "rank_id"], "-1"), "", "rank_id", "server 10.0.0.1, device 0", 'rank_id "-1"',
     "a number from 0, as a string"),
    (edit(a2(), [*SECOND, "rank_id"], "2"), "", "rank_id_unique", "server 10.0.0.2, device 1, rank 2",
     "rank_id 2, which server 10.0.0.2, device 0 has", "each rank_id once"),
    (edit(a2(), [*SECOND, "rank_id"], "4"), "", "rank_id_contiguous", "server 10.0.0.2, device 1, rank 4",
     "rank_id 4 in a table of 4 devices", "the rank_ids 0 to 3, without a gap"),
    # device_id
    (edit(a2(), [*FIRST, "device_id"], "16"), "", "device_id", "server 10.0.0.1, device 16, rank 0", "device_id 16",
     "0 to 15, as a string"),
    (edit(a2(1, 8), [*FIRST, "device_id"], "8"), "910", "device_id", "server 10.0.0.1, device 8, rank 0", "device_id 8",
     "0 to 7 on 910, as a string"),
    (edit(a2(), [*FIRST, "device_id"], None), "", "device_id", "server 10.0.0.1, device[0], rank 0", "no device_id",
     "0 to 15, as a string"),
    (edit(a2(), [*SECOND, "device_id"], "0"), "", "device_id_unique", "server 10.0.0.2, device 0, rank 3",
     "device_id 0 in device[0] and device[1]", "each device of a server once"),
    (build([server(1), server(2), server(3, 1)], "910b"), "", "device_count", "server 10.0.0.3", "1 device",
     "2, as on the other servers"),
    # device_set
    (a2(1, 3), "910", "device_set", "server 10.0.0.1", "3 devices: 0, 1, 2", "1, 2, 4 or 8 devices"),
    (a2(1, [3, 4]), "910", "device_set", "server 10.0.0.1", "2 devices: 3, 4",
     "2 devices that are both in {0,1,2,3} or both in {4,5,6,7}"),
    (a2(1, [2, 3, 4, 5]), "910", "device_set", "server 10.0.0.1", "4 devices: 2, 3, 4, 5",
     "{0,1,2,3} or {4,5,6,7} for 4 devices"),
    # device_ip
    (edit(a2(), [*SECOND, "device_ip"], "-.-.-.-"), "", "device_ip", ON_SECOND, 'device_ip "-.-.-.-"',
     "an IPv4 or IPv6 address"),
    (edit(a2(), [*SECOND, "device_ip"], "192.1.0.256"), "", "device_ip", ON_SECOND, 'device_ip "192.1.0.256"',
     "an IPv4 or IPv6 address"),
    (edit(a2(), [*SECOND, "device_ip"], ["192.1.0.9"]), "", "device_ip", ON_SECOND, 'device_ip ["192.1.0.9"]',
     "an IPv4 or IPv6 address"),
    (edit(a2(), [*SECOND, "device_ip"], "192.1.0.9,"), "", "device_ip", ON_SECOND, 'device_ip "192.1.0.9,"',
     "an IPv4 or IPv6 address"),
    (edit(a2(), [*SECOND, "device_ip"], None), "", "device_ip_missing", ON_SECOND, "no device_ip",
     "an address for each device where there are several servers, unless these are one super pod"),
    (edit(a3("01"), [*SECOND, "device_ip"], ""), "a3", "device_ip_missing", ON_SECOND, "no device_ip",
     "an address for each device where there are several servers, unless these are one super pod"),
    (edit(a2(), [*SECOND, "device_ip"], "192.1.0.1"), "", "device_ip_unique", ON_SECOND,
     f"device_ip 192.1.0.1, which {ON_FIRST} has", "each device_ip once"),
    (edit(a2(), [*SECOND, "device_ip"], "fd00::1"), "", "device_ip_family", ON_SECOND, "device_ip fd00::1",
     "IPv4, as for other devices"),
    # fields that may be there
    (edit(a3(), [*SECOND, "device_port"], "0"), "", "device_options", ON_SECOND, "device_port 0", "a port, 1 to 65535"),
    (edit(a3(), [*SECOND, "backup_device_port"], "x"), "", "device_options", ON_SECOND, 'backup_device_port "x"',
     "a port, 1 to 65535"),
    (edit(a3(), [*SECOND, "host_port"], "65536"), "", "device_options", ON_SECOND, "host_port 65536",
     "a port, 1 to 65535"),
    (edit(a3(), [*SECOND, "backup_device_ip"], "n1"), "", "device_options", ON_SECOND, 'backup_device_ip "n1"',
     "an IPv4 or IPv6 address"),
    (edit(a3(), ["server_list", 1, "host_ip"], "n2"), "", "host_ip", "server 10.0.0.2", 'host_ip "n2"',
     "an IPv4 or IPv6 address"),
    (edit(a3(), ["server_list", 1, "host_ip"], None), "", "host_ip", "server 10.0.0.2",
     "no host_ip, which 1 of 2 servers have", "host_ip on all servers or on none"),
    # super pods
    (edit(a3(), ["super_pod_list"], None), "a3", "super_pod_list", "table", "no super_pod_list",
     "a list with an entry for each super pod"),
    (edit(a3(), ["super_pod_list", 0, "server_list", 1], None), "", "super_pod_list", "server 10.0.0.2",
     "in no super pod", "each server in one super pod"),
    (edit(a3(), ["super_pod_list", 0, "server_list"], [{"server_id": f"10.0.0.{at}"} for at in (1, 2, 3)]), "",
     "super_pod_list", "super_pod_list[0]", 'server "10.0.0.3", which is not in server_list', "servers of server_list"),
    (edit(a3(), ["super_pod_list", 0, "server_list"], [{"server_id": f"10.0.0.{at}"} for at in (1, 2, 1)]), "",
     "super_pod_list", "super_pod_list[0]", 'server "10.0.0.1", which super_pod_list[0] has',
     "each server in one super pod"),
    (edit(a3(), ["super_pod_list", 0, "super_pod_id"], None), "", "super_pod_id", "super_pod_list[0]",
     "no super_pod_id", "the super pod's id"),
    (edit(a3("01"), ["super_pod_list", 1, "super_pod_id"], "0"), "", "super_pod_id", "super_pod_list[1]",
     'super_pod_id 0, which super_pod_list[0] has', "each super_pod_id once"),
    (a3("0012244"), "", "super_pod_size", 'super_pod_list[1], super pod 1', "1 server",
     "2, as in the other super pods"),
    (edit(a3(), [*SECOND, "super_device_id"], None), "", "super_device_id", ON_SECOND, "no super_device_id",
     "a decimal number, as a string"),
    (edit(a3(), [*SECOND, "super_device_id"], "4294967295"), "", "super_device_id", ON_SECOND,
     "super_device_id 4294967295", "a decimal number, as a string"),
    (edit(a3(), [*SECOND, "super_device_id"], "100"), "", "super_device_id_unique", ON_SECOND,
     f"super_device_id 100, which {ON_FIRST} has", "each super_device_id of a super pod once"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "chip", "rule", "where", "found", "expected"), FAULTS)
def test_each_fault_is_named_and_no_other(table, chip, rule, where, found, expected):
    before = copy.deepcopy(table)
    (problem,) = validate(table, chip)
    assert (problem.check, problem.host, problem.found, problem.expected) == (rule, where, found, expected)
    assert problem.action
    assert table == before


def ranks(table, *numbers):
    """Number the devices anew."""
    table = copy.deepcopy(table)
    devices = [device for entry in table["server_list"] for device in entry["device"]]
    for device, number in zip(devices, numbers):
        device["rank_id"] = str(number)
    return table


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ((1, 0, 3, 2), []),
        (
            (2, 3, 0, 1),
            [
                ("server 10.0.0.1", "number 2 of 2 by its ranks, from 2, but number 1 by its server_id"),
                ("server 10.0.0.2", "number 1 of 2 by its ranks, from 0, but number 2 by its server_id"),
            ],
        ),
        ((0, 2, 1, 3), [("server 10.0.0.2", "rank 1 here, rank 2 on a server before it")]),
    ],
)
def test_ranks_follow_the_dictionary_order_of_servers(numbers, faults):
    problems = validate(ranks(a2(), *numbers))
    assert [(problem.host, problem.found) for problem in problems] == faults
    assert {problem.check for problem in problems} <= {"rank_order"}


def test_dictionary_order_is_not_that_of_numbers():
    table = build([server(2), server(10)], "910b")
    assert [entry["server_id"] for entry in table["server_list"]] == ["10.0.0.10", "10.0.0.2"]
    assert validate(table) == []
    assert {problem.check for problem in validate(ranks(table, 2, 3, 0, 1))} == {"rank_order"}
    # The order of the entries themselves is of no concern.
    assert validate({**table, "server_list": table["server_list"][::-1]}) == []


def test_several_servers_with_910_use_all_devices():
    assert validate(build([server(1, 8), server(2, 8)], "910"), "910") == []
    assert [
        (problem.check, problem.host, problem.found, problem.expected)
        for problem in validate(build([server(1, 4), server(2, 4)], "910"), "910")
    ] == [
        (
            "device_set", f"server 10.0.0.{at}", "4 devices: 0, 1, 2, 3",
            "8 devices {0-7} on each server, since there are several servers",
        )
        for at in (1, 2)
    ]  # fmt: skip


def test_all_faults_are_found_at_once():
    table = edit(edit(a2(), ["status"], "initializing"), [*FIRST, "rank_id"], 0)
    table = edit(edit(table, [*SECOND, "device_ip"], "-.-.-.-"), ["server_count"], "4")
    assert [problem.check for problem in validate(table, "a3")] == [
        "string", "version", "status", "server_count", "device_ip",
    ]  # fmt: skip


def test_what_may_be_left_out_may_be_left_out():
    # Addresses on one server, and in one super pod.
    assert validate(build([Server("n1", (Device(0), Device(1)))], "910b"), "910b") == []
    pod = build([Server(name, (Device(0, "", str(at)),)) for at, name in enumerate(["n1", "n2"])], "a3")
    assert validate(pod, "a3") == []
    # Super pods number their devices each for itself.
    assert validate(edit(a3("01"), [*SECOND, "super_device_id"], "100"), "a3") == []


def test_what_more_hccl_reads():
    table = edit(a3(), [*FIRST, "backup_device_ip"], "192.1.0.1")
    for name in ("device_port", "host_port", "backup_device_port"):
        table = edit(table, [*FIRST, name], "50000")
    assert validate(edit(table, [*FIRST, "device_ip"], "192.1.0.9,192.1.1.9")) == []
    six = build([Server(f"n{at}", (Device(0, f"fd00::{at}"),)) for at in range(2)], "910b")
    assert validate(six) == []


@pytest.mark.parametrize("chip", ["910", "910b", "a3"])
@pytest.mark.parametrize(("devices", "right"), [(8, ("910", "910b", "a3")), (16, ("910b", "a3")), (17, ())])
def test_how_many_devices_a_chip_has(chip, devices, right):
    assert (validate(build([server(1, devices)], chip), chip) == []) == (chip in right)


# ---- sets of devices


@pytest.mark.parametrize(
    ("devices", "chip", "servers", "expected"),
    [
        ([0], "910", 1, []),
        ([5, 4], "910", 1, []),
        ([4, 5, 6, 7], "910", 1, []),
        (range(8), "910", 3, []),
        ([3, 4], "910b", 3, []),
        (range(16), "a3", 1, []),
        ([0, 1, 2], "910", 1, [("device_set", "3 devices: 0, 1, 2", "1, 2, 4 or 8 devices")]),
        (
            [0, 4], "910", 1,
            [("device_set", "2 devices: 0, 4", "2 devices that are both in {0,1,2,3} or both in {4,5,6,7}")],
        ),
        (
            [2, 3, 4, 5], "910", 1,
            [("device_set", "4 devices: 2, 3, 4, 5", "{0,1,2,3} or {4,5,6,7} for 4 devices")],
        ),
        (
            [0], "910", 2,
            [("device_set", "1 device: 0", "8 devices {0-7} on each server, since there are several servers")],
        ),
        ([8], "910", 1, [("device_id", "device 8", "0 to 7 on 910")]),
        ([0, -1], "910b", 1, [("device_id", "device -1", "0 to 15 on 910b")]),
        ([0, 16], "a3", 1, [("device_id", "device 16", "0 to 15 on a3")]),
        ([1, 2, 1], "910", 1, [("device_id_unique", "device 1 2 times", "each device once")]),
        ([], "a3", 1, [("device_set", "no device", "1 device or more")]),
    ],
)  # fmt: skip
def test_sets_of_devices(devices, chip, servers, expected):
    problems = device_set_problems(list(devices), chip, servers, "job_devices")
    assert [(problem.check, problem.found, problem.expected) for problem in problems] == expected
    assert {problem.host for problem in problems} <= {"job_devices"}


@given(st.sets(st.integers(0, 7), min_size=1))
def test_a_set_that_is_allowed_makes_a_valid_table(devices):
    table = build([Server("n1", tuple(map(Device, sorted(devices))))], "910")
    assert (device_set_problems(sorted(devices), "910", 1) == []) == (validate(table, "910") == [])


# ---- merged


def test_tables_of_single_servers_are_joined():
    servers = [server(number) for number in (10, 2, 1)]
    merged, problems = merge([build([each], "910b") for each in servers])
    assert problems == []
    assert merged == build(servers, "910b")


def test_super_pods_are_joined():
    servers = [server(at, super_pod_id=pod) for at, pod in ((1, "0"), (2, "1"), (3, "0"), (4, "1"))]
    assert merge([build([each], "a3") for each in servers]) == (build(servers, "a3"), [])


def test_faults_that_merging_hides_are_named():
    parts = [build([server(number)], "910b") for number in (1, 2, 3, 4)]
    parts[0] = edit(parts[0], [*FIRST, "rank_id"], 0)
    parts[1] = edit(parts[1], ["server_count"], "2")
    parts[2] = edit(parts[2], ["version"], "1.2")
    parts[3] = edit(edit(parts[3], ["status"], "initializing"), [*FIRST, "device_id"], "99")
    merged, problems = merge([*parts, {"server_list": []}, 5])
    assert [(problem.check, problem.host, problem.found) for problem in problems] == [
        ("string", "tables[0], server 10.0.0.1, device 0, rank 0", "rank_id is 0, a number"),
        ("server_count", "tables[1], table", "server_count 2"),
        ("version", "tables[2], table", 'version "1.2"'),
        ("structure", "tables[4], table", "server_list []"),
        ("structure", "tables[5], table", "5"),
        ("status", "table", 'status "initializing"'),
        ("device_id", "server 10.0.0.4, device 99, rank 6", "device_id 99"),
    ]
    assert len(merged["server_list"]) == 4


def test_faults_between_tables_are_named():
    one = build([server(1)], "910b")
    _, problems = merge([one, one, build([server(3, 1)], "910b")], "910b")
    assert [(problem.check, problem.host) for problem in problems] == [
        ("server_id_unique", "server_list[1]"),
        ("device_count", "server 10.0.0.3"),
        ("device_ip_unique", "server 10.0.0.1, device 0, rank 2"),
        ("device_ip_unique", "server 10.0.0.1, device 1, rank 3"),
    ]
    assert [problem.check for problem in merge([])[1]] == ["structure", "version", "status", "server_count"]


# ---- repaired


def test_what_the_usual_generators_leave_is_repaired():
    servers = [server(number) for number in (2, 10, 1)]
    right = build(servers, "910b")
    wrong = ranks(right, 2, 3, 4, 5, 0, 1)  # in the order of its arguments
    for entry in wrong["server_list"]:
        for device in entry["device"]:
            device["rank_id"] = int(device["rank_id"])
    wrong["status"] = "initializing"
    del wrong["server_count"]
    before = copy.deepcopy(wrong)
    repaired, cured = repair(wrong)
    assert repaired == {**right, "server_list": repaired["server_list"]}
    assert repaired["server_list"] == right["server_list"]
    assert wrong == before
    assert [problem.check for problem in cured] == ["string"] * 6 + ["server_count"] + ["rank_order"] * 3 + ["status"]
    assert set(cured) == set(validate(wrong))


def test_a_right_table_stays_as_it_is():
    table = a2()
    assert repair(table) == (table, [])


@pytest.mark.parametrize(
    ("table", "cured", "left"),
    [
        # A server may be missing.
        (edit(a2(), ["server_count"], "3"), [], ["server_count"]),
        # It may not be whole.
        (edit(edit(a2(), ["status"], "x"), [*SECOND, "device_ip"], None), [], ["status", "device_ip_missing"]),
        (edit(a2(), [*SECOND, "rank_id"], "2"), [], ["rank_id_unique"]),
        (edit(a2(), [*SECOND, "rank_id"], None), [], ["rank_id"]),
        (edit(a2(), [*FIRST, "rank_id"], None), [], ["rank_id"]),
        (edit(a2(), [*SECOND, "rank_id"], True), [], ["string", "rank_id"]),
        (edit(ranks(a2(), 2, 3, 0, 1), ["server_list", 0, "server_id"], None), [], ["server_id"]),
        (edit(a2(), ["version"], None), [], ["version"]),
        (edit(a2(), ["status"], {"": 0}), [], ["status"]),
        # Its ranks may be those that are missing.
        (
            edit(a2(), ["server_list", 0, "device"], []),
            [],
            ["structure", "rank_id_contiguous", "rank_id_contiguous", "device_count"],
        ),
        (ranks(a2(), 0, 1, 0, 1), ["rank_id_unique"] * 2 + ["rank_order"], []),
        (ranks(a2(), 4, 5, 8, 9), ["rank_id_contiguous"] * 4, []),
        (edit(a2(), ["version"], 1.0), ["string"], []),
        (edit(a2(), ["server_count"], 3), ["string"], ["server_count"]),
    ],
)
def test_only_what_is_certain_is_repaired(table, cured, left):
    repaired, done = repair(table)
    assert [problem.check for problem in done] == cured
    assert [problem.check for problem in validate(repaired)] == left


# ---- files


def test_names_and_texts_of_files():
    assert path_problems("/a/b.json") == []
    (problem,) = path_problems("/a/b.txt")
    assert (problem.check, problem.host, problem.expected) == ("file_name", "/a/b.txt", "a name that ends in .json")
    assert loads(dumps(a2())) == (a2(), [])
    for text, where in (('{\n  "a": }', "line 2, column 8"), ("[" * 100_000, "file"), ("9" * 5000, "file")):
        value, (problem,) = loads(text)
        assert value is None and (problem.check, problem.host) == ("json", where)
        assert problem.found


def rules():
    return {rule.__name__[1:] for rule in rank_table_rules.RULES} | {"file_name", "json"}


def test_every_rule_has_its_fault_and_stands_in_the_documentation():
    assert {fault[2] for fault in FAULTS} == rules() - {"file_name", "json", "rank_order"}
    _, _, text = (PROJECT / "docs/rank-table.md").read_text().partition("## Rules")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == rules()


# ---- anything

chips = st.sampled_from(["910", "910b", "a3"])


@st.composite
def clusters(draw):
    """A chip, and servers that it can have."""
    chip = draw(chips)
    names = draw(st.lists(st.text(min_size=1, max_size=64), unique=True, min_size=1, max_size=5))
    sets = st.sampled_from([[0], [1, 2], [4, 5, 6, 7], list(range(8))])
    ids = list(range(8)) if chip == "910" and len(names) > 1 else draw(sets)
    family = draw(st.sampled_from(["192.{}.{}.1", "fd00::{}:{}"]))
    return chip, [
        Server(name, tuple(Device(each, family.format(each + 1, at), f"{at}{each}") for each in ids))
        for at, name in enumerate(names)
    ]


@given(clusters())
def test_what_is_built_is_valid(cluster):
    chip, servers = cluster
    table = build(servers, chip)
    assert validate(table, chip) == []
    assert loads(dumps(table)) == (table, [])
    assert json.loads(dumps(table)) == table
    devices = [device for entry in table["server_list"] for device in entry["device"]]
    assert [device["rank_id"] for device in devices] == [str(rank) for rank in range(len(devices))]
    assert [entry["server_id"] for entry in table["server_list"]] == sorted(each.server_id for each in servers)
    assert "/" not in file_name(table) and path_problems(file_name(table)) == []


@given(clusters(), st.randoms(use_true_random=False))
def test_any_order_of_merging_gives_the_same_table(cluster, random):
    chip, servers = cluster
    whole = build(servers, chip)
    parts = [build([each], chip) for each in servers]
    random.shuffle(parts)
    assert merge(parts, chip) == (whole, [])


@given(clusters(), st.randoms(use_true_random=False))
def test_numbers_and_any_order_of_ranks_are_repaired(cluster, random):
    chip, servers = cluster
    whole = build(servers, chip)
    shuffled = copy.deepcopy(whole)
    random.shuffle(shuffled["server_list"])
    rank = 0
    for entry in shuffled["server_list"]:
        for device in entry["device"]:
            device["rank_id"] = rank
            rank += 1
    repaired, _ = repair(shuffled)
    repaired["server_list"].sort(key=lambda entry: entry["server_id"])
    assert repaired == whole


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
numbers = st.integers(-1, 20) | st.integers(-1, 20).map(str)
values = st.recursive(
    scalars | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def paths(value, way=()):
    """Yield the way to each part of a table."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*way, key)
        yield from paths(part, (*way, key))


@st.composite
def nearly_tables(draw):
    """A table with some fields set to anything or taken out."""
    table = draw(st.sampled_from([a2(), a2(3, 1), a3(), a3("0101")]))
    for _ in range(draw(st.integers(0, 4))):
        ways = list(paths(table))
        if ways:
            table = edit(table, draw(st.sampled_from(ways)), draw(values))
    return table


@given(nearly_tables() | values, st.just("") | chips)
def test_any_json_is_judged_and_repaired(table, chip):
    before = copy.deepcopy(table)
    problems = validate(table, chip)
    assert len(set(problems)) == len(problems)
    repaired, cured = repair(table)
    assert json.dumps(table) == json.dumps(before)
    assert set(cured) <= set(validate(table))
    # What was not set right is still said, and a second repair has nothing to do.
    left = {problem.check for problem in validate(repaired if isinstance(table, dict) else table)}
    assert {problem.check for problem in validate(table) if problem not in cured} <= left
    again, more = repair(repaired)
    assert more == [] and json.dumps(again) == json.dumps(repaired)
    if isinstance(table, dict):
        assert json.loads(dumps(repaired)) == json.loads(json.dumps(repaired)) or "NaN" in json.dumps(repaired)
        assert "/" not in file_name(repaired)


@given(st.lists(nearly_tables() | values, max_size=3))
def test_any_tables_can_be_merged(tables):
    merged, problems = merge(tables)
    assert problems or validate(merged) == []
    # No fault of a table is lost, except in those of which nothing is taken over.
    for table in tables:
        if isinstance(table, dict) and [each for each in validate(table) if each.check == "server_count"]:
            assert problems


@given(st.text())
def test_any_text_can_be_read(text):
    value, problems = loads(text)
    assert validate(value) or not problems
    assert all(problem.found for problem in problems)
