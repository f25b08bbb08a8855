# SPDX-License-Identifier: Apache-2.0
"""The folder job_source on the controller: what of it is sent to the nodes, what is left out, and the archive.

A link is sent as a link where it stays in the folder. One that leaves it is refused: followed, it would carry any file
that the operator can read to all nodes; sent as a link, it would point to nothing there.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..trainyard.findings.findings import Finding
from ..trainyard.job.schedulers.records import Source

# Folders that are never sent: what tools keep beside the source.
NEVER = frozenset({"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache"})
# The first of these files that the folder has says what else is not sent.
IGNORE_FILES = (".trainyardignore", ".gitignore")
# Upper bounds for one folder: more is a data set or a home folder, which would fill this machine's memory.
MOST_FILES, MOST_BYTES = 100_000, 1 << 30
# Names that plan.json keeps of each reason.
_MOST_NAMES = 100

Ignored = Callable[[str], bool]


@dataclass
class _Found:
    """The contents of the folder: paths of files relative to it, links with their new targets, and what is left out."""

    files: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    size: int = 0

    def leave_out(self, reason: str, name: str) -> None:
        names = self.left_out.setdefault(reason, [])
        if name not in names and len(names) < _MOST_NAMES:
            names.append(name)

    def is_too_large(self) -> bool:
        return len(self.files) > MOST_FILES or self.size > MOST_BYTES


def read(source: str) -> Source:
    """Read and pack a source folder; "" is an empty one. The record's findings say what is wrong with it."""
    if not source:
        return Source([], _pack(Path(), _Found()))
    folder = Path(source)
    if not folder.is_dir():
        return Source(None)
    folder = folder.resolve()
    if folder == Path(folder.anchor):
        return _refused([_finding(f"{source}, the whole machine")])
    spec_file = next((name for name in IGNORE_FILES if (folder / name).is_file()), "")
    found = _Found()
    try:
        ignored = _ignored(folder / spec_file) if spec_file else lambda _: False
        for above, folders, names in os.walk(folder, onerror=lambda error: found.unreadable.append(_reason(error))):
            folders.sort()
            inside = Path(above).relative_to(folder)
            # A link to a folder stands among the folders, and os.walk does not go through it.
            links = [name for name in folders if (Path(above) / name).is_symlink()]
            folders[:] = [
                name for name in folders if name not in links and _goes_in(found, inside / name, ignored, spec_file)
            ]
            for name in sorted([*names, *links]):
                _look(found, folder, inside / name, ignored, spec_file)
            if found.is_too_large():
                break
        findings = _findings(source, found)
        archive = b"" if findings else _pack(folder, found)
    except OSError as error:
        return _refused([_finding(_reason(error))])
    names = sorted([*found.files, *found.links])
    return Source(names, archive, found.left_out, findings)


def left_out_text(source: Source) -> str:
    """Say what is not sent, by reason; "" where everything is."""
    return "; ".join(
        f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''} ({reason})"
        for reason, names in source.left_out.items()
    )


def _refused(findings: list[Finding]) -> Source:
    return Source([], b"", {}, findings)


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"


def _ignored(path: Path) -> Ignored:
    # Late: most folders have no such file, and a controller that was set up before it was needed may lack it.
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(path.read_text(errors="replace").splitlines()).match_file


def _goes_in(found: _Found, name: Path, ignored: Ignored, spec_file: str) -> bool:
    if name.name in NEVER:
        # The same few names in many folders are said once.
        found.leave_out("never sent", f"{name.name}/")
        return False
    if ignored(f"{name}/"):
        found.leave_out(spec_file, f"{name}/")
        return False
    return True


def _look(found: _Found, folder: Path, name: Path, ignored: Ignored, spec_file: str) -> None:
    """Take a file or a link into account."""
    path = folder / name
    if name.name in NEVER:
        # `.git` of a worktree or submodule is a file, and `.venv` may be a link.
        found.leave_out("never sent", name.name)
    elif ignored(str(name)):
        found.leave_out(spec_file, str(name))
    elif path.is_symlink():
        _look_at_link(found, folder, name, ignored)
    elif not path.is_file():
        found.leave_out("no regular file", str(name))
    elif not os.access(path, os.R_OK):
        found.unreadable.append(f"{path}: no right to read it")
    else:
        found.files.append(str(name))
        found.size += path.stat().st_size


def _look_at_link(found: _Found, folder: Path, name: Path, ignored: Ignored) -> None:
    try:
        # Python before 3.13 calls a loop a RuntimeError.
        target = (folder / name).resolve()
    except (OSError, RuntimeError):
        found.leave_out("broken link", str(name))
        return
    if not target.is_relative_to(folder):
        found.leaving.append(f"{name} -> {target}")
        return
    there = target.relative_to(folder)
    if not target.exists():
        found.leave_out("broken link", str(name))
    elif any(part in NEVER for part in there.parts) or _is_ignored(there, target.is_dir(), ignored):
        found.leave_out("link to what is left out", str(name))
    else:
        # Relative to its own folder, so that it holds on the nodes, wherever the folder lies there.
        found.links[str(name)] = os.path.relpath(target, (folder / name).parent)


def _is_ignored(name: Path, is_dir: bool, ignored: Ignored) -> bool:
    return any(ignored(f"{above}/") for above in name.parents) or ignored(f"{name}/" if is_dir else str(name))


def _finding(found: str, expected: str = "the folder with the training scripts, and nothing else") -> Finding:
    return Finding("job_source", found, expected, "name that folder as job_source")


def _findings(source: str, found: _Found) -> list[Finding]:
    findings = []
    if found.is_too_large():
        limit = f"at most {MOST_FILES} files and {MOST_BYTES >> 30} GiB"
        findings.append(
            Finding(
                "job_source",
                f"more than that in {source}: {len(found.files)} files, {found.size >> 20} MiB, and not all read",
                f"{limit}, as it is sent to all nodes",
                "name the folder of the scripts alone, or list in .trainyardignore what is not to be sent",
            )
        )
    if found.leaving:
        findings.append(
            Finding(
                "job_source",
                f"{_some(found.leaving)} in {source}",
                "links that stay in job_source: others would send what lies elsewhere on the controller",
                "copy what is meant into the folder, or list the link in .trainyardignore",
            )
        )
    if found.unreadable:
        findings.append(
            Finding(
                "job_source",
                _some(found.unreadable),
                "files that the user of ansible-playbook may read",
                "give the right to read, or list it in .trainyardignore",
            )
        )
    return findings


def _some(names: list[str], most: int = 6) -> str:
    more = len(names) - most
    return ", ".join(sorted(names)[:most]) + (f" and {more} more" if more > 0 else "")


def _pack(folder: Path, found: _Found) -> bytes:
    """Pack files and links as tar.gz, without the controller's users."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=3) as archive:
        for name, file in _members(archive, folder, found):
            name.uid = name.gid = 0
            name.uname = name.gname = "root"
            archive.addfile(name, file)
    return content.getvalue()


def _members(archive: tarfile.TarFile, folder: Path, found: _Found) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    for name in sorted([*found.files, *found.links]):
        if name in found.links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname, link.mode = tarfile.SYMTYPE, found.links[name], 0o777
            yield link, None
            continue
        # A link that somebody puts there in the meantime is not followed.
        with os.fdopen(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            # The size is taken once more where the file is open: a script may just be saved.
            yield archive.gettarinfo(arcname=name, fileobj=file), file
