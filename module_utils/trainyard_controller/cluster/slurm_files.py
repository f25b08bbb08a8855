# SPDX-License-Identifier: Apache-2.0
"""Render the files of a small Slurm cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.slurm.configuration import ClusterSettings, content
from ..runs.templates import render


def slurm_files(
    settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]], topology: Mapping[str, Any] | None = None
) -> tuple[dict[str, str], list[Finding]]:
    """Return the texts of the files by name, or the findings of settings and nodes."""
    contents, findings = content(settings, nodes, topology)
    return {name: render(f"slurm/{name}.j2", each) for name, each in contents.items()}, findings
