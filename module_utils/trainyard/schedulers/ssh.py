# SPDX-License-Identifier: Apache-2.0
"""Scheduler `ssh`: trainyard itself, which places ranks on the hosts of the inventory, in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import launchers
from ..findings import Finding
from ..job import Job
from ..placement import Member
from ..plan import JobPlan, build
from .records import Source, Where

LAUNCHERS: tuple[str, ...] = tuple(launchers.LAUNCHERS)

# It is sent to every node. Training scripts are kilobytes; data has its own role.
MOST_SOURCE = 16 << 20


def plan(
    job: Job, given: Mapping[str, Any], facts: Sequence[Member], source: Source, where: Where
) -> tuple[JobPlan | None, list[Finding]]:
    """Return what runs on each of the members, which are what is known of the job's hosts, in the inventory's order."""
    del given
    made, findings = build(job, where.job_id, where.created, where.state_dir, facts)
    instead = "keep data and checkpoints elsewhere (role dataset, job_data)"
    return made, findings + source.too_large(MOST_SOURCE, " of scripts", instead)
