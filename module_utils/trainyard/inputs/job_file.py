# SPDX-License-Identifier: Apache-2.0
"""Findings about a job file as a file: it is missing, empty, no YAML, or uses undefined variables."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ..base.findings import Finding, host_list
from ..base.visible import type_name
from ..job.file.variables import VARIABLES, reader
from .input_variables import Place


def similar(path: str, files: Iterable[str]) -> str:
    """Return the file whose name resembles that of a path, or ""."""
    names = {PurePosixPath(name).stem: name for name in files}
    near = difflib.get_close_matches(PurePosixPath(path).stem, names, n=1)
    return names[near[0]] if near else ""


def missing(path: str, files: Sequence[str]) -> Finding:
    """Return the finding about a job file that does not exist; `files` are existing ones."""
    near = similar(path, files)
    action = f"did you mean {near}?" if near else "correct the path; it counts from here, or from the project"
    return Finding("job file", f"no file {path}", f"a job file, such as {host_list(list(files), 4)}", action)


def folder(path: str, files: Sequence[str]) -> Finding:
    """Return the finding about a folder as a job file; `files` are the YAML files in it."""
    action = f"name one of its files, such as -e @{files[0]}" if files else "name a file, as -e @FILE"
    return Finding("job file", f"{path}, a folder", "a job file", action)


def no_path(value: Any) -> Finding:
    """Return the finding about a variable `job` that names no file, such as a dictionary."""
    kind = "a dictionary" if isinstance(value, Mapping) else "a list" if isinstance(value, (list, tuple)) else "no text"
    expected = "variables of their own, such as job_name: digits; job names a job file: -e job=jobs/NAME.yml"
    action = "write job_name, job_command and so on, each at the beginning of a line: docs/job-file.md"
    return Finding("job file", f"{kind} as the variable job: {value}"[:200], expected, action)


def read(
    path: str, text: str, load: Callable[[], Any], of: str = "job file"
) -> tuple[Mapping[str, Any], Finding | None]:
    """Return the variables of a job file, or an inventory (`of`), whose text `load` reads, and what is wrong."""
    try:
        data = load()
    except Exception as error:
        # Ansible's errors have the place in `obj` and the reason in `message`.
        line = getattr(getattr(error, "obj", None), "line_num", None)
        reason = str(getattr(error, "message", "") or error).removeprefix("YAML parsing failed: ").splitlines()
        return {}, not_yaml(path, text, line, reason[0] if reason else type(error).__name__, of)
    wrong = not_a_job(path, data) if of == "job file" else None
    return ({}, wrong) if wrong else (data, None)


def not_a_job(path: str, data: Any) -> Finding | None:
    """Find a job file that holds nothing, or no variables."""
    if isinstance(data, Mapping) and data:
        return None
    found = "nothing" if not data else "a text" if isinstance(data, str) else f"a {type_name(data)}"
    action = "write job_name, job_command and what else the job needs: docs/job-file.md, examples in jobs/"
    return Finding("job file", f"{found} in {path}", "lines such as job_name: digits", action)


def not_yaml(path: str, text: str, line: int | None, reason: str, of: str = "job file") -> Finding:
    """Return the finding about a job file, or an inventory (`of`), that is no YAML."""
    lines = text.splitlines()
    tabs = [str(number) for number, each in enumerate(lines, 1) if re.match(r" *\t\s*\S", each)]
    if tabs:
        found, expected = f"a tab at the beginning of {path}, line {tabs[0]}", "blanks: YAML knows no tabs there"
        return Finding(of, found, expected, f"put blanks instead into line {host_list(tabs)}")
    if not line:
        expected = f"{'a job file' if of == 'job file' else f'an {of}'} that can be read: {reason}"
        return Finding(of, path, expected, "correct it, or name another file")
    found = f"{path}, line {line}{f': {lines[line - 1].strip()}' if line <= len(lines) else ''}"
    action = (
        "correct that line, or the one before it: NAME: value, with text that holds ': ', ' #', {, [ or % in quotes"
    )
    return Finding(of, found, f"YAML: {reason}", action)


def no_job(files: Sequence[str]) -> Finding:
    """Return the finding about a launch without a job."""
    expected = f"a job file, such as {host_list(list(files), 4)}"
    action = "write -e @jobs/NAME.yml, or -e job=jobs/NAME.yml; docs/job-file.md describes it"
    return Finding("job", "none: no job_name and no job_command", expected, action)


def two_jobs(path: str, other: str) -> Finding:
    """Return the finding about two job files for one launch."""
    return Finding("job file", f"{path} with -e job=, and {other} with -e @", "one job file", "leave one out")


def without(name: str) -> Finding:
    """Return the finding about a job file without job_name or job_command."""
    example = {"job_name": "digits", "job_command": "[python, train.py]"}[name]
    return Finding(name, "nothing", f"a value, such as {name}: {example}", f"write {name} in the job file")


def with_id(value: object, place: Place) -> Finding:
    """Return the finding about a job_id for a launch, which makes one of the job's name and the time."""
    expected = "none: each launch is a new run, and gets an id of its own"
    action = "leave job_id out, and name the job with job_name; other playbooks choose a run by its job_id"
    return Finding("job_id", f"{value} {place.text}", expected, action)


def unread(name: str, value: Any, chosen: Mapping[str, Any], place: Place) -> Finding | None:
    """Find a variable of another launcher or scheduler than the `chosen` ones, which read nothing of it."""
    read_by = reader(name)
    if read_by is None or value == VARIABLES[name].default or chosen[read_by[0]] in read_by[1]:
        return None
    setting, values = read_by
    found = f"{name} {place.text} with {setting}: {chosen[setting]}, which does not read it"
    action = f"set {setting}: {values[0]}, or leave {name} out"
    return Finding(name, found, f"{setting}: {' or '.join(values)}", action)


def unresolved(name: str, place: Place, text: str, reason: str) -> Finding:
    """Return the finding about a value that cannot be had: its template fails, or no password decrypts it."""
    if not text:
        action = "add --ask-vault-pass, or --vault-password-file FILE, with the password of this value"
        return Finding(name, f"an encrypted value {place.text}: {reason}", "its password of Ansible Vault", action)
    shown = text if len(text) <= 100 else f"{text[:100]}..."
    return Finding(name, f"{shown} {place.text}: {reason}"[:400], "a template that gives a value", f"correct {name}")


def no_template(name: str, place: Place, text: str, reason: str) -> Finding:
    """Return the finding about a template that Jinja cannot read."""
    reason = reason.splitlines()[0].removeprefix("Syntax error in template: ")
    return Finding(name, f"{text} {place.text}: {reason}", "a template such as {{ lr }}", f"correct {name}")


def undefined(name: str, where: Mapping[str, Place], names: Iterable[str], of: str = "job file") -> Finding:
    """Return the finding about a variable that is used, but set nowhere; `where` are its users and their places.

    The users are in the job file or in the inventory: `of`.
    """
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=0.8)
    write = f"did you mean {near[0]}? Else write" if near else "write"
    write += f" {name}: VALUE in the {of}, or -e {name}=VALUE"
    secret = next((user for user in where if user.startswith("ansible_") and "pass" in user), "")
    if secret:
        ask = "-K" if "become" in secret else "-k"
        write = f"write {name}: VALUE in an encrypted file of group_vars, or leave {secret} out and add {ask}"
    found = ", ".join(f"{user} {place.text}" for user, place in where.items())
    sources = "variables of the inventory, or given with -e"
    if of == "job file":
        # Jobs are planned on localhost, which is no member of the nodes' groups.
        sources = "variables of the inventory's group all, of the job file, or given with -e"
    return Finding(
        of,
        f"no variable {name}, which stands in {found}",
        sources,
        "write a value for each host: only a loop of tasks has an item" if name == "item" else write,
    )
