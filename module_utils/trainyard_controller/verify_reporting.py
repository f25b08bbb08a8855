# SPDX-License-Identifier: Apache-2.0
"""The report of a verification: report.json, report.xml and report.html in the run's folder."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomllib
from ansible.release import __version__ as ansible_version

from ..trainyard.findings.adhoc import without_root
from ..trainyard.report.junit import junit
from ..trainyard.verify.report import build, terminal_text
from .pages import verify_page
from .project import ROOT

_NOT_A_RECORD = (
    "A record of the verification is not as verify_report expects it: {kind}: {error}. Expected: checks and phases as "
    "module_utils/trainyard/findings/checks.py has them. This is an error of the playbook that called it."
)


def report(run_dir: Path, given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """Write the report, but not with `check`; return the result of the action plugin verify_report.

    `given` are its options other than the run's folder.
    """
    finished = given.get("finished")
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    try:
        made = build(
            report_id=run_dir.name,
            cluster=given["cluster"],
            inventory=given.get("inventory") or "",
            started=float(given["started"]),
            finished=time.time() if finished is None else float(finished),
            hosts=given["hosts"],
            nodes=given.get("nodes") or [],
            phases=given["phases"] if given.get("become", True) else without_root(given["phases"]),
            not_asked=given.get("not_asked") or [],
            benchmarks=given.get("benchmarks") or [],
            stragglers=given.get("stragglers") or None,
            group_by=given.get("group_by") or "",
            groups=given.get("groups") or {},
            versions={"trainyard": version, "ansible": ansible_version, "python": platform.python_version()},
        )
    except (KeyError, TypeError, ValueError) as error:
        return {"failed": True, "msg": _NOT_A_RECORD.format(kind=type(error).__name__, error=error)}
    made["text"] = terminal_text(made, str(run_dir))
    # Nobody reads the file of many nodes by eye, and Python indents ten times slower.
    indent = 1 if len(made["hosts"]) <= 100 else None
    written = {
        "report.json": json.dumps(made, indent=indent, ensure_ascii=False, allow_nan=False) + "\n",
        "report.xml": junit(made),
        "report.html": verify_page(made),
    }
    if not check:
        run_dir.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            (run_dir / name).write_text(text, encoding="utf-8")
    result = {key: made[key] for key in ("state", "exit_code", "text", "first")}
    files = [str(run_dir / name) for name in written]
    return {"changed": not check, **result, "files": files}
