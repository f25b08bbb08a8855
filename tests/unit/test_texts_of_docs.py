"""The pages that the docs' site is built from, llms.txt, and the Markdown beside the pages."""

import runpy

from ansible_run import PROJECT
from sphinx.util.matching import get_matching_files

DOCS = runpy.run_path(str(PROJECT / ".ci/docs.py"))


def test_the_site_is_built_without_a_look_into_the_files_of_tests(tmp_path):
    settings = runpy.run_path(str(PROJECT / "docs/conf.py"))
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/README.md").write_text("# Left by a test\n")
    (tmp_path / "SECURITY.md").write_text("# Security\n")
    found = get_matching_files(tmp_path, settings["include_patterns"], settings["exclude_patterns"])
    assert list(found) == ["SECURITY.md"]


def test_every_page_of_the_docs_is_in_one_group():
    listed = [page for pages in DOCS["groups"]((PROJECT / "docs/index.md").read_text()).values() for page in pages]
    assert sorted(set(listed)) == sorted(listed)
    tracked = {path.stem for path in (PROJECT / "docs").glob("*.md")} - {"index"}
    assert tracked - set(listed) == set()
