# SPDX-License-Identifier: Apache-2.0
"""The variables of a job file that are for Slurm only."""

from __future__ import annotations

import re

from .job import Slurm
from .values import Values

_WORD = re.compile(r"[\w.,:@+=/()*][\w.,:@+=/()*-]*", re.ASCII)
_OPTION = re.compile(r"-[^\x00-\x1f\x7f]*")


def parse(values: Values, scheduler: str) -> Slurm:
    """Read the variables; what could end a `#SBATCH` line is a finding, as bash reads the lines that follow."""
    given = values.given.get("job_sbatch_options")
    given = [] if given is None else given
    listed = given if isinstance(given, (list, tuple)) else [given]
    wrong = [each for each in listed if not isinstance(each, str) or not _OPTION.fullmatch(each)]
    if scheduler == "slurm":
        for key in ("job_partition", "job_account", "job_qos", "job_gres"):
            value = values.text(key)
            if value and not _WORD.fullmatch(value):
                expected = "letters, digits and . , : @ + = / ( ) * _ -, as Slurm's names have them"
                values.wrong(key, ascii(value)[:100], expected, f"correct {key}")
        if wrong or listed is not given:
            found = ", ".join(ascii(each)[:100] for each in wrong or listed)
            expected = "a list of options of sbatch such as [--mem=64G], each of them text on one line"
            values.wrong("job_sbatch_options", found, expected, "write job_sbatch_options as a YAML list of such words")
    return Slurm(options=tuple(map(str, listed)), **values.declared(Slurm))
