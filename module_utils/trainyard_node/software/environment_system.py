# SPDX-License-Identifier: Apache-2.0
"""Tell where a virtual environment was made, and whether this host can use what another one made on a shared disk.

Without that, hosts of different systems would find each other's environments broken, and make them anew in turn.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from ...trainyard.base.findings import Finding
from ..machine.install_lock import HOST
from .build_prefix import system

if TYPE_CHECKING:
    from .python_environment import Interpreter, State


def made_here(interpreter: Interpreter) -> dict[str, str]:
    """Return what the record of an environment says of this host and of the Python that it is made from."""
    libc = " ".join(platform.libc_ver())
    return {
        **{"host": HOST, "system": system(), "machine": platform.machine(), "libc": libc},
        **{"interpreter": interpreter.executable, "python": interpreter.text},
    }


def finding(path: Path, state: State, interpreter: Interpreter) -> Finding | None:
    """Return the finding on an environment that another host made, and that does not serve this one.

    A host makes its own environment anew after an upgrade of its system. Old records do not say who made it.
    """
    made, here = state.record.get("made") or {}, made_here(interpreter)
    if not made.get("host") or made["host"] == here["host"]:
        return None
    another_system = any(made.get(name) != here[name] for name in ("system", "libc"))
    # A link to /usr/bin/python3 leads to another Python there.
    another_python = state.python is not None and _minor(".".join(map(str, state.python))) != _minor(made.get("python"))
    another_python |= another_system and _minor(made.get("python")) != _minor(here["python"])
    without_python = state.kind == "broken" and (another_system or not Path(made.get("interpreter", "")).exists())
    if made.get("machine") == here["machine"] and not another_python and not without_python:
        return None
    found = f"{path} was made by {made['host']} ({_text(made)}), this host is {HOST} ({_text(here)})"
    action = "set trainyard_root to a path that is local on each host; if nothing uses that environment, remove it"
    return Finding("environment", found, "hosts of one system where they share a folder", action)


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]


def _text(made: dict[str, str]) -> str:
    names = ("system", "libc", "python", "interpreter")
    return "{}, {}, Python {} at {}".format(*(made.get(name, "unknown") for name in names))
