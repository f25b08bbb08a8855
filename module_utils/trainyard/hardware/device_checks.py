# SPDX-License-Identifier: Apache-2.0
"""Results of checks of devices: one record for all hosts with a fault, and one for those without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.adhoc import shell as adhoc
from ..findings.checks import Check
from ..findings.findings import host_list

Reading = Mapping[str, Any]
_MOST_PARTS = 6


def _shell(hosts: Sequence[str], inventory: str, shown: str) -> str:
    return adhoc(hosts, inventory, shown, become=True)


def _parts(texts: Mapping[str, Sequence[str]]) -> str:
    """Return what was found, each text once with its hosts."""
    hosts: dict[str, list[str]] = {}
    for host, found in texts.items():
        hosts.setdefault(", ".join(found), []).append(host)
    parts = [f"{host_list(names)}: {text}" for text, names in hosts.items()]
    return "; ".join(parts[:_MOST_PARTS]) + (
        f"; ... ({len(parts) - _MOST_PARTS} more)" if len(parts) > _MOST_PARTS else ""
    )


def outcome(
    name: str,
    bad: Mapping[str, Sequence[str]],
    silent: Mapping[str, Sequence[str]],
    well: Sequence[str],
    what: str,
    *,
    expected: str,
    reason: str,
    action: str,
    shown: str,
    inventory: str,
) -> list[Check]:
    """Return the results of one check: hosts with faults, hosts without an answer, or a pass."""

    def check(state: str, hosts: Mapping[str, Sequence[str]], reason: str, advice: str) -> Check:
        names = list(hosts)
        return Check(
            phase="devices",
            name=name,
            state=state,
            hosts=tuple(names),
            found=_parts(hosts),
            expected=expected,
            reason=reason,
            action=advice,
            command=_shell(names, inventory, shown),
        )

    checks = []
    if bad:
        checks.append(check("fail", bad, f"{reason} on {host_list(list(bad))}", action))
    if silent:
        checks.append(
            check("unknown", silent, f"no answer from {host_list(list(silent))}", f"run on the node: {shown}")
        )
    if well and not checks:
        command = _shell((), inventory, shown)
        checks.append(Check(phase="devices", name=name, state="pass", found=what, expected=expected, command=command))
    return checks
