"""Checks as records, and the state that decides among many."""

import json

import pytest
from ansible.module_utils.trainyard.base.checks import PHASES, STATES, Check, outcomes, worst
from hypothesis import given
from hypothesis import strategies as st

TEXT = st.text(max_size=20)
CHECKS = st.builds(
    Check,
    phase=st.sampled_from(PHASES),
    name=TEXT,
    state=st.sampled_from(STATES),
    hosts=st.lists(TEXT, max_size=3).map(tuple),
    found=TEXT,
    reason=TEXT,
    data=st.dictionaries(TEXT, st.integers(), max_size=2),
)


@given(CHECKS)
def test_a_check_survives_the_way_between_modules(check):
    assert Check.from_dict(json.loads(json.dumps(check.as_dict()))) == check


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["pass", "fail", "unknown"], "fail"),
        (["pass", "unknown", "skipped"], "unknown"),
        (["skipped", "pass"], "pass"),
        (["skipped"], "skipped"),
        ([], "skipped"),
    ],
)
def test_the_worst_state_decides_and_skipped_checks_verify_nothing(states, expected):
    assert worst(states) == expected


def test_states_and_phases_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="state 'ok' of kernel, expected one of not_asked, skipped, pass, unknown, f"):
        Check(phase="drift", name="kernel", state="ok")
    with pytest.raises(ValueError, match="phase 'gpu', expected one of software, drift"):
        Check(phase="gpu", name="ecc", state="pass")


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (["pass", "skipped", "skipped"], "1 passed, 2 not applicable"),
        (["skipped", "unknown", "fail", "pass"], "1 passed, 1 failed, 1 unknown, 1 not applicable"),
        ([], ""),
    ],
)
def test_every_outcome_is_counted_by_itself(states, text):
    assert outcomes(states) == text
