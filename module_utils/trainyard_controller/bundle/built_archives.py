# SPDX-License-Identifier: Apache-2.0
"""Check the archive that one node packed for others, and write it again before they unpack it.

The building node is not trusted, and tar on the other nodes could read more in its archive than this module does, such
as extended attributes.
"""

from __future__ import annotations

import posixpath
import tarfile
import zlib
from pathlib import Path

from ...trainyard.base.findings import Finding
from ...trainyard.software.builds import archive_finding, member_fault

# Upper bounds for an archive; a build of Open MPI has 3000 members and 200 MB.
MAX_MEMBERS, MAX_BYTES = 100_000, 20 << 30


def rewrite(host: str, path: Path) -> list[Finding]:
    """Write the archive again with what other nodes need. Return the findings; with any, the archive is removed."""
    new = path.with_suffix(".new")
    try:
        with tarfile.open(path, "r:gz") as archive:
            members = _members(archive)
            problems = _problems(members)
            if not problems:
                with tarfile.open(new, "w:gz", compresslevel=3) as clean:
                    for member in members:
                        clean.addfile(_clean(member), archive.extractfile(member) if member.isreg() else None)
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, ArithmeticError) as error:
        problems = [f"no archive that can be read: {error}"]
    path.unlink()
    if problems:
        new.unlink(missing_ok=True)
        return [archive_finding(host, problems)]
    new.rename(path)
    return []


def _members(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Return the members, up to the first one beyond the upper bounds."""
    members, size = [], 0
    for member in archive:
        members.append(member)
        size += member.size
        if _is_too_large(members, size):
            break
    return members


def _is_too_large(members: list[tarfile.TarInfo], size: int) -> bool:
    return len(members) > MAX_MEMBERS or size > MAX_BYTES


def _problems(members: list[tarfile.TarInfo]) -> list[str]:
    if _is_too_large(members, sum(member.size for member in members)):
        return [f"more than {MAX_MEMBERS} files or {MAX_BYTES >> 30} GiB"]
    links = {posixpath.normpath(member.name) for member in members if member.issym()}
    above: dict[str, bool] = {}
    problems = []
    for member in members:
        problems.append(member_fault(member, above, links))
        above[posixpath.normpath(member.name)] = member.isreg()
    return [problem for problem in problems if problem]


def _clean(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member with its name, content, link and mode: root owns it, and nobody else may write it."""
    clean = tarfile.TarInfo(member.name)
    clean.type, clean.size = (tarfile.REGTYPE, member.size) if member.isreg() else (member.type, 0)
    clean.linkname, clean.mode, clean.mtime = member.linkname, member.mode & 0o755, int(member.mtime)
    return clean
