# SPDX-License-Identifier: Apache-2.0
"""The topology of a cluster: that of the file trainyard_topology, else the newest that a verification has kept."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base.adhoc import inventory_options
from ...trainyard.base.findings import UnusableError
from ...trainyard.cluster import switches
from ...trainyard.slurm import switch_tree
from .saved_state import read_report

# Past verifications in which a topology is looked for, and upper bound for the bytes of a file.
_MOST_REPORTS, _MAX_BYTES = 30, 16 << 20


def given(path: str) -> dict[str, switches.Path]:
    """Return the switches above each node of a file in the form of topology.conf. Raises UnusableError."""
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            return switch_tree.parse(file.read(_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise UnusableError(str(getattr(error, "strerror", None) or error)) from error


def known(path: str, runs: Path, sources: Iterable[str], hosts: Sequence[str]) -> dict[str, Any] | None:
    """Return the topology of `hosts`, None where nothing is known. `sources` are the inventories of this call.

    A verification of a few hosts, or one that read no switches, does not hide what an earlier one has read of all.
    """
    if path:
        return switches.topology("file", given(path), hosts)
    inventory = inventory_options(map(os.path.relpath, sources))
    best, found = (False, 0), None
    for each in sorted(runs.glob("verify-*/report.json"), reverse=True)[:_MOST_REPORTS]:
        with contextlib.suppress(UnusableError, OSError):
            report = read_report(each)
            if not report.get("topology") or report.get("inventory") != inventory:
                continue
            topology: dict[str, Any] = report["topology"]
            at = [host for switch in topology["switches"] for host in switch["hosts"]] or report["hosts"]
            value = topology["source"] != "pairs", len({*at} & {*hosts})
            if found is None or value > best:
                best, found = value, topology
            if best == (True, len(hosts)):
                break
    return found
