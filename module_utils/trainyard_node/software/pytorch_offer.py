# SPDX-License-Identifier: Apache-2.0
"""Read what decides about the build of PyTorch on this machine: accelerators, what is installed, and what pip finds.

Nothing is changed. The controller compares all machines (trainyard/software/pytorch.py).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.software.requirements import Pin, parse, python_in_range
from ..hardware.device_discovery import read_accelerators
from ..machine.tree import Tree
from . import index_queries, python_environment
from .can_install import PLAIN
from .environment_work import Work
from .python_environment import EnvironmentFailure, State


def pytorch_offer(
    *, environment: Mapping[str, Any], manage_system: bool, python: str = "", pip: str = ""
) -> dict[str, Any]:
    """Return whether this machine has `accelerators`, or the `usual` build, and where it can have the requested one.

    `environment` has arguments of the module python_environment, with the pins of the requested build; its interpreter
    is `auto` for any that the release supports. Those of Python `python`, such as 3.11, count alone where it is given.
    `interpreter` can have that build, of the Python `python`, or has it already; they are empty where pip, which is a
    zip file in base64, does not find it. Without pip no index is asked, and `asks_index` tells whether it would be.
    """
    answer: dict[str, Any] = {"usual": False, "asks_index": False, "interpreter": "", "python": ""}
    answer["accelerators"] = read_accelerators(Tree())["vendor"] != "none"
    pin = parse(environment["packages"][0], (3, 11))
    if answer["accelerators"] or pin is None:
        return answer
    state = python_environment.examine(Path(environment["path"]))
    if _is_there(state, Pin("", pin.name, pin.version.partition("+")[0])):
        return {**answer, **_installed(state, environment)} if _is_there(state, pin) else {**answer, "usual": True}
    candidates = _interpreters(environment, manage_system)
    first = next(candidates, None)
    if not pip or first is None:
        return {**answer, "asks_index": first is not None}
    # The first one runs pip, which can ask for another Python.
    work = Work({**PLAIN, **environment, "interpreter": first[0]})
    if work.invalid:
        return answer
    with index_queries.unpacked(pip) as folder:
        for name, minor in itertools.chain([first], candidates):
            if python in ("", minor) and index_queries.has_all(work, folder, minor):
                return {**answer, "interpreter": name, "python": minor}
    return answer


def _is_there(state: State, pin: Pin) -> bool:
    return state.kind == "complete" and pin.accepts(state.packages.get(pin.name, "0"))


def _installed(state: State, environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the interpreter of the installed environment: it stays."""
    name = str(environment["interpreter"])
    if name == "auto":
        name = python_environment.describe(f"{environment['path']}/bin/python").executable
    return {"interpreter": name, "python": ".".join(str(part) for part in (state.python or ())[:2])}


def _interpreters(environment: Mapping[str, Any], manage_system: bool) -> Iterator[tuple[str, str]]:
    """Yield an interpreter of each Python that the release supports, and which: python3, then the newest first."""
    least, most = (str(environment[name]) for name in ("python_min", "python_max"))
    given, seen = str(environment["interpreter"]), set[str]()
    numbers = range(int(most.partition(".")[2]), int(least.partition(".")[2]) - 1, -1)
    folders = [Path(folder) for folder in os.get_exec_path()]
    others = [str(folder / f"python3.{number}") for number in numbers for folder in folders]
    for name in ("python3", *others) if given == "auto" else (given,):
        if name.rpartition("/")[2].removeprefix("python") in seen:
            continue
        try:
            found = python_environment.describe(name)
        except EnvironmentFailure:
            continue
        minor = ".".join(str(part) for part in found.minor)
        # The role may install the venv module for python3.
        usable = found.can_make_environments or (manage_system and "/" not in name)
        if usable and minor not in seen and python_in_range(found.minor, least, most):
            seen.add(minor)
            yield (found.executable if name in others else name), minor
