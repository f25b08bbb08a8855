# SPDX-License-Identifier: Apache-2.0
"""Compare two reports of verifications, given ones or the newest in the folder of runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..trainyard.findings.findings import UnusableError
from ..trainyard.verify.compare import compare

_WHAT_TO_DO = "run playbooks/verify.yml, or name a report (compare_before, compare_after)"


def compare_reports(before: Path | None, after: Path | None, runs: Path | None, tolerance: float) -> dict[str, Any]:
    """Compare two reports, given by file or folder, by default the newest ones in `runs`. Raises UnusableError."""
    if not 0 <= tolerance < 1:
        raise UnusableError(f"tolerance is {tolerance:g}, expected a number from 0 to below 1: 0.05 is 5 %")
    try:
        return compare(*_choose(before, after, runs), tolerance)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"A report is not as docs/report.schema.json says: {type(error).__name__}: {error}"
        raise UnusableError(f"{reason}. Expected: report.json as verify.yml of this release wrote it.") from error


def _choose(before: Path | None, after: Path | None, runs: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    if runs is None and not (before and after):
        raise UnusableError("runs is not given; expected: it, or both before and after")
    later = _read(after) if after else _newest(runs, bool)
    if later is None:
        raise UnusableError(f"{runs} has no report of a verification, verify-*/report.json; {_WHAT_TO_DO}")
    if before:
        return _read(before), later
    earlier = _newest(
        runs, lambda report: _started(report) < _started(later) and report.get("cluster") == later.get("cluster")
    )
    if earlier is None:
        found = f"no report of the cluster {later.get('cluster')} from before {later.get('id')}"
        raise UnusableError(f"{runs} has {found}; {_WHAT_TO_DO}")
    return earlier, later


def _read(path: Path) -> dict[str, Any]:
    """Read a report, given by file or folder."""
    path = path / "report.json" if path.is_dir() else path
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(report, dict):
            raise ValueError("not an object")
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{path} is no report of a verification: {error}"
        raise UnusableError(f"{reason}; expected: report.json of verify.yml") from error
    return report


def _started(report: Mapping[str, Any]) -> float:
    """Return when a verification began, 0 if that is unknown."""
    when = report.get("started")
    return when if isinstance(when, (int, float)) else 0.0


def _newest(runs: Path | None, accepts: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Return the newest readable report in the folder of runs that `accepts` is true for."""
    found = []
    for path in sorted(runs.glob("verify-*/report.json")) if runs else ():
        try:
            report = _read(path)
        except UnusableError:
            continue
        if accepts(report):
            found.append(report)
    return max(found, key=_started, default=None)
