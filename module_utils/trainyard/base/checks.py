# SPDX-License-Identifier: Apache-2.0
"""Checks: the items that the verification of a cluster checks, with their results.

A finding (findings.py) stops a job or a role; a check is recorded in any state, and the verification goes on. A check
that could not be made is `unknown`, never `pass`; one that does not apply is `skipped`, with the reason; one that was
not requested is `not_asked`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# In order of weight: the last one that occurs decides.
STATES = ("not_asked", "skipped", "pass", "unknown", "fail")
# The phases of a verification, in their order.
PHASES = (
    "software", "drift", "reach", "devices", "compute", "storage", "collectives", "bandwidth", "stragglers", "counters",
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One item that was checked, with its result; `hosts` are its subject, none for the whole cluster.

    `reason` is the sentence why the state is not `pass`, `command` repeats just this check, `source` names the origin
    of the expected value, and `data` has numbers for the report.
    """

    phase: str
    name: str
    state: str
    hosts: tuple[str, ...] = ()
    found: str = ""
    expected: str = ""
    reason: str = ""
    action: str = ""
    command: str = ""
    source: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ValueError for a phase or state that does not exist."""
        if self.phase not in PHASES:
            raise ValueError(f"phase {self.phase!r}, expected one of {', '.join(PHASES)}")
        if self.state not in STATES:
            raise ValueError(f"state {self.state!r} of {self.name}, expected one of {', '.join(STATES)}")

    def as_dict(self) -> dict[str, Any]:
        """Return the check as in report.json."""
        return {**asdict(self), "hosts": list(self.hosts), "data": dict(self.data)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Check:
        """Read a check that came back from a module. Raises TypeError for an unknown field, ValueError for a state."""
        return cls(**{**record, "hosts": tuple(record.get("hosts", ()))})


# The words for the states, in the order in which they are listed.
OUTCOMES = {
    "pass": "passed",
    "fail": "failed",
    "unknown": "unknown",
    "skipped": "not applicable",
    "not_asked": "not asked for",
}
# The exit status of verify.yml and of the playbooks that measure, by their result.
EXIT_CODES = {"pass": 0, "fail": 2, "unknown": 3}
# States of checks that were made.
MADE = ("pass", "unknown", "fail")


def outcomes(states: Iterable[str]) -> str:
    """Count states in words: `38 passed, 2 failed, 3 not applicable`; states that do not occur are left out."""
    numbers = Counter(states)
    return ", ".join(f"{numbers[state]} {word}" for state, word in OUTCOMES.items() if numbers[state])


def shown(state: str) -> str:
    """Return a state in words for a line about one check: `not applicable` for skipped."""
    return OUTCOMES[state] if state in ("skipped", "not_asked") else state


def worst(states: Iterable[str]) -> str:
    """Return the state that decides among many: fail before unknown before pass; skipped if there is none."""
    return max(states, key=STATES.index, default="skipped")
