"""The output of the program that measures pairs: read, completed, and checked over the devices of the nodes."""

from __future__ import annotations

import itertools
import json

import pytest
from ansible.module_utils.trainyard.base.findings import Finding
from ansible.module_utils.trainyard.verify.pair_report import complete, describe, read, refusal, verify
from ansible.module_utils.trainyard_controller.verify import measurements as measured_runs
from benchmark_samples import write_run
from hypothesis import given
from hypothesis import strategies as st

HOSTS = ["n1", "n2", "n3", "n4"]
ROUNDS = [[["n1", "n2"], ["n3", "n4"]], [["n2", "n3"], ["n1", "n4"]]]


def measurement(pair, number, busbw=10.0, rail=0, error="", wrong=0):
    value = None if error else busbw
    return {"hosts": pair, "round": number, "rail": rail, "busbw": value, "wrong": wrong, "error": error}


def lines(measurements):
    return "".join(f"pair {json.dumps(each)}\n" for each in measurements)


def everything(rails=1, speed=lambda pair, rail: 10.0):
    pairs = [(pair, number) for number, round_pairs in enumerate(ROUNDS) for pair in round_pairs]
    return [measurement(pair, number, speed(pair, rail), rail) for pair, number in pairs for rail in range(rails)]


def states_of(checked, state="pass"):
    """Return the states of the nodes, without those that have the given one."""
    return {node["host"]: node["state"] for node in checked["nodes"] if node["state"] != state}


def test_lines_are_found_among_others():
    log = "[W] something of gloo\n" + lines(everything()[:2]) + "a tag: " + lines(everything()[2:3]) + "end"
    assert read([log, "", lines(everything()[3:])]) == everything()


@pytest.mark.parametrize(
    "line",
    [
        'pair {"hosts": ["n1", "n2"], "round": 0, "bus',
        'pair {"hosts": ["n1"], "round": 0}',
        'pair {"hosts": ["n1", 2], "round": 0}',
        'pair {"hosts": ["n1", "n2"]}',
        'pair {"hosts": ["n1", "n2"], "round": 0, "rail": "a"}',
        'pair {"hosts": ["n1", "n2"], "round": 0, "busbw": "fast"}',
        'pair {"hosts": ["n1", "n2"], "round": 0, "busbw": 1%s}' % ("0" * 400),
        "pair {]}",
    ],
)
def test_malformed_lines_are_no_measurement(line):
    assert read([line]) == []


@given(st.text())
def test_any_text_can_be_read(text):
    assert read([text, f"pair {{{text}"]) == []


def test_rounds_go_on_where_the_last_run_ended():
    found = complete(ROUNDS, everything(), {}, first=5)
    assert [each["round"] for each in found] == [5, 5, 6, 6]


def test_a_host_that_ended_the_job_is_blamed_for_its_pairs_and_nobody_for_the_others():
    found = complete(ROUNDS, [measurement(["n1", "n2"], 0)], {"n4": "node n4 went silent"})
    errors = [(each["hosts"], each["round"], each["error"]) for each in found[1:]]
    assert errors == [(["n3", "n4"], 0, "node n4 went silent"), (["n1", "n4"], 1, "node n4 went silent")]


def test_one_slow_device_of_eight_is_found_though_the_sum_hardly_shows_it():
    """n3's device 5 has 60 %: 5 % of the node's bandwidth."""
    checked = verify(HOSTS, everything(8, lambda pair, rail: 6.0 if rail == 5 and "n3" in pair else 10.0))
    assert list(states_of(checked)) == ["n3"]
    n3 = checked["nodes"][2]
    assert n3["rail"] == 5 and "on device 5 of 8: " in n3["reason"]
    states = {rail: each["state"] for rail, each in checked["rails"].items()}
    assert states == {**dict.fromkeys("01234567", "pass"), "5": checked["state"]}
    assert len(checked["pairs"]) == 32


def test_a_job_that_was_refused_fails_with_its_first_finding():
    findings = [
        Finding(host="n2", check="versions", found="no torch", expected="torch installed", action="run site.yml"),
        Finding(host="n3", check="x", found="y", expected="z", action=""),
    ]
    checked = refusal(verify(HOSTS, []), findings)
    assert checked["state"] == "fail"
    assert "versions on n2: found no torch, expected torch installed, and 1 more finding" in checked["reason"]
    assert describe(checked).startswith("  pairs: fail, 0 measurements; the job could not run")


RANKS = {host: [rank] for rank, host in enumerate(HOSTS)}


def test_runs_are_joined(tmp_path, act):
    params = {"hosts": HOSTS, "schedule": ROUNDS, "run_dir": write_run(tmp_path, {2: lines(everything())}, RANKS)}
    first = act("verify", step="stragglers", **params)
    assert first["stragglers"]["state"] == "pass"
    again = act("verify", step="stragglers", **params, measured=first["measurements"])
    assert [each["round"] for each in again["measurements"]] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_silent_node_is_blamed(tmp_path, act):
    silent = {"kind": "silent", "host": "n4", "after_s": 15}
    log = lines([each for each in everything() if "n4" not in each["hosts"]])
    folder = write_run(tmp_path, {2: log}, RANKS, "failed", silent)
    checked = act("verify", step="stragglers", hosts=HOSTS, schedule=ROUNDS, run_dir=folder)
    assert states_of(checked["stragglers"])["n4"] == "fail"
    (error,) = {each["error"] for each in checked["measurements"] if "n4" in each["hosts"]}
    assert "n4" in error


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"run_dir": "/proc/nowhere"}, "is not the folder of a run that has ended"),
        ({"tolerance": 1.5}, "tolerance is 1.5, expected a number above 0 and below 1"),
    ],
)
def test_invalid_parameters_are_refused(act, params, message):
    result = act("verify", step="stragglers", hosts=HOSTS, **params)
    assert result["failed"] and message in result["msg"]


@pytest.fixture
def program(tmp_path):
    source = tmp_path / "program"
    (source / "__pycache__").mkdir(parents=True)
    (source / "pairs.py").write_text("")
    return source


ALL_PAIRS = list(map(list, itertools.combinations(HOSTS, 2)))


@pytest.mark.parametrize(
    ("rounds", "schedule", "pairs"),
    [("2", [], ALL_PAIRS), ("full", [], ALL_PAIRS), ("2", [[["n4", "n1"]]], [["n1", "n4"]])],
)
def test_schedules(program, tmp_path, monkeypatch, rounds, schedule, pairs):
    monkeypatch.setattr(measured_runs.tempfile, "tempdir", str(tmp_path))
    chosen, source = measured_runs.prepare_pairs(HOSTS, rounds, schedule, program)
    assert sorted(sorted(pair) for each in chosen for pair in each) == pairs
    assert sorted(path.name for path in (tmp_path / source).iterdir()) == ["pairs.py", "schedule.json"]
    assert json.loads((tmp_path / source / "schedule.json").read_text())["rounds"] == chosen
    assert measured_runs.prepare_pairs(["n1"], "2", [], program) == ([], "")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rounds": "0"}, "rounds is '0', expected a number from 1 to 1000, or full"),
        ({"rounds": "all"}, "rounds is 'all', expected a number from 1 to 1000, or full"),
        ({"schedule": [[["n1", "n9"]]]}, "round 0 has n9, which is not among the 4 hosts"),
        ({"schedule": [[["n1", "n2"], ["n2", "n3"]]]}, "round 0 has n2 twice: the pairs of a round run side by side"),
        ({"schedule": [[["n1", "n1"]]]}, "round 0 has ['n1', 'n1'], expected a pair of two hosts"),
        ({"schedule": [["n1"]]}, "round 0 has 'n1', expected a pair of two hosts"),
    ],
)
def test_invalid_schedules_are_refused(act, program, params, message):
    assert act("verify", step="pairs", hosts=HOSTS, source=str(program), **params)["msg"] == message
