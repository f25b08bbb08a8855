"""llms.txt and the Markdown beside the pages of the docs' site."""

import runpy

from ansible_run import PROJECT

DOCS = runpy.run_path(str(PROJECT / ".ci/docs.py"))


def test_every_page_of_the_docs_is_in_one_group():
    listed = [page for pages in DOCS["groups"]((PROJECT / "docs/index.md").read_text()).values() for page in pages]
    assert sorted(set(listed)) == sorted(listed)
    tracked = {path.stem for path in (PROJECT / "docs").glob("*.md")} - {"index"}
    assert tracked - set(listed) == set()
