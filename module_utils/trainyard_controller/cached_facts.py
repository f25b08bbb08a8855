# SPDX-License-Identifier: Apache-2.0
"""Facts of nodes that are kept on the controller between launches, so that one visit to each node is enough."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..trainyard.job.run.answers import NODE


class KeptFacts:
    """The file of the facts for a job's environment and packages; those of others are of no use."""

    def __init__(self, path: Path, job: Mapping[str, Any], addresses: Mapping[str, str]) -> None:
        """Take the file, the job file's variables, and the addresses of its hosts by name."""
        self._path, self._addresses = path, addresses
        # Another version of the project may plan with other facts.
        self._key = {"facts": sorted(NODE), **{name: job.get(name) for name in ("job_venv", "job_packages")}}

    def _nodes(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._path.read_text())
        except (OSError, ValueError, RecursionError):
            return {}
        nodes: dict[str, Any] = kept["nodes"] if kept.get("key") == self._key else {}
        return nodes

    def read(self) -> dict[str, Any]:
        """Return the facts that earlier launches kept of these hosts, by name."""
        kept = self._nodes()
        known = {host: kept[host] for host in self._addresses if host in kept}
        return {host: each["facts"] for host, each in known.items() if each["address"] == self._addresses[host]}

    def add(self, fresh: Mapping[str, Any]) -> None:
        """Keep facts for the next launch."""
        if not fresh:
            return
        new = {host: {"address": self._addresses[host], "facts": facts} for host, facts in fresh.items()}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": self._key, "nodes": {**self._nodes(), **new}}))
        temporary.replace(self._path)
