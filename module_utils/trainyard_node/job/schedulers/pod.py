# SPDX-License-Identifier: Apache-2.0
"""A pod has the environment of its image, and all that remains of it is what it prints."""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....trainyard.job.plan.log_names import METRICS
from ....trainyard.job.record.masking import Forms
from ....trainyard.job.schedulers.kubernetes import pod_log
from ...machine.json_files import open_regular
from ..record.secrets import read_masked
from ..run import job_folder
from .launch import CannotRunError, Request

# The environment of an image that names its Python `python3` alone.
_NAMED = Path("/trainyard/state/environment")
# Bytes that are read of a log at once.
_AT_ONCE = 1 << 20
# Seconds for the last answer of a pod.
COLLECT_S = 120.0


def name_python() -> None:
    """Have a `python` in this pod, also where its image has only `python3`."""
    found = shutil.which("python3")
    if found and not shutil.which("python"):
        with contextlib.suppress(OSError):
            (_NAMED / "bin").mkdir(parents=True)
            (_NAMED / "bin/python").symlink_to(found)


def of_image(request: Request) -> Request:
    """Return a request with the user, the search path and the Python of this pod's image. Raises CannotRunError."""
    path = os.environ.get("PATH", os.defpath)
    env = {"PATH": path, **(request.job.get("job_env") or {})}
    own = shutil.which("python", path=str(_NAMED / "bin"))
    found = shutil.which("python", path=env["PATH"]) or own
    # The folder above bin/ is what a virtual environment is: launchers start its Python.
    job = {**request.job, "job_env": env, "job_venv": str(Path(found).parents[1]) if found else ""}
    uid = os.geteuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        text = f"the pod runs as user {uid}, who is not in /etc/passwd of its image: expected a user with a name"
        raise CannotRunError(text) from None
    return replace(request, job=job, where=replace(request.where, user=user))


class Printer:
    """Prints what is added to the logs of a job, with masked secrets."""

    def __init__(self, job_dir: Path) -> None:
        """Begin before all of them."""
        self._logs = job_dir / "logs"
        self._hidden: Forms = job_folder.known_secrets(job_dir)
        self._offsets: dict[Path, int] = {}

    def show(self, *, last: bool = False) -> None:
        """Print the new lines, in the end also a last one without an end."""
        for path in sorted(self._logs.glob("*.log"))[: job_folder.MAX_LOGS]:
            try:
                with open_regular(path) as log:
                    while content := self._lines(log, path, last):
                        before = pod_log.prefix(path.name)
                        show(f"{before}{line}" for line in content.decode("utf-8", "replace").split("\n"))
            except OSError:
                continue

    def _lines(self, log: Any, path: Path, last: bool) -> bytes:
        begin = self._offsets.get(path, 0)
        content = read_masked(log, begin, _AT_ONCE, self._hidden)
        end = content.rfind(b"\n") + 1
        if not end and (last or len(content) == _AT_ONCE):
            end = len(content)
        self._offsets[path] = begin + end
        return content[:end].removesuffix(b"\n") if content[:end].strip() else b""


def kept(job_dir: Path) -> dict[str, str]:
    """Return the metrics of a job that has ended as a log in base64; the others have been printed."""
    try:
        with open_regular(job_dir / METRICS) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _AT_ONCE))
            return {METRICS: base64.b64encode(log.read(_AT_ONCE)).decode()}
    except OSError:
        return {}


def show(lines: Iterable[str]) -> None:
    """Print lines at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
