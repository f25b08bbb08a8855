# SPDX-License-Identifier: Apache-2.0
"""Find jobs that cannot go on with fewer nodes (job_min_nodes): what they start has numbers that no node can change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from ...findings.findings import Finding, counted
from ..file import launcher_programs
from ..file.command import scripts
from ..file.job import Job
from ..file.start_scripts import code_in
from .nested_launchers import calls

_COUNT = r"(?:nnodes|num[_-]?nodes|n?procs|world[_-]?size|rank[_-]?size|(?:ms[_-])?worker[_-]num|num[_-]machines)"
# NNODES=4, --nnodes 4, --world-size=8.
_NUMBER = re.compile(rf"(?<![\w-])(?:(?:\w+_)?{_COUNT}=|--{_COUNT}[ =])[\"']?\d+", re.IGNORECASE)
_COMMENT = re.compile(r"(?m)(?:^|\s)#.*$")


def findings(job: Job, text_of: Callable[[str], str], nodes: int) -> list[Finding]:
    """Find why the job cannot go on with fewer than its nodes. `text_of` gives the text of a script of the source."""
    least = job.restarts.min_nodes
    if not least:
        return []
    if least > nodes:
        action = "lower job_min_nodes, or choose more hosts with job_nodes and job_hosts"
        return [
            Finding("job_min_nodes", str(least), f"at most {nodes}, as the job has {counted(nodes, 'node')}", action)
        ]
    fixed = next(_fixed(job, text_of), "")
    if not fixed:
        return []
    expected = "a job whose numbers of nodes and ranks come from its launcher and the ranks' environment"
    action = "correct that, or leave job_min_nodes out: job_spares keep the numbers"
    return [Finding("job_min_nodes", f"{least} with {fixed}", expected, action)]


def _fixed(job: Job, text_of: Callable[[str], str]) -> Iterator[str]:
    """Yield what fixes the number of nodes or ranks."""
    if job.given_table or job.rank_table:
        yield "a job_rank_table, which is used as it is"
    inner = launcher_programs.find(job.command)
    if inner:
        yield f"{inner.called} in job_command, which starts the ranks itself"
    for call in calls(job.command, text_of, job.env):
        yield f"{call.found.called} in {call.file}, line {call.line}, which starts the ranks itself"
    for name, value in job.env.items():
        if re.fullmatch(_COUNT, name, re.IGNORECASE):
            yield f"{name}={value} in job_env"
    for word, after in zip(job.command, (*job.command[1:], "")):
        if _NUMBER.match(f"{word} {after}"):
            yield f"{word if '=' in word else f'{word} {after}'} in job_command"
    started = [name.removeprefix("./") for name in scripts(job.command) if PurePosixPath(name).suffix == ".sh"]
    for where, text in [
        *((name, text_of(name)) for name in started),
        *(("job_command", each) for each in code_in(job.command)),
    ]:
        found = _NUMBER.search(_COMMENT.sub("", text))
        if found:
            yield f"{found[0]} in {where}"
