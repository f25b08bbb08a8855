# SPDX-License-Identifier: Apache-2.0
"""Read what decides about the build of PyTorch on this machine: accelerators, what is installed, and what pip finds.

Nothing is changed. The controller compares all machines (trainyard/software/pytorch.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.software.requirements import Pin, parse, python_in_range
from ..hardware.accelerators import read_accelerators
from ..machine.tree import Tree
from . import package_index, python_environment
from .can_install import PLAIN
from .environment_work import Work
from .python_environment import EnvironmentFailure, Interpreter, State


def pytorch_offer(
    *, environment: Mapping[str, Any], manage_system: bool, python: str = "", pip: str = ""
) -> dict[str, Any]:
    """Return whether this machine has `accelerators`, or the `usual` build, and where it can have the requested one.

    `environment` has arguments of the module python_environment, with the pins of the requested build; its interpreter
    is `auto` for any that the release supports. Those of Python `python`, such as 3.11, count alone where it is given.
    `interpreter` can have that build, of the Python `python`, or has it already; they are empty where pip, which is a
    zip file in base64, does not find it. Without pip no index is asked, and `asks_index` tells whether it would be.
    """
    answer = {"accelerators": read_accelerators(Tree())["vendor"] != "none", "usual": False, "asks_index": False}
    answer |= {"interpreter": "", "python": ""}
    pin = parse(environment["packages"][0], (3, 11))
    if answer["accelerators"] or pin is None:
        return answer
    state = python_environment.examine(Path(environment["path"]))
    if _is_there(state, Pin("", pin.name, pin.version.partition("+")[0])):
        return {**answer, **_installed(state, environment)} if _is_there(state, pin) else {**answer, "usual": True}
    candidates = [each for each in _interpreters(environment, manage_system) if python in ("", _minor(each[1]))]
    if not pip or not candidates:
        return {**answer, "asks_index": bool(candidates)}
    work = Work({**PLAIN, **environment, "interpreter": candidates[0][0]})
    if work.invalid:
        return answer
    with package_index.unpacked(pip) as folder:
        for name, found in candidates:
            if package_index.has_all(work, folder, _minor(found)):
                return {**answer, "interpreter": name, "python": _minor(found)}
    return answer


def _is_there(state: State, pin: Pin) -> bool:
    return state.kind == "complete" and pin.accepts(state.packages.get(pin.name, "0"))


def _installed(state: State, environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the interpreter of the installed environment: it stays."""
    name = str(environment["interpreter"])
    if name == "auto":
        name = python_environment.describe(f"{environment['path']}/bin/python").executable
    return {"interpreter": name, "python": ".".join(str(part) for part in (state.python or ())[:2])}


def _minor(interpreter: Interpreter) -> str:
    return ".".join(str(part) for part in interpreter.minor)


def _interpreters(environment: Mapping[str, Any], manage_system: bool) -> Iterator[tuple[str, Interpreter]]:
    """Yield the interpreters that the release supports, each with its name: python3, then the newest first."""
    least, most = environment["python_min"], environment["python_max"]
    for name in _names(environment["interpreter"], most):
        try:
            found = python_environment.describe(name)
        except EnvironmentFailure:
            continue
        # The role installs the venv module of the system's own Python alone.
        usable = found.can_make_environments or (manage_system and "/" not in name)
        if usable and python_in_range(found.minor, least, most):
            yield name, found


def _names(interpreter: str, most: str) -> Iterator[str]:
    if interpreter != "auto":
        yield interpreter
        return
    yield "python3"
    for number in range(int(most.partition(".")[2]), 0, -1):
        for folder in os.get_exec_path():
            path = Path(folder, f"python3.{number}")
            if path.is_absolute() and path.exists():
                yield str(path)
