"""A rank compares its environment, and the ranks that came, with a rank table."""

import json

import check_ranks
import pytest
from ansible.module_utils.trainyard.ascend import rank_table

SERVERS = [
    rank_table.Server(f"10.0.0.{host}", tuple(rank_table.Device(number, f"192.{number}.0.{host}") for number in (4, 5)))
    for host in (1, 2)
]
TABLE = rank_table.build(SERVERS, "910b")
ENV = {
    "RANK_TABLE_FILE": "/jobs/a/rank_table.json",
    "RANK_SIZE": "4",
    "RANK_ID": "3",
    "DEVICE_ID": "5",
    "DEVICE_NUM": "2",
    "HCCL_IF_IP": "10.0.0.2",
}
REPORTS = [
    {"rank": 2 * at + number, "host": f"n{at + 1}", "server": f"10.0.0.{at + 1}", "device": 4 + number, "table": "a"}
    for at in (0, 1)
    for number in (0, 1)
]


def test_a_rank_that_agrees_with_the_table():
    assert check_ranks.place_faults(ENV, TABLE) == []
    assert check_ranks.census_faults(REPORTS, 3, TABLE) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"DEVICE_ID": "1"}, "DEVICE_ID is 1, expected 5, as the table has it for rank 3"),
        ({"DEVICE_NUM": "4"}, "DEVICE_NUM is 4, expected 2, as the table has it for rank 3"),
        ({"HCCL_IF_IP": "10.0.0.1"}, "HCCL_IF_IP is 10.0.0.1, expected 10.0.0.2, as the table has it for rank 3"),
        (
            {"ASCEND_RT_VISIBLE_DEVICES": "4,5"},
            "ASCEND_RT_VISIBLE_DEVICES is 4,5, expected None, as the table has it for rank 3",
        ),
        ({"RANK_SIZE": "8"}, "RANK_SIZE is 8, but the table has 4 ranks: 0 to 3"),
        ({"RANK_ID": "7"}, "RANK_ID is 7, which the table does not have"),
        ({"RANK_TABLE_FILE": "/jobs/a/table"}, "RANK_TABLE_FILE is /jobs/a/table, expected a name that ends in .json"),
    ],
)
def test_every_difference_is_reported(change, fault):
    assert check_ranks.place_faults({**ENV, **change}, TABLE) == [fault]


def test_a_table_that_is_not_complete():
    faults = check_ranks.place_faults(ENV, {**TABLE, "status": "initializing"})
    assert faults == ["the table's status is 'initializing', expected 'completed'"]


def test_an_address_of_another_machine_is_a_finding():
    assert check_ranks.address_fault("127.0.0.1") == ""
    # Addresses for documentation, which no machine has.
    assert "which is no address of" in check_ranks.address_fault("192.0.2.1")
    assert "which is no address of" in check_ranks.address_fault("2001:db8::1")


def changed(of, **changes):
    return [{**report, **changes} if report["rank"] == of else report for report in REPORTS]


@pytest.mark.parametrize(
    ("reports", "fault"),
    [
        (changed(1, rank=2), "ranks [0, 2, 2, 3] came, expected those of the table; missing: [1]"),
        (changed(1, table="b"), "rank 1 on n1 has table b, expected a"),
        (changed(1, device=7), "rank 1 is on 10.0.0.1 with device 7, expected 10.0.0.1 with device 5"),
        (changed(0, device=None), "rank 0 is on 10.0.0.1 with device None, expected 10.0.0.1 with device 4"),
        (changed(2, server="10.0.0.1"), "rank 2 is on 10.0.0.1 with device 4, expected 10.0.0.2 with device 4"),
    ],
)
def test_ranks_that_do_not_make_the_table_are_named(reports, fault):
    assert fault in check_ranks.census_faults(reports, 3, TABLE)


def test_servers_with_names_are_known_by_their_host_ip():
    named = json.loads(json.dumps(TABLE))
    for number, server in enumerate(named["server_list"]):
        server.update(server_id=f"node_{number}", host_ip=server["server_id"])
    assert check_ranks.place_faults(ENV, named) == []
    assert check_ranks.census_faults(REPORTS, 0, named) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"server_list": [{}]}', '{"server_list": [{"device": [{}]}]}'])
def test_a_file_without_a_table_exits_with_2(tmp_path, monkeypatch, capsys, text):
    path = tmp_path / "table.json"
    path.write_text(text)
    for name, value in {**ENV, "RANK_TABLE_FILE": str(path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.argv", ["check_ranks.py"])
    assert check_ranks.main() == 2
    assert capsys.readouterr().out.startswith("no rank table, or no place in it: ")
