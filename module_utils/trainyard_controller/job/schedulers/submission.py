# SPDX-License-Identifier: Apache-2.0
"""Render what is submitted to an external scheduler, with the program that it starts on each host."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ....trainyard.base.findings import Finding
from ....trainyard.job.schedulers.kubernetes import manifests, scheduler
from ....trainyard.job.schedulers.records import Source, SubmittedPlan, Where
from ...nodes import agent_code
from ...runs import templates

# Variables that are for the controller alone, or secret.
_KEPT = ("job_registry_auth", "job_events", "job_events_secret", "job_rank_table", "job_kubeconfig")
# Characters of a line of base64.
_WIDTH = 76


def rendered(
    plan: SubmittedPlan, job: Mapping[str, Any], where: Where, mpi_prefix: str, source: Source
) -> tuple[SubmittedPlan, list[Finding]]:
    """Return the plan with the texts of its templates; the hosts of an allocation plan from `job` and the rest.

    The findings say what of it the scheduler would not take.
    """
    program = []
    if plan.job.scheduler == "slurm":
        request = _request(plan, job, where, mpi_prefix)
        packed = base64.b64encode(agent_code.allocated(request, source.archive)).decode()
        program = [packed[at : at + _WIDTH] for at in range(0, len(packed), _WIDTH)]
    if plan.settings.get("resource") == "Job":
        zipped = agent_code.allocated(_request(plan, job, where, mpi_prefix), b"")
        settings = plan.settings
        made = manifests.program(settings["name"], settings["namespace"], plan.job_id, zipped)
        text = scheduler.to_yaml([made]) + plan.submitted[scheduler.MANIFEST]
        return dataclasses.replace(plan, submitted={scheduler.MANIFEST: text}), manifests.too_large(zipped)
    texts = {
        name: templates.render(each.path, {**each.context, "program": program}) for name, each in plan.templates.items()
    }
    return dataclasses.replace(plan, submitted={**plan.submitted, **texts}, templates={}), []


def _request(plan: SubmittedPlan, job: Mapping[str, Any], where: Where, mpi_prefix: str) -> dict[str, Any]:
    chosen = {name: value for name, value in job.items() if name not in _KEPT}
    if plan.job.slurm.gres == "none":
        # The plan has no devices, whatever the hosts have.
        chosen["job_devices"] = "none"
    about = {**dataclasses.asdict(where), "state_dir": plan.job_dir.rpartition("/jobs/")[0]}
    # Values of Ansible's own types are text.
    request = {"job": chosen, "where": about, "mpi_prefix": mpi_prefix, "secrets": plan.settings.get("secrets", "")}
    if plan.job.scheduler == "kubernetes":
        own = scheduler.in_pods(plan.job)
        request |= {**own, "job": {**chosen, **own["job"]}}
    return dict(json.loads(json.dumps(request, default=str)))
