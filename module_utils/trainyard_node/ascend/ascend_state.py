# SPDX-License-Identifier: Apache-2.0
"""The vendor's software for Ascend devices on this machine: what is installed, and what runs."""

from __future__ import annotations

import platform
from typing import Any

from ...trainyard.ascend import ascend_software
from ...trainyard.base.shapes import misfit
from ...trainyard.base.state_format import loads
from ..hardware.device_discovery import read_accelerators
from ..hardware.npu_discovery import install_path, read_npu
from ..machine.tree import Tree

_TOOL_SECONDS = 20


def _cann(tree: Tree, root: str) -> dict[str, Any]:
    """Return the CANN toolkit in use: from 8.5 on in `cann`, before that in `ascend-toolkit/latest`."""
    for home, set_env in (
        (f"{root}/cann", f"{root}/cann"),
        (f"{root}/ascend-toolkit/latest", f"{root}/ascend-toolkit"),
    ):
        for folder in tree.names(home):
            text = tree.text(f"{home}/{folder}/ascend_toolkit_install.info") if folder.endswith("-linux") else None
            fields = ascend_software.read_fields(text)
            if fields.get("version"):
                script = f"{set_env}/set_env.sh"
                # Which of its names set_env.sh uses differs by release.
                path = fields.get("path", f"{home}/{folder}")
                return {
                    "cann": fields["version"],
                    "cann_path": path,
                    "cann_homes": list(dict.fromkeys([home, path.rpartition("/")[0]])),
                    "set_env": script if tree.exists(script) else "",
                }
    return {"cann": "", "cann_path": "", "cann_homes": [], "set_env": ""}


def _installed(tree: Tree, root: str) -> dict[str, Any]:
    """Return what the role installed itself, by component."""
    found = {}
    for name in tree.names(f"{root}/.trainyard"):
        try:
            record = loads(tree.text(f"{root}/.trainyard/{name}") or "")
        except ValueError:
            continue
        if not misfit(record, {"sha256": str}):
            found[name.partition(".")[0]] = record
    return found


def read_ascend(tree: Tree, root: str) -> dict[str, Any]:
    """Return the state of the machine that library/ascend_state describes."""
    accelerators = read_accelerators(tree)
    boards = []
    cards = sorted({device["card"] for device in accelerators["devices"] if device["card"] is not None})
    for card in cards:
        argv = ["npu-smi", "info", "-t", "board", "-i", str(card)]
        outcome = tree.command(f"npu-smi.board.{card}", argv, _TOOL_SECONDS)
        boards.append(
            {"card": card, **ascend_software.board(outcome.output if outcome and outcome.status == 0 else "")}
        )
    firmware = tree.text(f"{install_path(tree, 'firmware', root)}/firmware/version.info")
    state = {
        "machine": platform.machine(),
        "npu": read_npu(tree, accelerators) or {},
        "driver": ascend_software.driver_version(
            tree.text(f"{install_path(tree, 'driver', root)}/driver/version.info")
        ),
        "running_driver": (accelerators["driver"] or "") if accelerators["vendor"] == "ascend" else "",
        "firmware": ascend_software.read_fields(firmware).get("version", ""),
        "boards": boards,
        **_cann(tree, root),
        "installed": _installed(tree, root),
    }
    return {**state, "restart_due": ascend_software.restart_due(state)}
