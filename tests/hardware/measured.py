# SPDX-License-Identifier: Apache-2.0
"""Steps that both kinds of devices have: a benchmark of collectives as a job, the verification of the machine."""

from __future__ import annotations

import json
import re
from typing import Any

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
_ROW = re.compile(r"^\s*(\d+)\s*\|?\s+([\d.]+)\s*\|?\s+([\d.]+)\s*\|?\s+(\w+)\s*\|?\s*$", re.MULTILINE)


def benchmark(machine: Any, record: dict[str, Any], collective: str, **variables: Any) -> None:
    """Run a benchmark inside this node as a job, and hold it against what must be true of any."""
    before = machine.known_runs()
    done = machine.play(
        "playbooks/collective_benchmark.yml", benchmark_collective=collective, benchmark_within="node", **variables
    )
    folder = machine.run_folder(before)
    assert folder is not None and (folder / "benchmark.json").exists(), done.end(20)
    [found] = json.loads((folder / "benchmark.json").read_text())
    assert found["sizes"], found["reason"]
    record[collective] = {
        name: found.get(name) for name in ("state", "reason", "busbw_largest", "expected", "ranks", "path")
    }
    assert found["state"] != "fail", found["reason"]
    # 3: nothing is wrong, and nobody knows how fast it should be.
    assert done.status in (0, 3), done.end(20)


def verify(machine: Any, record: dict[str, Any], phases: list[str], **variables: Any) -> None:
    """Run these phases of verify.yml: nothing may have failed, and what is unknown is recorded."""
    before = machine.known_runs()
    done = machine.play("playbooks/verify.yml", verify_phases=phases, **variables)
    folder = machine.run_folder(before)
    assert folder is not None, done.end(20)
    report = json.loads((folder / "report.json").read_text())
    checks = [check for phase in report["phases"] for check in phase["checks"]]
    record["phases"] = {phase["name"]: phase["state"] for phase in report["phases"]}
    record["unknown"] = [f"{check['name']}: {check['reason']}" for check in checks if check["state"] == "unknown"]
    assert [f"{check['name']}: {check['reason']}" for check in checks if check["state"] == "fail"] == []
    assert [phase["name"] for phase in report["phases"] if phase["name"] in phases] == phases
    assert all(phase["checks"] for phase in report["phases"] if phase["name"] in ("devices", "counters"))
    assert done.status in (0, 3), done.end(20)
    page = (folder / "report.html").read_text()
    assert "<html" in page and "devices" in page


def hccl_rows(output: str) -> list[tuple[str, ...]]:
    """Return the rows of CANN's HCCL test: bytes, time in us, GB/s, and `success`, `failed` or `NULL` (not checked)."""
    return _ROW.findall(output)
