# SPDX-License-Identifier: Apache-2.0
"""Checks: what the proof of a cluster looked at, and what came of it.

A finding (findings.py) stops a job or a role; a check is recorded whatever its state, and the proof goes on. A check
that could not be made is `unknown`, never `pass`; one that does not apply, as there is nothing to check, is `skipped`
and says why, and one that nobody asked for is `not_asked`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# From the one that matters least to the one that decides.
STATES = ("not_asked", "skipped", "pass", "unknown", "fail")
# The phases of a proof, in their order.
PHASES = ("software", "drift", "reach", "devices", "collectives", "bandwidth", "stragglers", "counters")


@dataclass(frozen=True)
class Check:
    """One thing that was checked, with its outcome; hosts are those it is about, none for the whole cluster.

    `reason` says in a sentence why the state is not `pass`, `action` what to do next, `command` how to repeat just this
    check, `source` where the expected value comes from. `data` are numbers for the report.
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
        """Return the check as the plain dictionary that modules hand to each other and report.json keeps."""
        return {**asdict(self), "hosts": list(self.hosts), "data": dict(self.data)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Check:
        """Read a check that came back from a module. Raises TypeError for an unknown field, ValueError for a state."""
        return cls(**{**record, "hosts": tuple(record.get("hosts", ()))})


# How many had which outcome is said in these words, in this order.
OUTCOMES = {
    "pass": "passed",
    "fail": "failed",
    "unknown": "unknown",
    "skipped": "not applicable",
    "not_asked": "not asked for",
}
# What was looked at; of the others nothing is known.
MADE = ("pass", "unknown", "fail")


def outcomes(states: Iterable[str]) -> str:
    """Say how many had which outcome: `38 passed, 2 failed, 3 not applicable`, nothing where there are none."""
    numbers = Counter(states)
    return ", ".join(f"{numbers[state]} {word}" for state, word in OUTCOMES.items() if numbers[state])


def shown(state: str) -> str:
    """Return a state in words for a line about one thing: `not applicable` for skipped."""
    return OUTCOMES[state] if state in ("skipped", "not_asked") else state


def worst(states: Iterable[str]) -> str:
    """Return the state that decides among many: fail before unknown before pass; skipped where there is nothing."""
    return max(states, key=STATES.index, default="skipped")
