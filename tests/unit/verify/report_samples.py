"""Reports of verifications, from phases and checks or composed as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.module_utils.trainyard.verify import report as verify_report

PROJECT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(PROJECT / "tests" / "fixtures" / "reports"))
from composed import STARTED, check, composed  # noqa: E402


def reported(phases, hosts=("n1", "n2", "n3"), **more):
    arguments = {
        "report_id": "verify-1",
        "cluster": "lab",
        "inventory": "inventories/lab",
        "started": STARTED,
        "finished": STARTED + 65,
        "hosts": list(hosts),
        "nodes": [],
        "phases": phases,
        "benchmarks": [],
        "stragglers": None,
        "versions": {"trainyard": "0.1.0", "ansible": "2.19.14", "python": "3.11.2"},
    }
    return verify_report.build(**{**arguments, **more})


def phase(name, *checks, **more):
    return {
        "name": name,
        "checks": [check(name, *each) if isinstance(each, tuple) else each for each in checks],
        **more,
    }


def finished(nodes, **options):
    report = verify_report.build(**composed(nodes, **options))
    report["text"] = verify_report.terminal_text(report, "runs/verify-1")
    return report
