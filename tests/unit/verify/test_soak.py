"""Repetitions of a verification: how often a check failed, what fell over time, false alarms, and the playbook."""

from __future__ import annotations

import json
import random

import pytest
from ansible.module_utils.trainyard.base.checks import STATES, Check
from ansible.module_utils.trainyard.verify import compute, soak
from ansible.module_utils.trainyard_controller.runs.pages import verify_page
from ansible.module_utils.trainyard_controller.verify import verify_reporting
from ansible_run import run_ansible
from report_samples import STARTED
from test_compute import CPU, H200, device
from test_verify_report import schema_errors

MEASURE = "bf16 products of device 0"


def check(state, hosts=(), name="all-gather", phase="collectives", **more):
    return Check(phase, name, state, tuple(hosts), **more).as_dict()


def repetition(*checks, phase="collectives"):
    state = max((each["state"] for each in checks), key=STATES.index, default="skipped")
    return [{"name": phase, "state": state, "reason": "", "started": STARTED, "elapsed_s": 5.0, "checks": [*checks]}]


def merged(turns):
    """Return what the record of these repetitions says, as it is written and read again after each."""
    record = {}
    for number, phases in enumerate(turns, 1):
        soak.add(record, number, phases)
        record = json.loads(json.dumps(record))
    return soak.merged(record)


def measured(**by_host):
    """Return repetitions in which each host has one of its values, and the state of the host's check over time."""
    number = len(next(iter(by_host.values())))
    each = [{MEASURE: {host: values[at] for host, values in by_host.items()}} for at in range(number)]
    figures = [check("pass", name="speed", phase="compute", data={"figures": now, "fall": 0.05}) for now in each]
    return merged([repetition(one, phase="compute") for one in figures])


def over_time(*values, **others):
    phases, _ = measured(n1=values, **others)
    return [(each["name"], each["state"], each["hosts"]) for each in phases[0]["checks"] if "over time" in each["name"]]


STEADY = [100.0, 101.0, 99.5] * 4
FELL = [100.0, 101.0, 99.5, 100.0, 97.0, 95.0, 93.0, 92.0]


@pytest.mark.parametrize(("end", "state"), [([91.0, 92.0, 91.5, 92.0], "unknown"), ([80.0, 79.0, 81.0, 80.0], "fail")])
def test_a_node_that_gets_slower_is_named_with_what_it_lost(end, state):
    assert over_time(*FELL, *end, n2=STEADY) == [(f"{MEASURE} over time", state, ["n1"])]
    phases, record = measured(n1=[*FELL, *end], n2=STEADY)
    (found,) = [each for each in phases[0]["checks"] if each["state"] == state]
    assert found["found"].startswith("n1 from 100 to ") and "over 12 repetitions" in found["reason"]
    assert record["phases"] == [{"phase": "compute", "repetitions": 12, "not_passed": []}]


@pytest.mark.parametrize(
    "values",
    [
        STEADY,
        # Disturbed at the end, but for one; a fall that is none beside the noise; and one that was at the beginning.
        [*STEADY[:8], 40.0, 41.0, 40.0, 100.0],
        [100.0, 60.0, 120.0, 80.0, 100.0, 70.0, 110.0, 90.0, 60.0, 85.0, 70.0, 80.0],
        FELL[::-1] + STEADY,
    ],
)
def test_what_passes_or_comes_back_is_not_named(values):
    assert over_time(*values) == [("figures over time", "pass", [])]


def test_few_repetitions_tell_nothing_about_time():
    assert over_time(*FELL) == [("figures over time", "skipped", [])]


def test_a_record_that_was_lost_leaves_the_rest_unknown(tmp_path):
    given = {"cluster": "c", "hosts": ["n1"], "started": STARTED, "phases": repetition(check("pass"))}
    given |= {"topology": str(tmp_path / "went-away")}
    for number in range(1, 4):
        verify_reporting.report(tmp_path / "verify-1", {**given, "repetition": number}, check=False)
        if number == 2:
            (tmp_path / "verify-1/soak.json").write_text("{")
    report = json.loads((tmp_path / "verify-1/report.json").read_text())
    reason = "the record of the soak has 0 of 2 earlier repetitions"
    assert (report["state"], report["first"]["reason"]) == ("unknown", reason) and report["topology"] is None


def test_1000_healthy_clusters_have_no_figure_that_falls():
    """Draw up to 16 nodes with noise of 0.3 to 3 %, one value in 100 disturbed, some slower after the first."""
    rng, alarms = random.Random(7), 0  # noqa: S311
    for _ in range(1000):
        noise, nodes, times = rng.choice([0.003, 0.01, 0.03]), rng.randint(1, 16), rng.randint(9, 60)
        cold = [1 + rng.choice([0, 0.03]) * (at == 0) for at in range(times)]

        def value(at, noise=noise, cold=cold):
            return rng.gauss(660 * cold[at], 660 * noise) * (rng.uniform(0.3, 0.9) if rng.random() < 0.01 else 1)

        series = {f"n{node}": [value(at) for at in range(times)] for node in range(nodes)}
        alarms += len(soak.fallen(series, 0.05, nodes))
    assert alarms == 0


def test_a_fall_of_10_percent_is_found_in_997_of_1000_clusters():
    rng, missed = random.Random(7), 0  # noqa: S311
    for _ in range(1000):
        times = rng.randint(12, 60)
        slopes = [0.0] * 7 + [0.15]
        series = {
            f"n{node}": [rng.gauss(660 * (1 - slope * at / times), 3) for at in range(times)]
            for node, slope in enumerate(slopes)
        }
        missed += list(soak.fallen(series, 0.05, 8)) != ["n7"]
    assert missed <= 3


def test_what_failed_in_some_repetitions_counts_with_their_number():
    bad, good = check("fail", ["n2"], reason="n2 is wrong"), check("pass", ["n2"])
    other = check("pass", name="mpi")
    once = {**repetition(check("pass"), phase="drift")[0], "state": "pass"}
    turns = [[once, *repetition(good, other)], *[repetition(bad, other)] * 2, repetition(good, other)]
    (drift, collectives), record = merged(turns)
    assert drift == once and collectives["elapsed_s"] == 20.0 and collectives["state"] == "fail"
    assert [(each["name"], each["state"], each["reason"]) for each in collectives["checks"]] == [
        ("all-gather", "fail", "n2 is wrong; in 2 of 4 repetitions"),
        ("mpi", "pass", ""),
    ]
    assert record["phases"] == [{"phase": "collectives", "repetitions": 4, "not_passed": [2, 3]}]


@pytest.mark.parametrize(("about", "fall"), [(H200, 0.05), (CPU, 0.5)])
def test_devices_have_figures_by_node_and_number(about, fall):
    checks = compute.verify([("n1", 0, device(about)), ("n1", 1, device(about))], "", "again")
    (data,) = [each.data for each in checks if each.data]
    assert data["fall"] == fall and data["figures"][f"{MEASURE[:-1]}1"] == {"n1": 661.0}


def test_each_repetition_leaves_a_report_of_those_so_far(tmp_path):
    given = {"cluster": "c", "hosts": ["n1", "n2"], "started": STARTED, "inventory": "-i mine"}
    for number in range(1, 13):
        value = [*FELL, 80.0, 79.0, 81.0, 80.0][number - 1]
        data = {"figures": {MEASURE: {"n1": value}}, "fall": 0.05}
        phases = repetition(check("pass", name="speed", phase="compute", data=data), phase="compute")
        verify_reporting.report(tmp_path / "verify-1", {**given, "phases": phases, "repetition": number}, check=False)
        report = json.loads((tmp_path / "verify-1/report.json").read_text())
        assert report["soak"]["repetitions"] == number and schema_errors(report) == []
    # The figures of all repetitions are in one file, and none in the report.
    assert len([*(tmp_path / "verify-1").iterdir()]) == 4
    assert not [each for each in report["phases"][0]["checks"] if "figures" in each["data"]]
    assert report["state"] == "fail" and report["first"]["hosts"] == ["n1"]
    assert "12 repetitions. first n1: it fell" in " ".join(report["text"].split())
    page = verify_page(report)
    assert 'id="soak"' in page and "Phases of 12 repetitions" in page


def test_the_playbook_repeats_until_the_time_is_over_whatever_fails(tmp_path):
    local = {"ansible_connection": "local", "ansible_host": "127.0.0.1"}
    (tmp_path / "hosts.json").write_text(json.dumps({"compute": {"hosts": {"n1": local, "n2": local}}}))
    given = {"verify_phases": ["storage", "counters"], "verify_storage": ["/proc/nowhere"], "verify_user": "nobody"}
    given |= {"trainyard_runs": str(tmp_path), "trainyard_become": False, "verify_soak": "2h"}
    # Each repetition takes 42 minutes.
    given["__verify_passed"] = "{{ 2520 * __verify_repetition }}"
    book = ["ansible-playbook", "playbooks/verify.yml", "-i", tmp_path / "hosts.json", "-e", json.dumps(given)]
    done = run_ansible(*map(str, book))
    turns = ("repetition 2, 1:24 of 2:00 hours", "repetition 3, 2:06 of 2:00 hours")
    done.expect(2, *turns, "in 3 of 3 repetitions")
    assert done.text.count("storage: speed, space") == 1
    (report,) = [json.loads(path.read_text()) for path in tmp_path.glob("verify-*/report.json")]
    phases = [
        {"phase": name, "repetitions": 3, "not_passed": bad} for name, bad in (("storage", [1, 2, 3]), ("counters", []))
    ]
    assert report["soak"] == {"repetitions": 3, "phases": phases}
