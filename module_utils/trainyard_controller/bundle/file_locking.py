# SPDX-License-Identifier: Apache-2.0
"""Find out what a lock says of files: the sum of a commit's tar file, the address of a wheel."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ...trainyard.base.findings import Finding
from ...trainyard.base.visible import one_line
from ...trainyard.bundle import locked_files
from ...trainyard.software import requested
from ...trainyard.software.requirements import without_password
from ...trainyard_node.machine import commands
from ...trainyard_node.software.dataset_files import sha256_of
from . import git_archives

# Bounds of pip, in seconds, and of what is shown of an error, in characters.
_LIMIT_S, _SHOWN = 300, 300


class _NotFoundError(Exception):
    def __init__(self, found: str, expected: str, action: str) -> None:
        super().__init__(found)
        self.found, self.expected, self.action = found, expected, action


def resolve(
    asked: Iterable[locked_files.File], show: Callable[[str], None]
) -> tuple[list[dict[str, str]], list[Finding]]:
    """Return the files with all that a lock says of them, and findings on those of which it cannot be found out."""
    found: list[dict[str, str]] = []
    findings = []
    for each in asked:
        of_git = locked_files.commit(each["url"])
        try:
            if locked_files.is_resolved(each):
                found.append(dict(each))
            elif of_git:
                show(f"git reads {each['what']}")
                found.append({**each, "sha256": _sum(*of_git)})
            else:
                show(f"pip finds {each['package']}")
                found.append({**each, "url": _address(each)})
        except _NotFoundError as error:
            findings.append(Finding(each["what"], error.found, error.expected, error.action))
    return found, findings


def _sum(repository: str, commit: str) -> str:
    """Return the sum of a commit's tar file."""
    try:
        with git_archives.archive(repository, commit) as made:
            return sha256_of(made)
    except git_archives.GitError as error:
        found = f"{repository}: {error}"
        raise _NotFoundError(found, f"commit {commit}", "correct the repository or the commit") from error


def _address(file: locked_files.File) -> str:
    """Return where an index has a wheel with a sum."""
    expected, action = f"{file['package']} with sha256 {file['sha256']}", f"set {file['variables']}"
    try:
        pin, options, index = requested.index_query(file)
    except ValueError as error:
        wrong = requested.query_finding(file, error)
        raise _NotFoundError(wrong.found, wrong.expected, wrong.action) from error
    with tempfile.TemporaryDirectory() as name:
        report = Path(name, "report.json")
        argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        argv += ["--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", f"--target={name}/target"]
        argv += [*options, f"--report={report}", "--", pin.requirement]
        done = commands.run(argv, _LIMIT_S, env={**os.environ, **index})
        if done.status:
            raise _NotFoundError(one_line(without_password(done.output.strip()), _SHOWN), expected, action)
        (wheel,) = json.loads(report.read_text(encoding="utf-8"))["install"]
    got = wheel["download_info"]["archive_info"]["hashes"].get("sha256")
    if got != file["sha256"]:
        raise _NotFoundError(f"the index has it with sha256 {got}", expected, action)
    return without_password(str(wheel["download_info"]["url"]))
