# SPDX-License-Identifier: Apache-2.0
"""Find paths on nodes that begin with `~`, which no shell expands there. On the controller it is the user's home."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...findings.findings import Finding

_PATHS = ("job_venv", "job_data", "job_checkpoints", "job_recovery_path", "job_metrics_folder", "job_folder")


def findings(given: Mapping[str, Any]) -> list[Finding]:
    """Find paths on nodes that begin with `~`, and such a program; other words of a command are the program's own."""
    paths = [(name, value) for name in _PATHS for value in _texts(given.get(name))]
    paths += [("job_command", word) for word in _texts(given.get("job_command"))[:1]]
    expected, action = (
        "a whole path: only a shell knows ~",
        "write the path on the nodes, such as {{ trainyard_state }}",
    )
    return [
        Finding(name, path, expected, f"{action}/{path.partition('/')[2] or 'data'}")
        for name, path in paths
        if path.startswith("~")
    ]


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [str(each) for each in values if isinstance(each, str)]
