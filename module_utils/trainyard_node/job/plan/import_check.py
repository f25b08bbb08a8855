# SPDX-License-Identifier: Apache-2.0
"""Check that this node's Pythons find what starts a job's ranks and what its script imports; no module is loaded."""

from __future__ import annotations

import json
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ....trainyard.base.findings import Finding
from ....trainyard.job.plan.script_imports import finding, imported
from ...machine import as_user
from ...machine.as_user import JobError
from .module_search import LACKS

# Seconds for a Python to start on a slow file system; one that takes longer is not checked.
LIMIT_S = 20.0
# Upper bound for a script that is read here, in bytes.
MAX_BYTES = 1 << 20
# For a module that Python is to run its file is searched, as find_spec would import the packages above it. A path of ""
# is the current folder, which is not the job's here.
_FIND = f"""{LACKS}
import json, os
run, folder, imports = json.loads(sys.argv[1])
sys.path[:] = [path for path in sys.path if path]
def lacks_file(name):
    try:
        return not _has_file(name)
    except BaseException:
        return False
def _has_file(name):
    package, *rest = name.split(".")
    found = importlib.util.find_spec(package)
    places = found.submodule_search_locations or () if found and rest else ()
    return any(os.path.exists(os.path.join(place, *rest) + ".py") for place in places) if rest else found
for name in run:
    if lacks_file(name):
        print("run " + name)
sys.path.insert(0, folder)
for missing in map(lacks, imports):
    print("import " + missing)
"""


class Missing(NamedTuple):
    """What Pythons surely do not find: modules to `run`, by the path of their Python, and `imports` of the script."""

    run: dict[str, list[str]]
    imports: list[str]


def missing(node_plan: dict[str, Any], user: str, run: dict[str, list[str]]) -> Missing:
    """Search the modules that each Python is to `run`, and what the job's script imports; one process for each Python.

    It runs as the user, who may own these Pythons. They get nothing of root's environment: the user may have made it.
    """
    python, entry = shutil.which(node_plan["program"], path=node_plan["program_path"]), node_plan["entry"]
    searched = {**run, python: run.get(python, [])} if python and entry["script"] else run
    if not searched:
        return Missing({}, [])
    try:
        rights, environment = as_user.named(user), {"PATH": node_plan["program_path"], "LC_ALL": "C.UTF-8"}
        limit_s = LIMIT_S * (1 + len(searched))
        return Missing(*as_user.run(rights, _missing, entry, python, searched, user, environment, limit_s=limit_s))
    except JobError:
        return Missing({}, [])


def findings(node_plan: dict[str, Any], lacking: Sequence[str]) -> list[Finding]:
    """Return the finding for what the job's script imports and its Python does not find."""
    python = shutil.which(node_plan["program"], path=node_plan["program_path"]) or ""
    found = finding(node_plan["host"], node_plan["entry"]["script"], lacking, python, node_plan["venv"])
    return [found] if lacking else []


def _missing(
    entry: dict[str, Any], of_script: str, searched: dict[str, list[str]], user: str, environment: dict[str, str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the fields of Missing; nothing of a Python that does not answer."""
    folder, names = _imports(entry)
    parts = [part for name in names for part in accumulate(name.replace(":", ".").split("."), "{}.{}".format)]
    run, imports = {}, []
    for python, modules in searched.items():
        chosen = names if python == of_script else []
        printed = _printed(python, [modules, folder, chosen], user, environment, entry) if modules or chosen else ()
        run[python] = [name for name in modules if f"run {name}" in printed]
        if chosen:
            imports = [part for part in dict.fromkeys(parts) if f"import {part}" in printed]
    return run, imports


def _imports(entry: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the folder of a script that lies on the nodes, with what is beside it, and what the script imports."""
    script, names = Path(entry["script"]), entry["imports"]
    if not script.is_absolute():
        return "/nonexistent", names
    try:
        if not script.is_file():
            return "", []
        with script.open(encoding="utf-8") as file:
            return str(script.parent), imported(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return "", []


def _printed(
    python: str, question: list[Any], user: str, environment: dict[str, str], entry: dict[str, Any]
) -> frozenset[str]:
    """Return the lines that a Python prints; a site's own start-up code may print others."""
    try:
        home = pwd.getpwnam(user).pw_dir
        done = subprocess.run(
            [python, "-c", _FIND, json.dumps(question)],
            cwd="/",
            env={**environment, "HOME": home, **entry["environment"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, KeyError, ValueError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(done.stdout.splitlines() if done.returncode == 0 else ())
