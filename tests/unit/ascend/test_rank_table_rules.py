"""The rules of rank tables: each with its fault and its message."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.ascend import rank_table_rules
from ansible.module_utils.trainyard.ascend.rank_table import Device, Server, build, device_set_problems, validate
from ansible.module_utils.trainyard.base.findings import faults
from hypothesis import given
from hypothesis import strategies as st
from rank_tables import FIRST, SECOND, a2, a3, edit, host_ports, ranks, server

PROJECT = Path(__file__).resolve().parents[3]
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
    (edit(a2(), [*FIRST, "device_ip"], True), "", "string", ON_FIRST, "device_ip is true, true or false",
     "a string in quotes"),
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
    (edit(a2(), [*SECOND, "device_ip"], "fe80::1%"), "", "device_ip", ON_SECOND, 'device_ip "fe80::1%"',
     "an IPv4 or IPv6 address"),
    (edit(a2(), [*SECOND, "device_ip"], None), "", "device_ip_missing", ON_SECOND, "no device_ip",
     "an address for each device where there are several servers, unless these are one super pod"),
    (edit(a3("01"), [*SECOND, "device_ip"], ""), "a3", "device_ip_missing", ON_SECOND, "no device_ip",
     "an address for each device where there are several servers, unless these are one super pod"),
    (edit(a2(), [*SECOND, "device_ip"], "192.1.0.1"), "", "device_ip_unique", ON_SECOND,
     f"device_ip 192.1.0.1, which {ON_FIRST} has", "each device_ip once"),
    (edit(a2(), [*SECOND, "device_ip"], "fd00::1"), "", "device_ip_family", ON_SECOND, "device_ip fd00::1",
     "IPv4, as for other devices"),
    (edit(a2(), [*SECOND, "device_ip"], "169.254.1.9"), "", "device_ip_link_local", ON_SECOND,
     "device_ip 169.254.1.9, which no router forwards",
     "an address that the other servers reach; device 1 of another has one that is not link-local"),
    (edit(a2(), [*SECOND, "device_ip"], "192.1.0.9,192.1.1.9"), "", "device_ip_count", ON_SECOND, "2 addresses",
     "1, as the first device has"),
    # fields that may be there
    (edit(a3(), [*SECOND, "device_port"], "0"), "", "device_options", ON_SECOND, "device_port 0", "a port, 1 to 65535"),
    (edit(a3(), [*SECOND, "backup_device_port"], "x"), "", "device_options", ON_SECOND, 'backup_device_port "x"',
     "a port, 1 to 65535"),
    (edit(a3(), [*SECOND, "host_port"], "65536"), "", "device_options", ON_SECOND, "host_port 65536",
     "a port, 1 to 65535"),
    (host_ports(a2(), "50000", "50000"), "", "host_port_unique", "server 10.0.0.1, device 1, rank 1",
     "host_port 50000, which device 0 has", "each host_port of a server once"),
    (edit(a3(), [*SECOND, "backup_device_ip"], "n1"), "", "device_options", ON_SECOND, 'backup_device_ip "n1"',
     "an IPv4 or IPv6 address, or several with commas"),
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


def test_host_ports_may_be_the_same_on_two_servers():
    table = edit(edit(a2(), [*FIRST, "host_port"], "50000"), [*SECOND, "host_port"], "50000")
    assert validate(table) == []


@pytest.mark.parametrize(("table", "chip", "rule", "where", "found", "expected"), FAULTS)
def test_each_rule_finds_its_problem_alone(table, chip, rule, where, found, expected):
    before = copy.deepcopy(table)
    (problem,) = validate(table, chip)
    assert (problem.check, problem.host, problem.found, problem.expected) == (rule, where, found, expected)
    assert problem.action
    assert table == before


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


def test_all_problems_are_found_at_once():
    table = edit(edit(a2(), ["status"], "initializing"), [*FIRST, "rank_id"], 0)
    table = edit(edit(table, [*SECOND, "device_ip"], "-.-.-.-"), ["server_count"], "4")
    assert [problem.check for problem in validate(table, "a3")] == [
        "string", "version", "status", "server_count", "device_ip",
    ]  # fmt: skip


def test_optional_fields_may_be_missing():
    # Addresses on one server, and in one super pod.
    assert validate(build([Server("n1", (Device(0), Device(1)))], "910b"), "910b") == []
    pod = build([Server(name, (Device(0, "", str(at)),)) for at, name in enumerate(["n1", "n2"])], "a3")
    assert validate(pod, "a3") == []
    # Super pods number their devices each for itself.
    assert validate(edit(a3("01"), [*SECOND, "super_device_id"], "100"), "a3") == []


def test_hccl_reads_further_forms():
    table = edit(a3(), [*FIRST, "backup_device_ip"], "192.1.0.1")
    for name in ("device_port", "host_port", "backup_device_port"):
        table = edit(table, [*FIRST, name], "50000")
    assert validate(table) == []
    # Both ranks of the board, as a generator of an inference service leaves them: HCCL reads neither.
    assert validate({**edit(table, [*FIRST, "server_sn"], 7), "IsMindIEEPJob": True}) == []
    several = a2()
    for entry in several["server_list"]:
        for device in entry["device"]:
            device["device_ip"] += f",{device['device_ip']}9".replace("192", "193") + ","
    assert validate(several, "910b") == []
    assert validate(edit(a3(), [*FIRST, "backup_device_ip"], "192.1.0.7,192.1.0.8"), "a3") == []
    scoped = build([Server("n1", (Device(0, "fe80::1%eth0"),)), Server("n2", (Device(0, "fe80::2%eth0"),))], "910b")
    assert validate(scoped) == []
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


def with_addresses(form, servers=2):
    """A table of some servers with 2 devices each, whose addresses are `form` with the number of server and device."""
    table = a2(servers)
    for at, entry in enumerate(table["server_list"]):
        for number, device in enumerate(entry["device"]):
            device["device_ip"] = form.format(at + 1, number + 1)
    return table


def test_link_local_addresses_serve_one_switch_over_ipv4():
    # HCCL's parser takes any IPv4 address. Alone, a server's devices need none between them.
    assert validate(with_addresses("169.254.{}.{}"), "910b") == []
    assert validate(with_addresses("169.254.{}.{}", 1), "910b") == []
    assert validate(with_addresses("fe80::{}:{}", 1), "910b") == []
    mixed = with_addresses("169.254.{}.{}")
    # A rail of its own for each place: only the same devices of all servers must be in one network.
    for entry in mixed["server_list"]:
        entry["device"][1]["device_ip"] = f"192.2.0.{entry['server_id'][-1]}"
    assert validate(mixed, "910b") == []


def test_link_local_addresses_of_ipv6_say_no_interface():
    problems = validate(with_addresses("fe80::{}:{}"), "910b")
    assert {problem.check for problem in problems} == {"device_ip_link_local"} and len(problems) == 4
    assert problems[0].found == "device_ip fe80::1:1, which no router forwards and which names no interface"
    assert problems[0].expected == "an address that the other servers reach"


# By rule, and the chip where it matters, what HCCL's own parser does; docs/rank-table.md has the same.
TAKEN = {
    "server_count": [(edit(a2(), ["server_count"], None), "")],
    "version": [(a2(), "a3"), (a3(), "910b")],
    "rank_order": [(ranks(a2(), 2, 3, 0, 1), "910b")],
    "device_count": [(build([server(1), server(2), server(3, 1)], "910b"), chip) for chip in ("", "910b")],
    "device_set": [(a2(1, [3, 4]), "910"), (build([server(1, 4), server(2, 4)], "910"), "910")],
    "device_ip_missing": [
        (edit(edit(a2(), [*SECOND, "device_ip"], None), ["server_list", 1, "host_ip"], "10.0.0.2"), "910")
    ],
    "device_ip_family": [(edit(a2(1), [*FIRST, "device_ip"], "fd00::1"), "")],
    "device_ip_link_local": [(edit(a2(), [*SECOND, "device_ip"], "169.254.1.9"), "")],
    "device_options": [(edit(a3(), [*SECOND, "backup_device_port"], "x"), "a3")],
    "host_port_unique": [(host_ports(a2(), "50000", "50000"), "910b")],
    "host_ip": [(edit(a3(), ["server_list", 1, "host_ip"], None), "a3")],
    "super_pod_list": [(edit(a3(), ["super_pod_list"], None), "a3")],
    "super_pod_size": [(a3("0012244"), "a3")],
    "super_device_id": [
        (edit(edit(a3(), ["super_pod_list"], None), [*SECOND, "super_device_id"], None), "a3"),
        (edit(a3(), [*SECOND, "super_device_id"], None), "910b"),
    ],
    "super_pod_id": [(edit(a3(), ["super_pod_list", 0, "super_pod_id"], None), "910b")],
    "super_device_id_unique": [(edit(a3(), [*SECOND, "super_device_id"], "100"), "910b")],
}
REFUSED = {
    "server_count": [(edit(a2(), ["server_count"], "3"), "")],
    "version": [(edit(a2(), ["version"], "1.3"), "")],
    "device_count": [(build([server(1, 8), server(2, 8), server(3, 1)], "910"), "910")],
    "device_set": [(a2(1, 3), "910"), (a2(1, [2, 3, 4, 5]), "910")],
    "device_ip_missing": [
        *((edit(a2(), [*SECOND, "device_ip"], None), chip) for chip in ("", "910", "910b")),
        # Between super pods there is only the devices' own network.
        *((edit(a3("01"), [*SECOND, "device_ip"], value), chip) for value in (None, "") for chip in ("", "a3")),
    ],
    "device_ip_family": [(edit(a2(), [*SECOND, "device_ip"], "fd00::1"), "")],
    "device_options": [(edit(a2(), [*SECOND, "host_port"], "0"), "")],
    "host_ip": [(edit(edit(a3(), [*FIRST, "device_ip"], ""), ["server_list", 1, "host_ip"], None), "a3")],
    "super_pod_list": [(edit(a3(), ["super_pod_list"], []), "a3")],
    "super_pod_id": [(edit(a3(), ["super_pod_list", 0, "super_pod_id"], None), "a3")],
    "super_device_id": [
        (edit(a3(), [*SECOND, "super_device_id"], None), "a3"),
        (edit(edit(a3(), ["super_pod_list"], None), [*SECOND, "super_device_id"], "x"), "a3"),
    ],
    "super_device_id_unique": [(edit(a3(), [*SECOND, "super_device_id"], "100"), "a3")],
}


@pytest.mark.parametrize(("refused", "tables"), [(False, TAKEN), (True, REFUSED)])
def test_a_problem_is_an_error_where_hccl_rejects_the_table(refused, tables):
    for rule, known in tables.items():
        for table, chip in known:
            problems = [problem for problem in validate(table, chip) if problem.check == rule]
            assert problems and (faults(problems) == problems if refused else faults(problems) == []), (rule, chip)


def test_rules_without_a_warning_are_errors():
    without = rules() - set(TAKEN) - {"file_name", "json"}
    assert without == {fault[2] for fault in FAULTS if faults(validate(fault[0], fault[1]))} - set(TAKEN)


def rules():
    return {rule.__name__[1:] for rule in rank_table_rules.RULES} | {"file_name", "json"}


def test_every_rule_has_its_fault_and_stands_in_the_documentation():
    assert {fault[2] for fault in FAULTS} == rules() - {"file_name", "json", "rank_order"}
    _, _, text = (PROJECT / "docs/rank-table.md").read_text().partition("## Rules")
    levels = dict(re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", text, re.MULTILINE))
    assert set(levels) == rules()
    for rule, level in levels.items():
        warned, refused = rule in TAKEN, rule in REFUSED or rule not in TAKEN
        assert level == ", ".join(["error"] * refused + ["warning"] * warned), rule
