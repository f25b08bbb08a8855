# SPDX-License-Identifier: Apache-2.0
"""Whether a time service of systemd keeps a node's clock. Read-only."""

from __future__ import annotations

from collections.abc import Sequence

from .tree import Tree

_TIMEOUT_S = 20.0
_KEPT = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}


def clock_fault(tree: Tree, units: Sequence[str]) -> str:
    """Return why the clock is not kept by the first of `units` that the node has, "" where it is."""
    for unit in units:
        shown = tree.command(unit, ["systemctl", "show", "--property", ",".join(_KEPT), unit], _TIMEOUT_S)
        state = dict(line.split("=", 1) for line in (shown.output if shown else "").splitlines() if "=" in line)
        if state.get("LoadState") == "not-found":
            continue
        differing = [f"{name}={state.get(name, '')}" for name, value in _KEPT.items() if state.get(name) != value]
        if differing:
            return f"{unit} has {', '.join(differing)}"
        synchronised = tree.command(
            "timedatectl", ["timedatectl", "show", "--property", "NTPSynchronized", "--value"], _TIMEOUT_S
        )
        return "" if synchronised and synchronised.output.strip() == "yes" else "the clock is not synchronised"
    return f"there is no {' or '.join(units)}"
