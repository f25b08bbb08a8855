# SPDX-License-Identifier: Apache-2.0
"""The agent's answers about the record of this node and the removal of trainyard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.removal.places import Settings, settings_of
from ...trainyard.removal.removal_plan import texts
from .keeping import Kept, KeptError
from .undo import Undo, read_plan


def keep_record(settings: Mapping[str, Any], *, begin: bool) -> dict[str, Any]:
    """Open the record before a run changes this node, or close it afterwards.

    `recorded` is false where the system is to be changed by a user who may not keep a record of it.
    """
    kept = Kept(_of_login(settings))
    if os.geteuid() != 0 and kept.settings.manage_system:
        return {"recorded": False, "findings": []}
    try:
        if begin:
            kept.open()
        elif kept.path.exists():
            kept.close()
        return {"recorded": kept.path.exists(), "findings": []}
    except KeptError as error:
        return {"recorded": False, "findings": [error.finding.as_dict()]}


def _of_login(settings: Mapping[str, Any]) -> Settings:
    """Return the settings, with the home of a user who changes nothing of the system."""
    found = settings_of(settings)
    return found if found.manage_system or not os.geteuid() else found._replace(home=str(Path.home()))


def removal(settings: Mapping[str, Any], *, data: bool, change: bool) -> dict[str, Any]:
    """Return the steps that take trainyard off this node, with `change` those that did, what stays, and findings."""
    nothing: dict[str, Any] = {"steps": [], "stays": [], "recorded": True}
    try:
        if not change:
            plan, record = read_plan(_of_login(settings), data=data)
            steps, problems = plan.steps, plan.findings
        else:
            undo = Undo(_of_login(settings), data=data)
            plan, record = undo.plan, undo.record
            # A job may have started since the first visit.
            steps = [] if plan.findings else undo.run()
            problems = [*plan.findings, *undo.problems]
    except KeptError as error:
        return {**nothing, "findings": [error.finding.as_dict()]}
    findings = [each.as_dict() for each in problems]
    return {"steps": texts(steps), "stays": plan.stays, "findings": findings, "recorded": record is not None}
