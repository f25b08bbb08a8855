# SPDX-License-Identifier: Apache-2.0
"""Compare the clocks of nodes. Offsets are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ..base.adhoc import ansible
from ..base.checks import Check
from ..base.findings import some_of
from ..cluster.clocks import clocks_apart
from .drift_facts import ALONE

_MAX_HOSTS = 6


def check_clocks(clocks: Mapping[str, Mapping[str, float] | None], limit: float, inventory: str = "") -> list[Check]:
    """Check offsets against the controller: {host: {offset_s, margin_s}}, None where the clock could not be read.

    An offset is known up to its margin (half of the round trip), so only an offset beyond both is a failure.
    """
    check = partial(Check, "drift", "time offset")
    command, expected = ansible((), inventory, "clock_reading"), f"within {limit:g} s of the median"
    checks = []
    unread = tuple(host for host, clock in clocks.items() if clock is None)
    if unread:
        reason, action = "the clock could not be read", "run `date +%s.%N` on the node"
        checks.append(check("unknown", unread, "no reading", expected, reason, action, command))
    known = {host: clock for host, clock in clocks.items() if clock is not None}
    if not known:
        return checks
    if len(known) == 1:
        return [*checks, check("skipped", reason=ALONE)]
    apart, odd, vague = clocks_apart(known, limit)
    if odd:
        found = ", ".join(some_of([f"{host} {apart[host]:+.3f} s" for host in odd], _MAX_HOSTS))
        reason = "the clock is off" if len(odd) == 1 else "the clocks are off"
        action, source = "see what sets the clock there (timedatectl, chronyc sources)", "verify_max_clock_offset_s"
        data = {"offsets": {host: round(apart[host], 4) for host in odd}}
        checks.append(check("fail", tuple(odd), found, expected, reason, action, command, source, data))
    if vague:
        found = f"known only to {max(known[host]['margin_s'] for host in vague):.2f} s"
        reason, action = "the answer took too long to measure the offset", "run it again when the node is less busy"
        checks.append(check("unknown", tuple(vague), found, expected, reason, action, command))
    if checks:
        return checks
    spread = max(apart.values()) - min(apart.values())
    return [check("pass", found=f"{spread:.3f} s between the furthest", expected=f"within {limit:g} s")]
