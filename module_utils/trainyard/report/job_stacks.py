# SPDX-License-Identifier: Apache-2.0
"""Where the ranks were when a job hung, as its page shows it: ranks with equal stacks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import counted, host_list
from ..job.run.logs.progress import clock
from ..job.run.logs.stacks import more_text

Data = Mapping[str, Any]

# Names of hosts that are shown without unfolding, and at all: a page of thousands of ranks stays small.
FEW_HOSTS, MAX_HOSTS = 6, 128


def content(summary: Data) -> dict[str, Any] | None:
    """Return the groups of ranks and when they were taken; None for a job without stacks."""
    record = summary.get("stacks")
    if not record or not record["groups"]:
        return None
    groups = [_group(group, first=number == 0) for number, group in enumerate(record["groups"])]
    after = clock(max(0.0, record["time"] - summary["started"])) if summary["started"] else ""
    return {"after": after, "groups": groups, "more": more_text(record["more"]) if record["more"] else ""}


def others(lines: Sequence[str], stacks: Data | None) -> list[str]:
    """Return the lines that are not about one of the groups, which have a section of their own."""
    texts = {group["text"] for group in stacks["groups"]} | {stacks["more"]} if stacks else set()
    return [line for line in lines if line not in texts]


def _group(group: Data, *, first: bool) -> dict[str, Any]:
    hosts = group["hosts"]
    left = len(hosts) - MAX_HOSTS
    return {
        "text": group["text"],
        "odd": group["odd"],
        # The group that differs is read first; without one, the first group.
        "open": group["odd"] or first,
        "size": f"{counted(len(group['ranks']), 'rank')} on {counted(len(hosts), 'node')}",
        "hosts": host_list(hosts, FEW_HOSTS),
        "all_hosts": ", ".join(hosts[:MAX_HOSTS]) + (f", ... ({left} more in summary.json)" if left > 0 else ""),
        "folded": len(hosts) > FEW_HOSTS,
        "frames": [
            {"text": f"{name} ({file}{f':{line}' if line else ''})", "own": owner == "own"}
            for name, file, line, owner in group["frames"]
        ],
        "problem": group["problem"],
    }
