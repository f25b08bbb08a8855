"""Hosts that were refused: what is kept of them, and who may say what."""

from __future__ import annotations

import json
import threading

import pytest
from ansible.module_utils.trainyard.job.record import excluded_hosts as refused
from ansible.module_utils.trainyard_controller import excluded_hosts as refused_hosts
from hypothesis import given
from hypothesis import strategies as st

EMPTY = {"refused": {}, "passed": {}}
HOSTS = {"n1": [], "n2": [0, 3], "n3": []}


def told(kept, reason, since, job_id="a-1", now=1000, host="n2"):
    return refused.told(kept, {host: {"reason": reason, "since": since}}, job_id, HOSTS, now)


def test_the_first_job_that_said_so_and_the_last_reason_are_kept():
    kept = told(told(EMPTY, "memory: 3 MiB", 500), "memory: 2 MiB", 600, "a-2")
    assert kept["refused"] == {"n2": {"since": 500, "job_id": "a-1", "reason": "memory: 2 MiB", "devices": [0, 3]}}
    # What an older job says does not come after it.
    assert told(kept, "older", 400) == kept


def test_a_host_that_has_passed_since_is_not_refused_by_what_an_older_job_still_says():
    kept = refused.passed(told(EMPTY, "lost", 500), ["n2", "n1"], 700, HOSTS)
    assert kept == {"refused": {}, "passed": {"n2": 700}}
    assert told(kept, "lost", 500) == kept
    assert "n2" in told(kept, "lost again", 800)["refused"]
    # Nor by one whose clock is ahead: nothing is later than now.
    ahead = told(kept, "lost", 5e9, now=650)
    assert ahead == kept


def test_a_host_is_taken_back_by_a_job_that_has_all_devices_of_those_that_refused_it():
    kept = told(EMPTY, "GPU 3: gone", 500)
    assert [refused.back(kept["refused"], {"n2": devices}) for devices in ([], [0, 1], [3, 0, 1])] == [[], [], ["n2"]]
    # What was kept before devices were.
    before = {"n2": {"since": 500, "job_id": "a-1", "reason": "lost"}}
    assert refused.read({"refused": before, "passed": {}})["refused"] == before
    assert refused.back(before, {"n2": []}) == ["n2"] and refused.back(before, {"n1": []}) == []


def test_hosts_that_left_the_inventory_are_forgotten():
    kept = refused.passed(told(EMPTY, "lost", 500), [], 700, ["n1"])
    assert kept == EMPTY


@given(st.dictionaries(st.text(), st.fixed_dictionaries({"reason": st.text(), "since": st.floats(-1e18, 1e18)})))
def test_what_a_node_says_is_bounded_and_of_the_jobs_hosts_alone(found):
    kept = refused.told(EMPTY, {**found, "n2": {"reason": "x\x1b[2J" + "y" * 9999, "since": -1.0}}, "a-1", HOSTS, 1000)
    assert set(kept["refused"]) <= set(HOSTS) and refused.read(json.loads(json.dumps(kept))) == kept
    assert len(kept["refused"]["n2"]["reason"]) == refused.MOST_REASON
    assert "\x1b" not in "".join(refused.lines(kept["refused"]))


@pytest.mark.parametrize("held", [None, [], {"refused": {}}, {"refused": {"n1": {"since": "x"}}, "passed": {}}])
def test_a_file_that_is_none_of_ours_is_as_none(held):
    assert refused.read(held) == EMPTY


def test_nobody_is_refused():
    assert refused.lines({}) == []


def test_two_that_write_at_the_same_time_lose_nothing(tmp_path):
    file = tmp_path / "refused.json"

    def add(number):
        refused_hosts.change(file, lambda kept: refused.told(kept, {f"n{number}": {"reason": "x", "since": 1.0}},
                                                             "a-1", {f"n{number}": []}, 10))  # fmt: skip

    threads = [threading.Thread(target=add, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused_hosts.read(file)) == 8
    assert [path.name for path in tmp_path.iterdir()] == ["refused.json"]
