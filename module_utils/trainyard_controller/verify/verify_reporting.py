# SPDX-License-Identifier: Apache-2.0
"""The report of a verification: report.json, report.xml and report.html in the run's folder."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomllib
from ansible import release

from ...trainyard.base.adhoc import without_root
from ...trainyard.base.findings import UnusableError
from ...trainyard.cluster import switches
from ...trainyard.job.record.events import undelivered
from ...trainyard.report.junit import junit
from ...trainyard.verify.report import build, terminal_text
from ...trainyard.verify.result_events import event, settings
from ...trainyard.verify.soak import add, merged
from ...trainyard_node.job.record.event_sender import LAST_S, Delivery, Sender
from ..runs import topologies
from ..runs.pages import verify_page
from ..runs.project import ROOT
from ..runs.run_folder import write_whole
from .report_compare import past_reports

# A soak's record of its repetitions so far, for the report of the next one.
_RECORD = "soak.json"
_NOT_A_RECORD = (
    "A record of the verification is not as verify_report expects it: {kind}: {error}. Expected: checks and phases as "
    "module_utils/trainyard/base/checks.py has them. This is an error of the playbook that called it."
)


def report(run_dir: Path, given: Mapping[str, Any], *, check: bool) -> dict[str, Any]:
    """Write the report, but not with `check`; return the result of the action plugin verify_report.

    `given` are its options other than the run's folder.
    """
    finished = given.get("finished")
    version = str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    same = (given["cluster"], given.get("inventory") or "")
    path, topology = given.get("topology") or "", None
    past = past_reports(run_dir.parent)
    earlier = [each for each in past if (each["cluster"], each.get("inventory")) == same and each["id"] != run_dir.name]
    repetition, phases, soak = int(given.get("repetition") or 0), given["phases"], None
    # A file that was lost meanwhile takes nothing from the rest of the report.
    record: dict[str, Any] = {}
    if repetition > 1:
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((run_dir / _RECORD).read_bytes())
    try:
        with contextlib.suppress(UnusableError):
            topology = switches.topology("file", topologies.given(path), given["hosts"]) if path else None
        if repetition:
            add(record, repetition, phases)
            phases, soak = merged(record)
        made = build(
            report_id=run_dir.name,
            cluster=given["cluster"],
            inventory=given.get("inventory") or "",
            started=float(given["started"]),
            finished=time.time() if finished is None else float(finished),
            hosts=given["hosts"],
            nodes=given.get("nodes") or [],
            phases=phases if given.get("become", True) else without_root(phases),
            not_asked=given.get("not_asked") or [],
            benchmarks=given.get("benchmarks") or [],
            stragglers=given.get("stragglers") or None,
            group_by=given.get("group_by") or "",
            groups=given.get("groups") or {},
            earlier=earlier,
            soak=soak,
            topology=topology,
            versions={"trainyard": version, "ansible": release.__version__, "python": platform.python_version()},
        )
    except (KeyError, TypeError, ValueError) as error:
        return {"failed": True, "msg": _NOT_A_RECORD.format(kind=type(error).__name__, error=error)}
    made["text"] = terminal_text(made, str(run_dir))
    # Nobody reads the file of many nodes by eye, and Python indents ten times slower.
    indent = 1 if len(made["hosts"]) <= 100 else None
    page = verify_page(made)
    for check_made in (each for phase in made["phases"] for each in phase["checks"]):
        # Only the page and the record of a soak need them.
        check_made["data"] = {key: value for key, value in check_made["data"].items() if key not in ("figures", "fall")}
    written = {
        "report.json": json.dumps(made, indent=indent, ensure_ascii=False, allow_nan=False) + "\n",
        "report.xml": junit(made),
        "report.html": page,
    }
    if not check:
        run_dir.mkdir(parents=True, exist_ok=True)
        for name, text in written.items():
            write_whole(run_dir / name, text)
        if repetition:
            write_whole(run_dir / _RECORD, json.dumps(record))
    changed = event(earlier, made) if given.get("events") else None
    if changed and not check:
        made["text"] += "".join(f"\n  {line}" for line in _undelivered(run_dir, given, changed))
    result = {key: made[key] for key in ("state", "exit_code", "text", "first")}
    files = [str(run_dir / name) for name in written]
    return {"changed": not check, **result, "files": files}


def _undelivered(run_dir: Path, given: Mapping[str, Any], event: Mapping[str, Any]) -> list[str]:
    """Send an event to all receivers, for at most LAST_S; return a line for each that did not take it."""
    secret, env = given.get("events_secret") or "", dict(os.environ)
    sender = Sender(settings(given["events"], secret), {}, Delivery(run_dir, secret, env, env, lambda start: start()))
    sender.send([dict(event)])
    sender.finish_by(time.monotonic() + LAST_S)
    while not sender.finished():
        time.sleep(0.05)
    return undelivered(sender.as_list())
