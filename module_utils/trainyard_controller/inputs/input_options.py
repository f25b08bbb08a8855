# SPDX-License-Identifier: Apache-2.0
"""Read the options -e and the job file of a run again, where Ansible has split or ignored them."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.template import trust_as_template
from ansible.utils.vars import combine_vars

from ...trainyard.base.findings import Finding
from ...trainyard.inputs import input_variables, job_file
from . import input_files
from .input_run import InputRun
from .value_sources import place_of, shown

# Variables of a job file whose relative path is looked for beside the file first.
CONTROLLER_PATHS = frozenset({"job_source", "job_rank_table"})


def read_options(run: InputRun) -> list[Finding]:
    """Read the options -e, whose lists Ansible splits at blanks; the last value of a variable holds."""
    options = [each for each in context.CLIARGS.get("extra_vars") or () if each.strip()]
    whole = input_variables.whole_options(options, run.documented, run.loader.load)
    given: dict[str, Any] = {}
    findings = []
    for option in options:
        if option in whole:
            values = {option.partition("=")[0].strip(): trust_as_template(whole[option])}
        elif option.startswith("@"):
            values = run.loader.load_from_file(option[1:], trusted_as_template=True)
        elif option.startswith(("[", "{")):
            values = run.loader.load(option)
        else:
            values = parse_kv(option)
            rest = str(values.pop("_raw_params", ""))
            findings += [input_variables.no_variable(option, rest)] if rest else []
        both = combine_vars(given, values)
        # A key knows where it was written: keep the key of the option whose value holds.
        given = {name: both[name] for name in (*(each for each in given if each not in values), *values)}
    # Ansible has made variables of the words of an option that it split.
    run.extra.clear()
    run.extra.update(given)
    run.extra.pop("_raw_params", None)
    return findings


def read_job_file(run: InputRun) -> list[Finding]:
    """Read the job file of -e job=FILE; other options -e win over it."""
    if "job" not in run.extra:
        return []
    given = run.extra.pop("job")
    if not isinstance(given, str):
        return [job_file.no_path(given)]
    named = os.path.expanduser(given)  # noqa: PTH111
    other = place_of(next((name for name in run.extra if name in ("job_name", "job_command")), None)).file
    path = next((each for each in (Path.cwd() / named, run.project / named) if each.is_file()), None)
    if path is None:
        return [job_file.missing(named, run.job_files)]
    if other and Path(other).resolve() != path.resolve():
        return [job_file.two_jobs(shown(path), other)]
    unreadable = input_files.file_finding(path, shown(path), "job file")
    if unreadable:
        return [unreadable]
    text = path.read_text(errors="replace") if os.access(path, os.R_OK) else ""
    load = functools.partial(run.loader.load_from_file, str(path), trusted_as_template=True)
    data, problem = job_file.read(shown(path), text, load)
    for name, value in data.items():
        run.extra.setdefault(name, value)
    return [problem] if problem else []


def resolve_beside_job_file(run: InputRun) -> None:
    """Replace relative paths of the controller by what lies beside the job file; others start at the project.

    The job files of the collection start at the collection's folder, which is not the user's project.
    """
    elsewhere = run.project != Path.cwd().resolve()
    for key, value in list(run.extra.items()):
        file = place_of(key).file
        if key not in CONTROLLER_PATHS or not file or not isinstance(value, str) or value.startswith(("/", "~")):
            continue
        given_in = Path(file).resolve()
        places = [given_in.parent, *([run.project] if elsewhere and given_in.is_relative_to(run.project) else [])]
        found = next((place / value for place in places if value and (place / value).exists()), None)
        if found:
            run.extra[key] = str(found)
