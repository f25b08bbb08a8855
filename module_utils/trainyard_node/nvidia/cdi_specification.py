# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA Container Toolkit of this machine, and the specification of its GPUs for containers (CDI)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from ...trainyard.nvidia import container_toolkit
from ..machine.tree import Tree

_SECONDS = 60


class GenerateError(Exception):
    """nvidia-ctk wrote no specification; the text is its output."""


def read_state(tree: Tree, host: str, path: str) -> dict[str, Any]:
    """Return what the step `cdi` of container_runtime documents as its state, and the `header` of a specification."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    answer = tree.command("nvidia-smi.driver_version", query, _SECONDS)
    driver = container_toolkit.driver_version(answer.output) if answer and not answer.status else ""
    gpus = tree.output("nvidia-smi.L", ["nvidia-smi", "-L"], _SECONDS) or ""
    toolkit = container_toolkit.toolkit_version(
        tree.output("nvidia-ctk.version", ["nvidia-ctk", "--version"], _SECONDS) or ""
    )
    header, there = container_toolkit.header(driver, toolkit, gpus), tree.text(path)
    listed = tree.output("nvidia-ctk.cdi-list", ["nvidia-ctk", "cdi", "list"], _SECONDS) if toolkit else ""
    names = [name for name in tree.names("/dev") if re.fullmatch(r"nvidia(\d+|ctl)", name)]
    return {
        **{"host": host, "path": path, "driver": driver, "toolkit": toolkit, "header": header},
        "driver_output": " ".join(answer.output.split()) if answer else "",
        "devices": [f"/dev/{name}" for name in names],
        "exists": there is not None,
        "due": container_toolkit.is_due(None if there is None else f"{there}\n", header),
        "listed": container_toolkit.listed_devices(listed or ""),
    }


def generate(tree: Tree, header: str) -> str:
    """Return the specification that nvidia-ctk writes for the present GPUs, after `header`. Raises GenerateError."""
    with tempfile.TemporaryDirectory(prefix="trainyard-cdi-") as folder:
        path = Path(folder, "nvidia.yaml")
        answer = tree.command("nvidia-ctk.generate", ["nvidia-ctk", "cdi", "generate", f"--output={path}"], _SECONDS)
        if answer is None or answer.status or not path.exists():
            raise GenerateError(" ".join(answer.output.split())[-300:] if answer else "no nvidia-ctk")
        return header + path.read_text(encoding="utf-8")
