"""Every command on a page of the docs exists, takes the options that stand there, and is called by a test."""

import re
import runpy
import shlex

import pytest
from ansible_run import PROJECT
from documented import KNOWN

DOCS = runpy.run_path(str(PROJECT / ".ci/docs.py"))
PLACES = ("README*.md", "docs/*.md", "docs/zh/*.md", "roles/*/README.md")
PAGES = [page for place in PLACES for page in sorted(PROJECT.glob(place))]
TRANSLATED = [(DOCS["original"](page), page) for page in DOCS["translations"]()]
TESTS = "\n".join(path.read_text() for place in ("tests", "molecule") for path in (PROJECT / place).rglob("*.py"))
TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
BLOCK = re.compile(r"```\n(.*?)```", re.DOTALL)


def commands(program):
    """Return (page, words) of each command of a program in the blocks of all pages; comments are left out."""
    found = []
    for page in PAGES:
        for block in BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.split(r"\s+# | {4,}", line.strip().removeprefix("$ "))[0]
                if re.match(rf"(\.venv/bin/)?{program} ", command):
                    found.append((page.name, shlex.split(command)[1:]))
    assert found
    return found


def test_a_playbook_on_a_page_exists_with_its_options_and_is_tested():
    for page, words in commands("ansible-playbook"):
        # The collection has all playbooks in one folder.
        name = words[0].removeprefix("trainyard.cluster.")
        playbook = next(
            each for each in (words[0], f"{name}.yml", f"playbooks/{name}.yml") if (PROJECT / each).is_file()
        )
        assert re.search(rf"\b{re.escape(playbook.rpartition('/')[2])}\b", TESTS), f"{page}: no test calls {words}"
        for option, value in zip(words, words[1:]):
            if option == "-e" and not value.startswith(("@", "{")):
                assert value.partition("=")[0] in {*KNOWN, "job", "follow", "live"}, (page, words)
            if option == "-e" and value.startswith("@jobs/") and "NAME" not in value:
                assert (PROJECT / value[1:]).is_file(), (page, words)


def test_a_target_of_make_on_a_page_exists():
    assert [(page, words) for page, words in commands("make") if words[0] not in TARGETS] == []


def code(page):
    """Return the lines of code of a page without their comments and the lists of pages."""
    blocks = re.findall(r"^ *```(\S*)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = [
        re.sub(r"(^|\s+)# .*", "", line).rstrip()
        for kind, text in blocks
        if kind != "{toctree}"
        for line in text.splitlines()
    ]
    return [line for line in lines if line]


@pytest.mark.parametrize(("english", "chinese"), TRANSLATED)
def test_a_translated_page_has_the_commands_of_the_english_one(english, chinese):
    assert code(PROJECT / chinese) == code(PROJECT / english)
