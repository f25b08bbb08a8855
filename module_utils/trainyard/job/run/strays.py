# SPDX-License-Identifier: Apache-2.0
"""Report processes that started during a job and outlive it (trainyard_node/job/run/strays.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...findings.findings import counted
from ...findings.visible import visible

_MAX_HOSTS = 6


def texts(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return lines on processes of each host that started during the job, may not belong to it, and still run."""
    not_ended = {host: answer.get("not_ended") or {} for host, answer in answers.items()}
    found = {host: each for host, each in not_ended.items() if each.get("count")}
    lines = []
    for host, each in list(found.items())[:_MAX_HOSTS]:
        names = [visible(" ".join(text.split())) for text in each["processes"]]
        names += [f"{each['count'] - len(names)} more"] if each["count"] > len(names) else []
        processes = f"{counted(each['count'], 'process', 'processes')} of user {each['user']}"
        found_text = f"{processes} that started during the job: {'; '.join(names)}"
        lines.append(f"not ended by trainyard on {host}: {found_text}")
    if len(found) > _MAX_HOSTS:
        lines.append(f"not ended by trainyard: such processes on {counted(len(found) - _MAX_HOSTS, 'further host')}")
    if lines:
        lines.append("  where a rank started them (ssh, systemd-run), end them there: kill PID")
    return lines
