"""Rank tables that are given: sent as they are, or refused with all that differs."""

import json
from dataclasses import replace

import pytest
from ansible.module_utils.trainyard.ascend import given_rank_table, rank_table
from ansible.module_utils.trainyard_controller.job import planning
from hypothesis import given
from hypothesis import strategies as st
from job_samples import briefly, make_plan, make_request, planned, wrong
from rank_table_samples import environments, server, table_job, table_of

PATH = "/home/ops/table.json"
RANK_8 = f"server 10.77.0.2, device 0, rank 8 of {PATH}: rank_id is 8, a number"


def given_job(members, change=None, text=None, **changes):
    """Return a job with a table that fits `members`, after `change`."""
    plan = make_plan(table_job(**changes), members).as_dict()
    table = table_of(plan)
    if change:
        change(table)
    read, fault = given_rank_table.read(PATH, text or json.dumps(table))
    assert fault == ""
    return replace(table_job(rank_table=PATH, **changes), given_table=read)


def swap_first_ranks(table):
    first, second = (entry["device"][0] for entry in table["server_list"])
    first["rank_id"], second["rank_id"] = "1", "0"


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
    found = [(env["HCCL_IF_IP"], env["DEVICE_ID"]) for env in environments(plan)]
    assert found == [(address, device) for address in ("10.77.0.10", "10.77.0.2") for device in "10"]


def test_servers_of_a_given_table_may_be_known_by_their_host_ip():
    def by_name(table):
        for number, entry in enumerate(table["server_list"]):
            entry["server_id"] = table["super_pod_list"][0]["server_list"][number]["server_id"] = f"node_{number}"

    members = [server(1, chip="a3"), server(0, chip="a3")]
    plan = make_plan(given_job(members, by_name), members).as_dict()
    assert [node["host"] for node in plan["nodes"]] == ["n1", "n2"]


def test_the_only_server_of_a_given_table_may_be_127_0_0_1():
    job = given_job([server(3)], changed_table(0, None, server_id="127.0.0.1"))
    assert [env["RANK_ID"] for env in environments(make_plan(job, [server(3)]).as_dict())] == list("01234567")
    # Such a table is refused for two servers.
    _, findings = planned(job, [server(3), server(4)])
    assert ("", f"8 ranks on 1 server in {PATH}") in [(item.host, item.found) for item in findings]


def test_a_table_of_another_form_is_one_finding():
    def of_a_later_generation(table):
        table["rank_list"] = table.pop("server_list")

    _, findings = planned(given_job([server(3)], of_a_later_generation), [server(3)])
    [finding] = [each for each in findings if each.check == "rank table"]
    assert f"of {PATH}: a rank table of version 2.0" in finding.found and "server_list" in finding.expected


def changed_table(number, device, **values):
    """Return a change of the table's server `number`, or of one of its devices."""

    def change(table):
        entry = table["server_list"][number]
        (entry if device is None else entry["device"][device]).update(values)

    return change


def with_errors(table):
    table["status"] = "initializing"
    changed_table(1, 0, rank_id=8)(table)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (changed_table(0, None, host_ip="10.99.0.1"), [("n1", f"host_ip 10.99.0.1 of server 10.77.0.1 in {PATH}")]),
        (changed_table(1, 3, device_ip="192.4.0.77"), [("n2", f"device 3 with device_ip 192.4.0.77 in {PATH}")]),
        (with_errors, [("n2", RANK_8), ("", f'table of {PATH}: status "initializing"')]),
    ],
)
def test_a_table_that_does_not_fit_is_refused(change, found):
    _, findings = planned(given_job([server(0), server(1)], change), [server(0), server(1)])
    assert [(item.host, item.found) for item in findings] == found
    assert {item.check for item in findings} == {"rank table"}


def test_a_device_with_a_second_address_has_its_own_address():
    two = changed_table(0, 0, device_ip="192.1.0.1,fd00::1")
    _, findings = planned(given_job([server(0), server(1)], two), [server(0), server(1)])
    # The rules about addresses have findings, but the table does not differ from the device.
    assert findings and not any("with device_ip" in item.found for item in findings)


def test_a_table_for_other_servers_or_devices_is_refused_with_each_difference():
    _, findings = planned(given_job([server(0), server(1), server(2)]), [server(0), server(4)])
    assert briefly(findings) == [
        ("n5", "rank table", f"no server 10.77.0.5 in {PATH}"),
        ("", "rank table", f"server 10.77.0.2, 10.77.0.3 in {PATH}"),
        ("", "rank table", f"24 ranks on 3 servers in {PATH}"),
    ]
    job = replace(given_job([server(0)], devices=[4, 5, 6, 7]), devices=(0, 1, 2, 3))
    assert briefly(planned(job, [server(0)])[1]) == [("n1", "rank table", f"devices 4, 5, 6, 7 in {PATH}")]


def test_a_given_table_that_hccl_accepts_is_a_warning():
    def same_port(table):
        for device in table["server_list"][0]["device"]:
            device["host_port"] = "50000"

    members = [server(0, chip="910"), server(1, chip="910")]
    plan = make_plan(given_job(members, same_port, devices=[0, 4], any_device_set=True), members).as_dict()
    facts = [(each["host"], each["check"], each["found"].partition(": ")[2]) for each in plan["warnings"]]
    devices = [(host, "devices", "0, 4 (chip 910)") for host in ("n1", "n2")]
    assert facts == [*devices, ("n1", "rank table", "host_port 50000, which device 0 has")]


@pytest.mark.parametrize(
    "framework",
    [{"packages": ["mindspore"]}, {"packages": ["mindspore-dev"]}, {"venv": "/opt/trainyard/venvs/mindspore"}],
)
def test_mindspore_needs_ranks_in_the_order_of_servers(framework):
    members = [server(number, packages={"mindspore": "2.4.0", "mindspore-dev": "2.4.0"}) for number in (0, 1)]
    expected = "ranks that follow the dictionary order of server_id"
    for others in ({}, {"venv": "/opt/trainyard/venvs/pytorch"}):
        plan = make_plan(given_job(members, swap_first_ranks, devices=[0], **others), members).as_dict()
        assert [each["host"] for each in plan["warnings"]] == ["n1", "n2"]
        assert all(each["expected"].startswith(expected) for each in plan["warnings"])
    plan, findings = planned(given_job(members, swap_first_ranks, devices=[0], **framework), members)
    assert [(item.host, item.check) for item in findings] == [(host, "rank table") for host in ("n1", "n2")]
    assert all(item.expected.startswith(expected) for item in findings)
    assert plan.as_dict()["warnings"] == []


KEYS = ["server_list", "device", "server_id", "rank_id", "device_id", "device_ip", "super_pod_list"]
scalars = st.none() | st.integers() | st.text(max_size=3)


def grown(inner):
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


@given(st.recursive(scalars, grown, max_leaves=12))
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

    def answer(question, own):
        return {host: {"node": node.facts} if question == "probe" else good for host in own}

    return planning.prepare(request, answer)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (None, "No such file or directory"),
        (b"\xff\xfe", "no text in UTF-8"),
        (b'{"version": "1.0"\n"status"', "no JSON in line 2, column 1"),
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
