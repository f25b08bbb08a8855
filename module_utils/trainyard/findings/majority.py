# SPDX-License-Identifier: Apache-2.0
"""Hosts that differ from most others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .findings import Finding, host_list


def unlike_most(values: Mapping[str, str], check: str, action: str) -> list[Finding]:
    """Return a finding for each host whose value is not that of most hosts; of equally many, the first counts."""
    usual = max(Counter(values.values()).items(), key=lambda item: item[1], default=("", 0))[0]
    expected = f"{usual}, as on {host_list([host for host, value in values.items() if value == usual])}"
    return [Finding(check, value, expected, action, host=host) for host, value in values.items() if value != usual]
