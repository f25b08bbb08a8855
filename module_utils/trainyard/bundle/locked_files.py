# SPDX-License-Identifier: Apache-2.0
"""The files of a lock beside packages and wheels of environments: `what`, `url` and `sha256` of each.

They are archives that roles download; commits of git repositories, each as a tar file (`git+REPOSITORY@COMMIT`); and
the wheel of which the controller takes the digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from ..software.requirements import without_password

# By part of the software, as site_software (step request) records it.
Requests = Mapping[str, Mapping[str, Any]]
File = Mapping[str, str]
_COMMIT = re.compile(r"git\+(?P<repository>.+)@(?P<commit>[0-9a-f]{40})")


def commit(url: str) -> tuple[str, str] | None:
    """Return repository and commit of an address in a lock, None for another address."""
    match = _COMMIT.fullmatch(url)
    return (match["repository"], match["commit"]) if match else None


def requested(requests: Mapping[str, Requests]) -> list[dict[str, str]]:
    """Return the files that roles take from elsewhere, each once.

    A commit has no `sha256` yet. A wheel has no `url`, but `package`, `platform` and `index_url`, which find it.
    """
    found = {
        (each["what"], each["url"], each["sha256"]): each
        for parts in requests.values()
        for part in parts.values()
        for source in _sources(part)
        for each in _of_source(source, part.get("package") or {})
    }
    return [found[key] for key in sorted(found)]


def _sources(part: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from part.get("sources") or ()
    yield from part.get("kept_sources") or ()


def _of_source(source: Mapping[str, Any], package: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    url, what = without_password(str(source.get("url") or "")), str(source["what"])
    if source.get("local_file"):
        return
    if source.get("commit"):
        url = f"git+{without_password(str(source['repository']))}@{source['commit']}"
        yield {"what": what, "url": url, "sha256": ""}
    elif url:
        yield {"what": what, "url": url, "sha256": str(source.get("sha256") or "")}
    elif package:
        more = {name: str(package.get(name) or "") for name in ("sha256", "package", "platform", "index_url")}
        yield {"what": what, "url": "", "variables": str(source["variables"]), **more}


def brought(requests: Mapping[str, Requests]) -> list[dict[str, str]]:
    """Return what a lock does not cover, as the inventory names a file of the controller."""
    found = {
        str(source["what"]): source
        for parts in requests.values()
        for part in parts.values()
        for source in _sources(part)
        if source.get("local_file")
    }
    why = "the inventory names a file of the controller"
    return [
        {"what": what, "why": why, "sha256": str(source.get("sha256") or ""), "where": str(source["local_file"])}
        for what, source in sorted(found.items())
    ]


def absent(each: File) -> str:
    """Return the line on a file that a lock or a bundle lacks; what somebody can bring has `where`."""
    line = f"not in it: {each['what']}: {each['why']}"
    if not each.get("where"):
        return line
    which = f"the file with sha256 {each['sha256']}" if each.get("sha256") else "it"
    return f"{line}; put {which} at {each['where']}"


def with_old(found: Iterable[File], old: Iterable[File]) -> list[dict[str, str]]:
    """Return the files with what an older lock knows of them: sums of commits, addresses of wheels."""
    old = list(old)
    commits = {each["url"]: each["sha256"] for each in old if commit(each["url"])}
    wheels = {each["sha256"]: each["url"] for each in old}
    return [
        {
            **each,
            "url": each["url"] or wheels.get(each["sha256"], ""),
            "sha256": each["sha256"] or commits.get(each["url"], ""),
        }
        for each in found
    ]


def is_resolved(file: File) -> bool:
    """Return whether nothing of a file has to be found out."""
    return bool(file["url"] and (file["sha256"] or not commit(file["url"])))


def entry(file: File) -> dict[str, str]:
    """Return what a lock says of a file."""
    return {name: file[name] for name in ("what", "url", "sha256")}


def paths(files: Iterable[File]) -> dict[str, str]:
    """Return where the files lie in a bundle, by sum. Those of one name have digits of their sum in front."""
    names = {each["sha256"]: _name(each["url"]) for each in files if each["sha256"]}
    # Some disks do not tell capitals from small letters.
    taken = [name.lower() for name in names.values()]
    return {
        sha256: f"files/{file_name(name if taken.count(name.lower()) == 1 else f'{sha256[:12]}-{name}')}"
        for sha256, name in names.items()
    }


def _name(url: str) -> str:
    found = commit(url)
    name = file_name(unquote(urlsplit(found[0] if found else url).path))
    # An address of ssh may have no slash: git@example.org:x.git.
    return f"{name.rpartition(':')[2].removesuffix('.git')}-{found[1][:12]}.tar" if found else name


def file_name(given: str) -> str:
    """Return the name of a file, never a path: a lock may come from elsewhere."""
    safe = given.rpartition("/")[2]
    return f"_{safe}" if safe in ("", ".", "..") else safe


def here(files: Sequence[File], folder: str) -> dict[str, str]:
    """Return the files of a bundle in this folder, by the sum or the commit that roles ask for."""
    where = paths(files)
    found = {sha256: f"{folder}/{path}" for sha256, path in where.items()}
    return found | {
        of_git[1]: found[each["sha256"]] for each in files if each["sha256"] and (of_git := commit(each["url"]))
    }


def key(file: File) -> str:
    """Return the sum or the commit by which a role asks for a file."""
    of_git = commit(file["url"])
    return of_git[1] if of_git else file["sha256"]
