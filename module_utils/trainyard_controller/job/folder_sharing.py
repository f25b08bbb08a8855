# SPDX-License-Identifier: Apache-2.0
"""Ask hosts which folders they share, together with a question that visits them anyway.

Only hosts that left a token, mostly one for each shared disk, are visited once more to remove it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...trainyard.base.findings import Finding, Warned, faults
from ...trainyard.cluster.sharing import writers
from ...trainyard.job.plan import sharing_findings
from ...trainyard.job.plan.plan import JobPlan
from ...trainyard.job.record.job_runs import USER
from ...trainyard.job.schedulers import Plan
from .schedulers.scheduler_clients import Answer, Ask

Answers = Mapping[str, Answer]
# The playbook of a drill, whose jobs are those of a user, too.
DRILL = "drill.yml"


def with_folders(
    ask: Ask, folders: Sequence[str], user: str, query: Callable[[dict[str, Any]], Answers]
) -> tuple[Answers, dict[str, Any]]:
    """Return the answers to `query`, which sends its argument to the hosts, and their `folders` (sharing.FOLDERS)."""
    about = {"name": f".trainyard-{secrets.token_hex(8)}", "user": user}
    answers = query({**about, "folders": list(folders)})
    of_hosts = {host: answer["folders"] for host, answer in answers.items() if answer.get("folders")}
    left = writers(of_hosts)
    if left:
        ask("forget_tokens", {host: {**about, "folders": theirs} for host, theirs in left.items()})
    return answers, of_hosts


def preflight(
    ask: Ask, plan: Plan | None, user: str, asked_by: str, requests: Mapping[str, Mapping[str, Any]]
) -> tuple[Answers, Plan | None, list[Finding]]:
    """Ask for the preflight of each host in `requests`; return the answers, the plan with its folders, and findings."""
    if not requests or not isinstance(plan, JobPlan):
        return {}, plan, []
    # A verification starts hundreds that only measure.
    folders = sharing_findings.folders(plan.job, plan.placement) if asked_by in (USER, DRILL) else []
    if not folders:
        return ask("preflight", requests), plan, []

    def query(shared: dict[str, Any]) -> Answers:
        return ask("preflight", {host: {**request, "sharing": shared} for host, request in requests.items()})

    answers, of_hosts = with_folders(ask, [path for _, path in folders], user, query)
    if not of_hosts:
        return answers, plan, []
    records, found = sharing_findings.judge(plan.job, plan.placement, folders, of_hosts)
    warned = [*plan.warnings, *(each for each in found if isinstance(each, Warned))]
    return answers, replace(plan, folders=records, warnings=warned), faults(found)
