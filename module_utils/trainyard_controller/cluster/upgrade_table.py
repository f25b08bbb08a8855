# SPDX-License-Identifier: Apache-2.0
"""The table of an upgrade on the controller: the state of each node, from one run to the next."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import UnusableError
from ...trainyard.base.received import Source
from ...trainyard.nvidia import upgrade
from ...trainyard.nvidia.nvidia_answers import UPGRADE_ENTRY
from ..ansible.filters import answers_of
from ..runs.run_folder import write_whole
from ..runs.saved_state import read

Table = dict[str, dict[str, Any]]
ENTRY = Source("__nvidia_driver_upgrade_entry", UPGRADE_ENTRY)


def folder_of(runs_dir: Path, cluster: str) -> Path:
    """Return the folder of a cluster's table."""
    return runs_dir / f"nvidia-upgrade-{cluster}"


def read_table(folder: Path) -> Table:
    """Read the table, {} without one. Raises NotReadError for another file, as a table has the nodes' old packages."""
    found = read(folder / "table.json", state_format.UPGRADE, upgrade.TABLE)
    nodes: Table = found["nodes"] if found else {}
    return nodes


def entries_of(hosts: Iterable[str], hostvars: Mapping[str, Any]) -> Table:
    """Return the entries of nodes, which have what these answered; a node that answered something else has failed."""
    entries, unusable = answers_of(hosts, hostvars, ENTRY)
    table = {entry.pop("host"): entry for entry in entries}
    return {**table, **{each.host: {"state": "failed", "why": each.found} for each in unusable}}


def note(folder: Path, entries: Mapping[str, Mapping[str, Any]], batches: Sequence[Sequence[str]]) -> Table:
    """Write entries into table.json, and table.txt for people. Raises UnusableError."""
    table = read_table(folder)
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    for host, entry in entries.items():
        previous = table.get(host, {})
        if "target" in entry and entry["target"] != previous.get("target"):
            # The old packages of a node belong to one target.
            previous = {}
        since = previous.get("since", now) if previous.get("state") == entry["state"] else now
        table[host] = {**previous, **entry, "since": since}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = state_format.stamped({"nodes": table}, state_format.UPGRADE)
        write_whole(folder / "table.json", json.dumps(content, indent=2, sort_keys=True) + "\n")
        write_whole(folder / "table.txt", upgrade.table_text(table, batches) + "\n")
    except OSError as error:
        raise UnusableError(f"{folder} cannot be written: {error.strerror}; expected room for the table") from error
    return table
