# SPDX-License-Identifier: Apache-2.0
"""Find secrets of a job in its other variables, which plans, pages, records and argument lists show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...base.findings import Finding, Warned
from ...base.redaction import is_secret_name
from ..record.masking import MIN_LENGTH

# Variables that no plan or record has as they are.
SECRET = frozenset({"job_secret_env", "job_events", "job_events_secret", "job_registry_auth"})
_ENVIRONMENTS = ("job_env", "job_node_env")
# Names that often are those of secrets, besides is_secret_name; a name of a file is none.
_KEY, _OF_FILES = re.compile(r"(?i)(?:^|_)key$"), ("_file", "_path", "_dir", "_folder")
# Values that are none: numbers, switches, paths of files with the secret.
_PLAIN = re.compile(r"(?i)[-+]?[\d.]{1,12}|true|false|yes|no|on|off|none|[/~].*", re.DOTALL)


def findings(job: Mapping[str, Any], written: Mapping[str, Any], secrets: Mapping[str, Any]) -> list[Finding]:
    """Return a finding for each text of the job's variables that has the value of a secret.

    `job` has the variables with their values, `written` as their user wrote them, and `secrets` is job_secret_env. A
    value of few characters counts only where its user wrote a template of job_secret_env.
    """
    known = {name: str(value) for name, value in secrets.items() if value is not None and str(value)}
    found: list[Finding] = []
    for variable, value in job.items():
        if variable in SECRET:
            continue
        is_template = any("job_secret_env" in text for _, text in _texts(written.get(variable), ""))
        for place, text in _texts(value, variable):
            names = [name for name, each in known.items() if each in text and (len(each) >= MIN_LENGTH or is_template)]
            if names:
                found.append(_finding(variable, place, names[0]))
    return found


def _finding(variable: str, place: str, name: str) -> Finding:
    key = place.rpartition(".")[2]
    action = (
        f"move {key} to job_secret_env"
        if variable in _ENVIRONMENTS
        else f"have the program read {name} from its environment"
    )
    expected = "a secret in job_secret_env alone: plans, pages and argument lists show the rest"
    return Finding(variable, f"{place} has the value of {name} in job_secret_env", expected, action)


def hints(env: Mapping[str, str]) -> list[Finding]:
    """Return a warning for each variable of job_env that is named like a secret."""
    expected = "no secret there: plans and pages show job_env"
    return [
        Warned(
            "job_env", f"{name}, which is named like a secret", expected, f"move {name} to job_secret_env if it is one"
        )
        for name, value in env.items()
        if (is_secret_name(name) or _KEY.search(name)) and not name.lower().endswith(_OF_FILES)
        if value and not _PLAIN.fullmatch(value)
    ]


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield all texts and numbers of a value with their places, such as `job_env.NAME` and `job_command[2]`."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield f"a name in {place}", str(key)
            yield from _texts(each, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for at, each in enumerate(value):
            yield from _texts(each, f"{place}[{at}]")
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield place, str(value)
