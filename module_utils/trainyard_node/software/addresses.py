# SPDX-License-Identifier: Apache-2.0
"""Read of an address whether it holds a file, and how large it is, without downloading it."""

from __future__ import annotations

import base64
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

TIMEOUT_S = 20
# Faults begin so where no server answers.
NO_ANSWER = "no answer"
# Answers of servers that take no HEAD; a store of files may forbid it.
_NO_HEAD = (400, 403, 405, 501)


def fault(url: str) -> str:
    """Return why a file cannot be had from a https, http or file address, "" where it can or that is unknown."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "" if Path(unquote(parts.path)).is_file() else "there is no such file on the node"
    if parts.scheme not in ("http", "https"):
        return ""
    status, reason, _ = _request(url, "HEAD")
    return _request(url, "GET")[1] if status in _NO_HEAD else reason


def size(url: str) -> int:
    """Return the size of a file at a https, http or file address in bytes; 0 where it is not known."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return path.stat().st_size if path.is_file() else 0
    return _request(url, "HEAD")[2] if parts.scheme in ("http", "https") else 0


def _request(url: str, method: str) -> tuple[int, str, int]:
    """Return the status, why the file cannot be had, and its size; 0 without an answer, and for an unknown size."""
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
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            length = answer.headers.get("Content-Length") or ""
            return 200, "", int(length) if re.fullmatch("[0-9]{1,15}", length) else 0
    except urllib.error.HTTPError as error:
        return error.code, f"HTTP {error.code} {error.reason}", 0
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        # pip and get_url have certificates of their own.
        return 0, "" if isinstance(reason, ssl.SSLError) else f"{NO_ANSWER}: {reason}", 0
