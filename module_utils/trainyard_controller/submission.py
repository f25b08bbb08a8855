# SPDX-License-Identifier: Apache-2.0
"""Render what is submitted to an external scheduler, with the program that Slurm starts on each host."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ..trainyard.job.schedulers.records import Source, SubmittedPlan, Where
from . import agent_code, templates

# Variables that are for the controller alone, or secret.
_KEPT = ("job_registry_auth", "job_events_secret", "job_rank_table", "job_kubeconfig")
# Characters of a line of base64.
_WIDTH = 76


def rendered(
    plan: SubmittedPlan, job: Mapping[str, Any], where: Where, mpi_prefix: str, source: Source
) -> SubmittedPlan:
    """Return the plan with the texts of its templates; the hosts of an allocation plan from `job` and the rest."""
    program = []
    if plan.job.scheduler == "slurm":
        packed = base64.b64encode(_program(plan, job, where, mpi_prefix, source)).decode()
        program = [packed[at : at + _WIDTH] for at in range(0, len(packed), _WIDTH)]
    texts = {
        name: templates.render(each.path, {**each.context, "program": program}) for name, each in plan.templates.items()
    }
    return dataclasses.replace(plan, submitted={**plan.submitted, **texts}, templates={})


def _program(plan: SubmittedPlan, job: Mapping[str, Any], where: Where, mpi_prefix: str, source: Source) -> bytes:
    chosen = {name: value for name, value in job.items() if name not in _KEPT}
    if plan.job.slurm.gres == "none":
        # The plan has no devices, whatever the hosts have.
        chosen["job_devices"] = "none"
    about = {**dataclasses.asdict(where), "state_dir": plan.job_dir.rpartition("/jobs/")[0]}
    # Values of Ansible's own types are text.
    request = {"job": chosen, "where": about, "mpi_prefix": mpi_prefix, "secrets": plan.settings.get("secrets", "")}
    request = json.loads(json.dumps(request, default=str))
    return agent_code.allocated(request, source.archive)
