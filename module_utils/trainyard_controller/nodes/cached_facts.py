# SPDX-License-Identifier: Apache-2.0
"""Cache facts of nodes on the controller between launches, so that one visit to each node is enough."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...trainyard.base.shapes import Each, misfit
from ...trainyard.base.state_format import FACTS, FIELD
from ...trainyard.job.run.wire.answers import NODE
from ...trainyard_node.machine.json_files import write_json
from ..runs.saved_state import NotReadError, loads

_SHAPE = {"nodes": Each({"address": str, "facts": NODE})}


def nodes_in(path: Path) -> dict[str, Any]:
    """Return what a file has of each node, whatever it was asked for. Raises NotReadError."""
    found = loads(path, FACTS)
    if wrong := misfit(found, _SHAPE):
        raise NotReadError(path, wrong, FACTS)
    nodes: dict[str, Any] = found["nodes"]
    return nodes


class CachedFacts:
    """The file with the facts for a job's virtual environment, packages and `image` (what is asked about it)."""

    def __init__(self, path: Path, job: Mapping[str, Any], addresses: Mapping[str, str]) -> None:
        """Take the file, the job file's variables, and the addresses of its hosts by name."""
        self._path, self._addresses = path, addresses
        # Another version of the project may plan with other facts.
        names = ("job_venv", "job_packages", "image")
        self._key = {FIELD: FACTS.newest, "facts": sorted(NODE), **{name: job.get(name) for name in names}}

    def _nodes(self) -> dict[str, Any]:
        try:
            content = loads(self._path, FACTS)
        except NotReadError:
            # The nodes are asked.
            return {}
        fits = isinstance(content, dict) and content.get("key") == self._key and not misfit(content, _SHAPE)
        nodes: dict[str, Any] = content["nodes"] if fits else {}
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
