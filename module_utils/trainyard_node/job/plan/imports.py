# SPDX-License-Identifier: Apache-2.0
"""Check that this node's Python finds what a job's script imports; it loads no module for that."""

from __future__ import annotations

import pwd
import shutil
import subprocess
from itertools import accumulate
from pathlib import Path
from typing import Any

from ....trainyard.findings.findings import Finding
from ....trainyard.job.plan import imports as rules
from ...machine import as_user
from ...machine.as_user import JobError
from .module_search import LACKS

# Seconds for a Python to start on a slow file system; one that takes longer is not checked.
LIMIT_S = 20.0
# Upper bound for a script that is read here, in bytes.
MAX_BYTES = 1 << 20
# A path of "" is the current folder, which is not the job's here.
_FIND = f"""{LACKS}
sys.path[:] = sys.argv[1:2] + [path for path in sys.path if path]
for missing in map(lacks, sys.argv[2:]):
    print(missing)
"""


def findings(node_plan: dict[str, Any], user: str) -> list[Finding]:
    """Find what the job's script imports and its Python does not find; as the user, who may own that Python."""
    script, python = node_plan["entry"]["script"], shutil.which(node_plan["program"], path=node_plan["program_path"])
    if not script or not python:
        return []
    try:
        rights, environment = as_user.named(user), {"PATH": node_plan["program_path"], "LC_ALL": "C.UTF-8"}
        missing = as_user.run(rights, _missing, node_plan["entry"], python, user, environment, limit_s=2 * LIMIT_S)
    except JobError:
        return []
    return [rules.finding(node_plan["host"], script, missing, python, node_plan["venv"])] if missing else []


def _missing(entry: dict[str, Any], python: str, user: str, environment: dict[str, str]) -> list[str]:
    """Return the modules that the script imports and this Python does not find; none where that is not known.

    The Python gets nothing of root's environment, as the user may have made it.
    """
    script, names, folder = Path(entry["script"]), entry["imports"], "/nonexistent"
    if script.is_absolute():
        # It lies on the nodes, and what is beside it, too.
        folder = str(script.parent)
        try:
            if not script.is_file():
                return []
            with script.open(encoding="utf-8") as file:
                names = rules.imported(file.read(MAX_BYTES))
        except (OSError, ValueError):
            return []
    if not names:
        return []
    try:
        home = pwd.getpwnam(user).pw_dir
        done = subprocess.run(
            [python, "-c", _FIND, folder, *names],
            cwd="/",
            env={**environment, "HOME": home, **entry["environment"]},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, KeyError, ValueError, subprocess.TimeoutExpired):
        return []
    # A site's own start-up code may print other words.
    printed = set(done.stdout.split()) if done.returncode == 0 else set()
    parts = [part for name in names for part in accumulate(name.replace(":", ".").split("."), "{}.{}".format)]
    return [part for part in dict.fromkeys(parts) if part in printed]
