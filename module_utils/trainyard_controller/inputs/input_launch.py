# SPDX-License-Identifier: Apache-2.0
"""Check the job of a playbook that starts it, before any play: it must exist, and its templates must be defined."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ansible.errors import AnsibleError, AnsibleTemplateSyntaxError, AnsibleUndefinedVariable
from ansible.template import Templar

from ...trainyard.base.findings import Finding
from ...trainyard.inputs import input_variables, job_file
from ...trainyard.inputs.input_variables import COMMAND_LINE, INVENTORY, Place
from .input_run import InputRun
from .value_sources import leaves, place_of, reason_of, undefined_name


def findings(run: InputRun) -> list[Finding]:
    """Return why the playbook cannot read its job."""
    job, variables = _variables(run)
    if variables["job_name"] is None and variables["job_command"] is None:
        return [job_file.no_job(run.job_files)]
    found = [job_file.without(name) for name in ("job_name", "job_command") if variables[name] is None]
    if variables["job_id"] is not None:
        key = next((key for key in run.extra if key == "job_id"), None)
        found.append(job_file.with_id(variables["job_id"], place_of(key) if key else INVENTORY))
    # Imported late: only a launch needs the schedulers.
    from ...trainyard.job import schedulers

    # The scheduler decides which hosts there must be, so it is checked before the hosts.
    names = {name: variables[name] for name in ("job_scheduler", "job_launcher")}
    found += schedulers.choice_findings(
        {name: value for name, value in names.items() if not input_variables.is_template(value)}
    )
    found += _templates(run, job, variables)
    chosen = {name: run.extra.get(name, variables[name]) for name in names}
    # A site's inventory may have variables of several schedulers; those of a job file are for this job.
    given = [
        (name, value) for name, value in run.extra.items() if not any(map(input_variables.is_template, chosen.values()))
    ]
    return found + list(filter(None, (job_file.unread(name, value, chosen, place_of(name)) for name, value in given)))


def undefined(run: InputRun, others: Iterable[Finding]) -> list[Finding]:
    """Return the variables that templates of the job use and nothing sets, without those that `others` name.

    A template of the job may use one of the inventory, whose finding is there already.
    """
    told = {_of_variable(finding) for finding in others}
    return [finding for finding in _templates(run, *_variables(run)) if _of_variable(finding) not in {"", *told}]


def _of_variable(finding: Finding) -> str:
    """Return the start of a finding about a variable that nothing sets, which names it; "" of any other finding."""
    return finding.found.partition(",")[0] if finding.found.startswith("no variable ") else ""


def _variables(run: InputRun) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the defaults of a job's variables, and all variables as the job has them."""
    job = {name: each.default for name, each in run.documented.items() if name.startswith("job_")}
    return job, {**job, **run.variables(run.inventory.get_host("localhost"))}


def _templates(run: InputRun, job: dict[str, Any], variables: dict[str, Any]) -> list[Finding]:
    """Find templates of the job that are undefined or invalid; convert what the others give."""
    found: list[Finding] = []
    templar = Templar(loader=run.loader, variables=variables)
    unset: dict[str, dict[str, Place]] = {}
    for name in job:
        for text in leaves(variables[name], encrypted=True):
            place = place_of(text, COMMAND_LINE if name in run.extra else INVENTORY)
            try:
                value = templar.template(text)
            except AnsibleUndefinedVariable as error:
                missing = undefined_name(error)
                if missing:
                    unset.setdefault(missing, {})[name] = place
            except AnsibleTemplateSyntaxError as error:
                found.append(job_file.no_template(name, place, text, str(error)))
            except AnsibleError as error:
                # A template of facts is undefined here, and so no such error.
                found.append(
                    job_file.unresolved(
                        name, place, text if input_variables.is_template(text) else "", reason_of(error)
                    )
                )
            else:
                # The text of another variable is converted like the variable's own.
                if text is variables[name] and isinstance(value, str):
                    given = {name: value}
                    changes, wrong = input_variables.converted(
                        given, {name: place}.__getitem__, run.documented, run.loader.load
                    )
                    run.extra.update(changes)
                    found += wrong
    return found + [job_file.undefined(name, users, variables) for name, users in unset.items()]
