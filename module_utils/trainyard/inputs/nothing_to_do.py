# SPDX-License-Identifier: Apache-2.0
"""Runs in which nothing would be done: no hosts, tags that match nothing, a --limit that leaves out who is needed.

Ansible skips what has no hosts and ends with success; who called it would take that for an answer.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from ..findings.adhoc import extra_vars
from ..findings.checks import PHASES
from ..findings.findings import Finding, counted, host_list

# Tags with a meaning of Ansible's own.
SPECIAL = frozenset({"all", "always", "never", "tagged", "untagged"})
# Playbooks that work on hosts: the variable that may name others than the group, the group, and how many there must be.
HOSTS = {
    "site.yml": ("", "compute", 1),
    "validate.yml": ("", "compute", 1),
    "provision.yml": ("", "compute", 1),
    "verify.yml": ("", "compute", 1),
    "collective_check.yml": ("check_hosts", "compute", 1),
    "collective_benchmark.yml": ("benchmark_hosts", "compute", 1),
    "pair_check.yml": ("pair_hosts", "compute", 2),
    "rank_table.yml": ("rank_table_hosts", "compute", 1),
    "hostfile.yml": ("hostfile_hosts", "compute", 1),
    "nvidia_reboot.yml": ("", "nvidia", 1),
    "nvidia_upgrade.yml": ("", "nvidia", 1),
}
# Those that measure and do nothing else.
MEASURING = ("verify.yml",)


@dataclass(frozen=True)
class Run:
    """One call of ansible-playbook.

    `playbook` is the file's name; `hosts` those of the group, or of the variable that names them, and `left` what
    --limit leaves of them; `named` what that variable was given as; `has_group` whether there is such a group. `known`
    are all tags of the playbook, `runs` whether --tags and --skip-tags leave any of its tasks, `controller` whether one
    of the plays that they leave needs the controller, which --limit leaves where `controller_left`. `start_at` is the
    task with which --start-at-task begins.
    """

    playbook: str
    hosts: Sequence[str] = ()
    left: Sequence[str] = ()
    named: str = ""
    has_group: bool = True
    limit: str = ""
    tags: Sequence[str] = ()
    skip_tags: Sequence[str] = ()
    known: Sequence[str] = ()
    runs: bool = True
    controller: bool = False
    controller_left: bool = True
    check: bool = False
    start_at: str = ""


def findings(run: Run) -> list[Finding]:
    """Return why nothing, or less than was meant, would be done."""
    return [*_check(run), *_start_at(run), *_tags(run), *_hosts(run), *_limit(run)]


def _check(run: Run) -> list[Finding]:
    if not run.check or run.playbook not in MEASURING:
        return []
    return [
        Finding(
            "--check",
            f"{run.playbook} with --check, which measures nothing",
            "a run that measures",
            "leave out --check: nothing is installed or configured by it",
        )
    ]


def _start_at(run: Run) -> list[Finding]:
    if not run.start_at:
        return []
    return [
        Finding(
            "--start-at-task",
            f"{run.start_at!r}, which leaves out the tasks before it",
            "all tasks: each builds on what those before it have found",
            "leave it out: what is done already is left as it is",
        )
    ]


def _tags(run: Run) -> list[Finding]:
    known = sorted(set(run.known) - SPECIAL)
    expected = f"some of {', '.join(known)}" if known else f"no tags: {run.playbook} has none"
    missing = [tag for tag in run.tags if tag not in SPECIAL and tag not in run.known]
    found = []
    for tag in missing:
        like = difflib.get_close_matches(tag, known, 1, 0.6)
        action = f"--tags {like[0]}" if like else "leave out --tags" if not known else "correct --tags"
        if tag in PHASES:
            # What verify.yml looks at is no matter of tags.
            action = extra_vars({"verify_phases": [tag]})
        found.append(Finding("--tags", f"no task of {run.playbook} has the tag {tag}", expected, action))
    if not missing and not run.runs:
        options = [f"--tags {','.join(run.tags)}"] if set(run.tags) - {"all"} else []
        options += [f"--skip-tags {','.join(run.skip_tags)}"] if run.skip_tags else []
        found.append(
            Finding("--tags", f"{' '.join(options)} leaves no task of {run.playbook}", expected, "correct them")
        )
    return found


def _hosts(run: Run) -> list[Finding]:
    variable, group, least = HOSTS.get(run.playbook, ("", "", 0))
    if len(run.hosts) >= least:
        return []
    where = f"{variable} {run.named!r}" if run.named else f"group {group}"
    if run.hosts:
        only = f"only {host_list(run.hosts)} in {where}"
        action = "name more of them; playbooks/verify.yml verifies a single node"
        return [Finding("hosts", only, f"at least {counted(least, 'host')}: a pair is two", action)]
    found = f"no host in {where}" if run.named or run.has_group else f"no {where} in the inventory"
    action = f"correct {variable}" if run.named else f"put hosts into the group {group}, or name another inventory (-i)"
    return [Finding("hosts", found, f"at least {counted(least, 'host')}", action)]


def _limit(run: Run) -> list[Finding]:
    _, group, least = HOSTS.get(run.playbook, ("", "", 0))
    found = []
    if run.limit and len(run.hosts) >= least > len(run.left):
        where = run.named or f"the group {group}"
        rest = host_list(run.left) if run.left else "none"
        found.append(
            Finding(
                "--limit",
                f"--limit {run.limit} leaves {rest} of {where}",
                f"at least {counted(least, 'host')}",
                f"name others of {host_list(run.hosts)}, or leave out --limit",
            )
        )
    if run.controller and not run.controller_left:
        found.append(
            Finding(
                "--limit",
                f"--limit {run.limit} leaves out localhost, where jobs are planned and their runs are kept",
                "localhost among them",
                (
                    f"--limit {run.limit},localhost; or none: job_hosts and job_nodes choose the hosts of a job, "
                    "job_id or job_name a run"
                ),
            )
        )
    return found
