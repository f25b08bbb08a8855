# SPDX-License-Identifier: Apache-2.0
"""Runs of measurements, checked: their plans, records and logs are read here, the rules are in trainyard/verify/."""

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

from ..trainyard.findings.findings import Finding, UnusableError
from ..trainyard.nvidia.nccl_tests_output import parse
from ..trainyard.report.job_text import cause
from ..trainyard.verify import benchmark, collectives, pair_report, pairing
from ..trainyard.verify.bandwidth import BASELINE_SCHEMA, BaselineError, add_baseline, read_baselines
from ..trainyard.verify.straggler_limits import Limits

Data = Mapping[str, Any]

# The table stands in the log of the first rank; of the others the beginning tells enough: tables, errors, NCCL's lines.
_MOST_BYTES = 64 * 1024


class Run:
    """A run that has ended: its `plan`, its `summary`, and the logs of its ranks."""

    def __init__(self, folder: Path) -> None:
        """Read the records. Raises OSError or ValueError where there are none."""
        self._folder = folder
        self.plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())

    def log(self, rank: int, most: int = -1) -> str:
        """Return the log of a rank, at most so many bytes of it; nothing where there is none."""
        path: Path = self._folder / "logs" / self.plan["rank_log"].replace("{rank}", str(rank))
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", errors="replace")

    @property
    def failure(self) -> str:
        """Why the job did not succeed; empty where it did."""
        if self.summary["state"] == "succeeded":
            return ""
        why = cause(self.summary, self.plan["job_dir"]) if self.summary.get("failure") else []
        return f"the job {self.summary['state']}{': ' + '; '.join(why) if why else ''}"


@contextlib.contextmanager
def ended_run(folder: Path) -> Iterator[Run]:
    """Give a run that has ended. Raises UnusableError for a folder that holds none."""
    try:
        yield Run(folder)
    except (OSError, ValueError, KeyError) as error:
        raise UnusableError(f"{folder} is not the folder of a run that has ended: {error}") from error


def check_collective(folder: Path, name: str, command: str) -> dict[str, Any]:
    """Check what the ranks of all_gather.py printed: `findings`, `check`, the numbers of `ranks` and `nodes`."""
    with ended_run(folder) as run:
        hosts = {rank: node["host"] for node in run.plan["nodes"] for rank in node["ranks"]}
        failed_on = (run.summary.get("failure") or {}).get("host") or ""
        logs = {rank: run.log(rank) for rank in hosts}
        findings = collectives.verify(hosts, logs, run.summary["state"], run.failure, failed_on)
        check = collectives.check(name, findings, len(hosts), command, run.failure, failed_on)
        return {
            "ranks": len(hosts),
            "nodes": len(run.plan["nodes"]),
            "findings": [finding.as_dict() for finding in findings],
            "check": check.as_dict(),
        }


def refuse_collective(findings: Sequence[Data], name: str, command: str) -> dict[str, Any]:
    """Return the same for a job that was refused."""
    check = collectives.refused(name, [Finding.from_dict(finding) for finding in findings], command)
    return {"ranks": 0, "nodes": 0, "findings": list(findings), "check": check.as_dict()}


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
    """Check nodes by what pairs of them measured, in earlier runs and in this: `stragglers`, `measurements`, `text`.

    `expected` is in GB/s, `tolerance` the part of it that a node may lack.
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
    found = pair_report.verify(hosts, measurements, expected=expected, limits=limits, inventory=inventory)
    if refused:
        found = pair_report.refusal(found, [Finding.from_dict(finding) for finding in refused])
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
    """Return the rounds, and a new folder with the program and them; "" for no folder where there are none."""
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


def baseline_findings(baseline: str, save: bool) -> list[Finding]:
    """Check the file of baselines that a benchmark is to be compared with, or with `save` to be kept in."""
    if not baseline:
        return [
            Finding(
                "baseline",
                "a baseline is to be saved, and no file is named",
                "the file that keeps this site's own values",
                "add -e verify_baseline=FILE (collective_benchmark.yml: benchmark_baseline)",
            )
        ]
    path = Path(baseline)
    if save and not path.absolute().parent.is_dir():
        return [
            Finding(
                "baseline",
                f"there is no folder {path.absolute().parent} for {path}",
                "a folder in which the file can be written",
                "make the folder, or name another file",
            )
        ]
    if not save and not path.exists():
        return [
            Finding(
                "baseline",
                f"there is no file {path}",
                "this site's own values, as a former verification has kept them",
                (
                    "name the file that has them, or let this cluster write it: -e verify_save_baseline=true "
                    "(collective_benchmark.yml: benchmark_save_baseline)"
                ),
            )
        ]
    try:
        Baselines(path)
    except UnusableError as error:
        return [
            Finding(
                "baseline",
                str(error),
                f"JSON with the schema {BASELINE_SCHEMA}, as verify_save_baseline=true writes it",
                "correct it, or name another file",
            )
        ]
    return []


def benchmarks(given: Data, *, check: bool) -> dict[str, Any]:
    """Check a benchmark as the options of the action plugin collective_benchmark say.

    Without a benchmark only the file of baselines is checked: `findings`.
    """
    measured = given["refused"] or given["run_dir"] or given["parse"]
    found = baseline_findings(given["baseline"], given["save_baseline"]) if _names_baseline(given) else []
    if not measured and _names_baseline(given):
        return {"changed": False, "findings": [finding.as_dict() for finding in found]}
    if found:
        raise UnusableError(f"{found[0].found}; expected {found[0].expected}. {found[0].action}")
    for name, most in (("expected_busbw", float("inf")), ("fraction", 1.0)):
        if given[name] is not None and not 0 < given[name] <= most:
            wanted = "GB/s above 0" if name == "expected_busbw" else "a number above 0, at most 1"
            raise UnusableError(f"{name} is {given[name]:g}, expected {wanted}")
    baselines = Baselines(Path(given["baseline"]) if given["baseline"] else None)
    asked = benchmark.Asked(
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
        compare=bool(given["baseline"]) and not given["save_baseline"],
        traffic=traffic_of(given["traffic_before"], given["traffic_after"]),
    )
    if given["refused"]:
        findings = [Finding.from_dict(finding) for finding in given["refused"]]
        records = [benchmark.refused(findings, given["collective"])]
    elif given["run_dir"]:
        facts = Path(given["facts"]) if given["facts"] else None
        records = verify_benchmark(Path(given["run_dir"]), asked, apart=given["each_node"], facts=facts)
    elif given["parse"]:
        records = verify_file(Path(given["parse"]), asked)
    else:
        raise UnusableError("neither parse nor run_dir is given, expected a file or the folder of a run")
    text = list(map(benchmark.describe, records))
    saved: dict[str, Any] = {}
    if given["save_baseline"]:
        saved, told = baselines.save(records, asked, check=check)
        text += told
    return {**saved, "benchmarks": records, "text": "\n".join(text)}


def _names_baseline(given: Data) -> bool:
    return bool(given["baseline"] or given["save_baseline"])


def verify_file(path: Path, asked: benchmark.Asked) -> list[dict[str, Any]]:
    """Return the record of the benchmark whose output a file holds. Raises UnusableError."""
    try:
        return [benchmark.verify(parse(path.read_text(encoding="utf-8", errors="replace")), asked)]
    except OSError as error:
        raise UnusableError(f"{path} is not a file that can be read: {error}") from error


def verify_benchmark(
    folder: Path, asked: benchmark.Asked, *, apart: bool = False, facts: Path | None = None
) -> list[dict[str, Any]]:
    """Return the record of a run's benchmark, or with `apart` that of each node. Raises UnusableError.

    Plan and record complete `asked`; `facts` is the file with the facts of the nodes.
    """
    with ended_run(folder) as run:
        plan = run.plan
        if facts:
            asked.nodes = benchmark.nodes_of(plan, json.loads(facts.read_text())["nodes"])
        asked.job_id, asked.job_failure = plan["job_id"], run.failure
        asked.ranks = plan["world_size"] if asked.ranks is None else asked.ranks
        asked.hosts = asked.hosts or [node["host"] for node in plan["nodes"]]
        if apart:
            return [_of_node(run, node, asked) for node in plan["nodes"]]
        outputs = [parse(run.log(rank, _MOST_BYTES if rank else -1)) for rank in range(plan["world_size"])]
        return [benchmark.verify(benchmark.merge(outputs), asked)]


def _of_node(run: Run, node: Data, asked: benchmark.Asked) -> dict[str, Any]:
    """Return the record of one node that worked by itself; ports carry nothing inside a node."""
    own = [known for known in asked.nodes if known["host"] == node["host"]]
    mine = dataclasses.replace(asked, ranks=len(node["ranks"]), hosts=[node["host"]], nodes=own, traffic={})
    record = benchmark.verify(parse(run.log(node["ranks"][0])), mine)
    # A log without a table does not say whose it is.
    return {**record, "hosts": record["hosts"] or [node["host"]]}


def traffic_of(before: Iterable[Data], after: Iterable[Data]) -> dict[str, tuple[Any, Any]]:
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
        self, records: Sequence[dict[str, Any]], asked: benchmark.Asked, *, check: bool
    ) -> tuple[dict[str, Any], list[str]]:
        """Keep what was measured wholly, and name the file in those records, as `baseline`; with `check` write nothing.

        Return `changed` with what became of the last `baseline`, and a line for each record that says so.
        """
        text, last, told = self._text, {}, []
        for record in records:
            entry, reason = benchmark.baseline_entry(record, time.strftime("%Y-%m-%d"))
            key = benchmark.baseline_name(record, asked)
            last = {"key": key, "saved": entry is not None, "reason": reason}
            if entry is None:
                told.append(f"  not kept as the baseline: {reason}")
                continue
            text = add_baseline(text, key, entry)
            record["baseline"] = str(self._path)
            told.append(f"  kept as the baseline in {self._path}: {entry['busbw']:.2f} GB/s, {key}")
        if self._path and text != self._text and not check:
            try:
                self._path.write_text(text)
            except OSError as error:
                raise UnusableError(
                    f"the baseline cannot be written to {self._path}: {error.strerror}. Make the folder, or name "
                    "another file."
                ) from error
        return {"changed": text != self._text, "baseline": last}, told
