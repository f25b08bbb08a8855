# SPDX-License-Identifier: Apache-2.0
"""Results of checks of devices: one record for all hosts with a fault, and one for those without an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..base.adhoc import shell
from ..base.checks import Check
from ..base.findings import grouped, host_list, some_of

Reading = Mapping[str, Any]
Texts = Mapping[str, Sequence[str]]
_MAX_PARTS = 6
device_check = partial(Check, "devices")


@dataclass(frozen=True)
class Rule:
    """One check of devices; `shown` is the shell line that shows their state on a node."""

    name: str
    expected: str
    reason: str
    action: str
    shown: str

    def skipped(self, reason: str) -> list[Check]:
        """Return the check that does not apply."""
        return [device_check(self.name, "skipped", reason=reason)]

    def checks(self, faults: Texts, unanswered: Texts, found: str, inventory: str) -> list[Check]:
        """Return the checks of hosts with faults and of hosts without an answer, or a pass with what was `found`.

        `faults` has every host that was checked, with no texts for a healthy one.
        """
        checks = []
        for state, texts, reason, action in (
            ("fail", faults, self.reason, self.action),
            ("unknown", unanswered, "no answer", f"run on the node: {self.shown}"),
        ):
            bad = {host: found for host, found in texts.items() if found}
            if bad:
                command = shell(list(bad), inventory, self.shown, become=True)
                checks.append(
                    device_check(self.name, state, tuple(bad), _by_text(bad), self.expected, reason, action, command)
                )
        if faults and not checks:
            command = shell((), inventory, self.shown, become=True)
            checks.append(device_check(self.name, "pass", found=found, expected=self.expected, command=command))
        return checks


def _by_text(texts: Texts) -> str:
    """Return each text once, after the names of its hosts."""
    hosts = grouped((", ".join(found), host) for host, found in texts.items())
    parts = [f"{host_list(names)}: {text}" for text, names in hosts.items()]
    return "; ".join(some_of(parts, _MAX_PARTS))
