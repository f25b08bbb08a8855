#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Make a release: `make release VERSION=0.1.0` calls this.

It cuts the changelog, writes the version, commits and tags, and puts the source, the collection, the docs, the bill of
materials and their sums into dist/VERSION. All of that is made in a clone; this checkout gets the commit, the tag and
the files when everything is there. Nothing is pushed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from hashlib import sha256
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "module_utils"))

from trainyard.bundle import controller, sbom  # noqa: E402

_HEADING = "## Unreleased\n"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class NotReadyError(Exception):
    """Why no release can be made, and what to do."""


def git(folder: Path, *argv: str) -> str:
    """Run git in a folder and return what it prints."""
    done = subprocess.run(["git", *argv], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReadyError(f"git {argv[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers. Raises NotReadyError."""
    match = _VERSION.fullmatch(version)
    if match is None:
        raise NotReadyError(f"VERSION is {version!r}, expected three numbers: make release VERSION=0.1.0")
    return tuple(map(int, match.groups()))


def check(project: Path, version: str) -> None:
    """Raise NotReadyError if no release of this version can be made of the last commit."""
    asked = numbers(version)
    if changed := git(project, "status", "--porcelain"):
        raise NotReadyError(f"the checkout has changes, expected none: commit them.\n{changed}")
    released = [tag[1:] for tag in git(project, "tag", "--list", "v*").split() if _VERSION.fullmatch(tag[1:])]
    newest = max(released, key=numbers, default="0.0.0")
    if asked <= numbers(newest):
        raise NotReadyError(f"VERSION is {version}, expected one after {newest}, which is released")


def cut(changelog: str, version: str, date: str) -> tuple[str, str]:
    """Return the changelog with a section of this version, and the text of that section. Raises NotReadyError."""
    before, heading, after = changelog.partition(_HEADING)
    text = re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0].strip()
    if not heading or not text:
        raise NotReadyError(f"CHANGELOG.md has nothing under {_HEADING.strip()!r}: write there what users get")
    return f"{before}{_HEADING}\n## {version} - {date}\n{after}", text


def write(folder: Path, version: str, date: str) -> str:
    """Write the version and the changelog in a clone, commit and tag; return the text of the changelog."""
    changelog, text = cut((folder / "CHANGELOG.md").read_text(encoding="utf-8"), version, date)
    (folder / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    project = folder / "pyproject.toml"
    found, count = re.subn(
        r'(?m)^version = ".*"$', f'version = "{version}"', project.read_text(encoding="utf-8"), count=1
    )
    if not count:
        raise NotReadyError("pyproject.toml has no version")
    project.write_text(found, encoding="utf-8")
    git(folder, "commit", "--quiet", "--all", f"--message=Release {version}")
    git(folder, "tag", "--annotate", "--cleanup=whitespace", f"--message=Release {version}\n\n{text}", f"v{version}")
    return text


def materials(folder: Path, version: str) -> str:
    """Return the bill of materials: the pinned packages of the controller."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "requirements").glob("*.txt")}
    return sbom.text(sbom.of_release(controller.requirements(files, ["pip", "controller", "kubernetes"]), version))


def build(folder: Path, target: Path, version: str) -> None:
    """Put the files of the release into an empty folder."""
    for program in (".ci/docs.py", ".ci/collection.py"):
        done = subprocess.run([folder / program], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotReadyError(f"{program}:\n{done.stdout}{done.stderr}")
    (collection,) = (folder / ".cache/collection").glob("*.tar.gz")
    shutil.copy(collection, target)
    with tarfile.open(target / f"trainyard-docs-{version}.tar.gz", "w:gz") as archive:
        archive.add(folder / ".cache/docs", f"trainyard-docs-{version}")
    (target / "sbom.cdx.json").write_text(materials(folder, version), encoding="utf-8")
    git(
        folder,
        "archive",
        f"--prefix=trainyard-{version}/",
        f"--output={target}/trainyard-{version}.tar.gz",
        f"v{version}",
    )
    sums = {path.name: sha256(path.read_bytes()).hexdigest() for path in target.iterdir()}
    (target / "SHA256SUMS").write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))


def release(project: Path, version: str, date: str) -> Path:
    """Make a release of the last commit; return the folder of its files. Raises NotReadyError."""
    check(project, version)
    target = project / "dist" / version
    if target.exists():
        raise NotReadyError(f"{target} is there already: remove it")
    with tempfile.TemporaryDirectory() as name:
        clone, made = Path(name, "clone"), Path(name, "made")
        git(project, "clone", "--quiet", "--no-hardlinks", str(project), str(clone))
        for setting in ("user.name", "user.email"):
            git(clone, "config", setting, git(project, "config", setting))
        write(clone, version, date)
        made.mkdir()
        build(clone, made, version)
        git(project, "pull", "--quiet", "--ff-only", "--tags", str(clone), "HEAD")
        target.parent.mkdir(exist_ok=True)
        shutil.move(made, target)
    return target


def main() -> int:
    """Make the release, and say what is left to do."""
    version = sys.argv[1] if sys.argv[1:] else ""
    try:
        target = release(PROJECT, version, time.strftime("%Y-%m-%d"))
    except NotReadyError as error:
        print(f"No release was made: {error}", file=sys.stderr)
        return 1
    print(f"{target}:\n{(target / 'SHA256SUMS').read_text()}Push it: git push origin HEAD v{version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
