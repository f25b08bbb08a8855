# SPDX-License-Identifier: Apache-2.0
"""Find why a program or script that comes with job_source cannot be started as job_command names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from ...base.findings import Finding
from ..file.job_command import as_list, scripts
from .records import Source

_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")
_RUN_BY = {".py": "python3", ".sh": "bash"}
_STARTS = "a program that the kernel can start"


def findings(command: Sequence[str], source: Source) -> list[Finding]:
    """Find what the kernel or Python would not start; `source` is the packed folder."""
    found = [*_notebook(command), *_windows(command, source)] or _program(command, source)
    return [Finding("job_command", *each) for each in found]


def interpreter(command: Sequence[str], source: Source) -> str:
    """Return the program that the first line of the job's own program names: a path, or the name after env; or ""."""
    words = _first_line(source.text(_in_source(command[0], source))).split()
    if not words:
        return ""
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return rest[0] if PurePosixPath(words[0]).name == "env" and rest else words[0]


def _in_source(word: str, source: Source) -> str:
    name = word.removeprefix("./")
    return name if "/" in word and name in (source.files or ()) else ""


def _first_line(text: str) -> str:
    return text[2:].partition("\n")[0].strip() if text.startswith("#!") else ""


def _notebook(command: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    program, *rest = command
    run = [word for word in rest if not word.startswith("-")] if _PYTHON.fullmatch(program) else [program]
    for word in run[:1]:
        if word.endswith(".ipynb"):
            action = f"write a script from it, jupyter nbconvert --to script {word}, and name {word[:-6]}.py instead"
            yield f"{word}, a notebook", "a script, which Python can run", action


def _windows(command: Sequence[str], source: Source) -> Iterator[tuple[str, str, str]]:
    for word in dict.fromkeys((command[0], *scripts(command))):
        name = word.removeprefix("./")
        text = source.text(name)
        # Python reads such lines, except the first one, which is the kernel's.
        if text.partition("\n")[0].endswith("\r") and (text.startswith("#!") or name.endswith(".sh")):
            expected = "lines that end as on Linux: the kernel and bash take the carriage return for text"
            yield f"{name} with lines that end as on Windows (CRLF)", expected, f"sed -i 's/\\r$//' {name}"


def _program(command: Sequence[str], source: Source) -> list[tuple[str, str, str]]:
    program, *rest = command
    by = _RUN_BY.get(PurePosixPath(program).suffix, "")
    instead = f"write job_command: {as_list([by, program.removeprefix('./'), *rest])}" if by else ""
    if "/" not in program and by and program in (source.files or ()):
        return [(f"{program} without a folder, which is looked for in PATH alone", _STARTS, instead)]
    name = _in_source(program, source)
    mode, text = source.mode(name), source.text(name)
    if mode and not mode & 0o111:
        return [(f"{name}, which is not executable", _STARTS, " or ".join(filter(None, (f"chmod +x {name}", instead))))]
    if by and text and not text.startswith("#!"):
        return [(f"{name} without a first line such as #!/usr/bin/env {by}", _STARTS, f"add it, or {instead}")]
    return []
