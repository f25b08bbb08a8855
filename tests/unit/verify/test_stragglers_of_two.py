"""Two nodes have one pair: it is checked by what is expected, and otherwise not at all."""

from __future__ import annotations

from ansible.module_utils.trainyard.verify.stragglers import verify


def measured(busbw, number, error=""):
    return {"hosts": ["n1", "n2"], "round": number, "busbw": busbw, "wrong": None if error else 0, "error": error}


def test_one_pair_needs_an_expected_value():
    hosts = ["n1", "n2"]
    records = [measured(10.0, number) for number in (0, 1)]
    alone = verify(hosts, records)
    assert (alone["state"], alone["retest"], alone["suspects"]) == ("skipped", [], [])
    assert alone["reason"] == "one pair has nothing to compare it with"
    assert "pair_busbw" in alone["nodes"][0]["action"]
    assert verify(hosts, records, expected=11.0)["state"] == "pass"
    # However much one pair scatters, it says nothing of either node.
    noisy = [{**record, "busbw": busbw} for record, busbw in zip(records, (10.0, 6.0))]
    assert verify(hosts, noisy)["state"] == "skipped"
    assert verify(hosts, noisy, expected=11.0)["state"] == "pass"
    # A measurement that failed should have been one, and a wrong result is wrong.
    lost = verify(hosts, [records[0], measured(None, 1, "no answer")])
    assert (lost["state"], lost["reason"]) == (
        "unknown", "undecided: n1, n2, 1 of 2 measurements failed: no answer",
    )  # fmt: skip
    assert verify(hosts, [{**record, "wrong": 3} for record in records])["state"] == "fail"
    slow = verify(hosts, records, expected=100.0)
    assert (slow["state"], slow["suspects"]) == ("fail", hosts)
    broken = verify(hosts, [measured(None, 0, "no answer")])
    assert (broken["state"], broken["suspects"]) == ("fail", hosts)
    assert broken["reason"] == "no pair of nodes could be measured: no answer"
