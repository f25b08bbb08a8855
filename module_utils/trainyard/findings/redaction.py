# SPDX-License-Identifier: Apache-2.0
"""Remove secrets, environments, control characters and endless lines from reports, which people mail."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .findings import counted

HIDDEN = "(hidden)"
MAX_TEXT = 4000  # characters

# Dictionaries of variables, as nccl-tests' JSON has one.
_ENVIRONMENT = frozenset({"env", "environ", "environment"})
# `tokens` are training data of language models.
_WORD = r"(?:passw(?:or)?d|passphrase|secret|token(?!s)|api[_-]?key|private[_-]?key|credential)"
_SECRET, _IS_NAME = re.compile(rf"(?i){_WORD}"), re.compile(r"[\w-]+")
# Bounded, as the time of a search would grow with the square of a line that repeats the word.
_ASSIGNED = re.compile(rf"(?i)({_WORD}[\w-]{{0,200}}[\"']?\s?[=:]\s?)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)")
_IN_ADDRESS = re.compile(r"(?i)([a-z][a-z0-9+.-]{0,30}://)[^\s/@]+@")
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic) )[a-z0-9._~+/=-]{8,}")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
# Control characters, those that no XML file may hold, and those that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def without_secrets(text: str) -> str:
    """Return a text, such as a log, without recognizable secrets, terminal codes and controls."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _COLOR.sub("", text.replace("\r\n", "\n")))
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", _KEY_BLOCK.sub(HIDDEN, text))
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _BEARER.sub(rf"\1{HIDDEN}", text))


@lru_cache(maxsize=8192)
def safe_text(text: str) -> str:
    """Return a text of a report without secrets, cut to MAX_TEXT."""
    text = without_secrets(text)
    more = len(text) - MAX_TEXT
    return f"{text[:MAX_TEXT]}... ({counted(more, 'more character')})" if more > 0 else text


@lru_cache(maxsize=8192)
def _is_secret(name: str) -> bool:
    return _IS_NAME.fullmatch(name) is not None and _SECRET.search(name) is not None


def safe(value: Any) -> Any:
    """Return plain data with safe_text for each string, null for nan and inf, no environment, and no secret by name."""
    if isinstance(value, Mapping):
        return {
            safe_text(str(key)): HIDDEN if item and _is_secret(str(key)) else safe(item)
            for key, item in value.items()
            if not (isinstance(item, Mapping) and str(key).lower() in _ENVIRONMENT)
        }
    if isinstance(value, (list, tuple)):
        return [safe(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (int, float)) else safe_text(str(value))
