# SPDX-License-Identifier: Apache-2.0
"""The frame of a report's page: one HTML file that needs nothing else and may load nothing else.

plotly.js (4.8 MB) is held compressed (2 MB) and unpacked by the browser: a page goes into every job's folder and is
sent around, and one copy for all pages would break each page that is sent alone. A page without figures does not hold
it.

The page's own policy allows no address at all and just the scripts whose hashes it names, so that a name or log line
that slipped through as HTML still could not run or fetch anything.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from .markup import Content, Html, embedded, joined, tag
from .page_script import SCRIPT
from .page_style import STYLE

_MARKS = {"pass": "\N{CHECK MARK}", "fail": "\N{BALLOT X}", "unknown": "?", "skipped": "\N{EN DASH}"}
# States of jobs and of what was not looked at, by the state of a check that looks like them.
_LIKE = {
    "succeeded": "pass",
    "failed": "fail",
    "timed_out": "fail",
    "lost": "fail",
    "stopped": "skipped",
    "not_asked": "skipped",
    "unreachable": "unknown",
    "running": "skipped",
    "ended": "skipped",
}
_WORDS = {"skipped": "not applicable", "not_asked": "not asked for"}


def page(title: str, state: str, sections: Sequence[Html], figures: Sequence[dict[str, Any]], library: bytes) -> str:
    """Return a whole page.

    `figures` are plotly's (data, layout), each with the `id` of its section's element; `library` is plotly.js,
    without which nothing is drawn.
    """
    missing = bool(figures) and not library
    figures = [] if missing else figures
    scripts = [SCRIPT.encode(), *([library] if figures else [])]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
    held = Html("")
    if figures:
        packed = base64.b64encode(zlib.compress(library, 6)).decode()
        held = joined(
            tag("script", embedded(list(figures)), type="application/json", id="figures"),
            tag("script", Html(packed), type="application/octet-stream", id="library"),
        )
    head = joined(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        # No picture is asked for either.
        Html('<link rel="icon" href="data:,">'),
        tag("style", Html(STYLE)),
    )
    body = joined(tag("main", *sections, id="main"), held, tag("script", Html(SCRIPT)))
    whole = tag(
        "html",
        tag("head", head),
        "\n",
        tag("body", body),
        lang="en",
        data_state=_like(state),
        data_figures="missing" if missing else None,
    )
    return f"<!DOCTYPE html>\n{whole}\n"


def _like(state: str) -> str:
    return _LIKE.get(state, state)


def badge(state: str) -> Html:
    """Return a state as a coloured word with a sign, so that it is known without colours."""
    like = _like(state)
    mark = tag("span", _MARKS.get(like, ""), aria_hidden="true")
    return tag("span", mark, " ", _WORDS.get(state, state.replace("_", " ")), class_=f"state {like}")


def section(name: str, title: str, *contents: Content) -> Html:
    """Return a section with its heading."""
    return tag("section", tag("h2", title, id=f"{name}-title"), *contents, id=name, aria_labelledby=f"{name}-title")


def figure(name: str, label: str, role: str = "img", **attributes: str | int | None) -> Html:
    """Return the place where a figure is drawn; `label` says what it shows to those who do not see it."""
    missing = tag("noscript", "This figure is drawn by JavaScript; the tables have its figures.")
    return tag("div", missing, class_="figure", id=name, role=role, aria_label=label, **attributes)


def utc(seconds: float | None) -> str:
    """Write a time of the epoch as date and time."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def size(number: float) -> str:
    """Write a number of bytes with the unit that fits: 8 B, 64 KiB, 1 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            break
        number /= 1024
    return f"{number:.4g} {unit}"
