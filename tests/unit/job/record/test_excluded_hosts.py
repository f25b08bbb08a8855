"""The record of excluded hosts: its content, and who may add to it."""

import json
import threading

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.record import excluded_hosts
from ansible.module_utils.trainyard_controller.runs import excluded_record
from hypothesis import given
from hypothesis import strategies as st

EMPTY = {"excluded": {}, "passed": {}}
HOSTS = {"n1": [], "n2": [0, 3], "n3": []}


def add(record, reason, since, job_id="a-1", now=1000, host="n2"):
    return excluded_hosts.add(record, {host: {"reason": reason, "since": since}}, job_id, HOSTS, now)


def test_the_first_job_and_the_last_reason_are_recorded():
    record = add(add(EMPTY, "memory: 3 MiB", 500), "memory: 2 MiB", 600, "a-2")
    assert record["excluded"] == {"n2": {"since": 500, "job_id": "a-1", "reason": "memory: 2 MiB", "devices": [0, 3]}}
    assert add(record, "older", 400) == record


def test_an_older_job_does_not_exclude_a_host_that_has_passed_since():
    record = excluded_hosts.readmit(add(EMPTY, "lost", 500), ["n2", "n1"], 700, HOSTS)
    assert record == {"excluded": {}, "passed": {"n2": 700}}
    assert add(record, "lost", 500) == record and "n2" in add(record, "lost again", 800)["excluded"]
    # Nor does a job whose clock is ahead: nothing is later than now.
    assert add(record, "lost", 5e9, now=650) == record


def test_a_host_is_readmitted_with_all_devices_for_which_it_was_excluded():
    excluded = add(EMPTY, "GPU 3: gone", 500)["excluded"]
    again = [excluded_hosts.healthy_again(excluded, {"n2": devices}) for devices in ([], [0, 1], [3, 0, 1])]
    assert again == [[], [], ["n2"]]


def test_hosts_that_left_the_inventory_are_forgotten():
    assert excluded_hosts.readmit(add(EMPTY, "lost", 500), [], 700, ["n1"]) == EMPTY


@given(st.dictionaries(st.text(), st.fixed_dictionaries({"reason": st.text(), "since": st.floats(-1e18, 1e18)})))
def test_a_nodes_report_is_bounded_and_counts_for_hosts_of_its_job_alone(found):
    report = {**found, "n2": {"reason": "x\x1b[2J" + "y" * 9999, "since": -1.0}}
    record = excluded_hosts.add(EMPTY, report, "a-1", HOSTS, 1000)
    assert set(record["excluded"]) <= set(HOSTS) and not misfit(record, excluded_hosts.SHAPE)
    assert len(record["excluded"]["n2"]["reason"]) == excluded_hosts.MAX_REASON
    assert "\x1b" not in "".join(excluded_hosts.lines(record["excluded"]))


@pytest.mark.parametrize("content", [None, [], {"excluded": {}}, {"excluded": {"n1": {"since": "x"}}, "passed": {}}])
def test_a_file_of_another_shape_is_an_empty_record(tmp_path, content):
    (tmp_path / "excluded.json").write_text(json.dumps(content))
    assert excluded_record.read(tmp_path / "excluded.json") == EMPTY["excluded"] and excluded_hosts.lines({}) == []


def test_two_writers_at_the_same_time_lose_nothing(tmp_path):
    file = tmp_path / "excluded.json"

    def write(host):
        found = {host: {"reason": "x", "since": 1.0}}
        excluded_record.change(file, lambda record: excluded_hosts.add(record, found, "a-1", {host: []}, 10))

    threads = [threading.Thread(target=write, args=[f"n{number}"]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(excluded_record.read(file)) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["excluded.json"]
