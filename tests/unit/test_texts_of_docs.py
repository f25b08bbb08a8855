"""llms.txt and the Markdown beside the pages of the docs' site."""

import runpy

from ansible_run import PROJECT

DOCS = runpy.run_path(str(PROJECT / ".ci/docs.py"))
INDEX = """# trainyard
After this page you know which page is yours.

From bare hosts to a run.

```{toctree}
:caption: Start
:hidden:
start
first-job
```

```{toctree}
:caption: The project
:hidden:
../SECURITY
```
"""
PAGES = {
    "docs/start.md": "# Ten minutes\nAfter this page you have trained\na [network](first-job.md). It needs no GPU.\n",
    "docs/first-job.md": "# Your job\n\n<!-- Generated\nby a program. -->\nAfter this page you have a job.\n\nMore.\n",
    "SECURITY.md": "# Security\nAfter this page you can report torch 2.13 holes.\n",
}


def test_programs_find_each_page_of_the_sidebar_with_its_first_sentence():
    assert DOCS["overview"](INDEX, PAGES.__getitem__) == (
        "# trainyard\n\n> From bare hosts to a run.\n"
        "\n## Start\n\n"
        "- [Ten minutes](docs/start.md): After this page you have trained a network.\n"
        "- [Your job](docs/first-job.md): After this page you have a job.\n"
        "\n## The project\n\n"
        "- [Security](SECURITY.md): After this page you can report torch 2.13 holes.\n"
    )


def test_every_page_of_the_docs_is_in_one_group():
    listed = [page for pages in DOCS["groups"]((PROJECT / "docs/index.md").read_text()).values() for page in pages]
    assert sorted(set(listed)) == sorted(listed)
    tracked = {path.stem for path in (PROJECT / "docs").glob("*.md")} - {"index"}
    assert tracked - set(listed) == set()
