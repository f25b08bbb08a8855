"""Chinese pages name the digest of each English section that they translate (docs/adr/0008-chinese-pages.md)."""

import runpy

import pytest
from ansible_run import PROJECT

DOCS = runpy.run_path(str(PROJECT / ".ci/docs.py"))
ENGLISH = """# A job
First words.

## The script
Some words.

```yaml
## no heading
```

## Then
More.
"""
CHINESE = """# 作业
<!-- translates: A job -->
开头。

## 脚本与之后
<!-- translates: The script -->
<!-- translates: Then -->
正文。

## 只有中文版才有的一节
"""
BEHIND = "> 本节译文落后于英文版。"


def of(chinese, english=ENGLISH):
    return list(DOCS["outdated"]("docs/zh/job.md", chinese, english))


def renewed(chinese, english=ENGLISH):
    return DOCS["renewed"](chinese, english)


@pytest.mark.parametrize("page", DOCS["translations"]())
def test_no_translation_is_behind_unmarked(page):
    english = (PROJECT / DOCS["original"](page)).read_text()
    assert list(DOCS["outdated"](page, (PROJECT / page).read_text(), english)) == []


@pytest.mark.parametrize("line", ["First words.", "Some words.", "## no heading", "More."])
def test_a_changed_section_is_named_with_what_to_do(line):
    (problem,) = of(renewed(CHINESE), ENGLISH.replace(line, f"{line} New."))
    section = {"First words.": "A job", "More.": "Then"}.get(line, "The script")
    assert problem.startswith(f"docs/zh/job.md: the section '{section}' of docs/job.md has changed")
    assert ".ci/docs.py --translated docs/zh/job.md" in problem and BEHIND in problem


def test_a_section_that_readers_see_as_behind_may_keep_its_digest():
    chinese = renewed(CHINESE).replace("开头。", f"{BEHIND}\n\n开头。")
    changed = ENGLISH.replace("First", "Second")
    assert of(chinese, changed) == []
    assert renewed(chinese, changed) == chinese


def test_only_the_glossary_translates_no_page():
    pages = {f"docs/zh/{page.name}" for page in (PROJECT / "docs/zh").glob("*.md")} | {"README.zh-CN.md"}
    assert pages - set(DOCS["translations"]()) == {"docs/zh/glossary.md"}
