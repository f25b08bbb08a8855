# SPDX-License-Identifier: Apache-2.0
"""The record of excluded hosts on the controller: one file per cluster, beside its runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..trainyard.job.record import excluded_hosts
from ..trainyard.job.record.excluded_hosts import Excluded, HealthChecks
from ..trainyard_node.machine.json_files import read_json
from .locks import locked
from .run_folder import write_whole


def read(file: Path) -> Excluded:
    """Return the excluded hosts by name."""
    hosts: Excluded = excluded_hosts.parse(read_json(file))["excluded"]
    return hosts


def change(file: Path, how: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Change the record under a lock against other playbooks. Raises NotWrittenError, or OSError without a folder."""
    with locked(file.parent):
        before = excluded_hosts.parse(read_json(file))
        after = how(before)
        if after != before:
            write_whole(file, json.dumps(after, indent=2) + "\n")


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

    warning = ""
    try:
        if not dry_run:
            change(file, how)
    except OSError as error:
        warning = f"the record of excluded hosts cannot be written: {error.filename or file}: {error.strerror}"
    still = {host: excluded_hosts.since(known[host]) for host in unhealthy if host in known}
    return Update(excluded_hosts.readmitted_lines(known, excluded_hosts.healthy_again(known, healthy)), still, warning)
