# SPDX-License-Identifier: Apache-2.0
"""Say what may become a word of a command of pip, uv and apt, or a line of their files.

Requests, locks and hosts give such values. None of them may be an option, two words, or a second line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..base.findings import Finding
from .requirements import Pin, normal, wheel_findings, without_password

# A word on a line: neither white space nor characters that control a terminal.
_WORD = r"[^\s\x00-\x1f\x7f]+"
_ADDRESS = re.compile(rf"(?:https?|file)://{_WORD}")
# PEP 508 and PEP 440: a name with extras, then versions or an address, then a marker.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|[<>=!~]=?) *[0-9A-Za-z][0-9A-Za-z.!*+_-]*"
_REQUIREMENT = re.compile(
    rf"{_NAME} *(?:\[[A-Za-z0-9., _-]*\])? *(?:@ *{_WORD}|{_VERSION}(?: *, *{_VERSION})*)?"
    r"(?: *;[ A-Za-z0-9_.()'\"<>=!~,*+-]+)?"
)
# Options of pip about wheels of another machine: PEP 425 has the tags.
_TAG = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*"
_PLATFORM = {
    "--platform": re.compile(_TAG),
    "--abi": re.compile(_TAG),
    "--implementation": re.compile(r"[a-z]{2}"),
    "--python-version": re.compile(r"\d+(?:\.\d+){0,2}"),
}


class WordError(ValueError):
    """A value that may not stand in a command; the text has what was found."""


def platform_options(text: str) -> list[str]:
    """Return pip's options for wheels of another machine, each with its value. Raises WordError for other words."""
    words = text.replace("=", " ").split(" ")
    pairs = list(zip(words[::2], words[1::2]))
    if len(words) % 2 or not all(name in _PLATFORM and _PLATFORM[name].fullmatch(value) for name, value in pairs):
        raise WordError(f"the platform {text[:200]!r} has other words than {', '.join(_PLATFORM)} and their values")
    return [f"{name}={value}" for name, value in pairs]


def index_address(text: str) -> str:
    """Return the address of an index, which may be empty. Raises WordError."""
    if text and not _ADDRESS.fullmatch(text):
        raise WordError(f"the index {without_password(text)[:200]!r} is no http, https or file address")
    return text


def requirement(text: str) -> str:
    """Return a requirement, which is one line without options. Raises WordError."""
    # pip takes what follows a blank and a hyphen for options, in a marker, too.
    if not _REQUIREMENT.fullmatch(text) or re.search(r"\s-", text):
        raise WordError(f"{without_password(text)[:200]!r} is no requirement such as numpy==2.4.6")
    return text


def source_word(text: str, what: str) -> str:
    """Return a word of a source of apt. Raises WordError for several words or lines."""
    if not re.fullmatch(_WORD, text):
        raise WordError(f"{what} is {without_password(text)[:200]!r}, expected one word")
    return text


def one_label(text: str) -> str:
    """Return the label of a repository, which is one line. Raises WordError."""
    if not re.fullmatch(r"[^\x00-\x1f\x7f,]+", text):
        raise WordError(f"the label of the repository is {text[:200]!r}, expected one line without commas")
    return text


def environment_findings(
    environment: Mapping[str, Any], pins: Iterable[Pin], unpinned: Iterable[str]
) -> Iterator[Finding]:
    """Yield what of an environment may not reach pip: `unpinned` in words, wheels of others than `pins`, sources."""
    wheels = {normal(name): address for name, address in environment["wheels"].items()}
    for found, expected, action in (
        (unpinned, "exact pins, each package once", "correct the list of packages"),
        (wheel_findings(wheels, pins), "wheels of packages in the list", "correct the wheel's address, or the list"),
        (faults(environment), "sources and constraints that are words and addresses", "correct it"),
    ):
        yield from (Finding("packages", each, expected, action) for each in found)


def faults(environment: Mapping[str, Any]) -> list[str]:
    """Return what of an environment's sources and constraints may not reach pip or uv; its packages are pins."""
    found = []
    for value, check in _of_environment(environment):
        try:
            check(value)
        except WordError as error:
            found.append(str(error))
    return found


def _of_environment(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield str(environment.get("index_url") or ""), index_address
    for address in environment.get("extra_index_urls") or ():
        yield str(address), index_address
    for place in environment.get("find_links") or ():
        yield str(place), lambda text: source_word(text, "a place in find_links")
    for line in environment.get("constraints") or ():
        yield str(line), requirement
