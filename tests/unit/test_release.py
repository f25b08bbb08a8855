"""`make release`, in a clone of this checkout whose docs are one page, as the real ones are built by `make docs`."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import tarfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

PROJECT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long
DOCS = """#!/bin/sh
cd "$(dirname "$0")/.." && mkdir -p .cache/docs && grep '^version' pyproject.toml >.cache/docs/index.html
"""


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("release", PROJECT / ".ci/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def clone(folder):
    """Clone this checkout without its tags, and commit its changes and the short docs."""
    subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(folder)], check=True)
    for name in ("user.name", "user.email"):
        git(folder, "config", name, "maintainer@example.org")
    for tag in git(folder, "tag").split():
        git(folder, "tag", "--delete", tag)
    # The state that is tested, also before it is committed.
    for path in (".ci", ".gitignore", "module_utils"):
        subprocess.run(["cp", "-r", str(PROJECT / path), str(folder)], check=True)
    (folder / ".ci/docs.py").write_text(DOCS)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=Build one page")
    return folder


@pytest.fixture
def checkout(tmp_path):
    return clone(tmp_path / "checkout")


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Return a checkout whose version 0.1.0 is released, for tests that leave it as it is."""
    folder = clone(tmp_path_factory.mktemp("released") / "checkout")
    git(folder, "tag", "v0.1.0")
    return folder


def git(folder, *argv):
    return subprocess.run(["git", *argv], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def state(folder):
    return git(folder, "rev-parse", "HEAD"), git(folder, "tag"), (folder / "dist").exists()


def test_a_release_is_a_commit_a_tag_and_files_with_their_sums(made, checkout):
    folder = made.release(checkout, "9.9.9", "2026-12-01")
    assert git(checkout, "log", "-1", "--format=%s") == "Release 9.9.9" and git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-list", "-1", "v9.9.9") == git(checkout, "rev-parse", "HEAD")
    assert "### Added" in git(checkout, "tag", "--list", "--format=%(contents)", "v9.9.9")
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 9.9.9 - 2026-12-01\n" in changelog
    names = {"sbom.cdx.json", "trainyard-9.9.9.tar.gz", "trainyard-cluster-9.9.9.tar.gz", "trainyard-docs-9.9.9.tar.gz"}
    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert set(sums) == names
    assert all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == sums[name] for name in names)
    text = (folder / "sbom.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None and "pkg:pypi/ansible-core@" in text
    with tarfile.open(folder / "trainyard-docs-9.9.9.tar.gz") as docs:
        assert docs.extractfile("trainyard-docs-9.9.9/index.html").read() == b'version = "9.9.9"\n'
    # There is nothing new for another one.
    with pytest.raises(made.NotReadyError, match="has nothing under"):
        made.release(checkout, "9.9.10", "2026-12-02")


@pytest.mark.parametrize(
    ("version", "reason"),
    [("", "expected three numbers"), ("v1.0.0", "expected three numbers"), ("0.0.9", "after 0.1.0")],
)
def test_other_versions_are_refused(made, released, version, reason):
    before = state(released)
    with pytest.raises(made.NotReadyError, match=reason):
        made.release(released, version, "2026-12-01")
    assert state(released) == before


def test_a_checkout_with_changes_is_refused(made, released):
    readme = released / "README.md"
    before = readme.read_text()
    readme.write_text("changed")
    with pytest.raises(made.NotReadyError, match=r"has changes.*\nM README\.md"):
        made.release(released, "9.9.9", "2026-12-01")
    readme.write_text(before)


def test_nothing_stays_of_a_release_whose_docs_cannot_be_built(made, checkout):
    (checkout / ".ci/docs.py").write_text("#!/bin/sh\necho no page; exit 1\n")
    git(checkout, "commit", "--quiet", "--all", "--message=Break the docs")
    before = state(checkout)
    with pytest.raises(made.NotReadyError, match="no page"):
        made.release(checkout, "9.9.9", "2026-12-01")
    assert state(checkout) == before
