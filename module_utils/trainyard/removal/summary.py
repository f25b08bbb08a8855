# SPDX-License-Identifier: Apache-2.0
"""Say what was removed from which hosts, and what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.findings import grouped, host_list


def summary(answers: Mapping[str, Mapping[str, Any]], *, check: bool) -> str:
    """Return the text for people: hosts with the same steps are named together."""
    lines: list[str] = []
    by_steps = grouped(
        ((tuple(answer["steps"]), tuple(answer["stays"])), host)
        for host, answer in answers.items()
        if "steps" in answer
    )
    for (steps, stays), hosts in by_steps.items():
        if not steps:
            lines.append(f"{host_list(hosts)}: nothing of trainyard is there to remove.")
        elif check:
            lines.append(f"{host_list(hosts)}: remove.yml would")
        else:
            lines.append(f"{host_list(hosts)}: done:")
        lines += [f"  {step}" for step in steps]
        lines += ["  What stays:", *(f"    {each}" for each in stays)] if stays else []
    return "\n".join(lines)
