# SPDX-License-Identifier: Apache-2.0
"""Choose the node that a spare replaces after a failure, and the spare."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

# Failures of nodes that a spare replaces at once; a rank has to fail twice in a row.
_LOST = ("silent", "gone", "not_back")


def to_replace(failure: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> str:
    """Return the host that a failure says to replace, "" for none; `before` are the restarts so far."""
    host = str(failure.get("host") or "")
    if failure.get("kind") in _LOST:
        return host
    last = before[-1]["failure"] if before else {}
    return host if last.get("kind") == failure.get("kind") == "exit" and last.get("host") == host else ""


def choose(spares: Iterable[str], here: Container[str]) -> str | None:
    """Return the first spare, in the order of the plan, that is connected and reports in time; None without one."""
    return next((host for host in spares if host in here), None)
