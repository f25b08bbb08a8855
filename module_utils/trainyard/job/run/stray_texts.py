# SPDX-License-Identifier: Apache-2.0
"""Report processes and shared memory that a job may have left (trainyard_node/job/run/evidence/strays.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.findings import counted
from ...base.visible import visible

_MAX_HOSTS = 6


def texts(answers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return lines on processes of each host that started during the job and still run, and on its shared memory."""
    not_ended = {host: answer.get("not_ended") or {} for host, answer in answers.items()}
    return [*_processes(not_ended), *_shared_memory(not_ended)]


def _names(texts: Sequence[str], count: int) -> str:
    names = [visible(" ".join(text.split())) for text in texts]
    return "; ".join([*names, *([f"{count - len(names)} more"] if count > len(names) else [])])


def _shared_memory(not_ended: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = {host: each for host, each in not_ended.items() if each.get("shared_memory")}
    lines = []
    for host, each in list(found.items())[:_MAX_HOSTS]:
        shared = each["shared_memory"]
        files = f"{shared['size_mib']} MiB in {counted(shared['count'], 'file')} of user {each['user']}"
        names = _names(shared["names"], shared["count"])
        lines.append(f"left in /dev/shm on {host}: {files}, which no process uses: {names}")
    if len(found) > _MAX_HOSTS:
        lines.append(f"left in /dev/shm: such files on {counted(len(found) - _MAX_HOSTS, 'further host')}")
    if lines:
        lines.append("  if the job made them, remove them there: rm /dev/shm/NAME")
    return lines


def _processes(not_ended: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = {host: each for host, each in not_ended.items() if each.get("count")}
    lines = []
    for host, each in list(found.items())[:_MAX_HOSTS]:
        processes = f"{counted(each['count'], 'process', 'processes')} of user {each['user']}"
        found_text = f"{processes} that started during the job: {_names(each['processes'], each['count'])}"
        lines.append(f"not ended by trainyard on {host}: {found_text}")
    if len(found) > _MAX_HOSTS:
        lines.append(f"not ended by trainyard: such processes on {counted(len(found) - _MAX_HOSTS, 'further host')}")
    if lines:
        lines.append("  where a rank started them (ssh, systemd-run), end them there: kill PID")
    return lines
