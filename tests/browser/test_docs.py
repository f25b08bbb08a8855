"""The docs as a site: nothing is cut off, one group is open, the search finds the right page, languages switch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import PROJECT

CUT = """return [...document.querySelectorAll("article .highlight pre, article .table-wrapper")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent.trim().slice(0, 60))"""


@pytest.fixture(scope="module")
def site():
    """Build the site where it is not up to date; return a function from a page's name to its address."""
    subprocess.run([sys.executable, PROJECT / ".ci/docs.py"], check=True, capture_output=True)
    return lambda page: (PROJECT / ".cache/docs" / page).as_uri()


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("page", ["commands", "job-variables", "comparison", "first-job"])
def test_no_command_and_no_table_is_cut_off(browser, site, page, width):
    browser.visit(site(f"docs/{page}.html"), width=width)
    browser.until("return document.querySelector('table.named, article pre') !== null")
    assert browser.run(CUT) == []
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_narrow_table_names_the_column_of_each_cell(browser, site):
    browser.visit(site("docs/job-variables.html"), width=390)
    browser.until("return document.querySelector('table.named') !== null")
    label = "return getComputedStyle(document.querySelector('table.named td:nth-child(2)'), '::before').content"
    assert "type" in browser.run(label)


def test_the_sidebar_shows_the_group_of_the_page(browser, site):
    browser.visit(site("docs/restarts.html"), width=1400)
    browser.until("return document.querySelector('.sidebar-tree details') !== null")
    groups = browser.run(
        "return [...document.querySelectorAll('.sidebar-tree details')].map((group) => [group.innerText, group.open])"
    )
    assert [text.splitlines()[0].lower() for text, is_open in groups if is_open] == ["long runs and failures"]
    shown = browser.run(
        "return [...document.querySelectorAll('.sidebar-tree a')].filter((link) => link.checkVisibility()).length"
    )
    assert len(groups) > 5 and shown < 12


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("ssh key host verification failed", "faults"),
        ("permission denied", "faults"),
        ("without internet", "offline"),
        ("remove", "leftovers"),
        ("hang", "hangs"),
        ("spare", "restarts"),
        ("术语", "zh/glossary"),
        ("手里有主机", "zh/index"),
        ("两台主机", "zh/two-hosts"),
        ("第一个作业", "zh/first-job"),
    ],
)
def test_the_search_finds_the_page_that_explains_first(browser, site, query, page):
    browser.visit(f"{site('search.html')}?q={query.replace(' ', '+')}", width=1400)
    browser.until("return /found/.test(document.querySelector('.search-summary')?.textContent)")
    first = browser.run("return document.querySelector('ul.search li a').getAttribute('href')")
    assert first.partition("?")[0].partition("#")[0] == f"docs/{page}.html"


def test_a_page_of_two_languages_leads_to_the_other_and_back(browser, site):
    language = "return document.documentElement.lang"
    browser.visit(site("docs/first-job.html"))
    assert browser.run(language) == "en"
    browser.one("article a[href='zh/first-job.html']").click()
    browser.until("return document.querySelector('article') !== null")
    assert browser.run(language) == "zh-CN"
    assert browser.one("article a[href='../first-job.html']").text == "English"
