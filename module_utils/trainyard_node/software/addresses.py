# SPDX-License-Identifier: Apache-2.0
"""Whether an address holds a file, asked without downloading it."""

from __future__ import annotations

import base64
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

TIMEOUT_S = 20
# Servers that take no HEAD say so in one of these ways; a file in a store may be forbidden to ask for by it.
_NO_HEAD = (400, 403, 405, 501)


def fault(url: str) -> str:
    """Return why a file cannot be had from a https, http or file address, "" where it can or nobody can tell."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "" if Path(unquote(parts.path)).is_file() else "there is no such file on the node"
    if parts.scheme not in ("http", "https"):
        return ""
    answered = _ask(url, "HEAD")
    return _ask(url, "GET") if answered.startswith(tuple(f"HTTP {status}" for status in _NO_HEAD)) else answered


def _ask(url: str, method: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    bare = urlunsplit(parts._replace(netloc=host, fragment=""))
    request = urllib.request.Request(bare, method=method)  # noqa: S310 (http or https, see above)
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", "Basic " + base64.b64encode(login).decode())
    if method == "GET":
        request.add_header("Range", "bytes=0-0")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code} {error.reason}"
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        # pip and get_url have certificates of their own.
        return "" if isinstance(reason, ssl.SSLError) else f"no answer: {reason}"
