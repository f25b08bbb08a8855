# SPDX-License-Identifier: Apache-2.0
"""Plan how a job goes on with fewer nodes (job_min_nodes), and find jobs that cannot.

What these start has numbers that no node can change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

from ...base.findings import Finding, counted
from ..file import launcher_programs
from ..file.job import Job
from ..file.job_command import scripts
from ..file.start_scripts import code_in
from ..launchers import Launcher
from ..placement.placement import Node, Placement
from ..placement.process import File, Process
from .nested_launchers import in_scripts

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
    for name, called in in_scripts(job, text_of).items():
        yield f"{called} in {name}, which starts the ranks itself"
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


def as_first(
    launcher: Launcher, job: Job, placement: Placement, node: Node
) -> tuple[Sequence[Process], Sequence[File]] | None:
    """Return what a node has besides its own as soon as the nodes before it are left out; None where it stays behind.

    These are the processes and files that the plan has only on the head, such as mpirun and its hostfile.
    """
    head = placement.head
    if len(placement.nodes) < 2 or node.rank_count != head.rank_count or launcher.needs_head(job, placement):
        return None
    swapped = placement.with_spare(head, node)
    if node in placement.nodes:
        # The head's address in its place becomes the node's own, as everywhere (moved_addresses.py).
        swapped = swapped.with_spare(node, head)
    there = swapped.head
    everywhere = {file.name for file in launcher.files(job, placement, placement.nodes[1])}
    processes = [
        each
        for each in launcher.processes(job, swapped, there)
        if not each.ranks or not set(each.ranks) <= set(there.ranks)
    ]
    return processes, [file for file in launcher.files(job, swapped, there) if file.name not in everywhere]
