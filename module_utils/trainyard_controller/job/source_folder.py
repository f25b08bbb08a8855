# SPDX-License-Identifier: Apache-2.0
"""Read and pack job_source, the folder on the controller that is sent to the nodes.

A link inside the folder is sent as a link. One that leaves it is refused: followed, it would send any file that the
operator can read to all nodes; sent as a link, it would point to nothing there.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.base.visible import unwritable
from ...trainyard.job.schedulers.records import Source

# Folders of tools, which are never sent. Nobody misses the caches among them.
_CACHES = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})
NEVER = _CACHES | {".git", ".venv"}
# The first of these files in the folder lists what else is not sent.
_IGNORE_FILES = (".trainyardignore", ".gitignore")
# Upper bounds for one folder: more is a data set or a home folder, which would fill this machine's memory.
MAX_FILES, MAX_BYTES = 100_000, 1 << 30
# Names in plan.json for each reason.
_MAX_NAMES = 100

Ignored = Callable[[str], bool]


@dataclass
class _Found:
    """The contents of the folder: relative paths, links with their new targets, and names left out by reason."""

    files: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    size: int = 0

    def leave_out(self, reason: str, name: str) -> None:
        names = self.left_out.setdefault(reason, [])
        if name not in names and len(names) < _MAX_NAMES:
            names.append(name)

    def is_too_large(self) -> bool:
        return len(self.files) > MAX_FILES or self.size > MAX_BYTES


def read(source: str) -> Source:
    """Read and pack a source folder; "" is an empty one."""
    if not source:
        return Source([], _pack(Path(), _Found()))
    folder = Path(source)
    if not folder.is_dir():
        return Source(None)
    folder = folder.resolve()
    if folder == Path(folder.anchor):
        return Source([], b"", {}, [_finding(f"{source}, the whole machine")])
    spec_file = next((name for name in _IGNORE_FILES if (folder / name).is_file()), "")
    found = _Found()
    try:
        ignored = _ignored(folder / spec_file) if spec_file else lambda _: False
        for above, folders, names in os.walk(folder, onerror=lambda error: found.unreadable.append(_reason(error))):
            folders.sort()
            inside = Path(above).relative_to(folder)
            # os.walk lists links to folders among the folders, and does not follow them.
            links = [name for name in folders if (Path(above) / name).is_symlink()]
            folders[:] = [
                name for name in folders if name not in links and _is_entered(found, inside / name, ignored, spec_file)
            ]
            for name in sorted([*names, *links]):
                _add(found, folder, inside / name, ignored, spec_file)
            if found.is_too_large():
                break
        findings = _findings(source, found, spec_file)
        archive = b"" if findings else _pack(folder, found)
    except OSError as error:
        return Source([], b"", {}, [_finding(_reason(error))])
    names = sorted([*found.files, *found.links])
    return Source(names, archive, found.left_out, findings)


def left_out_text(source: Source) -> str:
    """Return the names that are not sent, by reason, as text; without caches."""
    told = {
        reason: [name for name in names if name.removesuffix("/") not in _CACHES]
        for reason, names in source.left_out.items()
    }
    return "; ".join(
        f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''} ({reason})"
        for reason, names in told.items()
        if names
    )


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}"


def _ignored(path: Path) -> Ignored:
    # Imported late: most folders have no such file, and a controller that was set up earlier may lack the package.
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(path.read_text(errors="replace").splitlines()).match_file


def _is_entered(found: _Found, name: Path, ignored: Ignored, spec_file: str) -> bool:
    if name.name in NEVER:
        # The same few names in many folders are listed once.
        found.leave_out("never sent", f"{name.name}/")
        return False
    if ignored(f"{name}/"):
        found.leave_out(spec_file, f"{name}/")
        return False
    return True


def _add(found: _Found, folder: Path, name: Path, ignored: Ignored, spec_file: str) -> None:
    """Add a file or a link, or the reason why it is left out."""
    path = folder / name
    if name.name in NEVER:
        # `.git` of a worktree or submodule is a file, and `.venv` may be a link.
        found.leave_out("never sent", name.name)
    elif ignored(str(name)):
        found.leave_out(spec_file, str(name))
    elif wrong := unwritable(str(name)):
        found.unnamed.append(wrong)
    elif path.is_symlink():
        _add_link(found, folder, name, ignored)
    elif not path.is_file():
        found.leave_out("no regular file", str(name))
    elif not os.access(path, os.R_OK):
        found.unreadable.append(f"{path}: no right to read it")
    else:
        found.files.append(str(name))
        found.size += path.stat().st_size


def _add_link(found: _Found, folder: Path, name: Path, ignored: Ignored) -> None:
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
        # Relative to its own folder, so that it works in any folder of the nodes.
        found.links[str(name)] = os.path.relpath(target, (folder / name).parent)


def _is_ignored(name: Path, is_dir: bool, ignored: Ignored) -> bool:
    return any(ignored(f"{above}/") for above in name.parents) or ignored(f"{name}/" if is_dir else str(name))


def _finding(found: str) -> Finding:
    expected = "the folder with the training scripts, and nothing else"
    return Finding("job_source", found, expected, "name that folder as job_source")


def _findings(source: str, found: _Found, spec_file: str) -> list[Finding]:
    problems = []
    # A new .trainyardignore alone would send what .gitignore has left out.
    ignore = _IGNORE_FILES[0] + (", with the lines of .gitignore" if spec_file == _IGNORE_FILES[1] else "")
    if found.is_too_large():
        size = f"{source} has more: {len(found.files)} files, {found.size >> 20} MiB, and not all read"
        expected = f"at most {MAX_FILES} files and {MAX_BYTES >> 30} GiB, as it is sent to all nodes"
        action = f"name the folder of the scripts alone, or list the other files in {ignore}"
        problems.append((size, expected, action))
    if found.leaving:
        expected = "links that stay in job_source: others would send files from elsewhere on the controller"
        action = f"copy the files into the folder, or list the link in {ignore}"
        problems.append((f"{_some(found.leaving)} in {source}", expected, action))
    if found.unreadable:
        expected = "files that the user of ansible-playbook may read"
        problems.append((_some(found.unreadable), expected, f"give the right to read, or list it in {ignore}"))
    if found.unnamed:
        action = f"rename it, or list it as a pattern such as caf*.txt in {ignore}"
        problems.append((_some(found.unnamed), "names in UTF-8, as plans and nodes have them", action))
    return [Finding("job_source", *problem) for problem in problems]


def _some(names: list[str]) -> str:
    more = len(names) - 6
    return ", ".join(sorted(names)[:6]) + (f" and {more} more" if more > 0 else "")


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
        # A link that replaced the file meanwhile is not followed.
        with os.fdopen(os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            # The size is read again from the open file: a script may just be saved.
            yield archive.gettarinfo(arcname=name, fileobj=file), file
