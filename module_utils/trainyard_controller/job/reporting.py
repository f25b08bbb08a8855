# SPDX-License-Identifier: Apache-2.0
"""The report on a run: summary.json, report.html, and the text that ends a playbook."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.shapes import MAYBE_DURATION, All, Each, Text, misfit
from ...trainyard.base.visible import ESCAPE_SEQUENCE, as_overwritten
from ...trainyard.cluster.unreachable import reason
from ...trainyard.job import schedulers
from ...trainyard.job.plan import sharing_findings, spares
from ...trainyard.job.record import excluded_hosts, run_record
from ...trainyard.job.run import stray_texts
from ...trainyard.job.run.lead import leader
from ...trainyard.job.run.logs import progress, progress_reader
from ...trainyard.job.run.wire.monitor_files import METRICS
from ...trainyard.job.schedulers import ssh
from ...trainyard.nvidia.nccl_lines import read_nccl_lines
from ...trainyard.report.job_text import TAIL_LINES, tell, text_of
from ...trainyard.report.log_end import error_of_log, other_ranks, starter_log, telling, telling_log
from ...trainyard_node.machine.json_files import end_of
from ..runs import excluded_record
from ..runs.inventory_options import inventory_given
from ..runs.locks import locked
from ..runs.outputs import brought
from ..runs.pages import job_page
from ..runs.run_folder import read_removed, write_whole
from ..runs.saved_state import read_plan, read_record

# Bytes of a log that are read for its last lines, and characters of each line that are shown.
TAIL_BYTES, LINE = 1 << 20, 1000
# Bytes of metrics.jsonl that are read, and characters of one line of it.
SERIES_BYTES, POINT = 32 << 20, 16 << 10
_POINT = All((Each(METRICS.value, Text(progress.MAX_NAME), progress.MAX_METRICS + 1), {"?elapsed_s": MAYBE_DURATION}))
# Upper bound for the number of logs that are searched for NCCL's lines.
MAX_NCCL_LOGS = 1024
Answer = Mapping[str, Any]
Series = list[dict[str, float]]


def read_series(path: Path) -> list[dict[str, float]]:
    """Read the end of metrics.jsonl, without incomplete lines."""
    series = []
    for line in end_of(path, SERIES_BYTES).split("\n"):
        if len(line) > POINT:
            continue
        try:
            # Python writes NaN where JSON has null.
            point = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        # The file came from a node. JSON has null for a value that is not a number.
        if not misfit(point, _POINT):
            series.append({name: math.nan if value is None else value for name, value in point.items()})
    return series


def last_lines(path: Path, failed: bool = True) -> list[str]:
    """Return the last lines of a log, long ones shortened; if it `failed`, the lines that explain the failure."""
    lines = telling(end_of(path, TAIL_BYTES).rstrip("\n").split("\n"), TAIL_LINES, failed)
    shown = [as_overwritten(ESCAPE_SEQUENCE.sub("", line)) for line in lines]
    return [line if len(line) <= LINE else f"... {line[-LINE:]}" for line in shown] if lines != [""] else []


def nccl_networks(logs: Path) -> dict[str, Any] | None:
    """Return NCCL's lines about its networks: from the logs that nodes sent for this, otherwise from all logs."""
    sent = sorted(logs.glob("nccl_*.log")) or sorted(logs.glob("*.log"))
    lines: list[str] = []
    for path in sent[:MAX_NCCL_LOGS]:
        with path.open("rb") as log:
            lines += [line[:LINE] for line in log.read(TAIL_BYTES).decode("utf-8", "replace").splitlines()]
    return read_nccl_lines(lines).as_dict()


@dataclass(frozen=True)
class Reported:
    """The report on a run: its record, the nodes on which something is left, and the text."""

    summary: dict[str, Any]
    left: list[str]
    text: str
    changed: bool


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
    notes: Sequence[str] = (),
) -> Reported:
    """Write summary.json and report.html of a run, and return the text about it.

    `answers` are the hosts' answers to the collection of logs, `not_started` those of hosts that could not start their
    ranks. If a scheduler runs the job, `job_state` is its answer (JobState), and `answers` are empty. A final record is
    not written again. `reload_s` is the interval at which the browser reloads the page of a running job.
    `excluded_file` gets the hosts that the job excluded; `notes` are lines about the files that were brought home.
    """
    plan = read_plan(run_dir)
    # A report that began before the end of the job must not overwrite a later one.
    with locked(run_dir / "plan.json"):
        reported = _report(plan, run_dir, answers, not_started, by_stop, check, job_state, reload_s, notes)
        if excluded_file is not None and reported.changed:
            _record_excluded(plan, answers, excluded_file)
        return reported


def _record_excluded(plan: dict[str, Any], answers: Mapping[str, Answer], excluded_file: Path) -> None:
    """Record the hosts that the job's head excluded; other nodes have no say in it. Raises NotWrittenError."""
    cluster = leader.find(plan, answers).cluster
    found = (cluster.get("restarts") or {}).get("excluded") or {}
    if found:
        job_id, devices, now = plan["job_id"], spares.devices(plan), time.time()
        excluded_record.change(excluded_file, lambda record: excluded_hosts.add(record, found, job_id, devices, now))


def _report(
    plan: dict[str, Any],
    run_dir: Path,
    answers: Mapping[str, Answer],
    not_started: Mapping[str, Answer],
    by_stop: bool,
    check: bool,
    job_state: Mapping[str, Any] | None,
    reload_s: float,
    about_outputs: Sequence[str],
) -> Reported:
    series = read_series(run_dir / "metrics.jsonl")
    previous = read_record(run_dir)
    removed = read_removed(run_dir)
    notes = [*stray_texts.texts(answers), *run_record.removed_text(removed, spares.all_hosts(plan))]
    if job_state is None:
        answer = _answer_over_ssh(plan, answers, not_started, by_stop)
        if leader.phase(plan, answers) == leader.ELECTION:
            last = leader.find(plan, answers).host or plan["head"]["host"]
            notes.append(leader.election_text(plan, last, answers))
    else:
        answer = _answer_of_scheduler(plan, dict(job_state), series, notes)
    answer["nccl"] = nccl_networks(run_dir / "logs")
    summary = run_record.settle(previous, answer)
    final = run_record.is_final(previous)
    shown = run_record.with_nodes(summary, answer) if previous and previous["state"] in run_record.FINAL else summary
    log, tail = _tail(run_dir, shown)
    page = run_dir / "report.html"
    write = not check and not (final and page.exists())
    job_dir = "" if removed else plan["job_dir"]
    folders = "\n".join(sharing_findings.lines(plan.get("folders", ())))
    launch = {**(plan.get("launch") or {}), **({"folders": folders} if folders else {})}
    story = tell(shown, str(run_dir), job_dir, tail, notes, log, inventory_given(), launch)
    story = replace(story, outputs=about_outputs)
    if write:
        write_whole(page, job_page(summary, series, story, launch, reload_s, brought(run_dir)))
        # The record comes last: where it exists, the rest does, too.
        if not final:
            record = state_format.stamped(summary, state_format.SUMMARY)
            write_whole(run_dir / "summary.json", json.dumps(record, indent=2, allow_nan=False) + "\n")
    left = [node["host"] for node in shown["nodes"] if node["state"] != "ended"]
    return Reported(shown, left, text_of(shown, story, str(run_dir), job_dir), write)


def _answer_over_ssh(
    plan: dict[str, Any], answers: Mapping[str, Answer], not_started: Mapping[str, Answer], by_stop: bool
) -> dict[str, Any]:
    """Summarize the answers of the nodes."""
    answering = {host: answer for host, answer in answers.items() if "known" in answer}
    silent = {host: reason(answer) for host, answer in answers.items() if host not in answering}
    failed = {host: reason(answer) for host, answer in not_started.items()}
    return schedulers.summarize(plan, ssh.state(plan, answering, silent, failed, by_stop))


def _answer_of_scheduler(
    plan: dict[str, Any], state: dict[str, Any], series: Series, notes: list[str]
) -> dict[str, Any]:
    """Summarize the scheduler's answer, with the metrics in the logs of its ranks; add to `notes`."""
    if "state" not in state:
        notes.append(f"{plan['engine']['kind']} could not be asked: {reason(state) or 'no answer'}")
        state = {"state": "lost"}
    answer = schedulers.summarize(plan, state)
    answer["loss_not_a_number"] = progress.followed(series)
    last = {name: value for name, value in progress_reader.merged(series).items() if name != "elapsed_s"}
    answer["metrics"] = answer["metrics"] or progress.strict(last)
    return answer


def _tail(run_dir: Path, summary: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """Return the log that explains the end of a job, and its last lines."""
    log = telling_log(summary)
    tail = last_lines(run_dir / "logs" / log, summary["state"] == "failed") if log else []
    for rank in other_ranks(summary, tail) if summary["state"] == "failed" else ():
        other = str(summary["rank_log"]).replace("{rank}", str(rank))
        lines = last_lines(run_dir / "logs" / other, True)
        if error_of_log(lines, True):
            return other, lines
    if not tail and starter_log(summary):
        # No rank printed anything.
        log = starter_log(summary)
        tail = last_lines(run_dir / "logs" / log, True)
    return log, tail[-3:] if summary["state"] in ("succeeded", "running") else tail
