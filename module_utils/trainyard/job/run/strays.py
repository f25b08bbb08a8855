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
    lines = [
        f"not ended by trainyard on {host}: {counted(each['count'], 'process', 'processes')} of user {each['user']} "
        f"that started during the job: {_named(each)}"
        for host, each in list(found.items())[:_MAX_HOSTS]
    ]
    if len(found) > _MAX_HOSTS:
        lines.append(f"not ended by trainyard: such processes on {counted(len(found) - _MAX_HOSTS, 'further host')}")
    if lines:
        lines.append("  where a rank started them (ssh, systemd-run), end them there: kill PID")
    return lines


def _named(found: Mapping[str, Any]) -> str:
    names = [visible(" ".join(text.split())) for text in found["processes"]]
    more = found["count"] - len(names)
    return "; ".join([*names, *([f"{more} more"] if more > 0 else [])])
