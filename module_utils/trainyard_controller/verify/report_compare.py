# SPDX-License-Identifier: Apache-2.0
"""Compare two reports of verifications, given ones or the newest in the folder of runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import UnusableError
from ...trainyard.verify.compare import compare
from ..runs.saved_state import read_report

# Past verifications that tell of repeat offenders, and of the usual bandwidth. A report of 1,000 nodes has up to 8 MiB,
# which take a second to read and check.
MOST_REPORTS, MOST_BYTES = 200, 64 << 20
_WHAT_TO_DO = "run playbooks/verify.yml, or name a report (compare_before, compare_after)"


def compare_reports(
    before: Path | None, after: Path | None, runs: Path | None, tolerance: float, inventory: str = ""
) -> dict[str, Any]:
    """Compare two reports, given by file or folder, by default the newest ones in `runs`. Raises UnusableError.

    With the options of an `inventory`, only reports of that one are chosen.
    """
    if not 0 <= tolerance < 1:
        raise UnusableError(f"tolerance is {tolerance:g}, expected a number from 0 to below 1: 0.05 is 5 %")
    return compare(*_choose(before, after, runs, inventory), tolerance)


def _choose(
    before: Path | None, after: Path | None, runs: Path | None, inventory: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    if runs is None and not (before and after):
        raise UnusableError("runs is not given; expected: it, or both compare_before and compare_after")
    later = _read(after) if after else _newest(runs, lambda report: inventory in ("", report.get("inventory")))
    if later is None:
        of = f" with {inventory}" if inventory else ""
        raise UnusableError(f"{runs} has no report of a verification{of}, verify-*/report.json; {_WHAT_TO_DO}")
    if before:
        return _read(before), later
    # Clusters have the same name by default.
    same = later["cluster"], inventory or later.get("inventory")
    earlier = _newest(
        runs, lambda report: _started(report) < _started(later) and (report["cluster"], report.get("inventory")) == same
    )
    if earlier is None:
        found = f"no report of the cluster {same[0]} with {same[1]} from before {later['id']}"
        raise UnusableError(f"{runs} has {found}; {_WHAT_TO_DO}")
    return earlier, later


def _read(path: Path) -> dict[str, Any]:
    """Read a report, given by file or folder."""
    return read_report(path / "report.json" if path.is_dir() else path)


def _started(report: Mapping[str, Any]) -> float:
    """Return when a verification began."""
    return float(report["started"])


def _newest(runs: Path | None, accepts: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """Return the newest readable report in the folder of runs that `accepts` is true for."""
    paths = runs.glob("verify-*/report.json") if runs else ()
    return max(filter(accepts, _readable(paths)), key=_started, default=None)


def _readable(paths: Iterable[Path], most_bytes: float = math.inf) -> Iterator[dict[str, Any]]:
    """Yield the reports that can be read, until they are larger than `most_bytes` together."""
    for path in paths:
        with contextlib.suppress(UnusableError, OSError):
            most_bytes -= path.stat().st_size
            if most_bytes < 0:
                return
            yield _read(path)


def past_reports(runs: Path) -> Iterator[dict[str, Any]]:
    """Yield the newest readable reports in the folder of runs, by their names."""
    paths = sorted(runs.glob("verify-*/report.json"), reverse=True)[:MOST_REPORTS]
    return _readable(paths, MOST_BYTES)
