# SPDX-License-Identifier: Apache-2.0
"""Decide what a user does next about a job: the one rule for the terminal and for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.adhoc import playbook
from ..base.findings import host_list
from ..base.redaction import HIDDEN
from ..job.run.decide.restart_rules import FILE, MEMORY, TWICE, evidence, kind_of
from ..job.run.logs import failure_kinds, headline

Data = Mapping[str, Any]

# Files of Python and of installed packages, where an error shows and is seldom made.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python[\d.]{1,5}/|^<")
_PROGRAM = "correct the program{at}"
# What to do before the next launch, by the kind of the error.
_MENDS: Mapping[Any, str] = {
    headline.CODE: _PROGRAM,
    TWICE: _PROGRAM,
    headline.MODULE: "install in the job's environment what the error names (ROLE_extra_packages, then site.yml)",
    headline.USAGE: "correct the options in job_command",
    headline.PROGRAM: "correct job_command, or install its program on every node",
    headline.SETTING: "correct the setting that the error names",
    FILE: "bring the file to every node, or correct its path{at}",
    MEMORY: "give the job more memory, or make its batches smaller",
}


class Next(NamedTuple):
    """What comes first, in words, and the command; each may be ""."""

    words: str
    command: str


def next_step(summary: Data, launch: Data, tail: Sequence[str] = (), stuck: bool = False) -> Next:
    """Return what a user does next. `launch` is that of plan.json, `tail` the end of the log that explains the end.

    `stuck`: the running job makes no progress.
    """
    inventory, job = str(launch.get("inventory") or ""), {"job_id": summary["job_id"]}
    if summary["state"] in ("running", "pending"):
        if stuck:
            return Next("see where its ranks wait; stop.yml ends it", playbook("playbooks/stacks.yml", inventory, job))
        return Next("", playbook("playbooks/watch.yml", inventory, job))
    running = [node["host"] for node in summary["nodes"] if node["state"] == "running"]
    if running:
        return Next(f"end what still runs on {host_list(running)}", playbook("playbooks/stop.yml", inventory, job))
    if summary["state"] == "lost":
        return Next("", playbook("playbooks/status.yml", inventory, job))
    if summary["state"] == "succeeded":
        return Next("all jobs, with their pages", playbook("playbooks/jobs.yml", inventory))
    again = str(launch.get("command") or "")
    if not again or HIDDEN in again:
        # A command whose values are hidden cannot be called again as it stands.
        return Next(_mend(summary, tail), playbook("playbooks/logs.yml", inventory, job))
    words = _mend(summary, tail)
    return Next(f"{words}, then launch again" if words else "", again)


def _mend(summary: Data, tail: Sequence[str]) -> str:
    """Return what to do before a job that failed is launched again; "" where nothing is known."""
    failure: Data = summary.get("failure") or {}
    kind = "timed_out" if summary["state"] == "timed_out" else str(failure.get("kind") or "")
    first = failure_kinds.failure_kind({"kind": kind}).next_step
    if first:
        hosts = failure.get("hosts") or [failure.get("host") or "the node"]
        return first.format(hosts=host_list(hosts))
    if kind not in ("exit", "engine"):
        return ""
    read = evidence("\n".join(tail))
    error = str(failure.get("error") or read.get("error") or "")
    what = kind_of(error)
    if what not in _MENDS or failure.get("doubt") or read.get("doubt"):
        return ""
    return _MENDS[what].format(at=_place(tail, str(failure.get("stack") or "")))


def _place(tail: Sequence[str], stack: str) -> str:
    """Return the innermost line of the program in a traceback, as ` in train.py, line 41`; "" without one.

    `stack` has the innermost frames in one line (restart_rules.evidence), where the tail has no traceback.
    """
    chain = headline.last_chain([line.text for line in headline.plain(tail)])
    frames = [frame for raised in chain for frame in raised.frames]
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    if not own:
        found = re.search(r"(?:^| < )source/(?P<file>\S{1,250}):(?P<line>\d{1,9})", stack)
        return f" in {found['file']}, line {found['line']}" if found else ""
    # The job's own files lie in its folder `source` on the nodes.
    file = own[-1]["file"].rpartition("/source/")[2]
    return f" in {file}, line {own[-1]['line']}"
