# SPDX-License-Identifier: Apache-2.0
"""Describe nodes that do not report to the head any more, and the failure that follows.

Times are seconds since the last report of each node; `limit_s` is how long a node may be silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def _late(silent_s: Mapping[str, float], limit_s: float) -> dict[str, int]:
    """Return the nodes that are silent for more than half of the limit: they may have frozen together."""
    return {host: round(since) for host, since in silent_s.items() if since > limit_s / 2}


def _names(hosts: Sequence[str]) -> str:
    # Few monitors ever need it, and all would load it.
    from ...findings.findings import host_list

    return host_list(hosts)


def _span(least: float, most: float) -> str:
    return f"{most} s" if least == most else f"{least} to {most} s"


def line(silent_s: Mapping[str, float], limit_s: float) -> str:
    """Return a line that names the silent nodes; "" where there is none."""
    late = _late(silent_s, limit_s)
    return f"no report from {_names(list(late))} for {_span(min(late.values()), max(late.values()))}" if late else ""


def failure(silent_s: Mapping[str, float], limit_s: float) -> dict[str, Any] | None:
    """Return the failure `silent` once a node is silent for too long; else None.

    `host` is silent for longest. If there are more silent nodes, `hosts` are all and `least_s` is the shortest time.
    """
    host = max(silent_s, key=lambda each: silent_s[each], default="")
    if not host or silent_s[host] <= limit_s:
        return None
    late = _late(silent_s, limit_s)
    others = {"hosts": list(late), "least_s": min(late.values())} if len(late) > 1 else {}
    return {"kind": "silent", "host": host, "after_s": round(silent_s[host]), **others}


def nodes(found: Mapping[str, Any]) -> str:
    """Return the names of the nodes that did not report."""
    hosts = found.get("hosts") or ()
    return f"nodes {_names(hosts)}" if hosts else f"node {found['host']}"


def since(found: Mapping[str, Any]) -> str:
    """Return for how long they did not report."""
    return f"no report for {_span(found.get('least_s', found['after_s']), found['after_s'])}"
