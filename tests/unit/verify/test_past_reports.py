"""Past verifications: repeat offenders and the usual bandwidth, also in the report, the page and the benchmark."""

from __future__ import annotations

import json

from ansible.module_utils.trainyard.verify.past_reports import OFTEN, USUAL, offender_text, offenders, usual
from ansible.module_utils.trainyard_controller.verify import report_compare, verify_reporting
from benchmark_samples import OUTPUTS, nic, two
from hypothesis import given
from hypothesis import strategies as st
from report_samples import STARTED, phase, reported

HOUR = 3600.0
HOSTS = [f"n{number}" for number in range(1, 7)]


def history(*failed, hosts=HOSTS):
    checks = (("kernel", "fail", list(names)) if names else ("kernel", "pass") for names in failed)
    return [
        reported([phase("drift", check)], hosts, started=STARTED + number * HOUR, report_id=f"verify-{number}")
        for number, check in enumerate(checks)
    ]


def test_a_node_that_fails_again_and_again_is_named_with_the_time_between():
    (found,) = offenders(history(["n2"], [], ["n2"], ["n2"], [], [], ["n2", "n3"], [], ["n3"]))
    # The failure that lasted over two verifications counts once.
    assert found == {"host": "n2", "failures": 3, "mean_s": 3 * HOUR}
    assert offender_text(found) == "n2 failed 3 times, 3 hours apart on average"
    assert offender_text({**found, "mean_s": 90_000}) == "n2 failed 3 times, 1 day apart on average"


def test_a_phase_that_did_not_run_and_a_node_that_was_left_out_end_no_failure():
    first, second = history(["n2"], ["n2"])
    between = reported([phase("reach", ("addresses", "pass"))], HOSTS, started=STARTED + 1)
    without = reported([phase("drift", ("kernel", "pass"))], HOSTS[2:], started=STARTED + 2)
    skipped = reported([phase("drift", ("kernel", "skipped"))], HOSTS, started=STARTED + 3)
    assert offenders([first, between, without, skipped, second] * OFTEN) == []


def test_a_check_that_names_most_nodes_blames_none():
    assert offenders(history(*[HOSTS[:4], []] * OFTEN)) == []
    assert len(offenders(history(*[HOSTS[:3], []] * OFTEN))) == 3
    assert offenders(history(*[["n1"], []] * OFTEN, hosts=["n1"]))[0]["failures"] == OFTEN


@given(st.lists(st.sets(st.sampled_from(HOSTS), max_size=3), max_size=12), st.randoms())
def test_failures_are_counted_whatever_the_order_of_the_files(failed, shuffle):
    reports = history(*failed)
    shuffle.shuffle(reports)
    begun = [host for before, names in zip([set(), *failed], failed) for host in names - before]
    found = {each["host"]: each["failures"] for each in offenders(reports)}
    assert found == {host: begun.count(host) for host in HOSTS if begun.count(host) >= OFTEN}


def measured(*values, **more):
    record = {"key": "all_reduce", "state": "pass", "sizes": [{"bytes": 1 << 24}], **more}
    records = [[{**record, "busbw_largest": value}] for value in values]
    return [{"id": f"v{n}", "started": STARTED + n, "benchmarks": each} for n, each in enumerate(records)]


def test_the_usual_bandwidth_is_the_median_of_verifications():
    found = usual(measured(9.0, 10.0, 2.0, latency={"us": 30.0, "bytes": 4096}))["all_reduce"]
    assert found == {
        **{"busbw": 9.0, "bytes": 1 << 24, "saved": "v2", "run": "the median of 3 verifications"},
        **{"latency_us": 30.0, "latency_bytes": 4096},
    }
    assert usual(measured(*[9.0] * (USUAL - 1))) == {}
    for wrong in ({"state": "fail"}, {"key": ""}, {"sizes": [{"bytes": 8}]}):
        last = {**measured(9.0)[0], "id": "last", "started": STARTED + 99}
        assert usual([*measured(*[9.0] * USUAL, **wrong), last]) == {}


@given(st.lists(st.floats(1.0, 1e3), min_size=USUAL, max_size=30), st.data())
def test_a_few_slow_runs_do_not_make_slow_usual(values, data):
    few = data.draw(st.lists(st.floats(0.1, 0.9), max_size=len(values) - 1))
    assert min(values) <= usual(measured(*few, *values))["all_reduce"]["busbw"] + 0.001 <= max(values) + 0.002


def write(runs, report):
    (runs / report["id"]).mkdir()
    (runs / report["id"] / "report.json").write_text(json.dumps(report))


def test_the_report_and_its_page_name_a_repeat_offender(tmp_path):
    # One report is of another inventory, where n2 is another node, and one is damaged.
    reports = history(*[["n2"], []] * OFTEN)
    for report in [*reports, {**reports[0], "id": "verify-x", "inventory": "x"}, {"id": "verify-y"}]:
        write(tmp_path, report)
    given_ = {"cluster": "lab", "inventory": "inventories/lab", "started": STARTED + 9 * HOUR, "hosts": HOSTS}
    given_["phases"] = [phase("drift", ("kernel", "fail", ["n2"]))]
    made = verify_reporting.report(tmp_path / "verify-now", given_, check=False)
    assert "  again and again n2 failed 4 times, 3 hours apart on average\n" in made["text"]
    saved = json.loads((tmp_path / "verify-now" / "report.json").read_text())
    assert saved["offenders"] == [{"host": "n2", "failures": 4, "mean_s": 3 * HOUR}]
    assert "n2 failed 4 times" in (tmp_path / "verify-now" / "report.html").read_text()


def test_the_history_is_bounded_in_bytes_and_the_newest_reports_count(tmp_path, monkeypatch):
    for report in history(*[[]] * 5):
        write(tmp_path, report)
    size = (tmp_path / "verify-0" / "report.json").stat().st_size
    monkeypatch.setattr(report_compare, "MOST_BYTES", 2 * size + 50)
    assert [each["id"] for each in report_compare.past_reports(tmp_path)] == ["verify-4", "verify-3"]


def test_a_report_that_is_gone_does_not_end_a_verification(tmp_path):
    write(tmp_path, history([])[0])
    (tmp_path / "verify-9").mkdir()
    (tmp_path / "verify-9" / "report.json").symlink_to(tmp_path / "gone")
    assert [each["id"] for each in report_compare.past_reports(tmp_path)] == ["verify-0"]


def test_a_benchmark_is_compared_with_what_is_usual_in_the_fleet(act, tmp_path):
    given_ = {"parse": str(OUTPUTS / "trainyard-all_reduce-gloo.txt"), "nodes": two(interfaces=[nic(kind="virtual")])}

    def fleet():
        (record,) = act("collective_benchmark", **given_, baseline="fleet", runs=str(tmp_path))["benchmarks"]
        return record

    # Too short a history is no missing measurement.
    first = fleet()
    assert first["state"] == "skipped" and first["key"].endswith("no GPU, virtual NIC")
    for number in range(USUAL):
        write(tmp_path, {**reported([]), "id": f"verify-{number}", "benchmarks": [first]})
    assert fleet()["expected"]["source"] == "baseline of verify-2 (the median of 3 verifications)"
    for number in range(USUAL, 3 * USUAL):
        write(tmp_path, {**reported([]), "id": f"verify-{number}", "benchmarks": [{**first, "busbw_largest": 2.0}]})
    assert fleet()["state"] == "fail"
    (finding,) = act("collective_benchmark", baseline="fleet", save_baseline=True)["findings"]
    assert finding["action"].startswith("leave out verify_save_baseline")
