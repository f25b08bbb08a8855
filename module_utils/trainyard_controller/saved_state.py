# SPDX-License-Identifier: Apache-2.0
"""Read the files in runs/ that this version or an older one wrote; those of a newer one are findings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..trainyard.findings import state_format
from ..trainyard.findings.findings import Finding, FindingsError
from ..trainyard.findings.state_format import Format
from ..trainyard.job.record import run_record
from ..trainyard_node.machine.json_files import read_json


class NotReadError(FindingsError):
    """A file that cannot be read, with the finding."""

    def __init__(self, path: Path, why: str, form: Format, written_by: str = "") -> None:
        """Take the file, the reason, and the version that wrote it, if known."""
        self.finding: Finding = state_format.finding(str(path), why, form, written_by)
        super().__init__([self.finding], state_format.HEADLINE)


def checked(path: Path, content: Any, form: Format) -> Any:
    """Return the content of a file, which may be damaged. Raises NotReadError where a newer version wrote it."""
    if state_format.is_newer(content, form):
        raise NotReadError(path, state_format.misread(content, form), form)
    return content


def read_object(path: Path, form: Format) -> dict[str, Any]:
    """Return a JSON object, {} without the file or of a damaged one. Raises NotReadError for a newer format."""
    found = checked(path, read_json(path), form)
    return found if isinstance(found, dict) else {}


def read_plan(run_dir: Path) -> dict[str, Any]:
    """Return the plan of a run. Raises NotReadError."""
    path = run_dir / "plan.json"
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotReadError(path, error.strerror or str(error), state_format.PLAN) from error
    except (ValueError, RecursionError) as error:
        raise NotReadError(path, "it is damaged: no JSON", state_format.PLAN) from error
    why = state_format.misread(plan, state_format.PLAN)
    if not why and "job_id" not in plan:
        why = "it is damaged: no job_id"
    if why:
        raise NotReadError(path, why, state_format.PLAN, _written_by(plan))
    found: dict[str, Any] = plan
    return found


def _written_by(plan: Any) -> str:
    launch = plan.get("launch") if isinstance(plan, Mapping) else None
    return str(launch.get("trainyard") or "")[:60] if isinstance(launch, Mapping) else ""


def read_record(run_dir: Path) -> dict[str, Any] | None:
    """Return the record of a run, None without one. Raises NotReadError where a newer version wrote it."""
    path = run_dir / "summary.json"
    return run_record.read(checked(path, read_json(path), state_format.SUMMARY))
