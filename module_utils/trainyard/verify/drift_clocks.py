# SPDX-License-Identifier: Apache-2.0
"""Compare the clocks of nodes. Offsets are seconds."""

from __future__ import annotations

from collections.abc import Mapping

from ..cluster.clocks import apart as clocks_apart
from ..findings.adhoc import ansible
from ..findings.checks import Check
from ..findings.findings import host_list
from .drift_facts import ALONE


def judge_clocks(clocks: Mapping[str, Mapping[str, float] | None], limit: float, inventory: str = "") -> list[Check]:
    """Judge offsets against the controller: {host: {offset_s, margin_s}}, None where the clock could not be read.

    An offset is known up to its margin (half of the round trip), so only what is beyond both is a fault.
    """
    name, command = "time offset", ansible((), inventory, "clock_reading")
    checks = []
    unread = [host for host, clock in clocks.items() if clock is None]
    if unread:
        checks.append(
            Check(
                phase="drift",
                name=name,
                state="unknown",
                hosts=tuple(unread),
                found="no reading",
                expected=f"within {limit:g} s of the others",
                reason="the clock could not be read",
                action="run `date +%s.%N` on the node",
                command=command,
            )
        )
    known = {host: clock for host, clock in clocks.items() if clock is not None}
    if not known:
        return checks
    if len(known) == 1:
        return [*checks, Check(phase="drift", name=name, state="skipped", reason=ALONE)]
    apart, odd, vague = clocks_apart(known, limit)
    if odd:
        found = ", ".join(f"{host} {apart[host]:+.3f} s" for host in odd[:6]) + (
            f", ... ({len(odd) - 6} more)" if len(odd) > 6 else ""
        )
        checks.append(
            Check(
                phase="drift",
                name=name,
                state="fail",
                hosts=tuple(odd),
                found=found,
                expected=f"within {limit:g} s of the median",
                reason=f"{host_list(odd)} {'is' if len(odd) == 1 else 'are'} off",
                action="see what keeps the time there (timedatectl, chronyc sources)",
                command=command,
                source="verify_max_clock_offset_s",
                data={"offsets": {host: round(apart[host], 4) for host in odd}},
            )
        )
    if vague:
        checks.append(
            Check(
                phase="drift",
                name=name,
                state="unknown",
                hosts=tuple(vague),
                found=f"known only to {max(known[host]['margin_s'] for host in vague):.2f} s",
                expected=f"within {limit:g} s of the median",
                reason="the answer took too long to tell",
                action="run it again when the node is less busy",
                command=command,
            )
        )
    if not checks:
        spread = max(apart.values()) - min(apart.values())
        checks.append(
            Check(
                phase="drift",
                name=name,
                state="pass",
                found=f"{spread:.3f} s between the furthest",
                expected=f"within {limit:g} s",
            )
        )
    return checks
