"""The module rank_table, with real files: written, joined, repaired, checked, removed; each once."""

from __future__ import annotations

import hashlib
import json

import pytest
import rank_table
from ansible.module_utils.testing import patch_module_args

SERVERS = [
    {"server_id": f"10.0.0.{at}", "devices": [{"device_id": npu, "device_ip": f"192.{npu}.0.{at}"} for npu in (0, 1)]}
    for at in (2, 1)
]


@pytest.fixture
def call(capsys, tmp_path):
    def run(check=False, **params):
        params = {"path": str(tmp_path / "hccl.json"), **params}
        with patch_module_args({"_ansible_check_mode": check, **params}), pytest.raises(SystemExit):
            rank_table.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def parts(call, tmp_path):
    """The tables that two servers have made, as the usual scripts leave them when they are merged once before."""
    files = []
    for server in SERVERS:
        path = tmp_path / f"{server['server_id']}.json"
        call(path=str(path), chip="910b", servers=[server])
        table = json.loads(path.read_text())
        for device in table["server_list"][0]["device"]:
            device["rank_id"] = int(device["rank_id"])
        path.write_text(json.dumps(table))
        files.append(str(path))
    return files


def rules(result, name="problems"):
    return [problem["rule"] for problem in result[name]]


def test_a_table_is_written_once(call, tmp_path):
    path = tmp_path / "hccl.json"
    planned = call(chip="910b", servers=SERVERS, check=True)
    assert planned["changed"] and planned["valid"] and not path.exists()
    done = call(chip="910b", servers=SERVERS)
    assert done["changed"] and path.read_text() == done["diff"]["after"] == planned["diff"]["after"]
    assert done["sha256"] == planned["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o644
    table = json.loads(path.read_text())
    assert [entry["server_id"] for entry in table["server_list"]] == ["10.0.0.1", "10.0.0.2"]
    assert not call(chip="910b", servers=SERVERS[::-1])["changed"]
    assert not call(chip="910b", servers=SERVERS, check=True)["changed"]
    again = call(chip="910b", servers=SERVERS[:1], mode="0600")
    assert again["changed"] and again["diff"]["before"] == done["diff"]["after"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert call(chip="910b", servers=SERVERS[:1], mode="0640")["changed"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["hccl.json"]


def test_a_folder_gets_the_conventional_name(call, tmp_path):
    done = call(path=str(tmp_path), chip="910b", servers=SERVERS, mode="0600")
    assert done["path"] == str(tmp_path / "hccl_2s_4p.json")
    assert (tmp_path / "hccl_2s_4p.json").stat().st_mode & 0o777 == 0o600
    assert not call(path=f"{tmp_path}/", chip="910b", servers=SERVERS)["changed"]
    one = call(path=str(tmp_path), chip="910b", servers=SERVERS[:1], check=True)
    assert one["path"] == str(tmp_path / "hccl_2p_01_10.0.0.2.json")


LIKE_THE_GUIDE = """{
    "version": "1.0",
    "server_count": "1",
    "server_list": [
        {
            "server_id": "127.0.0.1",
            "device": [
                {
                    "device_id": "4",
                    "device_ip": "192.168.104.1",
                    "rank_id": "0"
                },
                {
                    "device_id": "5",
                    "device_ip": "192.168.105.1",
                    "rank_id": "1"
                }
            ],
            "host_nic_ip": "reserve"
        }
    ],
    "status": "completed"
}
"""


def test_keys_and_layout_are_those_of_the_usual_generator(call, tmp_path):
    devices = [{"device_id": npu, "device_ip": f"192.168.{100 + npu}.1"} for npu in (4, 5)]
    call(chip="910b", servers=[{"server_id": "127.0.0.1", "devices": devices}])
    assert (tmp_path / "hccl.json").read_text() == LIKE_THE_GUIDE


def test_a_file_that_differs_is_left_where_it_may_not_be_overwritten(call, tmp_path):
    path = tmp_path / "hccl.json"
    given = {"chip": "910b", "overwrite": False}
    assert call(servers=SERVERS, **given)["changed"]
    assert not call(servers=SERVERS, **given)["changed"]
    before = path.read_text()
    for check in (True, False):
        refused = call(servers=SERVERS[:1], check=check, **given)
        assert refused["failed"] and f"found     {path} is there and differs" in refused["msg"]
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("table", "found"),
    [
        (
            {"version": "2.0", "rank_count": 1, "rank_list": [{"rank_id": 0, "level_list": []}]},
            "a rank table of version 2.0",
        ),
        (
            {"version": "1.0", "server_group_list": [{"group_id": "0", "server_list": []}]},
            "the table of a service of MindIE",
        ),
        ({"group_count": "1", "group_list": [{"instance_list": []}]}, "a rank table of the form before 1.0"),
    ],
)
def test_a_table_of_another_form_is_named(call, tmp_path, table, found):
    (tmp_path / "hccl.json").write_text(json.dumps(table))
    checked = call(state="validated")
    assert [each["found"][: len(found)] for each in checked["problems"]] == [found] and not checked["valid"]
    for ways in ({"repair": True}, {"merge": [str(tmp_path / "hccl.json")]}):
        assert found in call(**ways)["msg"]


def test_a_table_with_errors_is_not_written(call, tmp_path):
    path = tmp_path / "hccl.txt"
    servers = [{**SERVERS[0], "devices": [{"device_id": 3}, {"device_id": 4}]}, SERVERS[1]]
    refused = call(path=str(path), chip="910", servers=servers)
    assert refused["failed"] and not refused["valid"] and not path.exists()
    assert rules(refused) == ["device_set", "device_set", "device_ip_missing", "device_ip_missing", "file_name"]
    assert refused["msg"].splitlines()[:6] == [
        f"{path} was not written: 3 findings.",
        "",
        "  1. device_set on server 10.0.0.1, server 10.0.0.2",
        "     found     server 10.0.0.1: 2 devices: 0, 1",
        "               server 10.0.0.2: 2 devices: 3, 4",
        "     expected  8 devices {0-7} on each server, since there are several servers",
    ]
    assert "hccn_tool -i N -ip -g" in refused["msg"]


def test_tables_are_joined(call, parts, tmp_path):
    refused = call(merge=parts)
    assert refused["failed"] and not (tmp_path / "hccl.json").exists()
    assert rules(refused) == ["string"] * 4 and refused["repaired"] == []
    assert refused["problems"][0]["where"] == f"{parts[0]}, server 10.0.0.2, device 0, rank 0"
    done = call(merge=parts, repair=True, chip="910b")
    assert done["changed"] and rules(done, "repaired") == ["string"] * 4
    assert done["repaired"][2]["where"] == f"{parts[1]}, server 10.0.0.1, device 0, rank 0"
    assert not call(merge=parts[::-1], repair=True)["changed"]
    assert not call(chip="910b", servers=SERVERS)["changed"]
    assert call(merge=parts, repair=True, path=str(tmp_path), check=True)["path"] == str(tmp_path / "hccl_2s_4p.json")
    older = call(merge=parts, repair=True, chip="910", check=True)
    assert rules(older) == ["device_set"] * 2 and older["valid"]


def test_a_table_is_repaired_in_its_place_once(call, tmp_path):
    path = tmp_path / "hccl.json"
    call(chip="910b", servers=SERVERS)
    right = path.read_text()
    table = json.loads(right)
    table["status"] = "initializing"
    wrong = json.dumps(table)
    path.write_text(wrong)
    planned = call(repair=True, check=True)
    assert planned["changed"] and rules(planned, "repaired") == ["status"] and path.read_text() == wrong
    assert call(repair=True)["changed"] and path.read_text() == right
    again = call(repair=True)
    assert not again["changed"] and again["repaired"] == []
    # One that is right stays as its writer indented it.
    path.write_text(json.dumps(json.loads(right)))
    assert not call(repair=True)["changed"]
    table["server_count"] = "3"
    path.write_text(json.dumps(table))
    refused = call(repair=True)
    assert refused["failed"] and rules(refused) == ["status", "server_count"]
    assert json.loads(path.read_text()) == table


def test_a_table_is_checked(call, parts, tmp_path):
    checked = call(path=parts[0], state="validated", chip="a3")
    assert not checked["changed"] and not checked["valid"] and "failed" not in checked
    assert rules(checked) == ["string", "string", "version"]
    assert set(checked["problems"][0]) == {"rule", "level", "where", "found", "expected", "action"}
    strict = call(path=parts[0], state="validated", strict=True)
    assert strict["failed"] and strict["problems"] == checked["problems"][:2]
    assert strict["msg"].startswith(f"{parts[0]} is no table that HCCL would take: 1 finding.\n")
    call(chip="910b", servers=SERVERS)
    right = call(state="validated", chip="910b", strict=True)
    assert right["valid"] and right["problems"] == []
    assert right["sha256"] == hashlib.sha256((tmp_path / "hccl.json").read_bytes()).hexdigest()


def test_a_table_is_removed_once(call, tmp_path):
    call(chip="910b", servers=SERVERS)
    path = tmp_path / "hccl.json"
    planned = call(state="absent", check=True)
    assert planned["changed"] and planned["diff"]["before"] == path.read_text()
    assert call(state="absent")["changed"] and not path.exists()
    assert not call(state="absent")["changed"]


def test_the_module_rejects_wrong_arguments(call, tmp_path):
    path = tmp_path / "hccl.json"
    assert call()["msg"] == f"nothing to write to {path}. Expected servers, merge or repair with state: present."
    assert call(repair=True)["msg"] == f"no {path}. Expected a rank table to read."
    assert call(state="validated")["msg"] == f"no {path}. Expected a rank table to read."
    folder = call(path=str(tmp_path), state="absent")
    assert folder["msg"] == f"{tmp_path} is a folder. Expected a file with state: absent."
    assert "chip" in call(servers=SERVERS)["msg"]
    assert "mutually exclusive" in call(servers=SERVERS, chip="910b", merge=[])["msg"]
    assert rules(call(servers=[], chip="910b")) == ["structure"]
