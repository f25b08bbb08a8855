# SPDX-License-Identifier: Apache-2.0
"""Hold hosts to a lock while they install from their own mirrors: the versions for apt, and what a mirror lacks."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.findings import Finding, some_of
from ..software import apt

# Above all repositories, which have 500 or 990; from 1000 on a newer version would be replaced.
_PRIORITY = 995
_PURPOSE = "trainyard installs the versions of a lock. playbooks/bundle_leave.yml removes this file."
# Upper bound for the packages that one finding lists.
_SHOWN = 6
AGAIN = "run playbooks/lock.yml again: the lock is older than the inventory"
_RENEW = "renew the lock (playbooks/lock.yml -e lock_upgrade=true), or install from a bundle (trainyard_bundle)"


def absent(path: str) -> Finding:
    """Return the finding on a lock that is named, but not there."""
    return Finding("lock", f"{path} does not exist", "the lock that trainyard_lock names", "run playbooks/lock.yml")


def preferences(found: Mapping[str, str]) -> str:
    """Write the preferences by which apt takes these versions; "" without any. An installed newer one stays."""
    return apt.preferences(found, _PURPOSE, _PRIORITY) if found else ""


def lacking(locked: Mapping[str, str], names: list[str], status: int, simulation: str) -> list[Finding]:
    """Return the finding where apt would install other versions than the locked ones, from `apt-get --simulate`."""
    if status:
        found = f"apt-get install {' '.join(some_of(names, _SHOWN))} is not possible: {apt.reasons(simulation)}"
        return [Finding("lock", found, "packages in the versions of the lock", _RENEW)]
    others = [
        f"{change.name} {locked[change.name]} no more, but {change.new}"
        for change in apt.read_transaction(simulation)
        if change.new and locked.get(change.name, change.new) != change.new
    ]
    if not others:
        return []
    found = f"the mirror has {', '.join(some_of(others, _SHOWN))}"
    return [Finding("lock", found, "the versions of the lock", _RENEW)]
