# SPDX-License-Identifier: Apache-2.0
"""Collect the files of a debug archive from the folder of a run and the answers of its nodes, and write the archive."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ansible import release

from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, FindingsError, UnusableError
from ...trainyard.base.state_format import DamagedError
from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.plan import spares
from ...trainyard.job.record.masking import Forms
from ...trainyard.report import debug_archive
from ...trainyard.report.debug_archive import Archive, Excerpt
from ...trainyard_node.machine.json_files import open_regular
from ..runs import launch_record
from ..runs.saved_state import read_plan, read_record, read_report
from . import run_choice

Answers = Mapping[str, Mapping[str, Any]]
_HEADLINE = "{count} {findings}: nothing was collected."
# A record of a run; a larger one is not read. Logs are read in parts.
_MAX_RECORD = 64 << 20
_KNOWN = 8


def find_run(runs_dir: Path, job_id: str, job_name: str, verification: str) -> Path:
    """Return the folder of a job, also of one that findings stopped, or of a verification; else of the newest job.

    Raises UnusableError with the known ones.
    """
    if job_id and verification:
        found, action = "job_id and debug_verification", "leave one of the two out"
        raise FindingsError([Finding("which run", found, "one run", action)], _HEADLINE)
    if not job_id and not verification:
        return Path(run_choice.find(runs_dir, "", job_name)["run_dir"])
    records = ("report.json",) if verification else ("plan.json", "findings.json")
    known = {path.parent.name: path.stat().st_mtime for name in records for path in runs_dir.glob(f"*/{name}")}
    name = verification or job_id
    if name in known:
        return runs_dir / name
    what, option = ("verification", "debug_verification") if verification else ("job", "job_id")
    newest = ", ".join(sorted(known, key=lambda each: -known[each])[:_KNOWN]) or "none"
    expected = f"one of them; the newest: {newest}"
    action = f"name one with -e {option}=NAME; playbooks/jobs.yml lists all"
    raise FindingsError([Finding("which run", f"no {what} {name} in {runs_dir}", expected, action)], _HEADLINE)


@dataclass(frozen=True)
class Visited:
    """The hosts of a run, those that failed and the head first; the folder of its job if nodes have units of it."""

    hosts: list[str]
    job_dir: str = ""


def visited(run_dir: Path) -> Visited:
    """Return what to ask the nodes of a run about. Jobs of Slurm and Kubernetes have no units of ours."""
    plan, summary = _read(read_plan, run_dir), _read(read_record, run_dir)
    if not plan:
        nodes = _read(lambda folder: read_report(folder / "report.json"), run_dir).get("nodes", ())
        return Visited([node["host"] for node in sorted(nodes, key=lambda each: each["state"] != "fail")])
    failure = summary.get("failure") or {}
    first = [failure.get("host"), *(failure.get("hosts") or ()), (plan.get("head") or {}).get("host")]
    hosts = list(dict.fromkeys(spares.all_hosts(plan)))
    hosts.sort(key=lambda host: first.index(host) if host in first else len(first))
    if "engine" in plan:
        return Visited(hosts)
    return Visited(hosts, str(plan["job_dir"]))


def _read(how: Callable[[Path], dict[str, Any] | None], run_dir: Path) -> dict[str, Any]:
    """Return a record of a run; {} where there is none, or a damaged one, of which an archive is made all the same."""
    try:
        return how(run_dir) or {}
    except UnusableError:
        return {}


def pack(run_dir: Path, facts: Answers, journals: Answers, project: Path, hidden: Forms) -> Archive:
    """Return the files of an archive, redacted, with its README."""
    archive, made = Archive(), time.strftime("%Y-%m-%dT%H:%M:%S%z")
    archive.add(debug_archive.RECORDS, [("versions.json", debug_archive.json_text(_versions(project), hidden))])
    archive.add(debug_archive.RECORDS, _records(run_dir, archive, hidden))
    logs = {path.name: path for path in (run_dir / "logs").glob("*") if path.is_file() and not path.is_symlink()}
    names = debug_archive.important_logs(logs, _read(read_record, run_dir))
    archive.add(debug_archive.LOGS, ((f"run/logs/{name}", _log(logs[name], archive, hidden)) for name in names))
    silent = {}
    read: dict[str, dict[str, str]] = {debug_archive.FACTS: {}, debug_archive.JOURNALS: {}}
    for host, facts_of in facts.items():
        folder, journal = f"nodes/{quote(host, safe='')}", journals.get(host, {"lines": []})
        if "facts" not in facts_of or "lines" not in journal:
            why = reason(facts_of if "facts" not in facts_of else journal) or "--limit excludes it"
            silent[host] = debug_archive.journal_text([why], "", hidden).strip()
        if "facts" in facts_of:
            read[debug_archive.FACTS][f"{folder}/facts.json"] = debug_archive.json_text(facts_of, hidden)
        if "problem" in journal:
            text = debug_archive.journal_text(journal["lines"], journal["problem"], hidden)
            read[debug_archive.JOURNALS][f"{folder}/journal.txt"] = text
    for kind, texts in read.items():
        archive.add(kind, texts.items())
    archive.files["README"] = debug_archive.readme(run_dir.name, made, archive, silent)
    return archive


def _records(run_dir: Path, archive: Archive, hidden: Forms) -> Iterator[tuple[str, str]]:
    """Yield the files of a run but its logs, source, outputs and pages."""
    first = ["summary.json", "findings.json", "report.json", "plan.json"]
    paths = [path for path in run_dir.glob("*") if path.suffix in (".json", ".jsonl", ".txt") and path.is_file()]
    for path in sorted(paths, key=lambda each: (first.index(each.name) if each.name in first else 9, each.name)):
        name = f"run/{path.name}"
        if path.suffix != ".json":
            yield name, _log(path, archive, hidden)
            continue
        try:
            with open_regular(path) as file:
                content = file.read(_MAX_RECORD + 1)
            if len(content) > _MAX_RECORD:
                raise DamagedError(f"more than {_MAX_RECORD >> 20} MiB")
            value = state_format.loads(content)
        except (OSError, DamagedError) as error:
            archive.left_out.append(f"{name}: {getattr(error, 'strerror', None) or error}")
        else:
            yield name, debug_archive.json_text(value, hidden)


def _log(path: Path, archive: Archive, hidden: Forms) -> str:
    try:
        with open_regular(path) as log:
            begin, size = log.read(debug_archive.LOG_BEGIN + debug_archive.LOG_END), log.seek(0, os.SEEK_END)
            excerpt = Excerpt(begin, size)
            if size > len(begin):
                log.seek(size - debug_archive.LOG_END)
                excerpt = Excerpt(begin[: debug_archive.LOG_BEGIN], size, log.read(debug_archive.LOG_END))
                archive.cut.append(f"{path.name}: {size} bytes")
    except OSError as error:
        return f"it could not be read: {error.strerror or error}\n"
    return debug_archive.log_text(excerpt, hidden)


def _versions(project: Path) -> dict[str, Any]:
    """Return the versions of this controller; those at the launch are in plan.json."""
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return {
        "trainyard": launch_record.described(str(project)) or "no git checkout",
        "ansible_core": release.__version__,
        "python": platform.python_version(),
        "system": system,
        "kernel": platform.release(),
    }


def target(given: str, folder: str, run: str) -> Path:
    """Return the file to write: `given`, or in that folder, or in the current `folder`. Raises UnusableError."""
    name = f"trainyard-debug-{run}.tar.gz"
    path = Path(folder, Path(given).expanduser()) if given else Path(folder, name)
    path = path / name if path.is_dir() else path
    problem = ""
    if not path.name.endswith((".tar.gz", ".tgz")):
        problem = f"{path} is no name of an archive"
    elif not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        problem = f"{path.parent} is no folder that you may write"
    if problem:
        expected, action = "a folder, or a name that ends with .tar.gz", "name one with -e debug_file=PATH"
        raise FindingsError([Finding("debug_file", problem, expected, action)], _HEADLINE)
    return path


def write(path: Path, run: str, files: Mapping[str, str]) -> int:
    """Write an archive that only its owner can read, and return its size. An earlier one is replaced."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in ("README", *sorted(set(files) - {"README"})):
            content = files[name].encode("utf-8", "replace")
            member = tarfile.TarInfo(f"trainyard-debug-{run}/{name}")
            member.size, member.mtime, member.mode = len(content), int(time.time()), 0o600
            tar.addfile(member, io.BytesIO(content))
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as new:
            new.write(packed.getbuffer())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        found, action = f"cannot write {path}: {error.strerror}", "make room, or name another with -e debug_file=PATH"
        raise FindingsError([Finding("debug_file", found, "room for the archive", action)], _HEADLINE) from error
    return len(packed.getbuffer())


def as_plain(value: Any) -> Any:
    """Return plain data of Ansible's own types."""
    return json.loads(json.dumps(value, default=str))
