"""What `make` installs into .venv: pinned, by hashes, from wheels, and what pyproject.toml asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomllib

PROJECT = Path(__file__).resolve().parents[2]
GROUPS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["dependency-groups"]
FLAGS = "--require-hashes $(ONLY_BINARY) "


def pins(group: str) -> set[str]:
    """The pins of a group's file and of those that it refers to, without markers; anything else is an error."""
    text = (PROJECT / f"requirements/{group}.txt").read_text().replace("\\\n", " ")
    found = set()
    for line in text.splitlines():
        if reference := re.fullmatch(r"-r ([a-z]+)\.txt", line):
            found |= pins(reference[1])
        elif not line.startswith("#"):
            match = re.fullmatch(r"([a-z0-9-]+==[^\s;]+)(?: ; .+?)?(?:\s+--hash=sha256:[0-9a-f]{64})+\s*", line)
            assert match, f"no pin with hashes: {line}"
            found.add(match[1])
    return found


def requested(group: str) -> set[str]:
    """The requirements of a group and of those that it includes, as the files write them."""
    own = {entry.partition(";")[0].lower().replace("_", "-") for entry in GROUPS[group] if isinstance(entry, str)}
    return own.union(*(requested(entry["include-group"]) for entry in GROUPS[group] if not isinstance(entry, str)))


@pytest.mark.parametrize("group", GROUPS)
def test_the_file_of_a_group_pins_what_the_group_requests(group: str) -> None:
    assert requested(group) <= pins(group), "run make requirements"
    names = sorted(pin.partition("==")[0] for pin in pins(group) if not pin.startswith("ansible-core=="))
    assert len(names) == len(set(names)), "one package in two versions"


def test_no_file_is_left_over() -> None:
    assert {path.stem for path in (PROJECT / "requirements").iterdir()} == {*GROUPS}


def test_make_installs_by_hashes_and_from_wheels_alone() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    assert re.search(r"^ONLY_BINARY \?= --only-binary :all:$", makefile, re.MULTILINE)
    installs = re.findall(r"pip install (.*?)(?: \|\||;|$)", makefile, re.MULTILINE)
    assert len(installs) == 6
    for words in installs:
        assert re.fullmatch(rf"-qq {re.escape(FLAGS)}-r requirements/[a-z]+\.txt", words), words
    # The wheel that starts pip where an index is missing is that of the pinned version.
    assert requested("pip") == {f"pip=={re.search('^PIP = (.*)$', makefile, re.MULTILINE)[1]}"}


def test_the_docs_install_as_make_does() -> None:
    text = " ".join((PROJECT / "docs/start.md").read_text().split())
    assert ".venv/bin/pip install --require-hashes --only-binary :all: -r requirements/controller.txt" in text
