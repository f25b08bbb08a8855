# SPDX-License-Identifier: Apache-2.0
"""Read the files in runs/ of this version and older ones; damaged ones, and those of newer versions, are findings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, FindingsError, UnusableError
from ...trainyard.base.shapes import Shape
from ...trainyard.base.state_format import DamagedError, Format
from ...trainyard.job.drill import drill_result
from ...trainyard.job.record import run_record
from ...trainyard.job.schedulers import plan_shape
from ...trainyard.verify.report import unreadable
from ...trainyard_node.machine.json_files import MAX_BYTES, open_regular


class NotReadError(FindingsError):
    """A file that cannot be read, with the finding."""

    def __init__(self, path: Path, why: str, form: Format, written_by: str = "") -> None:
        """Take the file, the reason, and the version that wrote it, if known."""
        self.finding: Finding = state_format.finding(str(path), why, form, written_by)
        super().__init__([self.finding], state_format.HEADLINE)

    @property
    def damaged(self) -> bool:
        """Whether the file is damaged, and not of a newer version."""
        return self.finding.check == state_format.DAMAGED


def loads(path: Path, form: Format) -> Any:
    """Return the JSON of a file, None without one. Raises NotReadError."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DamagedError(f"more than {MAX_BYTES >> 20} MiB")
        return state_format.loads(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotReadError(path, error.strerror or str(error), form) from error
    except DamagedError as error:
        raise NotReadError(path, str(error), form) from error


def read(path: Path, form: Format, shape: Shape) -> dict[str, Any] | None:
    """Return the content of a file, None without one. Raises NotReadError where it is damaged, or a newer version's."""
    found = loads(path, form)
    if found is None and not path.exists():
        return None
    if why := state_format.misread(found, form, shape):
        raise NotReadError(path, why, form, _written_by(found))
    checked: dict[str, Any] = found
    return checked


def read_plan(run_dir: Path, shape: Shape = plan_shape.PLAN) -> dict[str, Any]:
    """Return the plan of a run. Raises NotReadError."""
    path = run_dir / "plan.json"
    found = read(path, state_format.PLAN, shape)
    if found is None:
        raise NotReadError(path, "there is no such file", state_format.PLAN)
    return found


def read_report(path: Path) -> dict[str, Any]:
    """Return the report of a verification. Raises NotReadError."""
    found = loads(path, state_format.REPORT)
    if found is None and not path.exists():
        raise UnusableError(f"{path} is no report of a verification: there is no such file. Name one of verify.yml.")
    if why := unreadable(found):
        raise NotReadError(path, why, state_format.REPORT)
    report: dict[str, Any] = found
    return report


def _written_by(plan: Any) -> str:
    launch = plan.get("launch") if isinstance(plan, Mapping) else None
    return str(launch.get("trainyard") or "")[:60] if isinstance(launch, Mapping) else ""


def read_record(run_dir: Path) -> dict[str, Any] | None:
    """Return the record of a run, None without one. Raises NotReadError."""
    return read(run_dir / "summary.json", state_format.SUMMARY, run_record.SHAPE)


def read_drill(run_dir: Path) -> dict[str, Any] | None:
    """Return the result of the drill whose undisturbed run this is, None for others. Raises NotReadError."""
    return read(run_dir / "drill.json", state_format.DRILL, drill_result.SHAPE)
