# SPDX-License-Identifier: Apache-2.0
"""The event of a verification whose result differs from the one before, and its receivers. Pure.

Receivers, signature and delivery are those of a job's events (docs/events.md); they are of the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import Finding, counted, host_list
from ..job.file import event_receivers
from ..job.record.events import MAX_TEXT
from .report import first_text

Report = Mapping[str, Any]

KINDS = ("verify_pass", "verify_unknown", "verify_fail", "verify_nodes")
ORIGIN = event_receivers.Origin("verify_events", KINDS, "the controller", "you")


def findings(receivers: Sequence[Any], secret: str) -> list[Finding]:
    """Return the findings about verify_events and verify_events_secret."""
    given = {ORIGIN.variable: receivers, f"{ORIGIN.variable}_secret": secret}
    found: list[Finding] = []
    event_receivers.receivers(given, found, ORIGIN)
    return found + event_receivers.secret_findings(given, ORIGIN)


def settings(receivers: Sequence[Any], secret: str) -> dict[str, Any]:
    """Return what the sender takes, of receivers without findings."""
    return {
        "receivers": event_receivers.receivers({ORIGIN.variable: receivers}, [], ORIGIN),
        "secret": secret,
        "every_s": 0,
    }


def phases_of(report: Report) -> list[str]:
    """Return the phases of a verification; only results of the same phases are compared."""
    return [str(phase["name"]) for phase in report["phases"]]


def _failed(report: Report) -> list[str]:
    return [str(node["host"]) for node in report["nodes"] if node["state"] == "fail"]


def event(earlier: Iterable[Report], now: Report) -> dict[str, Any] | None:
    """Return the event of a verification, None where it ended like the one before.

    `earlier` are reports of the cluster; the newest with the same phases counts. The first verification of a cluster is
    an event unless it passed.
    """
    same = [report for report in earlier if phases_of(report) == phases_of(now) and report["started"] < now["started"]]
    before = max(same, key=lambda report: float(report["started"]), default=None)
    then, state, hosts = before["state"] if before else "", now["state"], _failed(now)
    if state != (then or "pass"):
        kind = f"verify_{state}"
    elif before and set(_failed(before)) != set(hosts):
        kind = "verify_nodes"
    else:
        return None
    text = f"cluster {now['cluster']}: {state}, {f'before: {then}' if then else 'the first verification'}"
    if hosts:
        text += f"; {counted(len(hosts), 'node')} failed: {host_list(hosts)}"
    text += f"; {first_text(now['first'])}" if now["first"] else ""
    text = " ".join(text.split())
    return {
        "event": kind,
        "id": f"{now['id']}-{kind}",
        "time": round(float(now["finished"]), 3),
        "job_id": now["id"],
        "cluster": now["cluster"],
        "text": text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}...",
        "state": state,
        "before": then or None,
        "hosts": hosts,
        "phases": phases_of(now),
    }
