# SPDX-License-Identifier: Apache-2.0
"""The report on a run: summary.json, report.html, and the text that ends a playbook."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..trainyard.cluster.unreachable import reason
from ..trainyard.findings.visible import as_overwritten
from ..trainyard.job import schedulers
from ..trainyard.job.plan import spares
from ..trainyard.job.record import excluded_hosts, run_record
from ..trainyard.job.run import progress
from ..trainyard.job.run import strays as not_ended
from ..trainyard.job.run.answers import METRICS
from ..trainyard.job.run.progress import strict
from ..trainyard.job.run.shapes import Each, Text, misfit
from ..trainyard.job.schedulers import ssh
from ..trainyard.nvidia.nccl_lines import read_nccl_lines
from ..trainyard.report.job_text import TAIL_LINES, explain, starter_log, telling_log
from ..trainyard.report.log_end import telling
from ..trainyard_node.machine.json_files import read_json
from ..trainyard_node.machine.regex_limit import TooLongError, cpu_at_most
from . import excluded_hosts as excluded_record
from .inventory_options import inventory_given
from .pages import job_page
from .plotly_js import MISSING, plotly_js
from .run_folder import read_removed, write_whole

# Of a log so much is read for its last lines, and so much of each shown, in bytes and characters.
TAIL_BYTES, LINE = 1 << 20, 1000
# The same of metrics.jsonl, and of one line of it.
SERIES_BYTES, POINT = 32 << 20, 16 << 10
_POINT = Each(METRICS.value, Text(progress.MOST_NAME), progress.MOST_METRICS + 1)
# So many logs are searched for NCCL's lines.
MOST_NCCL_LOGS = 1024
# What it may take to read progress out of a log, in seconds of CPU.
PARSE_S = 20.0
Answer = Mapping[str, Any]


def read_series(path: Path) -> list[dict[str, float]]:
    """Read the end of metrics.jsonl; a first or last line that is cut off is left out."""
    series = []
    for line in _end_of(path, SERIES_BYTES).split("\n"):
        if len(line) > POINT:
            continue
        try:
            # An older version wrote NaN where JSON has null.
            point = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        # The file came from a node. JSON has null for a value that is not a number.
        if not misfit(point, _POINT):
            series.append({name: math.nan if value is None else value for name, value in point.items()})
    return series


def _end_of(path: Path, most: int) -> str:
    """Return the last bytes of a file; "" where there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        return file.read(most).decode("utf-8", "replace")


def last_lines(path: Path, failed: bool = True) -> list[str]:
    """Return the last lines of a log, of each its last part; those that tell of a failure where there was one."""
    lines = telling(_end_of(path, TAIL_BYTES).rstrip("\n").split("\n"), TAIL_LINES, failed)
    shown = [as_overwritten(line) for line in lines]
    return [line if len(line) <= LINE else f"... {line[-LINE:]}" for line in shown] if lines != [""] else []


def said_by_nccl(logs: Path) -> dict[str, Any] | None:
    """Return what NCCL said of its networks: in what nodes have sent of it, else in the logs as they were brought."""
    sent = sorted(logs.glob("nccl_*.log")) or sorted(logs.glob("*.log"))
    lines: list[str] = []
    for path in sent[:MOST_NCCL_LOGS]:
        with path.open("rb") as log:
            lines += [line[:LINE] for line in log.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()]
    return read_nccl_lines(lines).as_dict()


@contextlib.contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Wait for others that report on this run: one that asked before the end must not write after it."""
    with (run_dir / "plan.json").open() as plan:
        fcntl.flock(plan, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Reported:
    """What was told of a run: its record, the nodes on which something is left, the text, and what goes with it."""

    summary: dict[str, Any]
    left: list[str]
    text: str
    changed: bool
    warning: str = ""


def report(
    run_dir: Path,
    answers: Mapping[str, Answer],
    not_started: Mapping[str, Answer],
    *,
    by_stop: bool = False,
    check: bool = False,
    job_state: Mapping[str, Any] | None = None,
    reload_s: float = 0.0,
    excluded_file: Path | None = None,
) -> Reported:
    """Write summary.json and report.html of a run, and say what there is to say of it.

    `answers` are what its hosts said when the logs were collected, `not_started` what those said that could not start
    their part. Where a scheduler runs the job, `job_state` is what that says (JobState), and `answers` are empty.
    A record that says how the job ended is not written again. With `reload_s` the page of a job that runs is reloaded
    by its browser that often: somebody writes it anew. `excluded_file` gets the hosts that the job excluded.
    """
    with alone(run_dir):
        told = _report(run_dir, answers, not_started, by_stop, check, job_state, reload_s)
        if excluded_file is not None and told.changed:
            _record_excluded(run_dir, answers, excluded_file)
        return told


def _record_excluded(run_dir: Path, answers: Mapping[str, Answer], excluded_file: Path) -> None:
    """Record the hosts that the job's head excluded; other nodes have no say in it. Raises NotWrittenError."""
    plan: dict[str, Any] = json.loads((run_dir / "plan.json").read_text())
    cluster = (answers.get(plan["head"]["host"]) or {}).get("cluster") or {}
    found = (cluster.get("restarts") or {}).get("refused") or {}
    if found:
        job_id, devices, now = plan["job_id"], spares.devices(plan), time.time()
        excluded_record.change(excluded_file, lambda record: excluded_hosts.add(record, found, job_id, devices, now))


def _report(
    run_dir: Path,
    answers: Mapping[str, Answer],
    not_started: Mapping[str, Answer],
    by_stop: bool,
    check: bool,
    job_state: Mapping[str, Any] | None,
    reload_s: float,
) -> Reported:
    plan: dict[str, Any] = json.loads((run_dir / "plan.json").read_text())
    series = read_series(run_dir / "metrics.jsonl")
    known = run_record.read(read_json(run_dir / "summary.json"))
    removed = read_removed(run_dir)
    notes = [*not_ended.texts(answers), *run_record.removed_text(removed, spares.hosts(plan))]
    if job_state is None:
        known_of = {host: answer for host, answer in answers.items() if "known" in answer}
        silent = {host: reason(answer) for host, answer in answers.items() if host not in known_of}
        failed = {host: reason(answer) for host, answer in not_started.items()}
        answer = schedulers.summarize(plan, ssh.state(plan, known_of, silent, failed, by_stop))
    else:
        state = dict(job_state)
        if "state" not in state:
            notes.append(f"{plan['engine']['kind']} could not be asked: {reason(state) or 'no answer'}")
            state = {"state": "lost"}
        answer = schedulers.summarize(plan, state)
        # The scheduler's nodes have no monitor that notes progress: it is read from what was brought.
        found = series
        log_of_rank_0 = run_dir / "logs" / str(plan["rank_log"]).replace("{rank}", "0")
        if log_of_rank_0.exists():
            try:
                with cpu_at_most(PARSE_S):
                    found = progress.read_lines(log_of_rank_0.read_text(errors="replace"), plan["progress_pattern"])
            except TooLongError:
                notes.append(f"job_progress_pattern took {PARSE_S:g} s for the log of rank 0: progress is not read")
            series = list(progress.rising(found))
        answer["loss_not_a_number"] = progress.followed(found)
        answer["metrics"] = answer["metrics"] or strict(found[-1] if found else {})
    answer["nccl"] = said_by_nccl(run_dir / "logs")
    summary = run_record.settle(known, answer)
    written = run_record.is_final(known)
    told = run_record.with_nodes(summary, answer) if known and known["state"] in run_record.FINAL else summary
    log = telling_log(told)
    tail = last_lines(run_dir / "logs" / log, told["state"] == "failed") if log else []
    if not tail and starter_log(told):
        # No rank came as far as to print anything.
        log = starter_log(told)
        tail = last_lines(run_dir / "logs" / log, True)
    if told["state"] in ("succeeded", "running"):
        tail = tail[-3:]
    # What was removed is no longer where it was.
    job_dir = "" if removed else plan["job_dir"]
    page = run_dir / "report.html"
    warning = ""
    new = not check and not (written and page.exists())
    text = explain(told, str(run_dir), job_dir, tail, notes, log, inventory_given())
    if new:
        library = plotly_js()
        warning = "" if library else MISSING
        write_whole(page, job_page(summary, series, text, library, reload_s))
        # The record comes last: who finds it finds the rest.
        if not written:
            write_whole(run_dir / "summary.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    left = [node["host"] for node in told["nodes"] if node["state"] != "ended"]
    return Reported(told, left, text, new, warning)
