"""Reports of verifications, from phases and checks or composed."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.module_utils.trainyard.verify import report as verify_report

PROJECT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(PROJECT / "tests" / "fixtures" / "reports"))
from composed import HOSTILE, STARTED, check, composed  # noqa: E402

__all__ = ["HOSTILE", "STARTED", "check", "composed", "finished", "phase", "reported"]


def reported(phases, hosts=("n1", "n2", "n3"), **more):
    arguments = {
        "report_id": "verify-1",
        "cluster": "lab",
        "inventory": "inventories/lab",
        "hosts": list(hosts),
        "nodes": [],
        "started": STARTED,
        "finished": STARTED + 65,
        "phases": phases,
        "benchmarks": [],
        "stragglers": None,
        "versions": {"trainyard": "0.1.0", "ansible": "2.19.14", "python": "3.11.2"},
    }
    return verify_report.build(**{**arguments, **more})


def phase(name, *checks, **more):
    records = [check(name, *each) if isinstance(each, tuple) else each for each in checks]
    return {"name": name, "checks": records, **more}


def finished(nodes, **options):
    report = verify_report.build(**composed(nodes, **options))
    report["text"] = verify_report.terminal_text(report, "runs/verify-1")
    return report
