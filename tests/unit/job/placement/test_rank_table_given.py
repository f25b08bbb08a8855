"""Rank tables that are given: sent as they are, or refused with all that differs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.ascend import given_rank_table, rank_table
from ansible.module_utils.trainyard_controller import planning
from hypothesis import given
from hypothesis import strategies as st
from job_samples import briefly, make_plan, make_request, planned, texts, wrong
from rank_table_samples import environments, server, table_job, table_of


def given_job(members, change=None, text=None, **changes):
    """A job with a table that fits `members`, but for what `change` does to it."""
    plan = make_plan(table_job(**changes), members).as_dict()
    table = table_of(plan)
    if change:
        change(table)
    read, fault = given_rank_table.read("/home/ops/table.json", text or json.dumps(table))
    assert fault == ""
    return replace(table_job(rank_table="/home/ops/table.json", **changes), given_table=read)


def test_a_given_table_is_sent_as_it_is_and_decides_the_order_of_devices():
    def turn_round(table):
        for entry in table["server_list"]:
            devices = entry["device"]
            ids = [device["rank_id"] for device in devices]
            for device, rank in zip(devices, reversed(ids)):
                device["rank_id"] = rank

    members = [server(9), server(1)]
    job = given_job(members, turn_round, devices=[0, 1])
    plan = make_plan(job, members).as_dict()
    assert plan["files"][0]["content"] == job.given_table.text
    assert [(env["HCCL_IF_IP"], env["DEVICE_ID"]) for env in environments(plan)] == [
        ("10.77.0.10", "1"),
        ("10.77.0.10", "0"),
        ("10.77.0.2", "1"),
        ("10.77.0.2", "0"),
    ]


def test_servers_of_a_given_table_may_be_known_by_their_host_ip():
    def by_name(table):
        for number, entry in enumerate(table["server_list"]):
            entry["server_id"] = table["super_pod_list"][0]["server_list"][number]["server_id"] = f"node_{number}"

    members = [server(1, chip="a3"), server(0, chip="a3")]
    plan = make_plan(given_job(members, by_name), members).as_dict()
    assert [node["host"] for node in plan["nodes"]] == ["n1", "n2"]


def test_the_only_server_of_a_given_table_may_be_127_0_0_1():
    def at_home(table):
        table["server_list"][0]["server_id"] = "127.0.0.1"

    plan = make_plan(given_job([server(3)], at_home), [server(3)]).as_dict()
    assert [env["RANK_ID"] for env in environments(plan)] == list("01234567")
    # One such table is no table for two servers.
    _, findings = planned(given_job([server(3)], at_home), [server(3), server(4)])
    assert ("", "8 ranks on 1 server in /home/ops/table.json") in [(item.host, item.found) for item in findings]


def test_a_table_for_another_network_of_the_same_servers_is_refused():
    def elsewhere(table):
        for entry in table["server_list"]:
            entry["host_ip"] = "10.99.0.1"

    _, findings = planned(given_job([server(0)], elsewhere), [server(0)])
    assert briefly(findings) == [("n1", "rank table", "host_ip 10.99.0.1 of server 10.77.0.1 in /home/ops/table.json")]


def test_a_table_for_other_servers_is_refused_with_all_that_differs():
    job = given_job([server(0), server(1), server(2)])
    _, findings = planned(job, [server(0), server(4)])
    assert briefly(findings) == [
        ("n5", "rank table", "no server 10.77.0.5 in /home/ops/table.json"),
        ("", "rank table", "server 10.77.0.2, 10.77.0.3 in /home/ops/table.json"),
        ("", "rank table", "24 ranks on 3 servers in /home/ops/table.json"),
    ]


def test_a_table_for_other_devices_is_refused():
    job = replace(given_job([server(0)], devices=[4, 5, 6, 7]), devices=(0, 1, 2, 3))
    _, findings = planned(job, [server(0)])
    assert briefly(findings) == [("n1", "rank table", "devices 4, 5, 6, 7 in /home/ops/table.json")]


def test_a_table_with_addresses_that_devices_had_once_is_refused():
    def old(table):
        table["server_list"][1]["device"][3]["device_ip"] = "192.4.0.77"
        table["server_list"][0]["device"][0]["device_ip"] = "192.1.0.1,fd00::1"

    _, findings = planned(given_job([server(0), server(1)], old), [server(0), server(1)])
    # Several addresses of one device are of several families, which is a fault of its own.
    assert [item for item in texts(findings) if "with device_ip" in item[2]] == [
        (
            "n2",
            "rank table",
            "device 3 with device_ip 192.4.0.77 in /home/ops/table.json",
            "192.4.0.2, which the device has",
            "generate the table again, or leave job_rank_table out: the launcher then builds it",
        )
    ]


def test_a_table_that_breaks_the_rules_is_refused_for_the_host_that_has_the_fault():
    def spoil(table):
        table["status"] = "initializing"
        table["server_list"][1]["device"][0]["rank_id"] = 8

    _, findings = planned(given_job([server(0), server(1)], spoil), [server(0), server(1)])
    assert [(item.host, item.found) for item in findings] == [
        ("n2", "server 10.77.0.2, device 0, rank 8 of /home/ops/table.json: rank_id is 8, a number"),
        ("", 'table of /home/ops/table.json: status "initializing"'),
    ]


def test_a_given_table_that_hccl_accepts_is_a_warning():
    def same_port(table):
        for device in table["server_list"][0]["device"]:
            device["host_port"] = "50000"

    members = [server(0, chip="910"), server(1, chip="910")]
    plan = make_plan(given_job(members, same_port, devices=[0, 4]), members).as_dict()
    assert [(each["host"], each["check"], each["found"]) for each in plan["warnings"]] == [
        ("n1", "devices", "2 devices: 0, 4 (chip 910)"),
        ("n2", "devices", "2 devices: 0, 4 (chip 910)"),
        (
            "n1",
            "rank table",
            "server 10.77.0.1, device 4, rank 1 of /home/ops/table.json: host_port 50000, which device 0 has",
        ),
    ]


@pytest.mark.parametrize(
    "framework",
    [{"packages": ["mindspore"]}, {"packages": ["mindspore-dev"]}, {"venv": "/opt/trainyard/venvs/mindspore"}],
)
def test_mindspore_needs_ranks_in_the_order_of_servers(framework):
    def turn_round(table):
        first, second = (entry["device"][0] for entry in table["server_list"])
        first["rank_id"], second["rank_id"] = "1", "0"

    members = [server(number, packages={"mindspore": "2.4.0", "mindspore-dev": "2.4.0"}) for number in (0, 1)]
    expected = "ranks that follow the dictionary order of server_id (10.0.0.10 before 10.0.0.2)"
    for others in ({}, {"venv": "/opt/trainyard/venvs/pytorch"}):
        plan = make_plan(given_job(members, turn_round, devices=[0], **others), members).as_dict()
        assert [(each["host"], each["expected"]) for each in plan["warnings"]] == [("n1", expected), ("n2", expected)]
    plan, findings = planned(given_job(members, turn_round, devices=[0], **framework), members)
    assert [(item.host, item.check, item.expected) for item in findings] == [
        (host, "rank table", f"{expected}, as MindSpore demands") for host in ("n1", "n2")
    ]
    assert plan.as_dict()["warnings"] == []


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["server_list", "device", "server_id", "rank_id", "device_id",
                                                       "device_ip", "super_pod_list"]), inner, max_size=4),
                    max_leaves=12))  # fmt: skip
def test_any_given_table_gives_findings_and_no_crash(table):
    job = given_job([server(0)], text=json.dumps(table))
    plan, findings = planned(job, [server(0), server(1)])
    assert findings and plan is not None and plan.as_dict()


def prepared(tmp_path, table):
    path = tmp_path / "table.json"
    if table is not None:
        path.write_bytes(table)
    job = {"job_name": "digits", "job_launcher": "rank_table", "job_command": ["true"], "job_rank_table": str(path)}
    node = server(0)
    request = make_request(tmp_path, job, [planning.Host(node.host, node.address)])
    good = {"findings": [], "programs": {}, "stale": False}
    return planning.prepare(
        request, lambda question, own: {host: {"node": node.facts} if question == "probe" else good for host in own}
    )


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b'{"version": "1.0",\n}', "no JSON in line 2, column 1"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, table, reason):
    (finding,) = prepared(tmp_path, table).findings
    assert finding.check == "job_rank_table"
    assert finding.found.startswith(f"{tmp_path}/table.json: {reason}")


def test_the_plan_has_the_table_of_the_controller(tmp_path):
    content = rank_table.dumps(table_of(make_plan(table_job(), [server(0)]).as_dict())).replace("  ", "\t")
    done = prepared(tmp_path, content.encode())
    assert (done.findings, done.plan["files"][0]["content"]) == ([], content)


def test_a_table_is_for_the_launcher_that_reads_it():
    (finding,) = wrong(launcher="mpirun", rank_table="table.json")
    assert (finding.check, finding.found) == ("job_rank_table", "table.json with job_launcher: mpirun")
