# SPDX-License-Identifier: Apache-2.0
"""A job file as a file: what is said of one that is missing, empty, no YAML, or uses what nobody has set."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..findings.findings import Finding, host_list
from .variables import Place


def from_here(path: str, here: str) -> str:
    """Return a path as its user knows it, who is `here`."""
    inside = path.startswith(here.rstrip("/") + "/")
    return path[len(here.rstrip("/")) + 1 :] if inside else path


def missing(path: str, files: Sequence[str]) -> Finding:
    """Return the finding about a job file that does not exist; `files` are the ones that do."""
    names = {PurePosixPath(name).stem: name for name in files}
    near = difflib.get_close_matches(PurePosixPath(path).stem, names, n=1)
    do = f"did you mean {names[near[0]]}?" if near else "correct the path; it counts from here, or from the project"
    return Finding("job file", f"no file {path}", f"a job file, such as {host_list(list(files), 4)}", do)


def no_path(value: Any) -> Finding:
    """Return the finding about a variable `job` that names no file, such as a dictionary."""
    kind = "a dictionary" if isinstance(value, Mapping) else "a list" if isinstance(value, (list, tuple)) else "no text"
    return Finding(
        "job file",
        f"{kind} as the variable job: {value}"[:200],
        "variables of their own, such as job_name: digits; job names a job file: -e job=jobs/NAME.yml",
        "write job_name, job_command and so on, each at the beginning of a line: docs/job-file.md",
    )


def read(path: str, text: str, load: Callable[[], Any]) -> tuple[Mapping[str, Any], Finding | None]:
    """Return the variables of a job file whose text `load` reads, and what is wrong with it as a file."""
    try:
        data = load()
    except Exception as error:
        # Ansible's errors say where in `obj`, and why in `message`.
        line = getattr(getattr(error, "obj", None), "line_num", None)
        why = str(getattr(error, "message", "") or error).removeprefix("YAML parsing failed: ").splitlines()
        return {}, not_yaml(path, text, line, why[0] if why else type(error).__name__)
    wrong = not_a_job(path, data)
    return ({}, wrong) if wrong else (data, None)


def not_a_job(path: str, data: Any) -> Finding | None:
    """Find a job file that holds nothing, or no variables."""
    if isinstance(data, Mapping) and data:
        return None
    found = f"a {type(data).__name__}" if data and not isinstance(data, str) else "a text" if data else "nothing"
    return Finding(
        "job file",
        f"{found.replace('_AnsibleTagged', '').lower()} in {path}",
        "lines such as job_name: digits",
        "write job_name, job_command and what else the job needs: docs/job-file.md, examples in jobs/",
    )


def not_yaml(path: str, text: str, line: int | None, reason: str) -> Finding:
    """Return the finding about a job file that is no YAML."""
    lines = text.splitlines()
    tabs = [number for number, each in enumerate(lines, 1) if re.match(r" *\t\s*\S", each)]
    if tabs:
        return Finding(
            "job file",
            f"a tab at the beginning of {path}, line {tabs[0]}",
            "blanks: YAML knows no tabs there",
            f"put blanks instead into line {host_list([str(number) for number in tabs])}",
        )
    where = f"{path}, line {line}" if line else path
    shown = f": {lines[line - 1].strip()}" if line and line <= len(lines) else ""
    return Finding(
        "job file",
        f"{where}{shown}",
        f"YAML: {reason}" if line else f"a job file that can be read: {reason}",
        (
            "correct that line, or the one before it: NAME: value, with text that holds ': ', ' #', {, [ or % in quotes"
            if line
            else "correct it, or name another file"
        ),
    )


def no_job(files: Sequence[str]) -> Finding:
    """Return the finding about a launch without any job."""
    return Finding(
        "job",
        "none: no job_name and no job_command",
        f"a job file, such as {host_list(list(files), 4)}",
        "write -e @jobs/NAME.yml, or -e job=jobs/NAME.yml; docs/job-file.md describes it",
    )


def two_jobs(path: str, other: str) -> Finding:
    """Return the finding about two job files for one launch."""
    return Finding("job file", f"{path} with -e job=, and {other} with -e @", "one job file", "leave one out")


def without(name: str) -> Finding:
    """Return the finding about a job file that says too little."""
    example = {"job_name": "digits", "job_command": "[python, train.py]"}[name]
    return Finding(name, "nothing", f"a value, such as {name}: {example}", f"write {name} in the job file")


def with_id(value: object, place: Place) -> Finding:
    """Return the finding about a job_id for a launch, which makes one of the job's name and the time."""
    return Finding(
        "job_id",
        f"{value} {place.text}",
        "none: each launch is a new run, and gets an id of its own",
        "leave job_id out, and name the job with job_name; other playbooks choose a run by its job_id",
    )


def no_template(name: str, place: Place, text: str, reason: str) -> Finding:
    """Return the finding about a template that Jinja cannot read."""
    why = reason.splitlines()[0].removeprefix("Syntax error in template: ")
    return Finding(name, f"{text} {place.text}: {why}", "a template such as {{ lr }}", f"correct {name}")


def undefined(name: str, where: Mapping[str, Place], names: Iterable[str], of: str = "job file") -> Finding:
    """Return the finding about a variable that a job file uses and nobody has set; `where` are its users and places.

    `of` is where its users stand: the job file, or the inventory.
    """
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.8)
    users = ", ".join(f"{user} {place.text}" for user, place in where.items())
    return Finding(
        of,
        f"no variable {name}, which stands in {users}",
        ("variables of the inventory, " + ("of the job file, " if of == "job file" else "") + "or given with -e"),
        (
            (f"did you mean {near[0]}? Else write" if near else "write")
            + f" {name}: VALUE in the {of}, or -e {name}=VALUE"
        ),
    )
