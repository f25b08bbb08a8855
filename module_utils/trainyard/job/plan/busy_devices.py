# SPDX-License-Identifier: Apache-2.0
"""Devices that somebody else uses when a job starts (job_busy_devices), and the order of launches that wait for them.

A launch that waits leaves a ticket on each of its nodes and renews it with each visit. If two wait for the
same device, the older one goes first: the launches of several people never start on it at the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...base.findings import Finding, counted
from ...base.shapes import Shape, Whole

# Values of job_busy_devices. The table of all variables would cost each query about a job more than this module does.
WAIT, SHARE = "wait", "share"
# The check of a finding about such devices.
CHECK = "job_busy_devices"
# Seconds after which a ticket that nobody renews counts no more. A launch takes less time from its last visit to its
# start.
FRESH_S = 120.0
# Pause between two visits, and between two lines that say whom a launch waits for, in seconds.
VISIT_S, SAY_S = 10.0, 60.0
# A ticket: the devices for which a launch waits here, and whether it has found all its devices free and starts.
TICKET: Shape = {"devices": [Whole(1 << 16)], "starts": bool}
_MAX_HOSTS = 4


def findings(jobs: Mapping[str, Sequence[int]], holders: Sequence[str], queue: Sequence[str]) -> list[Finding]:
    """Find devices of a node that running `jobs` of ours, other processes, or older launches in the `queue` have."""
    expected = "devices that nobody else uses"
    wait = "wait for them (job_busy_devices: wait), choose others with job_devices or other hosts"
    found = []
    for job_id, devices in jobs.items():
        used = f"device {', '.join(map(str, devices))} in use by job {job_id}"
        stop = f"{wait}, or stop that job: playbooks/stop.yml with job_id {job_id}"
        found.append(Finding(CHECK, used, expected, stop))
    share = f"{wait}, or start beside them (job_busy_devices: share)"
    if holders:
        found.append(Finding(CHECK, "; ".join(holders), expected, share))
    return found + [Finding(CHECK, f"job {job_id} waits for them and is next", expected, share) for job_id in queue]


def ahead(job_id: str, devices: Sequence[int], tickets: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the launches that go first on these devices: what starts, and what is older than this job."""
    return [
        other
        for other, ticket in sorted(tickets.items(), key=lambda each: _age(each[0]))
        if other != job_id
        and set(devices) & set(ticket["devices"])
        and (ticket["starts"] or _age(other) < _age(job_id))
    ]


def _age(job_id: str) -> tuple[str, ...]:
    # The time and the random digits, without the name (job_id.make).
    return (*job_id.split("-")[-3:], job_id)


def only(found: Sequence[Finding]) -> bool:
    """Return whether nothing but busy devices keeps a job from starting."""
    return bool(found) and all(finding.check == CHECK and finding.host for finding in found)


def waiting_text(found: Sequence[Finding], waited_s: float, limit_s: float) -> str:
    """Return whom a launch waits for, on one line."""
    texts = [f"{finding.host}: {finding.found}" for finding in found]
    more = f"; {len(texts) - _MAX_HOSTS} more" if len(texts) > _MAX_HOSTS else ""
    minutes = f" for {counted(int(waited_s // 60), 'minute')}" if waited_s >= SAY_S else ""
    limit = f"at most {limit_s:.0f} s, job_wait_timeout"
    return f"Waiting{minutes} for devices ({limit}): {'; '.join(texts[:_MAX_HOSTS])}{more}"


def too_long(limit_s: float) -> Finding:
    """Return the finding of a launch that has waited for devices until its limit."""
    expected = "devices that become free in that time"
    action = "raise job_wait_timeout, choose other hosts or job_devices, or start beside others with share"
    return Finding("job_wait_timeout", f"waited {limit_s:.0f} s for the devices below", expected, action)
