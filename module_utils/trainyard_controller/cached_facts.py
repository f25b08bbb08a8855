# SPDX-License-Identifier: Apache-2.0
"""Cache facts of nodes on the controller between launches, so that one visit to each node is enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..trainyard.findings.state_format import FACTS, FIELD
from ..trainyard.job.run.answers import NODE
from ..trainyard_node.machine.json_files import MAX_BYTES, read_object, write_json


class CachedFacts:
    """The file with the facts for a job's virtual environment, packages and `image` (what is asked about it)."""

    def __init__(self, path: Path, job: Mapping[str, Any], addresses: Mapping[str, str]) -> None:
        """Take the file, the job file's variables, and the addresses of its hosts by name."""
        self._path, self._addresses = path, addresses
        # Another version of the project may plan with other facts.
        names = ("job_venv", "job_packages", "image")
        self._key = {FIELD: FACTS.newest, "facts": sorted(NODE), **{name: job.get(name) for name in names}}

    def _nodes(self) -> dict[str, Any]:
        content = read_object(self._path, MAX_BYTES)
        nodes: dict[str, Any] = content.get("nodes", {}) if content.get("key") == self._key else {}
        return nodes

    def read(self) -> dict[str, Any]:
        """Return the cached facts of these hosts by name."""
        nodes = self._nodes()
        cached = {host: nodes[host] for host in self._addresses if host in nodes}
        return {host: each["facts"] for host, each in cached.items() if each["address"] == self._addresses[host]}

    def add(self, fresh: Mapping[str, Any]) -> None:
        """Save facts for the next launch."""
        if not fresh:
            return
        new = {host: {"address": self._addresses[host], "facts": facts} for host, facts in fresh.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"key": self._key, "nodes": {**self._nodes(), **new}})
