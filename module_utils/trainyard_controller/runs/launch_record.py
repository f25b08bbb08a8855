# SPDX-License-Identifier: Apache-2.0
"""How a job was launched: by whom, with what command, versions and source. plan.json and the job's page have it."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import platform
import pwd
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import release

from ...trainyard.base.redaction import HIDDEN, safe_text
from ...trainyard.job.file.secret_values import SECRET
from ...trainyard.job.file.variables import VARIABLES
from ...trainyard_node.machine.programs import english
from .inventory_options import inventory_given
from .project import ROOT

_EXTRA = ("-e", "--extra-vars")
# Values that are no secret.
_PLAIN = re.compile(r"[-+]?[\d.]{1,12}(?:e[-+]?\d{1,3})?|true|false|yes|no", re.IGNORECASE)
# Seconds that git may take, for instance on a network file system.
_GIT_S = 5.0


def launched_by() -> str:
    """Return user@host of this controller's process, by the user's number if it has no name."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def launch_record(job: Mapping[str, Any], archive: bytes) -> dict[str, Any]:
    """Return the record of a launch: the command, variables and versions behind it. No secret value is in it.

    `job` are the variables of the job, `archive` is what is sent of its source.
    """
    source = str(job.get("job_source") or "")
    return {
        "by": launched_by(),
        "command": command(sys.argv),
        "folder": str(Path.cwd()),
        "inventory": inventory_given(),
        "job": {name: _hidden(name, value) for name, value in sorted(job.items()) if _is_set(name, value)},
        "source_sha256": source_digest(archive) if archive else "",
        "revision": revision(source) if source else "",
        "trainyard": described(str(ROOT)),
        "ansible": release.__version__,
        "python": platform.python_version(),
    }


def source_digest(archive: bytes) -> str:
    """Return the sha256 of the files in a tar.gz: their names, links and contents, without their times and owners."""
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for member in sorted(packed.getmembers(), key=lambda each: each.name):
            file = packed.extractfile(member) if member.isreg() else None
            content = file.read() if file else member.linkname.encode()
            digest.update(f"{member.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def command(argv: Sequence[str]) -> str:
    """Return a command as a line for a shell.

    The values of this project's variables and plain numbers are shown; any other may be the value of a secret.
    """
    words, before = [], ""
    for word in [Path(argv[0]).name, *argv[1:]] if argv else []:
        option = next((each for each in ("--extra-vars=", "-e") if word.startswith(each) and word != each), "")
        given = option or before in _EXTRA
        words.append(f"{option}{_extra(word[len(option) :])}" if given else shlex.quote(word))
        before = word
    return safe_text(" ".join(words))


def _extra(given: str) -> str:
    """Return the value of one option -e without what may be secret."""
    if given.startswith("@"):
        return shlex.quote(given)
    names = re.findall(r"[\"']?(\w+)[\"']?\s*[=:]", given)
    if names and all(name in VARIABLES and name not in SECRET for name in names):
        return shlex.quote(given)
    name, _, value = given.partition("=")
    if name.isidentifier() and _PLAIN.fullmatch(value):
        return shlex.quote(given)
    return f"{name}={HIDDEN}" if name.isidentifier() else HIDDEN


def _is_set(name: str, value: Any) -> bool:
    """Tell whether a variable differs from its default; defaults that are templates follow from other variables."""
    default = VARIABLES[name].default if name in VARIABLES else None
    return value not in (default, None, "", [], {}) and "{{" not in str(default)


def _hidden(name: str, value: Any) -> Any:
    return HIDDEN if name in SECRET else value


def revision(folder: str) -> str:
    """Return git's revision of a folder, with `+changes` where files in it differ; "" where git knows nothing of it."""
    try:
        hash_of = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{hash_of}{' +changes' if changed else ''}"


@functools.cache
def described(folder: str) -> str:
    """Return `git describe` of a checkout; "" where git knows nothing of it."""
    try:
        return _git(folder, "describe", "--tags", "--always", "--dirty")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: str, *argv: str) -> str:
    env = {**english(), "GIT_OPTIONAL_LOCKS": "0"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": _GIT_S, "check": True, "env": env}
    return str(subprocess.run(["git", "-C", folder, *argv], **options).stdout).strip()
