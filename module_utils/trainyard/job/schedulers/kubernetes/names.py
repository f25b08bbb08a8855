# SPDX-License-Identifier: Apache-2.0
"""Legal names in a cluster: labels of RFC 1123, with at most 63 characters including an operator's suffix."""

from __future__ import annotations

import hashlib
import re

MAX_LENGTH = 63
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


def is_label(name: str) -> bool:
    """Tell whether a name is legal: lower-case letters, digits and hyphens, without hyphens at its ends."""
    return len(name) <= MAX_LENGTH and _LABEL.fullmatch(name) is not None


def legal(name: str, appended: int = 0) -> tuple[str, str]:
    """Return a legal name with room for `appended` characters, and a message if it differs from `name`, else "".

    A changed name ends in digits of a hash, so that different names stay different. It starts with a letter, as names
    of Services must.
    """
    room = MAX_LENGTH - appended
    made = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    reasons = []
    if made != name:
        reasons.append("only lower-case letters, digits and hyphens are allowed")
    if not made[:1].isalpha():
        made = f"j-{made}".rstrip("-")
        reasons.append("a letter must come first")
    if len(made) > room:
        reasons.append(f"at most {room} characters fit, as the names of pods are longer")
    if not reasons:
        return name, ""
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    made = f"{made[: room - len(digest) - 1].rstrip('-')}-{digest}"
    return made, f"{name} is called {made} in the cluster: {'; '.join(reasons)}"
