# SPDX-License-Identifier: Apache-2.0
"""Check what becomes a word of a line in Slurm's files or of a command in our advice.

A blank, the end of a line, `#`, `,`, `=`, brackets and parentheses all mean something to Slurm. All nodes share its
files, and root runs the programs that they name, so a word that one node chooses must not become more than a word.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ..base.findings import Finding
from ..base.visible import type_name


class Form(NamedTuple):
    """The form of a word, in words for people, and what to do about another one."""

    pattern: re.Pattern[str]
    expected: str
    action: str


_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?"
HOST_NAME = Form(
    re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"),
    "a host name by RFC 1123: letters, digits and -, in labels of at most 63 characters",
    "set it with hostnamectl set-hostname",
)
NAME = Form(
    re.compile(_WORD),
    "one word of letters, digits and . _ -, neither ALL nor DEFAULT, as slurm.conf has it",
    "give it another name",
)
ADDRESS = Form(
    re.compile(rf"{_WORD}|[0-9A-Fa-f:.]{{2,45}}(?:%[A-Za-z0-9_.-]{{1,15}})?"),
    "an address or a host name",
    "correct ansible_host in the inventory",
)
PATH = Form(
    re.compile(r"(?=.{0,4095}\Z)(?:(?:/[A-Za-z0-9_.+-]+)+)?"),
    "an absolute path of letters, digits and / _ . + -",
    "correct the path",
)
VERSION = Form(
    re.compile(r"slurm(?:-wlm)? ([0-9]{2})\.([0-9]{2})\.[A-Za-z0-9.~+-]{1,40}"),
    "a release as slurmd -V prints it, such as slurm-wlm 22.05.8",
    "run slurmd -V there",
)
# Slurm takes these for all nodes, and for defaults of the lines that follow, in any case of letters.
_RESERVED = ("all", "default")


def fits(value: Any, form: Form) -> bool:
    """Return whether a value is a word of this form."""
    return isinstance(value, str) and form.pattern.fullmatch(value) is not None and value.lower() not in _RESERVED


def shown(value: Any) -> str:
    """Return a value for a finding, in ASCII and short."""
    if isinstance(value, str):
        return ascii(value[:100])
    return "nothing" if value is None else f"no text ({type_name(value)})"


def word_findings(check: str, value: Any, form: Form, host: str = "") -> list[Finding]:
    """Find a value that is no word of this form."""
    return [] if fits(value, form) else [Finding(check, shown(value), form.expected, form.action, host)]


def is_whole(value: Any, least: int, most: int) -> bool:
    """Return whether a value is a whole number within these bounds; those of Ansible have a class of their own."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def number(text: Any, most: int = 10**9, least: int = 0) -> int | None:
    """Read a whole number within these bounds; None for anything else."""
    value = int(text) if isinstance(text, str) and re.fullmatch("[0-9]{1,12}", text) else -1
    return value if least <= value <= most else None
