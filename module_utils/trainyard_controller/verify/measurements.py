# SPDX-License-Identifier: Apache-2.0
"""Read the plans, records and logs of measurements; the rules that check them are in trainyard/verify/."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding, UnusableError
from ...trainyard.nvidia.nccl_tests_output import parse
from ...trainyard.report.job_text import cause
from ...trainyard.verify import benchmark, collectives, compute, pair_groups, pair_report, pairing
from ...trainyard.verify.bandwidth import BASELINE_SCHEMA, BaselineError, add_baseline, read_baselines
from ...trainyard.verify.past_reports import usual
from ...trainyard.verify.straggler_limits import Limits
from ..nodes import cached_facts
from ..runs.saved_state import read_plan, read_record
from .report_compare import past_reports

Data = Mapping[str, Any]

# Bytes that are read of the logs of ranks other than 0, whose log has the table: their errors and NCCL's lines.
_MAX_BYTES = 64 * 1024
# In the place of a file of baselines: what is usual in the reports of past verifications.
FLEET = "fleet"


class Run:
    """A run that has ended: its `plan`, its `summary`, and the logs of its ranks."""

    def __init__(self, folder: Path) -> None:
        """Read the records. Raises UnusableError."""
        self._folder = folder
        for name in ("plan.json", "summary.json"):
            if not (folder / name).exists():
                raise UnusableError(f"{folder} is not the folder of a run that has ended: it has no {name}")
        self.plan: dict[str, Any] = read_plan(folder)
        self.summary: dict[str, Any] = read_record(folder) or {}

    def log(self, rank: int, most: int = -1) -> str:
        """Return the log of a rank, up to `most` bytes; "" without one."""
        path: Path = self._folder / "logs" / self.plan["rank_log"].replace("{rank}", str(rank))
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", errors="replace")

    @property
    def failure(self) -> str:
        """The reason why the job did not succeed, or ""."""
        if self.summary["state"] == "succeeded":
            return ""
        why = cause(self.summary, self.plan["job_dir"]) if self.summary.get("failure") else []
        return f"the job {self.summary['state']}{': ' + '; '.join(why) if why else ''}"


@contextlib.contextmanager
def ended_run(folder: Path) -> Iterator[Run]:
    """Yield a run that has ended. Raises UnusableError for another folder."""
    run = Run(folder)
    try:
        yield run
    except (OSError, ValueError, KeyError) as error:
        raise UnusableError(f"{folder} is not the folder of a run that has ended: {error}") from error


def check_collective(folder: Path, name: str, command: str) -> dict[str, Any]:
    """Check the output of all_gather.py: `findings`, `check`, `cores` (a check or none), and the sizes of the job."""
    with ended_run(folder) as run:
        hosts = {rank: node["host"] for node in run.plan["nodes"] for rank in node["ranks"]}
        failed_on = (run.summary.get("failure") or {}).get("host") or ""
        logs = {rank: run.log(rank) for rank in hosts}
        findings = collectives.verify(hosts, logs, run.summary["state"], run.failure, failed_on)
        check = collectives.check(name, findings, len(hosts), command, run.failure, failed_on)
        nodes = run.plan["nodes"]
        planned = {rank: cores for node in nodes for rank, cores in zip(node["ranks"], node.get("cores", ()))}
        # Where the job has failed, its ranks may have said nothing.
        binding = [] if run.failure else collectives.binding(name, hosts, planned, logs, command)
        for each in binding:
            if each.state == "fail":
                findings.append(Finding("cores", each.reason, each.expected, each.action, ", ".join(each.hosts)))
        return {
            "ranks": len(hosts),
            "nodes": len(nodes),
            "findings": [finding.as_dict() for finding in findings],
            "check": check.as_dict(),
            "cores": [each.as_dict() for each in binding],
        }


def refuse_collective(findings: Sequence[Data], name: str, command: str) -> dict[str, Any]:
    """Return the same for a job that was not started."""
    check = collectives.refused(name, [Finding.from_dict(finding) for finding in findings], command)
    return {"ranks": 0, "nodes": 0, "findings": list(findings), "check": check.as_dict(), "cores": []}


def check_devices(folder: Path, refused: Sequence[Data], command: str) -> dict[str, Any]:
    """Check the output of device.py: `checks` of every device. `refused` are findings that prevented the run."""
    if refused:
        check = collectives.refused("devices", [Finding.from_dict(each) for each in refused], command, "compute")
        return {"checks": [check.as_dict()]}
    with ended_run(folder) as run:
        devices = [
            (node["host"], number, compute.read(run.log(rank, _MAX_BYTES)))
            for node in run.plan["nodes"]
            for number, rank in enumerate(node["ranks"])
        ]
        checks = compute.verify(devices, run.failure, command)
        return {"checks": [check.as_dict() for check in checks]}


def verify_pairs(
    hosts: Sequence[str],
    folder: Path | None,
    schedule: Sequence[Sequence[Sequence[str]]],
    measured: Sequence[dict[str, Any]],
    *,
    refused: Sequence[Data] = (),
    expected: float | None = None,
    tolerance: float | None = None,
    inventory: str = "",
) -> dict[str, Any]:
    """Check nodes by the measurements of pairs, earlier ones and this run's: `stragglers`, `measurements`, `text`.

    `expected` is in GB/s, `tolerance` the fraction of the healthy bandwidth that a node may lack.
    """
    limits = Limits()
    if tolerance is not None:
        if not 0 < tolerance < 1:
            raise UnusableError(f"tolerance is {tolerance:g}, expected a number above 0 and below 1")
        limits = dataclasses.replace(limits, tolerance=tolerance, most_tolerance=max(limits.most_tolerance, tolerance))
    measurements = list(measured)
    if folder:
        first = 1 + max((record["round"] for record in measurements), default=-1)
        with ended_run(folder) as run:
            measurements += _measurements(run, schedule, first)
    topology = pair_groups.topology(hosts, measurements)
    comparable = pair_groups.with_usual(topology, measurements)
    found = pair_report.verify(hosts, comparable, expected=expected, limits=limits, inventory=inventory)
    if refused:
        found = pair_report.refusal(found, [Finding.from_dict(finding) for finding in refused])
    found["topology"] = topology
    return {"stragglers": found, "measurements": measurements, "text": pair_report.describe(found)}


def _measurements(run: Run, schedule: Sequence[Sequence[Sequence[str]]], first: int) -> list[dict[str, Any]]:
    failure = run.summary.get("failure") or {}
    failed = {}
    if run.summary["state"] != "succeeded" and failure.get("host"):
        failed[failure["host"]] = (cause(run.summary, run.plan["job_dir"]) or [run.summary["state"]])[0]
    logs = (run.log(rank) for rank in range(run.plan["world_size"]))
    return pair_report.complete(schedule, pair_report.read(logs), failed, first)


def prepare_pairs(
    hosts: Sequence[str], rounds: str, schedule: Sequence[Sequence[Any]], source: Path
) -> tuple[list[list[list[str]]], str]:
    """Return the rounds, and a new folder with the program and the rounds, or "" without rounds."""
    try:
        chosen = pairing.choose(hosts, rounds, schedule)
    except ValueError as error:
        raise UnusableError(str(error)) from error
    if not chosen:
        return [], ""
    folder = Path(tempfile.mkdtemp(prefix="trainyard-pairs-"))
    copy = shutil.copytree(source, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "schedule.json").write_text(json.dumps({"hosts": list(hosts), "rounds": chosen}) + "\n")
    return chosen, str(copy)


def _baseline_problem(baseline: str, save: bool) -> tuple[str, str, str] | None:
    """Return found, expected and action for a file of baselines that cannot be read, or with `save` not written."""
    path = Path(baseline)
    folder = path.absolute().parent
    if not baseline:
        found = "a baseline is to be saved, and no file is named"
        action = "add -e verify_baseline=FILE (collective_benchmark.yml: benchmark_baseline)"
        return found, "the file that keeps this site's own values", action
    if baseline == FLEET:
        expected, action = "a file to save it in", "leave out verify_save_baseline (benchmark_save_baseline)"
        return ("a baseline is to be saved in the history of the fleet", expected, action) if save else None
    if save and not folder.is_dir():
        expected = "a folder in which the file can be written"
        return f"there is no folder {folder} for {path}", expected, "make the folder, or name another file"
    if not save and not path.exists():
        action = "name the file that has them, or let this cluster write it: -e verify_save_baseline=true"
        action += " (collective_benchmark.yml: benchmark_save_baseline)"
        return f"there is no file {path}", "this site's own values, as an earlier verification saved them", action
    try:
        Baselines(path)
    except UnusableError as error:
        expected = f"JSON with the schema {BASELINE_SCHEMA}, as verify_save_baseline=true writes it"
        return str(error), expected, "correct it, or name another file"
    return None


def benchmarks(given: Data, *, check: bool) -> dict[str, Any]:
    """Check a benchmark as the options of the action plugin collective_benchmark require.

    Without a benchmark only the file of baselines is checked: `findings`.
    """
    measured = given["refused"] or given["run_dir"] or given["parse"]
    names_baseline = given["baseline"] or given["save_baseline"]
    problem = _baseline_problem(given["baseline"] or "", given["save_baseline"]) if names_baseline else None
    if names_baseline and not measured:
        return {"findings": [Finding("baseline", *problem).as_dict()] if problem else []}
    if problem:
        found, expected, action = problem
        raise UnusableError(f"{found}; expected {expected}. {action}")
    for name, most, expected in (
        ("expected_busbw", float("inf"), "GB/s above 0"),
        ("fraction", 1.0, "a number above 0, at most 1"),
    ):
        if given[name] is not None and not 0 < given[name] <= most:
            raise UnusableError(f"{name} is {given[name]:g}, expected {expected}")
    fleet = given["baseline"] == FLEET
    baselines = Baselines(Path(given["baseline"]) if given["baseline"] and not fleet else None)
    if fleet and given["runs"]:
        baselines.entries = usual(past_reports(Path(given["runs"])))
    request = benchmark.Request(
        job_id=given["job_id"],
        collective=given["collective"],
        backend=given["backend"],
        ranks=given["expected_ranks"],
        hosts=given["expected_hosts"] or [],
        exact_hosts=bool(given["expected_hosts"]),
        nodes=given["nodes"],
        busbw=given["expected_busbw"],
        fraction=given["fraction"],
        baselines=baselines.entries,
        # A history that is still too short makes no measurement unknown.
        compare=bool(given["baseline"]) and not fleet and not given["save_baseline"],
        traffic=_traffic(given["traffic_before"], given["traffic_after"]),
    )
    if given["refused"]:
        findings = [Finding.from_dict(finding) for finding in given["refused"]]
        records = [benchmark.refused(findings, given["collective"])]
    elif given["run_dir"]:
        facts = Path(given["facts"]) if given["facts"] else None
        records = _verify_run(Path(given["run_dir"]), request, each_node=given["each_node"], facts=facts)
    elif given["parse"]:
        records = verify_file(Path(given["parse"]), request)
    else:
        raise UnusableError("neither parse nor run_dir is given, expected a file or the folder of a run")
    text = list(map(benchmark.describe, records))
    saved: dict[str, Any] = {}
    if given["save_baseline"]:
        saved, lines = baselines.save(records, request, check=check)
        text += lines
    return {**saved, "benchmarks": records, "text": "\n".join(text)}


def verify_file(path: Path, request: benchmark.Request) -> list[dict[str, Any]]:
    """Return the record of the benchmark whose output a file holds. Raises UnusableError."""
    try:
        return [benchmark.verify(parse(path.read_text(encoding="utf-8", errors="replace")), request)]
    except OSError as error:
        raise UnusableError(f"{path} is not a file that can be read: {error}") from error


def _verify_run(
    folder: Path, request: benchmark.Request, *, each_node: bool, facts: Path | None
) -> list[dict[str, Any]]:
    """Return the record of a run's benchmark, or with `each_node` one for each node. Raises UnusableError.

    Plan and record complete `request`; `facts` is the file with the facts of the nodes.
    """
    with ended_run(folder) as run:
        plan = run.plan
        if facts:
            request.nodes = benchmark.nodes_of(plan, cached_facts.nodes_in(facts))
        request.job_id, request.job_failure = plan["job_id"], run.failure
        request.ranks = plan["world_size"] if request.ranks is None else request.ranks
        request.hosts = request.hosts or [node["host"] for node in plan["nodes"]]
        if each_node:
            return [_verify_node(run, node, request) for node in plan["nodes"]]
        outputs = [parse(run.log(rank, _MAX_BYTES if rank else -1)) for rank in range(plan["world_size"])]
        return [benchmark.verify(benchmark.merge(outputs), request)]


def _verify_node(run: Run, node: Data, request: benchmark.Request) -> dict[str, Any]:
    """Return the record of one node that worked by itself; ports carry nothing inside a node."""
    host = node["host"]
    own = [facts for facts in request.nodes if facts["host"] == host]
    alone = dataclasses.replace(request, ranks=len(node["ranks"]), hosts=[host], nodes=own, traffic={})
    record = benchmark.verify(parse(run.log(node["ranks"][0])), alone)
    # A log without a table does not name its host.
    return {**record, "hosts": record["hosts"] or [host]}


def _traffic(before: Iterable[Data], after: Iterable[Data]) -> dict[str, tuple[Any, Any]]:
    """Join the two readings of each host that has both."""
    first = {reading["host"]: reading["ports"] for reading in before}
    return {
        reading["host"]: (first[reading["host"]], reading["ports"]) for reading in after if reading["host"] in first
    }


class Baselines:
    """The file with the baselines of a site, which may be missing."""

    def __init__(self, path: Path | None) -> None:
        """Read it. Raises UnusableError."""
        self._path = path
        try:
            self._text = path.read_text() if path and path.exists() else ""
            self.entries = read_baselines(self._text)
        except (OSError, UnicodeDecodeError, BaselineError) as error:
            raise UnusableError(f"{path} is no file of baselines: {error}") from error

    def save(
        self, records: Sequence[dict[str, Any]], request: benchmark.Request, *, check: bool
    ) -> tuple[dict[str, Any], list[str]]:
        """Save complete measurements, and name the file in their records as `baseline`; with `check` write nothing.

        Return `changed` and the result for the last `baseline`, and a line for each record.
        """
        text, last, lines = self._text, {}, []
        for record in records:
            entry, reason = benchmark.baseline_entry(record, time.strftime("%Y-%m-%d"))
            key = benchmark.baseline_name(record, request)
            last = {"key": key, "saved": entry is not None, "reason": reason}
            if entry is None:
                lines.append(f"  not kept as the baseline: {reason}")
                continue
            text = add_baseline(text, key, entry)
            record["baseline"] = str(self._path)
            lines.append(f"  kept as the baseline in {self._path}: {entry['busbw']:.2f} GB/s, {key}")
        if self._path and text != self._text and not check:
            try:
                self._path.write_text(text)
            except OSError as error:
                reason = f"the baseline cannot be written to {self._path}: {error.strerror}"
                raise UnusableError(f"{reason}. Make the folder, or name another file.") from error
        return {"changed": text != self._text, "baseline": last}, lines
