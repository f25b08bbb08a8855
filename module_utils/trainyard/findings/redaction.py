# SPDX-License-Identifier: Apache-2.0
"""What may leave the controller in a report: no secret, no environment, no control characters, no endless line.

A report is mailed and attached to tickets, and the words in it come from machines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .findings import counted

HIDDEN = "(hidden)"
# A log line or a command's output that is longer says nothing more.
MAX_TEXT = 4000

# Whole dictionaries of variables, as nccl-tests' JSON has one.
_ENVIRONMENT = frozenset({"env", "environ", "environment"})
# `tokens` are what language models are trained on.
_WORD = r"(?:passw(?:or)?d|passphrase|secret|token(?!s)|api[_-]?key|private[_-]?key|credential)"
_SECRET, _IS_NAME = re.compile(rf"(?i){_WORD}"), re.compile(r"[\w-]+")
# Bounded, as the time of a search would grow with the square of a line that repeats the word.
_ASSIGNED = re.compile(rf"(?i)({_WORD}[\w-]{{0,200}}[\"']?\s?[=:]\s?)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)")
_IN_ADDRESS = re.compile(r"(?i)([a-z][a-z0-9+.-]{0,30}://)[^\s/@]+@")
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic) )[a-z0-9._~+/=-]{8,}")
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL)
# Also those that no XML file may hold, and those that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def without_secrets(text: str) -> str:
    """Return a whole text, such as a log, without secrets that can be told as such, terminal codes and controls."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _COLOUR.sub("", text.replace("\r\n", "\n")))
    text = _KEY_BLOCK.sub(HIDDEN, text)
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


@lru_cache(maxsize=8192)
def safe_text(text: str) -> str:
    """Return a text of a report without secrets, and without its end where that is far."""
    text = without_secrets(text)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}... ({counted(len(text) - MAX_TEXT, 'more character')})"
    return text


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
    if isinstance(value, str):
        return safe_text(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return safe_text(str(value))
