# SPDX-License-Identifier: Apache-2.0
"""The record of excluded hosts on the controller: one file per cluster, beside its runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.job.record import excluded_hosts
from ...trainyard.job.record.excluded_hosts import Excluded, HealthChecks
from . import saved_state
from .locks import locked
from .run_folder import write_whole
from .saved_state import NotReadError


def read(file: Path) -> Excluded:
    """Return the excluded hosts by name."""
    hosts: Excluded = _record(file)["excluded"]
    return hosts


def _record(file: Path) -> dict[str, Any]:
    """Return the record, an empty one where there is none or a damaged one. Raises NotReadError for a newer version."""
    try:
        return saved_state.read(file, state_format.EXCLUDED, excluded_hosts.SHAPE) or excluded_hosts.empty()
    except NotReadError as error:
        if not error.damaged:
            raise
        return excluded_hosts.empty()


def _damaged(file: Path) -> str:
    """Return a warning that the hosts in the record are not known, as the file is damaged."""
    try:
        saved_state.read(file, state_format.EXCLUDED, excluded_hosts.SHAPE)
    except NotReadError as error:
        return f"the record of excluded hosts is begun anew: {error.finding.found}" if error.damaged else ""
    return ""


def change(file: Path, how: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Change the record under a lock against other playbooks. Raises NotWrittenError, or OSError without a folder."""
    with locked(file.parent):
        before = _record(file)
        after = how(before)
        if after != before:
            record = state_format.stamped(after, state_format.EXCLUDED)
            write_whole(file, json.dumps(record, indent=2) + "\n")


@dataclass(frozen=True)
class Update:
    """Lines on readmitted hosts; since when other hosts are excluded, by host; why the record was not written."""

    readmitted: Sequence[str]
    again: Mapping[str, str]
    warning: str = ""


def update(file: Path, checks: HealthChecks, job_id: str, inventory: Sequence[str], dry_run: bool) -> Update:
    """Record the health checks of a launch; hosts that pass are readmitted. `dry_run` writes nothing."""
    known, now = read(file), time.time()
    healthy = {host: check.devices for host, check in checks.items() if check.problems == []}
    unhealthy = {
        host: {"reason": "; ".join(check.problems), "since": now} for host, check in checks.items() if check.problems
    }

    def how(record: Mapping[str, Any]) -> Mapping[str, Any]:
        again = excluded_hosts.healthy_again(record["excluded"], healthy)
        left = excluded_hosts.readmit(record, again, now, inventory)
        return excluded_hosts.add(left, unhealthy, job_id, {host: checks[host].devices for host in unhealthy}, now)

    warning = _damaged(file)
    try:
        if not dry_run:
            change(file, how)
    except OSError as error:
        warning = f"the record of excluded hosts cannot be written: {error.filename or file}: {error.strerror}"
    still = {host: excluded_hosts.since(known[host]) for host in unhealthy if host in known}
    return Update(excluded_hosts.readmitted_lines(known, excluded_hosts.healthy_again(known, healthy)), still, warning)
