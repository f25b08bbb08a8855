# SPDX-License-Identifier: Apache-2.0
"""Find runs that would do nothing: no hosts, tags that match nothing, a --limit that leaves out required hosts.

Ansible skips plays without hosts and exits with success, which would look like a result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..base.adhoc import extra_vars
from ..base.checks import PHASES
from ..base.findings import Finding, counted, host_list

# Tags with a meaning of Ansible's own.
SPECIAL = frozenset({"all", "always", "never", "tagged", "untagged"})
# Tags of tasks that belong to every run.
ALWAYS = frozenset({"all", "always"})
# Playbooks that work on hosts: the variable that may name other hosts than the group, the group, the minimum of hosts.
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
    "image.yml": ("image_host", "compute", 1),
    "nvidia_reboot.yml": ("", "nvidia", 1),
    "nvidia_upgrade.yml": ("", "nvidia", 1),
    "bundle.yml": ("", "compute", 1),
    "bundle_leave.yml": ("", "compute", 1),
    "bundle_use.yml": ("", "compute", 1),
    "lock.yml": ("", "compute", 1),
    "remove.yml": ("", "compute", 1),
}
# Playbooks that start the job of a job file, whose variables choose its hosts.
STARTS = ("launch.yml", "drill.yml", "bisect.yml")
# Playbooks that start jobs and write trainyard_runs.
RUNS = (*STARTS, "site.yml", "verify.yml", "collective_check.yml", "collective_benchmark.yml", "pair_check.yml")
# Playbooks that only measure.
MEASURING = ("verify.yml",)


@dataclass(frozen=True)
class Run:
    """One call of ansible-playbook: the playbook's file name and its options.

    `hosts` are those of the group, or of the variable that names them with the value `named`; `left` are the ones that
    --limit leaves; `has_group` tells whether the group exists. `known` are all tags of the playbook, `runs` tells
    whether --tags and --skip-tags leave any task. `controller` tells whether a remaining play needs the controller,
    `controller_left` whether --limit leaves it. `start_at` is the value of --start-at-task.
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
    return [*_options(run), *_tags(run), *_hosts(run), *_limit(run)]


def _options(run: Run) -> Iterator[Finding]:
    if run.check and run.playbook in MEASURING:
        found = f"{run.playbook} with --check, which measures nothing"
        action = "leave out --check: nothing is installed or configured by it"
        yield Finding("--check", found, "a run that measures", action)
    for tag in sorted(ALWAYS.intersection(run.skip_tags)):
        found = f"{tag}, which leaves out {'tasks that check and clean up' if tag == 'always' else 'all tasks'}"
        yield Finding("--skip-tags", found, "tags of the steps that are not wanted", f"leave out --skip-tags {tag}")
    if run.start_at:
        found = f"{run.start_at!r}, which leaves out the tasks before it"
        action = "leave it out: completed tasks change nothing the second time"
        yield Finding("--start-at-task", found, "all tasks: each builds on the results of those before it", action)


def _tags(run: Run) -> Iterator[Finding]:
    tags = sorted(set(run.known) - SPECIAL)
    expected = f"some of {', '.join(tags)}" if tags else f"no tags: {run.playbook} has none"
    missing = [tag for tag in run.tags if tag not in SPECIAL and tag not in run.known]
    for tag in missing:
        near = difflib.get_close_matches(tag, tags, 1, 0.6)
        action = f"--tags {near[0]}" if near else "correct --tags" if tags else "leave out --tags"
        if tag in PHASES:
            # A variable, not a tag, chooses the phases of verify.yml.
            action = extra_vars({"verify_phases": [tag]})
        yield Finding("--tags", f"no task of {run.playbook} has the tag {tag}", expected, action)
    if not missing and not run.runs:
        options = [f"--tags {','.join(run.tags)}"] if set(run.tags) - {"all"} else []
        options += [f"--skip-tags {','.join(run.skip_tags)}"] if run.skip_tags else []
        found = f"{' '.join(options)} leaves no task of {run.playbook}"
        yield Finding("--tags", found, expected, "correct them")


def _hosts(run: Run) -> Iterator[Finding]:
    variable, group, minimum = HOSTS.get(run.playbook, ("", "", 0))
    if len(run.hosts) >= minimum:
        return
    where = f"{variable} {run.named!r}" if run.named else f"group {group}"
    expected = f"at least {counted(minimum, 'host')}"
    if run.hosts:
        action = "name more of them; playbooks/verify.yml verifies a single node"
        yield Finding("hosts", f"only {host_list(run.hosts)} in {where}", f"{expected}: a pair is two", action)
        return
    found = f"no host in {where}" if run.named or run.has_group else f"no {where} in the inventory"
    action = f"correct {variable}" if run.named else f"put hosts into the group {group}, or name another inventory (-i)"
    yield Finding("hosts", found, expected, action)


def _limit(run: Run) -> Iterator[Finding]:
    _, group, minimum = HOSTS.get(run.playbook, ("", "", 0))
    option = f"--limit {run.limit}"
    if run.limit and len(run.hosts) >= minimum > len(run.left):
        rest = host_list(run.left) if run.left else "none"
        found = f"{option} leaves {rest} of {run.named or f'the group {group}'}"
        action = f"name others of {host_list(run.hosts)}, or leave out --limit"
        yield Finding("--limit", found, f"at least {counted(minimum, 'host')}", action)
    if run.controller and not run.controller_left:
        found = f"{option} leaves out localhost, where jobs are planned and their runs are stored"
        action = f"{option},localhost"
        if run.playbook in STARTS:
            action = "leave out --limit: -e job_hosts=NAME or -e job_nodes=NUMBER chooses the hosts of a job"
        elif run.playbook not in HOSTS:
            action = "leave out --limit: -e job_id=ID or -e job_name=NAME chooses a run"
        yield Finding("--limit", found, "localhost among them", action)
