# SPDX-License-Identifier: Apache-2.0
"""report.xml: the checks of a verification in the JUnit format that CI systems read.

A phase is a suite, a check is a test case. An unknown check is an error, not a failure and never a success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from xml.etree import ElementTree

from ..base.findings import host_list

Data = Mapping[str, Any]
_ELEMENT = {"fail": "failure", "unknown": "error", "skipped": "skipped"}


def junit(report: Data) -> str:
    """Write report.xml from report.json."""
    root = ElementTree.Element(
        "testsuites", name=f"trainyard verify {report['cluster']}", time=str(report["elapsed_s"])
    )
    totals = Counter(tests=0, failures=0, errors=0, skipped=0)
    for phase in [*report["phases"], *_result(report)]:
        checks = _checks(phase)
        states = [check["state"] for check in checks]
        fail, unknown, skipped = (states.count(state) for state in ("fail", "unknown", "skipped"))
        numbers = {"tests": len(checks), "failures": fail, "errors": unknown, "skipped": skipped}
        began = datetime.fromtimestamp(phase["started"] or report["started"], timezone.utc)
        suite = ElementTree.SubElement(root, "testsuite", name=f"verify.{phase['name']}")
        suite.attrib.update({name: str(number) for name, number in numbers.items()})
        suite.attrib.update(time=str(phase["elapsed_s"] or 0), timestamp=began.strftime("%Y-%m-%dT%H:%M:%S"))
        for check in checks:
            _case(suite, phase["name"], check)
        totals.update(numbers)
    root.attrib.update({name: str(number) for name, number in totals.items()})
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _checks(phase: Data) -> list[Data]:
    """Return the checks of a phase, and the phase itself where it has none, or is worse than all of them."""
    own = {"name": phase["name"], "state": phase["state"], "reason": phase["reason"]}
    seen = {"pass", "skipped", *(check["state"] for check in phase["checks"])}
    return [*phase["checks"], *([] if phase["checks"] and phase["state"] in seen else [own])]


def _result(report: Data) -> list[Data]:
    """Return a phase for the result where no phase shows it: nothing was checked."""
    if report["state"] in ("pass", *(phase["state"] for phase in report["phases"])):
        return []
    reason = "nothing was checked"
    return [{"name": "result", "checks": [], "state": report["state"], "reason": reason, "started": 0, "elapsed_s": 0}]


def _case(suite: ElementTree.Element, phase: str, check: Data) -> None:
    hosts = check.get("hosts") or []
    name = f"{check['name']} on {host_list(hosts)}" if hosts else check["name"]
    case = ElementTree.SubElement(suite, "testcase", classname=f"verify.{phase}", name=name)
    if check["state"] not in _ELEMENT:
        return
    words = ("found", "expected", "source", "reason", "action", "command")
    message = check.get("reason") or check.get("found") or check["state"]
    element = ElementTree.SubElement(case, _ELEMENT[check["state"]], message=message)
    details = [f"{word}: {check[word]}" for word in words if check.get(word)]
    element.text = "\n".join([*([f"hosts: {', '.join(hosts)}"] if hosts else []), *details])
