# SPDX-License-Identifier: Apache-2.0
"""HTML in which nothing is forgotten: every text is escaped unless it was built here."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = Union[str, int, float, None]


def text(content: Content) -> Html:
    """Return content as HTML: what is Html stays, everything else is escaped, None is nothing."""
    if isinstance(content, Html):
        return content
    return Html("" if content is None else html.escape(str(content)))


def joined(*contents: Content) -> Html:
    """Put contents one after the other."""
    return Html("".join(text(content) for content in contents))


def tag(name: str, *contents: Content, **attributes: str | int | None) -> Html:
    """Return an element; `class_` is the attribute class, `data_host` is data-host, None leaves an attribute out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{words}>{joined(*contents)}</{name}>")


@dataclass(frozen=True)
class Row:
    """A row of a table; its first cell is its header."""

    cells: tuple[Content, ...]
    attributes: Mapping[str, str | int | None] = field(default_factory=dict)


def table(caption: str, head: Sequence[str], rows: Iterable[Row], **attributes: str | int | None) -> Html:
    """Return a table; on a narrow screen each row is a card, in which cells say their column."""
    lines = []
    for row in rows:
        first, *others = row.cells
        cells = [tag("td", cell, data_label=name) for name, cell in zip(head[1:], others)]
        lines.append(tag("tr", tag("th", first, scope="row"), *cells, **row.attributes))
    header = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    return tag("table", tag("caption", caption), header, tag("tbody", *lines), **attributes)


def embedded(value: Any) -> Html:
    """Return JSON that may stand in a script element: nothing in it can end the element or begin a comment."""
    dumped = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Html(dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))
