# SPDX-License-Identifier: Apache-2.0
"""Mask the known secrets of a job in the output of its ranks.

A mask is as long as the secret, so that offsets in a log stay valid for readers that follow it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

# Minimum length of a secret, in characters: shorter values occur in any text.
MIN_LENGTH = 6
_MASK = b"*"

Forms = tuple[bytes, ...]


def forms(node_plan: Mapping[str, Any]) -> Forms:
    """Return the forms in which the secrets of a node_plan.json may be printed, the longest first.

    Secrets are the job's token and the values of job_secret_env, and each line of a value: plain, and as JSON, Python,
    URL and base64 write them.
    """
    secret_env = node_plan.get("secret_env")
    # The job's user can change the file.
    values = [*(secret_env.values() if isinstance(secret_env, Mapping) else ()), node_plan.get("token")]
    found: set[str] = set()
    for value in (value for value in values if isinstance(value, str)):
        for each in {value, *value.splitlines()}:
            if len(each) >= MIN_LENGTH:
                encoded = base64.b64encode(each.encode()).decode().rstrip("=")
                found |= {each, json.dumps(each)[1:-1], repr(each)[1:-1], encoded}
                # Python's quote() leaves slashes as they are, other programs do not.
                found |= {quote(each), quote(each, safe="")}
    return tuple(sorted((each.encode() for each in found), key=lambda each: (-len(each), each)))


def mask(content: bytes, hidden: Forms) -> bytes:
    """Return output with each form masked, and the beginning of one at its end."""
    for form in hidden:
        if form in content:
            content = content.replace(form, _MASK * len(form))
    cut = max((_begun(content, form) for form in hidden), default=0)
    return content[: len(content) - cut] + _MASK * cut if cut else content


def _begun(content: bytes, form: bytes) -> int:
    """Return how many bytes of `form` the output ends with: the rank may not have written the rest yet."""
    most = min(len(form) - 1, len(content))
    return next((size for size in range(most, MIN_LENGTH - 1, -1) if content.endswith(form[:size])), 0)


def mask_text(text: str, hidden: Forms) -> str:
    """Return a text with each form masked."""
    return mask(text.encode("utf-8", "surrogateescape"), hidden).decode("utf-8", "replace") if hidden else text


def places(content: Any, hidden: Forms) -> Iterable[tuple[int, int]]:
    """Yield start and end of each form in a memory-mapped file."""
    for form in hidden:
        at = content.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = content.find(form, at + len(form))
