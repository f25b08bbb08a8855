# SPDX-License-Identifier: Apache-2.0
"""Mask the secrets of a job, whose values are known, in what its ranks have printed.

A mask is as long as what it hides, so that places in a log stay what they were, also for who follows it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

# Characters. A shorter value is a word or number that stands in any text.
LEAST = 6
_MASK = b"*"

Forms = tuple[bytes, ...]


def forms(spec: Mapping[str, Any]) -> Forms:
    """Return how the secrets in a node's node_plan.json may be printed, the longest first.

    They are the job's token and the values of job_secret_env, also in the form of JSON, of Python, of an address and
    in base64; of a value of several lines each line.
    """
    known = spec.get("secret_env")
    # The job's user may have written anything into the file.
    values = [*(known.values() if isinstance(known, Mapping) else ()), spec.get("token")]
    found: set[str] = set()
    for value in (value for value in values if isinstance(value, str)):
        for each in {value, *value.splitlines()}:
            if len(each) >= LEAST:
                encoded = base64.b64encode(each.encode()).decode().rstrip("=")
                found |= {each, json.dumps(each)[1:-1], repr(each)[1:-1], quote(each, safe=""), encoded}
    return tuple(sorted((each.encode() for each in found), key=lambda each: (-len(each), each)))


def mask(content: bytes, hidden: Forms) -> bytes:
    """Return what was printed with a mask over each of these; also over the beginning of one with which it ends."""
    for form in hidden:
        if form in content:
            content = content.replace(form, _MASK * len(form))
    cut = max((_begun(content, form) for form in hidden), default=0)
    return content[: len(content) - cut] + _MASK * cut if cut else content


def _begun(content: bytes, form: bytes) -> int:
    """Return with how many bytes of this a text ends: a rank may not have written the rest as yet."""
    most = min(len(form) - 1, len(content))
    return next((size for size in range(most, LEAST - 1, -1) if content.endswith(form[:size])), 0)


def mask_text(text: str, hidden: Forms) -> str:
    """Return a text with a mask over each of these."""
    return mask(text.encode("utf-8", "surrogateescape"), hidden).decode("utf-8", "replace") if hidden else text


def places(content: Any, hidden: Forms) -> Iterable[tuple[int, int]]:
    """Return where each of these stands in a file that is mapped into memory: from and to."""
    for form in hidden:
        at = content.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = content.find(form, at + len(form))
