# SPDX-License-Identifier: Apache-2.0
"""Remove secrets, environments, control characters and endless lines from reports, which people mail."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from .findings import counted

HIDDEN = "(hidden)"
MAX_TEXT = 4000  # characters

# Dictionaries of variables, as nccl-tests' JSON has one.
_ENVIRONMENT = frozenset({"env", "environ", "environment"})
# `tokens` and tokenizers belong to the training data of language models.
_WORD = (
    r"(?:passw(?:or)?d|passphrase|secret|token(?!s|i[sz])|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|(?<=[a-z0-9])[_-]pwd)"
)
_SECRET, _IS_NAME = re.compile(rf"(?i){_WORD}"), re.compile(r"[\w-]+")
# Bounded, as the time of a search would grow with the square of a line that repeats the word.
# JSON may be part of a text in JSON, whose quotes have a backslash.
_VALUE = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\\+[\"'][^\"']*"
_ASSIGNED = re.compile(rf"(?i)({_WORD}[\w-]{{0,200}}\\{{0,4}}[\"']?\s?[=:]\s?)({_VALUE}|[^\s,;&\"']+)")
# A value as the next word: `--api-key VALUE`.
_OPTION = rf"(?<![\w-])--?[\w-]{{0,60}}{_WORD}[\w-]{{0,60}}"
_AFTER_OPTION = re.compile(rf"(?i)({_OPTION}[ \t]{{1,4}})({_VALUE}|[^\s\"'-]\S*)")
_IS_OPTION = re.compile(rf"(?i){_OPTION}")
# A password may have an @ itself.
_IN_ADDRESS = re.compile(r"(?i)([a-z][a-z0-9+.-]{0,30}://)[^\s/]+@")
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic) )[a-z0-9._~+/=-]{8,}")
_KEY = r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_KEY_BLOCK = re.compile(rf"-----BEGIN {_KEY}.*?(?:-----END {_KEY}|$)", re.DOTALL)
# The end of a key whose begin was cut off, and the characters before it that may belong to it.
_KEY_END, _MAX_KEY = re.compile(rf"-----END {_KEY}"), 16 << 10
# Tokens that are recognized by their own form (GitHub, GitLab, Hugging Face, OpenAI, AWS, Slack, Google, JSON Web
# Tokens), webhooks, signatures of addresses, and logins of registries in Docker's config.json.
_TOKEN = re.compile(
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|sk-(?:[a-z]{1,10}-){0,2}\w{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|xox[abeoprs]-[\w-]{10,}|AIza[\w-]{30,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}(?:\.[\w-]*)?)"
)
_HOOK = re.compile(
    r"(\bhooks\.slack\.com/|/api/webhooks/|[?&](?i:x-amz-signature|signature|sig)=|\"auth\": ?)[^\s&,}\]]+"
)
# Control characters, those that no XML file may hold, and those that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def without_secrets(text: str) -> str:
    """Return a text, such as a log, without recognizable secrets, terminal codes and controls."""
    text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", _COLOR.sub("", text.replace("\r\n", "\n")))
    text = _IN_ADDRESS.sub(rf"\1{HIDDEN}@", _TOKEN.sub(HIDDEN, _without_keys(text)))
    for pattern in (_BEARER, _AFTER_OPTION, _HOOK, _ASSIGNED):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return text


def _without_keys(text: str) -> str:
    text = _KEY_BLOCK.sub(HIDDEN, text)
    shown, done = [], 0
    for end in _KEY_END.finditer(text):
        shown += [text[done : max(done, end.start() - _MAX_KEY)], HIDDEN]
        done = end.end()
    return "".join([*shown, text[done:]])


@lru_cache(maxsize=8192)
def safe_text(text: str) -> str:
    """Return a text of a report without secrets, cut to MAX_TEXT."""
    text = without_secrets(text)
    more = len(text) - MAX_TEXT
    return f"{text[:MAX_TEXT]}... ({counted(more, 'more character')})" if more > 0 else text


@lru_cache(maxsize=8192)
def _is_secret(name: str) -> bool:
    return _IS_NAME.fullmatch(name) is not None and _SECRET.search(name) is not None


def is_secret_name(name: str) -> bool:
    """Tell whether the value of a variable is a secret, by its name."""
    return _is_secret(name) or name.lower().endswith(("_pass", "_auth"))


def _safe_list(values: Sequence[Any]) -> list[Any]:
    """Return the items of a list; the words of a command, and the lines of a log, belong together."""
    if any(isinstance(each, str) and "PRIVATE KEY" in each for each in values) and all(
        isinstance(each, str) for each in values
    ):
        values = _without_keys("\n".join(values)).split("\n")
    return [
        HIDDEN if isinstance(item, str) and isinstance(before, str) and _IS_OPTION.fullmatch(before) else safe(item)
        for before, item in zip((None, *values), values)
    ]


def safe(value: Any) -> Any:
    """Return plain data with safe_text for each string, null for nan and inf, no environment, and no secret by name."""
    if isinstance(value, Mapping):
        return {
            safe_text(str(key)): HIDDEN if item and _is_secret(str(key)) else safe(item)
            for key, item in value.items()
            if not (isinstance(item, Mapping) and str(key).lower() in _ENVIRONMENT)
        }
    if isinstance(value, (list, tuple)):
        return _safe_list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (int, float)) else safe_text(str(value))
