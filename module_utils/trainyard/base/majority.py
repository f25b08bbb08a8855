# SPDX-License-Identifier: Apache-2.0
"""The usual value, and hosts that differ from most others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeVar

from .findings import Finding, host_list

T = TypeVar("T", bound=Hashable)


def usual(values: Iterable[T], otherwise: T, ties: Callable[[T], Any] = lambda _: 0) -> T:
    """Return the most common value, `otherwise` without any.

    The highest `ties` decides between equally common values, by default the first of them.
    """
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], ties(value)), default=otherwise)


def unlike_most(values: Mapping[str, str], check: str, action: str) -> list[Finding]:
    """Return a finding for each host whose value is not that of most hosts; of equally many, the first counts."""
    most = usual(values.values(), "")
    expected = f"{most}, as on {host_list([host for host, value in values.items() if value == most])}"
    return [Finding(check, value, expected, action, host=host) for host, value in values.items() if value != most]
