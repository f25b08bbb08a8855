# SPDX-License-Identifier: Apache-2.0
"""Findings, warnings, and the result of a task that findings stop."""

from ansible.module_utils.trainyard.base.findings import Finding, FindingsError, Warned, failure, faults

FINDING = Finding("compiler", "none", "one", "install it", host="n1")


def test_a_warning_reads_as_a_finding_and_is_no_fault():
    warning = Warned(**FINDING.as_dict())
    assert faults([warning, FINDING, warning.on("n2")]) == [FINDING]
    assert warning.as_dict() == FINDING.as_dict()


def test_a_failure_has_its_text_and_its_records():
    result = failure([FINDING], "{count} {findings}:")
    assert result["failed"] and result["msg"].startswith("1 finding:\n\n  1. compiler on n1\n")
    assert result["findings"] == [FINDING.as_dict()]
    assert FindingsError([FINDING], "{count} {findings}:").failure == result
