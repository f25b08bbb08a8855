# SPDX-License-Identifier: Apache-2.0
"""Check that a time service of systemd keeps a node's clock."""

from __future__ import annotations

from collections.abc import Sequence

from .tree import Tree

_TIMEOUT_S = 20.0
_EXPECTED = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}


def clock_problem(tree: Tree, units: Sequence[str]) -> str:
    """Return why the first of `units` that the node has does not keep the clock, or ""."""
    for unit in units:
        shown = tree.command(unit, ["systemctl", "show", "--property", ",".join(_EXPECTED), unit], _TIMEOUT_S)
        state = dict(line.split("=", 1) for line in (shown.output if shown else "").splitlines() if "=" in line)
        if state.get("LoadState") == "not-found":
            continue
        wrong = [f"{name}={state.get(name, '')}" for name, value in _EXPECTED.items() if state.get(name) != value]
        if wrong:
            return f"{unit} has {', '.join(wrong)}"
        argv = ["timedatectl", "show", "--property", "NTPSynchronized", "--value"]
        synchronised = tree.command("timedatectl", argv, _TIMEOUT_S)
        return "" if synchronised and synchronised.output.strip() == "yes" else "the clock is not synchronised"
    return f"there is no {' or '.join(units)}"
