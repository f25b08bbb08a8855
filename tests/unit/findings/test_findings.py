# SPDX-License-Identifier: Apache-2.0
"""Findings and warnings; a call that makes a finding or a check can be read without its definition."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.findings.findings import Finding, Warned, faults

PROJECT = Path(__file__).resolve().parents[3]
MADE_BY_NAME = {"Finding", "Warned", "Check", "SelectionError"}


def by_place(text):
    """Lines on which one of these is made with a field that has no name."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args)
    return [call.lineno for call in calls if getattr(call.func, "id", "") in MADE_BY_NAME]


def test_a_field_without_a_name_is_seen():
    assert by_place('Check(phase="drift")\nyield_ = [Finding("n1", found="x")]\n') == [2]


@pytest.mark.parametrize("folder", ["library", "module_utils", "plugins", "tests"])
def test_findings_and_checks_are_made_with_their_fields_by_name(folder):
    files = sorted((PROJECT / folder).rglob("*.py"))
    assert files
    found = {str(path.relative_to(PROJECT)): by_place(path.read_text(encoding="utf-8")) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_a_warning_reads_as_a_finding_and_is_no_fault():
    about = {"host": "n1", "check": "compiler", "found": "none", "expected": "one", "action": "install it"}
    warning, fault = Warned(**about), Finding(**about)
    assert faults([warning, fault, warning.on("n2")]) == [fault]
    assert warning.as_dict() == fault.as_dict()
