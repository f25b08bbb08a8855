"""Events of verifications: when there is one, what it says, its receivers, and that it is sent."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard.job.record.events import MAX_TEXT
from ansible.module_utils.trainyard.verify import result_events
from ansible.module_utils.trainyard_controller.verify import verify_reporting
from hypothesis import given
from hypothesis import strategies as st
from report_samples import STARTED, phase, reported

HOSTS = ["n1", "n2", "n3", "n4"]
STATES = ("pass", "fail", "unknown")


def verified(number, state="pass", failed=(), name="reach"):
    check = ("addresses", state, list(failed or HOSTS[:1])) if state != "pass" else ("addresses", "pass")
    return reported([phase(name, check)], HOSTS, started=STARTED + number, report_id=f"verify-{number}")


def kind(*reports):
    found = result_events.event(reports[:-1], reports[-1])
    return found and found["event"]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([verified(1)], None),
        ([verified(1, "fail")], "verify_fail"),
        ([verified(1), verified(2)], None),
        ([verified(1), verified(2, "fail")], "verify_fail"),
        ([verified(1, "fail"), verified(2)], "verify_pass"),
        ([verified(1), verified(2, "unknown")], "verify_unknown"),
        ([verified(1, "fail", ["n2"]), verified(2, "fail", ["n2"])], None),
        ([verified(1, "fail", ["n2"]), verified(2, "fail", ["n3"])], "verify_nodes"),
        # The newest one before counts, whatever the order of the files.
        ([verified(2), verified(1, "fail"), verified(3)], None),
        # A verification of other phases says nothing about these.
        ([verified(1), verified(2, "fail", name="drift"), verified(3)], None),
    ],
)
def test_an_event_tells_that_the_result_changed(reports, expected):
    assert kind(*reports) == expected


def test_the_event_names_the_nodes_and_the_reason():
    now = verified(2, "fail", ["n2", "n3"])
    now["first"]["reason"] = "no answer\n" + "x" * 2 * MAX_TEXT
    found = result_events.event([verified(1)], now)
    assert found["text"].startswith("cluster lab: fail, before: pass; 2 nodes failed: n2, n3; n2, n3: no answer xx")
    assert len(found["text"]) == MAX_TEXT and "\n" not in found["text"]
    assert (found["before"], found["hosts"], found["phases"]) == ("pass", ["n2", "n3"], ["reach"])


@given(st.lists(st.tuples(st.sampled_from(STATES), st.sets(st.sampled_from(HOSTS), min_size=1)), max_size=10))
def test_a_receiver_that_follows_the_events_knows_the_state_and_the_failed_nodes(history):
    known, nodes, past = "pass", set(), []
    for number, (state, failed) in enumerate(history):
        now = verified(number, state, sorted(failed))
        found = result_events.event(past, now)
        if found:
            assert found["event"] in result_events.KINDS
            assert (found["state"], set(found["hosts"])) != (known, nodes)
            known, nodes = found["state"], set(found["hosts"])
        assert (known, nodes) == (now["state"], failed if state == "fail" else set())
        past.append(now)


def test_receivers_are_those_of_jobs_with_their_own_kinds():
    fine = [{"file": "/data/events.jsonl", "only": ["verify_fail"]}, {"url": "https://ops.example.org/x"}]
    assert result_events.findings(fine, "") == []
    wrong = [{"file": "x"}, {"url": "https://ops.example.org/x", "only": ["ended"]}]
    of_file, of_kind, of_secret = result_events.findings(wrong, "hunter2")
    assert (of_file.check, "on the controller" in of_file.expected) == ("verify_events, receiver 1", True)
    assert "verify_pass, verify_unknown, verify_fail, verify_nodes" in of_kind.expected
    assert of_secret.check == "verify_events_secret" and "hunter2" not in str(of_secret)


def test_the_report_sends_each_change_once_and_names_a_receiver_that_did_not_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(verify_reporting, "LAST_S", 0.2)
    receivers = [{"file": str(tmp_path / "events.jsonl")}, {"file": "/proc/nowhere/events"}]
    texts = []
    for number, state in enumerate(("pass", "fail", "fail", "pass")):
        checks = [phase("reach", ("addresses", state, ["n2"] if state == "fail" else []))]
        facts = {"cluster": "lab", "inventory": "", "hosts": HOSTS, "started": STARTED + number, "phases": checks}
        made = {**facts, "events": receivers, "events_secret": "s" * 20}
        texts.append(verify_reporting.report(tmp_path / f"verify-{number}", made, check=False)["text"])
    sent = [json.loads(line)["id"] for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert sent == ["verify-1-verify_fail", "verify-3-verify_pass"]
    missed = "\n  events: 1 of 1 did not reach file /proc/nowhere/events: cannot be written: "
    assert [missed in text for text in texts] == [False, True, False, True]
