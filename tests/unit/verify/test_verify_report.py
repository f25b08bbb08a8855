"""The report of a verification: report.json, its schema, the result, the first step, terminal, JUnit and page."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
from ansible.module_utils.trainyard.base import adhoc
from ansible.module_utils.trainyard.base.redaction import HIDDEN, MAX_TEXT, safe, safe_text
from ansible.module_utils.trainyard.report.junit import junit
from ansible.module_utils.trainyard.verify import report as verify_report
from ansible.module_utils.trainyard.verify.pairing import first_rounds
from ansible.module_utils.trainyard.verify.stragglers import verify
from ansible.module_utils.trainyard_controller.runs.pages import verify_page
from ansible.module_utils.trainyard_controller.verify import verify_reporting
from ansible.release import __version__ as ansible_version
from hypothesis import given
from hypothesis import strategies as st
from report_samples import check, composed, finished, phase, reported

PROJECT = Path(__file__).resolve().parents[3]
SCHEMA = jsonschema.Draft202012Validator(json.loads((PROJECT / "docs" / "report.schema.json").read_text()))


def kernel(**more):
    return check("drift", "kernel", "fail", ["n3"], **{"found": "6.1", "expected": "6.5", **more})


def schema_errors(report):
    return list(SCHEMA.iter_errors(json.loads(json.dumps(report, allow_nan=False))))


@pytest.mark.parametrize(
    ("states", "state", "code"),
    [
        (["pass", "pass"], "pass", 0),
        (["pass", "skipped"], "pass", 0),
        (["pass", "unknown"], "unknown", 3),
        (["unknown", "fail", "pass"], "fail", 2),
        (["skipped"], "unknown", 3),
        ([], "unknown", 3),
    ],
)
def test_the_result_is_the_worst_that_was_found_and_nothing_verifies_nothing(states, state, code):
    report = reported([phase("drift", *(("kernel", each) for each in states))])
    assert (report["state"], report["exit_code"]) == (state, code)


def test_a_check_of_an_unknown_form_is_refused():
    with pytest.raises(TypeError, match="colour"):
        reported([phase("drift", {**check("drift", "kernel"), "colour": "red"})])


def test_benchmarks_and_stragglers_without_a_check_count():
    records = composed(5)
    for each in records["phases"]:
        each["checks"] = []
    report = verify_report.build(**records)
    failed = [check["hosts"] for each in report["phases"] for check in each["checks"] if check["state"] == "fail"]
    assert (report["state"], failed) == ("fail", [["n3"], ["n3"]])


def test_benchmarks_and_stragglers_with_a_check_count_once():
    checked = [phase("bandwidth", ("all_reduce", "skipped")), phase("stragglers", ("pairs", "pass"))]
    report = verify_report.build(**{**composed(5), "phases": checked})
    assert [len(each["checks"]) for each in report["phases"]] == [1, 1]
    assert report["state"] == "pass"


def test_a_node_is_as_bad_as_what_names_it():
    checks = [check("drift", "kernel", "fail", ["n2"]), check("drift", "os", "unknown", ["n2", "n3"])]
    report = reported([phase("drift", *checks)], nodes=[{"host": "n1", "address": "10.0.0.1", "facts": {"os": "x"}}])
    assert [node["state"] for node in report["nodes"]] == ["pass", "fail", "unknown"]
    assert report["nodes"][0]["address"] == "10.0.0.1" and report["nodes"][1]["facts"] == {}


XID = [("devices", "Xid", "fail", ["n1"])]


@pytest.mark.parametrize(
    ("checks", "hosts", "name"),
    [
        ([], None, None),
        ([("drift", "kernel", "unknown", ["n1"]), ("reach", "ssh", "pass", [])], ["n1"], "kernel"),
        # What failed comes before what is unknown.
        ([("reach", "ssh", "unknown", ["n1"]), ("drift", "kernel", "fail", ["n2"])], ["n2"], "kernel"),
        # A node that does not answer comes before all others.
        ([("devices", "ECC", "fail", ["n2"]), ("reach", "answer", "fail", ["n3"])], ["n3"], "answer"),
        # The node that several phases name, and of these the one that knows most.
        ([*XID, ("drift", "kernel", "fail", ["n3"]), ("stragglers", "pairs", "fail", ["n3"])], ["n3"], "pairs"),
        # Bandwidth of all comes last.
        ([("bandwidth", "all_reduce", "fail", []), ("collectives", "gloo", "fail", ["n2"])], ["n2"], "gloo"),
        # The same phase: its first check.
        ([("drift", "os", "fail", ["n3"]), ("drift", "kernel", "fail", ["n2"])], ["n3"], "os"),
    ],
)
def test_what_to_do_first(checks, hosts, name):
    fields = dict.fromkeys(("found", "expected", "reason", "action", "command"), "")
    first = verify_report.first_step([check(*each, **fields) for each in checks])
    assert (first and first["hosts"], first and first["check"]) == (hosts, name)


def test_what_the_terminal_shows():
    other = kernel(source="2 of 3 nodes", reason="it runs another kernel", action="install it\nand reboot",
                   command="make drift")  # fmt: skip
    no_gpu = check("drift", "cuda", "skipped", reason="no GPU")
    report = reported(
        [
            phase("software", ("Open MPI", "pass"), elapsed_s=12),
            phase("drift", other, ("os", "pass"), no_gpu, ("mtu", "unknown"), elapsed_s=2.4),
            {"name": "bandwidth", "state": "skipped", "reason": "one node only"},
        ],
        not_asked=["reach", "stragglers"],
    )
    text = " ".join(verify_report.terminal_text(report, "runs/verify-1").split())
    for part in (
        "The cluster lab is NOT fit to train. 4 checks: 2 passed, 1 failed, 1 unknown on 3 nodes in 0:01:05.",
        "first n3: it runs another kernel install it and reboot not applicable bandwidth not asked",
        "software pass 1 passed 0:00:12 drift fail 1 passed, 1 failed, 1 unknown, 1 not applicable 0:00:02 cuda:",
        "1. drift: kernel on n3: fail found 6.1 expected 6.5 (2 of 3 nodes) why it runs another kernel do install it",
        "repeat make drift 2. drift: mtu: unknown report runs/verify-1/report.html",
    ):
        assert part in text


def test_only_phases_with_checks_are_verified():
    alone = "there is one node, and nothing to compare it with"
    report = reported(
        [
            phase("drift", *(check("drift", f"fact {n}", "skipped", reason=alone) for n in range(25))),
            phase("reach", ("answer", "pass"), check("reach", "ssh", "not_asked", reason="verify_ssh is false"),
                  *(check("reach", name, "skipped", reason="there is one node") for name in ("names", "network"))),
            {"name": "stragglers", "state": "skipped", "reason": "there are no two nodes"},
        ],
        ["n1"],
        not_asked=["software", "bandwidth"],
    )  # fmt: skip
    assert (report["state"], report["exit_code"]) == ("pass", 0)
    assert report["coverage"] == {
        "checked": ["reach"], "not_applicable": ["drift", "stragglers"], "not_asked": ["software", "bandwidth"],
    }  # fmt: skip
    text = " ".join(verify_report.terminal_text(report, "runs/verify-1").split())
    assert text.startswith(
        "The cluster lab is verified in reach. 1 check passed on 1 node in 0:01:05. not applicable drift"
    )
    assert "not asked for software, bandwidth drift n/a 25 not applicable" in text
    named = "ssh: verify_ssh is false; names, network: there is one node"
    assert f"1 passed, 2 not applicable, 1 not asked for {named} stragglers n/a" in text
    page = re.sub("<style>.*?</style>|<script.*?</script>|<[^>]*>", "", verify_page(report), flags=re.DOTALL)
    assert "Not applicable: drift, stragglers." in page and "Not asked for: software, bandwidth." in page
    assert "skipped" not in page + text


def test_what_no_node_has_is_named_where_the_phase_passes():
    nowhere = [check("drift", name, "skipped", reason="not on any node") for name in ("driver", "CUDA")]
    report = reported([phase("drift", ("kernel", "pass"), *nowhere)])
    text = " ".join(verify_report.terminal_text(report, "runs/verify-1").split())
    assert "drift pass 1 passed, 2 not applicable driver, CUDA: not on any node" in text
    assert "<p>driver, CUDA: not on any node</p>" in verify_page(report)


def test_a_verification_that_checked_nothing_verifies_nothing():
    report = reported([{"name": "stragglers", "state": "skipped", "reason": "one node"}], not_asked=["drift"])
    assert report["exit_code"] == 3
    assert verify_report.headline(report).startswith("The cluster lab is not verified: nothing was checked. 0 checks")


def test_reasons_of_skipped_checks_are_listed_once_and_bounded():
    many = phase("devices", *(check("devices", f"c{n}", "skipped", reason=f"no device {n}") for n in range(9)))
    given = {**phase("drift", check("drift", "a", "skipped", reason="one node")), "reason": "one node; no GPU"}
    first, second = reported([many, given])["phases"]
    assert verify_report.why_not(first) == "no device 0; no device 1; no device 2; no device 3; ... (5 more)"
    assert verify_report.why_not(second) == "one node; no GPU"


def test_many_faults_stay_readable_on_the_terminal():
    report = reported([phase("drift", *((f"fact {number}", "fail", [f"n{number}"]) for number in range(200)))])
    text = verify_report.terminal_text(report, "runs/verify-1")
    assert "  ... 180 more in the report" in text and len(text.splitlines()) < 60


@pytest.mark.parametrize("options", [{}, {"bad": False}, {"hostile": True}, {"rounds": 4}, {"racks": 2}])
def test_reports_follow_the_published_schema(options):
    assert schema_errors(finished(5, **options)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["state"], "skipped"),
        (["exit_code"], 1),
        (["phases", 0, "checks", 0, "state"], "ok"),
        (["benchmarks", 0, "sizes", 0, "bytes"], None),
        (["stragglers", "pairs", 0, "hosts"], ["n1"]),
        (["extra"], 1),
    ],
)
def test_the_schema_finds_what_is_wrong(path, value):
    report = finished(5)
    part = report
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert schema_errors(report)


def test_stragglers_appear_in_report_and_page():
    hosts = [f"n{number}" for number in range(1, 6)]
    pairs = [(pair, number) for number, pairs in enumerate(first_rounds(hosts, 3)) for pair in pairs]
    speeds = [{"hosts": pair, "round": number, "busbw": 2.0 if "n4" in pair else 5.0} for pair, number in pairs]
    report = {**reported([phase("drift", ("kernel", "pass"))], hosts, stragglers=verify(hosts, speeds)), "text": ""}
    assert schema_errors(report) == []
    assert report["first"]["hosts"] == ["n4"] and report["exit_code"] == 2
    assert 'class="cells shares' in verify_page(report)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2 user=x", f"password={HIDDEN} user=x"),
        ("--api-key: 'a b'", f"--api-key: {HIDDEN}"),
        ('{"HF_TOKEN": "hf_abc", "n": 1}', '{"HF_TOKEN": ' + HIDDEN + ', "n": 1}'),
        ("https://user:pw@mirror.example/simple", f"https://{HIDDEN}@mirror.example/simple"),
        ("https://user:p@w@mirror.example/simple", f"https://{HIDDEN}@mirror.example/simple"),
        ("train.py --api-key abc --steps 5", f"train.py --api-key {HIDDEN} --steps 5"),
        ('"{\\"password\\": \\"abc\\"}"', '"{\\"password\\": ' + HIDDEN + '"}"'),
        ("MII\n-----END PRIVATE KEY----- y", f"{HIDDEN} y"),
        ("Authorization: Bearer abcdefgh1234", f"Authorization: Bearer {HIDDEN}"),
        ("x -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- y", f"x {HIDDEN} y"),
        ("\x1b[31mred\x1b[0m\r\nnext\tline\x00", "red\nnext\tline\N{REPLACEMENT CHARACTER}"),
        # Text that resembles a secret and is none.
        ("tokens: 4096, step 10", "tokens: 4096, step 10"),
        ("--tokenizer bpe --disk-quota 5, cwd=/data", "--tokenizer bpe --disk-quota 5, cwd=/data"),
        ("found 6.1.0-28, expected 6.1.0-30", "found 6.1.0-28, expected 6.1.0-30"),
        ("mail to ops@site.example", "mail to ops@site.example"),
    ],
)
def test_secrets_and_control_characters_are_left_out(text, shown):
    assert safe_text(text) == shown


def test_environments_secrets_and_numbers_that_json_cannot_hold_leave_data():
    timing = {"bytes": 8, "environ": {"A": "b"}, "time": float("inf")}
    secrets = {"env": {"PATH": "/bin", "X": "y"}, "password": "hunter2", "token": None}
    assert safe(secrets) == {"password": HIDDEN, "token": None}
    assert safe({"busbw": float("nan"), "sizes": (timing,)}) == {"busbw": None, "sizes": [{"bytes": 8, "time": None}]}
    assert safe(["x" * (MAX_TEXT + 5)]) == ["x" * MAX_TEXT + "... (5 more characters)"]


def test_a_secret_in_a_check_reaches_no_file():
    report = reported([phase("drift", kernel(found="password=hunter2", data={"env": {"A": "hunter2"}}))])
    report["text"] = verify_report.terminal_text(report, "runs/x")
    for written in (json.dumps(report), junit(report), verify_page(report)):
        assert "hunter2" not in written


def test_checks_become_test_cases():
    drift = [kernel(reason="another kernel"), ("os", "unknown"), ("cuda", "skipped"), ("nccl", "pass")]
    pairs = {"name": "stragglers", "state": "skipped", "reason": "one node only"}
    report = reported([phase("drift", *drift, elapsed_s=2.5), pairs])
    root = ET.fromstring(junit(report).encode())  # noqa: S314
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["5", "1", "1", "2"]
    tags = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert tags.pop("kernel on n3") == ["failure"]
    assert tags == {"os": ["error"], "cuda": ["skipped"], "nccl": [], "stragglers": ["skipped"]}
    (failure,) = root.iter("failure")
    assert failure.get("message") == "another kernel"
    assert failure.text == "hosts: n3\nfound: 6.1\nexpected: 6.5\nreason: another kernel"
    suite = next(root.iter("testsuite"))
    assert (suite.get("timestamp"), suite.get("time")) == ("2026-11-21T20:00:00", "2.5")


@pytest.mark.parametrize(
    "phases",
    [
        [],
        [phase("drift", ("kernel", "skipped"))],
        [{"name": "stragglers", "state": "skipped", "reason": "one node only"}],
        [phase("drift", ("kernel", "pass"), state="unknown", reason="half of the facts are missing")],
        [phase("drift", ("kernel", "pass"), state="fail", reason="another phase stopped it")],
        [phase("drift", ("kernel", "unknown"))],
        [phase("drift", ("kernel", "pass"), ("os", "skipped"))],
    ],
)
def test_a_ci_system_sees_a_success_only_where_the_verification_is_one(phases):
    report = reported(phases)
    root = ET.fromstring(junit(report).encode())  # noqa: S314
    bad = [*root.iter("failure"), *root.iter("error")]
    assert (not bad) is (report["exit_code"] == 0)
    assert len(bad) == int(root.get("failures")) + int(root.get("errors"))
    assert all(element.get("message") for element in bad)
    assert int(root.get("tests")) == len(list(root.iter("testcase")))


@given(st.text())
def test_junit_is_xml_for_any_text(text):
    report = reported([phase("drift", check("drift", text, "fail", [text], found=text, reason=text))], hosts=[text])
    root = ET.fromstring(junit(report).encode())  # noqa: S314
    assert len(list(root.iter("failure"))) == 1


def test_three_files_are_written_with_the_result(tmp_path):
    records = composed(4)
    folder = tmp_path / "runs" / records.pop("report_id")
    result = verify_reporting.report(folder, records, check=False)
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "report.json", "report.xml"]
    report = json.loads((folder / "report.json").read_text())
    assert schema_errors(report) == [] and report["id"] == folder.name
    assert report["versions"]["ansible"] == ansible_version and report["versions"]["trainyard"].count(".") == 2
    assert result["text"] == report["text"] and f"  report   {folder}/report.html" in report["text"]
    assert (result["state"], result["exit_code"], result["changed"]) == ("fail", 2, True)
    assert result["first"] == report["first"] and len(result["files"]) == 3 and "warnings" not in result


LITTLE = {"cluster": "c", "hosts": ["n1"], "phases": [], "started": 1}


def test_check_mode_writes_nothing(tmp_path):
    result = verify_reporting.report(tmp_path / "x", LITTLE, check=True)
    assert (result["changed"], result["exit_code"]) == (False, 3) and not (tmp_path / "x").exists()


def test_a_malformed_record_is_refused(tmp_path):
    bad = {**LITTLE, "phases": [phase("drift", ("kernel", "good"))]}
    result = verify_reporting.report(tmp_path / "x", bad, check=False)
    assert result["failed"] and "state 'good' of kernel" in result["msg"] and not (tmp_path / "x").exists()


@pytest.mark.parametrize("become", [True, False])
def test_commands_become_root_only_where_ansible_does(tmp_path, become):
    command = adhoc.shell(["n1"], "-i hosts", "ip link", become=True)
    bad = check("drift", "MTU", "fail", ["n1"], command=command, action=f"see {command}")
    records = {**LITTLE, "become": become, "phases": [{**phase("drift"), "checks": [bad]}]}
    text = verify_reporting.report(tmp_path / "x", records, check=True)["text"]
    assert ("ansible n1 -i hosts -b -m " in text) == become and text.count("ansible n1 -i hosts ") == 3, text
