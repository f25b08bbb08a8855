# SPDX-License-Identifier: Apache-2.0
"""How checks of devices are told: one record for all hosts that have the same fault, or that did not say."""

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
    """Say what was found: the same thing once, with the hosts that have it."""
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
    """Make the records of one check: those at fault, those that did not say, the others."""
    checks = []
    if bad:
        checks.append(
            Check(
                phase="devices",
                name=name,
                state="fail",
                hosts=tuple(bad),
                found=_parts(bad),
                expected=expected,
                reason=f"{reason} on {host_list(list(bad))}",
                action=action,
                command=_shell(list(bad), inventory, shown),
            )
        )
    if silent:
        checks.append(
            Check(
                phase="devices",
                name=name,
                state="unknown",
                hosts=tuple(silent),
                found=_parts(silent),
                expected=expected,
                reason=f"{host_list(list(silent))} did not say",
                action=f"see on the node: {shown}",
                command=_shell(list(silent), inventory, shown),
            )
        )
    if well and not checks:
        checks.append(
            Check(
                phase="devices",
                name=name,
                state="pass",
                found=what,
                expected=expected,
                command=_shell((), inventory, shown),
            )
        )
    return checks
