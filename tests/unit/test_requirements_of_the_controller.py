"""What `make` installs into .venv: pinned, by hashes, from wheels, and what pyproject.toml asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
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
        if reference := re.fullmatch(r"-r ([a-z-]+)\.txt", line):
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
    installs = re.findall(r"(?:pip install -qq|\.ci/pip) (.*?)(?: \|\||;|$)", makefile, re.MULTILINE)
    assert len(installs) == makefile.count("pip install") + 5 == 7
    for words in installs:
        assert re.fullmatch(rf"{re.escape(FLAGS)}-r requirements/[a-z]+\.txt", words), words
    packages = {pin.partition("==")[0] for pin in pins("controller")}
    assert f"ansible-core and {len(packages) - 1} others" in makefile
    # The wheel that starts pip where an index is missing is that of the pinned version.
    assert requested("pip") == {f"pip=={re.search('^PIP = (.*)$', makefile, re.MULTILINE)[1]}"}


def test_the_docs_install_as_make_does() -> None:
    text = " ".join((PROJECT / "docs/start.md").read_text().split())
    assert ".venv/bin/pip install --require-hashes --only-binary :all: -r requirements/controller.txt" in text


@pytest.fixture
def find_python(tmp_path: Path) -> Callable[..., str]:
    """Return a function that makes Pythons, those that work by True, and gives what .ci/find-python prints."""

    def find(on_path: dict[str, bool], of_pyenv: dict[str, bool], *minors: int) -> str:
        files = {f"bin/{name}": works for name, works in on_path.items()}
        files |= {f"versions/{name}/bin/python3": works for name, works in of_pyenv.items()}
        for name, works in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\nexit {0 if works else 1}\n")
            path.chmod(0o755)
        done = subprocess.run(
            ["/bin/bash", PROJECT / ".ci/find-python", *map(str, minors)],
            env={"PATH": str(tmp_path / "bin"), "PYENV_ROOT": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.stderr and done.returncode == (0 if done.stdout else 1)
        return done.stdout.strip().removeprefix(f"{tmp_path}/")

    return find


def test_make_finds_the_newest_python_that_works(find_python: Callable[..., str]) -> None:
    assert find_python({}, {}, 14, 13, 12) == ""
    assert find_python({"python3.13": False, "python3.11": True}, {"3.11.7": True}, 14, 13, 12) == ""
    assert find_python({"python3.12": True}, {}, 14, 13, 12) == "bin/python3.12"
    # pyenv puts a command on the PATH that fails while the version is not selected.
    assert find_python({"python3.13": False}, {"3.13.0": True}, 14, 13, 12) == "versions/3.13.0/bin/python3"
    assert find_python({}, {"3.14.1": False}, 14, 13, 12) == "versions/3.13.0/bin/python3"
    assert find_python({}, {}, 11) == "bin/python3.11"


def refused(*argv: str | Path) -> str:
    """Return the messages of a command that has to fail."""
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize(
    ("language", "next_line"), [("zh_CN.NOWHERE", "export LC_ALL=C.UTF-8 PATH="), ("C.UTF-8", "export PATH=")]
)
def test_make_says_what_ansible_needs_where_the_language_is_not_generated(language: str, next_line: str) -> None:
    """Ansible ends with "unsupported locale setting" before any code of the project runs."""
    for name in ("LANG", "LC_ALL"):
        env = {key: value for key, value in os.environ.items() if key not in ("LANG", "LC_ALL", "MAKEFLAGS")}
        make = ["make", "-n", "controller", f"PYTHON={sys.executable}"]
        done = subprocess.run(
            make, cwd=PROJECT, env={**env, name: language}, capture_output=True, text=True, check=True
        )
        assert f"next  {next_line}" in done.stdout


def test_make_refuses_a_bundle_that_it_cannot_install_from(tmp_path: Path) -> None:
    bundle, environment = tmp_path / "mine.bundle", tmp_path / "venv"
    make = ["make", f"BUNDLE={bundle}", f"VENV={environment}", f"PYTHON={sys.executable}"]
    assert f"{bundle} is no bundle: it has no SHA256SUMS" in refused(*make)
    (bundle / "wheels").mkdir(parents=True)
    (bundle / "SHA256SUMS").touch()
    assert "the bundle has .venv for no Python" in refused(*make)
    for minor in (2, 99):
        (bundle / f"wheels/controller-debian-12-x86_64-python3.{minor}.txt").touch()
    assert re.search(r"is Python 3\.\d+; the bundle has \.venv for Python 3\.99 3\.2\.", refused(*make))
    assert not environment.exists()
    assert "expected a folder without spaces" in refused("make", "BUNDLE=a folder")
    assert "has no packages of the lab for" in refused("env", f"BUNDLE={bundle}", PROJECT / ".ci/install", "podman")


def test_root_installs_from_no_bundle_that_others_can_exchange(tmp_path: Path) -> None:
    """apt takes what the bundle's own key has signed."""
    bundle = tmp_path / "mine.bundle"
    bundle.mkdir()
    (bundle / "key.asc").touch()
    own = [PROJECT / ".ci/private-bundle", bundle]
    assert subprocess.run(own, check=False).returncode == 0
    bundle.chmod(0o777)
    assert f"{bundle} (drwxrwxrwx, of " in refused(*own)
    for script in (".ci/install", "molecule/default/image/build"):
        assert "private-bundle" in (PROJECT / script).read_text()
