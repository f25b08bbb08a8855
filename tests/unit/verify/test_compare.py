"""Two reports of a verification side by side: bandwidths, findings, versions, and items that only one has."""

from __future__ import annotations

import copy
import json

import pytest
from ansible.module_utils.trainyard.base.findings import UnusableError
from ansible.module_utils.trainyard.verify import report as verify_report
from ansible.module_utils.trainyard.verify.compare import compare
from ansible_run import run_ansible
from report_samples import STARTED, composed


@pytest.fixture
def before():
    return verify_report.build(**composed(4, bad=False))


@pytest.fixture
def after(before):
    later = copy.deepcopy(before)
    later.update(id="verify-20261122-090000", started=STARTED + 86400)
    return later


def phase_of(report, name):
    return next(phase for phase in report["phases"] if phase["name"] == name)


def found(report, phase, name, hosts, state="fail", text="something"):
    """Let a report have a finding in the place of the check that passed."""
    checks = phase_of(report, phase)["checks"]
    checks[:] = [check for check in checks if check["name"] != name]
    fields = dict.fromkeys(("expected", "reason", "action", "command", "source"), "")
    checks.append({**fields, "phase": phase, "name": name, "state": state, "hosts": hosts, "found": text, "data": {}})


def scale(record, factor, place="out_of_place"):
    for size in record["sizes"]:
        size[place]["busbw"] *= factor


def test_equal_reports_pass(before, after):
    result = compare(before, after)
    assert result["state"] == "pass"
    assert [result[key] for key in ("slower", "faster", "new", "gone", "unseen", "changed", "not_compared")] == [[]] * 7
    assert result["text"] == "verify-20261121-200000 (pass) and verify-20261122-090000 (pass): nothing got worse"


def test_a_benchmark_is_compared_at_the_largest_size_that_both_have(before, after):
    record = after["benchmarks"][0]
    record["sizes"] = record["sizes"][:-2]
    scale(record, 0.9)
    result = compare(before, after)
    (slower,) = result["slower"]
    assert (result["state"], slower["hosts"]) == ("fail", before["hosts"])
    assert (slower["what"], slower["ratio"], slower["unit"]) == ("all_reduce over nccl at 256 MiB", 0.9, "GB/s")
    assert compare(before, after, tolerance=0.11)["state"] == "pass"
    back = compare(after, before)
    assert back["state"] == "pass" and len(back["faster"]) == 1
    assert "  faster\n    all_reduce over nccl at 256 MiB: " in back["text"] and "(+11%)" in back["text"]


def test_a_bandwidth_that_was_measured_in_place_only_is_compared(before, after):
    for report in (before, after):
        for size in report["benchmarks"][0]["sizes"]:
            size["out_of_place"] = None
    scale(after["benchmarks"][0], 0.5, "in_place")
    assert [change["ratio"] for change in compare(before, after)["slower"]] == [0.5]


@pytest.mark.parametrize(
    ("report", "benchmark", "reason"),
    [
        ({"benchmarks": []}, {}, "all_reduce over nccl: not measured any more"),
        ({}, {"ranks": 16}, "all_reduce over nccl: 32 ranks on n1 to n4 before, 16 ranks on n1 to n4 now"),
        ({}, {"sizes": []}, "all_reduce over nccl: no message size that both have"),
        ({"stragglers": None}, {}, "pairs of nodes: not measured any more"),
    ],
)
def test_a_measurement_that_cannot_be_compared_is_unknown(before, after, report, benchmark, reason):
    before["benchmarks"], after["benchmarks"] = before["benchmarks"][:1], after["benchmarks"][:1]
    after["benchmarks"][0].update(benchmark)
    after.update(report)
    result = compare(before, after)
    assert (result["state"], result["not_compared"], result["slower"]) == ("unknown", [reason], [])
    assert f"  not compared\n    {reason}" in result["text"]


def test_a_node_that_got_slower_among_pairs_is_named_beyond_what_scatters(before, after):
    after["stragglers"]["nodes"][1]["score"] = 0.9
    (slower,) = compare(before, after)["slower"]
    assert slower["hosts"] == ["n2"]
    assert "n2 with other nodes, relative to the healthy: 98%, now 90%" in compare(before, after)["text"]
    before["stragglers"]["spread"] = 0.04
    assert compare(before, after)["slower"] == []


def test_all_pairs_that_got_slower_show_in_their_median(before, after):
    after["stragglers"]["median"] *= 0.7
    assert [change["what"] for change in compare(before, after)["slower"]] == ["pairs of nodes, median"]


def test_new_findings_are_grouped_by_what_was_found(before, after):
    found(after, "drift", "kernel", ["n3", "n4"], text="6.1.0-28-amd64")
    result = compare(before, after)
    (new,) = result["new"]
    assert (result["state"], new["hosts"], new["before"]) == ("fail", ["n3", "n4"], "pass")
    assert "    drift: kernel on n3, n4: fail, 6.1.0-28-amd64; before: pass" in result["text"]
    back = compare(after, before)
    assert (back["state"], back["gone"][0]["hosts"]) == ("pass", ["n3", "n4"])


def test_a_finding_of_another_node_is_new_and_one_that_stays_is_not(before, after):
    found(before, "drift", "kernel", ["n3"])
    found(after, "drift", "kernel", ["n3", "n4"])
    result = compare(before, after)
    assert ([finding["hosts"] for finding in result["new"]], result["stayed"]) == ([["n4"]], 1)
    assert result["text"].endswith("as before: 1 finding")


@pytest.mark.parametrize(
    ("then", "now", "state", "new"),
    [("unknown", "fail", "fail", 1), ("fail", "unknown", "pass", 0), ("pass", "unknown", "unknown", 1)],
)
def test_a_finding_that_got_worse_is_new(before, after, then, now, state, new):
    found(before, "drift", "kernel", ["n1"], then)
    found(after, "drift", "kernel", ["n1"], now)
    result = compare(before, after)
    assert (result["state"], len(result["new"])) == (state, new)


def test_a_finding_that_was_not_checked_again_is_not_gone(before, after):
    found(before, "devices", "GPU ECC errors", ["n2"])
    phase_of(after, "devices")["checks"].clear()
    result = compare(before, after)
    assert (result["state"], result["gone"]) == ("unknown", [])
    assert [(finding["check"], finding["hosts"]) for finding in result["unseen"]] == [("GPU ECC errors", ["n2"])]
    phase_of(before, "devices")["checks"].clear()
    found(after, "devices", "GPU ECC errors", ["n2"])
    assert compare(before, after)["new"][0]["before"] == "not looked at"


def test_a_finding_goes_with_its_node(before, after):
    found(before, "devices", "GPU ECC errors", ["n4"])
    phase_of(after, "devices")["checks"].clear()
    after["hosts"].remove("n4")
    after["hosts"].append("n5")
    result = compare(before, after)
    assert result["hosts"] == {"new": ["n5"], "gone": ["n4"]}
    assert (len(result["gone"]), result["unseen"]) == (1, [])
    assert "  new nodes: n5\n  nodes that are gone: n4" in result["text"]


def test_versions_that_changed_are_listed_with_their_nodes(before, after):
    for report in (before, after):
        for node in report["nodes"]:
            node["facts"] = dict(node["facts"])
    for node in after["nodes"][:2]:
        node["facts"]["kernel"] = "6.1.0-31-amd64"
    after["nodes"][2]["facts"]["mtu"] = {"eth0": 9000}
    after["nodes"][3]["facts"] = {}
    after["versions"]["ansible"] = "2.21.5"
    result = compare(before, after)
    assert [(change["what"], change["after"], change["hosts"]) for change in result["changed"]] == [
        ("kernel", "6.1.0-31-amd64", ["n1", "n2"]),
        ("mtu", '{"eth0": 9000}', ["n3"]),
        ("ansible of the controller", "2.21.5", []),
    ]
    assert "    kernel: 6.1.0-30-amd64, now 6.1.0-31-amd64 on n1, n2" in result["text"]
    assert '    mtu: nothing, now {"eth0": 9000} on n3' in result["text"]


def test_reports_of_two_clusters_are_compared_with_a_note(before, after):
    after["cluster"] = "other"
    assert "\n  of two clusters: example and other" in compare(before, after)["text"]


def test_no_secret_and_no_control_character_of_a_report_comes_back(before, after):
    found(after, "drift", "kernel", ["n1"], text="\x1b[31mpassword=hunter2\x07")
    text = json.dumps(compare(before, after), ensure_ascii=False)
    assert "hunter2" not in text and "\x1b" not in text and "\x07" not in text


def test_other_files_are_refused(before):
    with pytest.raises(
        UnusableError, match="has schema 'trainyard-verify-0', and this version reads 'trainyard-verify-1'"
    ):
        compare({**before, "schema": "trainyard-verify-0"}, before)


def write(runs, report, **changes):
    report = {**report, **changes}
    (runs / report["id"]).mkdir()
    path = runs / report["id"] / "report.json"
    path.write_text(json.dumps(report))
    return path


@pytest.fixture
def compared(act):
    """Return the message of an error, or the two reports that the module compared."""

    def ids(**params):
        params = {"tolerance": 0.05} | {key: str(value) for key, value in params.items()}
        result = act("verify", step="compare", **params)
        comparison = result.get("comparison")
        return [comparison[key]["id"] for key in ("before", "after")] if comparison else result["msg"]

    return ids


def test_the_two_newest_verifications_of_the_cluster_are_chosen(tmp_path, compared, before):
    for number, cluster in enumerate(("example", "example", "other", "example"), 1):
        write(tmp_path, before, id=f"verify-{number}", started=STARTED + number, cluster=cluster)
    (tmp_path / "verify-5").mkdir()
    (tmp_path / "verify-5" / "report.json").write_text("{")
    assert compared(runs=tmp_path) == ["verify-2", "verify-4"]


def test_missing_reports_are_named(tmp_path, compared, before):
    assert "has no report of a verification, verify-*/report.json" in compared(runs=tmp_path)
    path = write(tmp_path, before)
    assert "has no report of the cluster example with -i inventories/example from before" in compared(runs=tmp_path)
    assert compared(earlier=path).startswith("runs is not given; ")
    assert "is no report of a verification" in compared(earlier=tmp_path / "none", later=path)
    assert compared(earlier="a", later="b", tolerance=5).startswith(
        "tolerance is 5, expected a number from 0 to below 1"
    )


@pytest.mark.parametrize("broken", [{"schema": "trainyard-verify-1"}, {"schema": 2}, {}])
def test_a_file_of_another_form_is_refused(tmp_path, compared, before, broken):
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(broken))
    message = compared(earlier=bad, later=write(tmp_path, before))
    assert f"{bad} is damaged: " in message


def play(runs, *options):
    return run_ansible("ansible-playbook", "playbooks/compare.yml", "-e", f"trainyard_runs={runs}", *options)


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        (lambda report: None, 0, "nothing got worse"),
        (lambda report: found(report, "drift", "kernel", ["n2"]), 2, "drift: kernel on n2: fail"),
        (lambda report: report["benchmarks"].pop(0), 3, "all_reduce over nccl: not measured any more"),
    ],
    ids=["same", "worse", "unknown"],
)
def test_the_playbook_ends_with_the_result(tmp_path, before, after, change, status, text):
    change(after)
    write(tmp_path, before)
    write(tmp_path, after)
    play(tmp_path).expect(status, text)
