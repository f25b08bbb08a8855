# SPDX-License-Identifier: Apache-2.0
"""Read how far a task of Ansible is on this machine, by what its programs write anyway. Nothing is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import apt_progress, build_progress, download_progress, environment_progress, image_progress


def of_task(kind: str, arguments: Mapping[str, str], last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how far it is (pip_progress.INSTALLING), None where nothing tells; `last` is the record before it."""
    # Files and processes end while they are read.
    with contextlib.suppress(OSError, ValueError):
        if kind == "environment":
            return environment_progress.read(Path(arguments["path"]))
        if kind == "download":
            return download_progress.read(**arguments, last=last)
        if kind == "packages":
            return apt_progress.read(last)
        if kind == "build":
            return build_progress.read(Path(arguments["path"]))
        if kind == "image":
            return image_progress.read(**arguments)
    return None
