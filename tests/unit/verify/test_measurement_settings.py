"""The settings of what measures."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.verify.measurement_settings import RULES, findings, size

WRONG = {
    "benchmark_collective": "gather",
    "benchmark_backend": "foo",
    "benchmark_program": "foo",
    "benchmark_within": "rack",
    "benchmark_nodes": -1,
    "benchmark_min_bytes": "abc",
    "benchmark_max_bytes": "1T",
    "benchmark_factor": 1,
    "benchmark_iterations": 0,
    "benchmark_warmup": -1,
    "benchmark_timeout": 0,
    "benchmark_busbw": -2.0,
    "benchmark_fraction": 5.0,
    "pair_rounds": "many",
    "pair_retests": 4,
    "pair_backend": "mpi",
    "pair_max_bytes": "",
    "pair_timeout": 0,
    "pair_busbw": -1,
    "pair_tolerance": 1,
    "check_framework": "jax",
    "check_launcher": "horovodrun",
    "check_nodes": -1,
    "check_timeout": 0,
    "verify_soak": "2 hours",
}
RIGHT = {
    "benchmark_collective": "alltoall",
    "benchmark_min_bytes": "8",
    "benchmark_max_bytes": "1g",
    "benchmark_factor": 2,
    "benchmark_fraction": 1,
    "benchmark_busbw": 0,
    "pair_rounds": "full",
    "pair_tolerance": 0,
    "check_launcher": "",
    "check_framework": "mpi",
    "benchmark_hosts": "anything",
    "verify_soak": "1d12h",
}


def test_all_wrong_settings_are_found_at_once():
    assert WRONG.keys() == RULES.keys()
    found = findings(WRONG)
    assert [(each.check, each.found) for each in found] == [(name, str(value)) for name, value in WRONG.items()]
    assert all(each.expected and each.action for each in found)


def test_right_settings_have_no_finding():
    assert findings(RIGHT) == [] == findings({})


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ({"benchmark_min_bytes": "1G", "benchmark_max_bytes": "64M"}, "benchmark_min_bytes"),
        ({"verify_soak": "1h", "verify_phases": ["reach", "drift"]}, "verify_soak"),
        ({"verify_soak": "99d"}, "verify_soak"),
        ({"benchmark_within": "node", "benchmark_backend": "mpi"}, "benchmark_within"),
    ],
)
def test_settings_that_do_not_go_together_or_are_too_much(given, check):
    assert [each.check for each in findings(given)] == [check]


def test_sizes():
    sizes = {"8": 8, "4k": 4096, "32M": 32 << 20, "1G": 1 << 30, "0": None, "1.5G": None, "-1": None, None: None}
    assert {text: size(text) for text in sizes} == sizes
