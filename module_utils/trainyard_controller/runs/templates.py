# SPDX-License-Identifier: Apache-2.0
"""Render the templates: pages for people, scripts for schedulers.

In a template *.html.j2 every value is escaped; in the others the filter `quote` makes a value one word for a shell.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from .project import ROOT

FOLDER = ROOT / "templates"


def quote(value: str | Sequence[str]) -> str:
    """Quote words for bash on one line, as a line of its own could end a here-document."""
    if not isinstance(value, str):
        return " ".join(map(quote, value))
    if "\n" not in value and "\r" not in value:
        return shlex.quote(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"$'{escaped}'"


@functools.cache
def environment() -> jinja2.Environment:
    """Return the settings of all templates: an undefined name raises an error."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=jinja2.select_autoescape(["html.j2"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["quote"] = quote
    # The filter tojson writes nothing that could end a script element.
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made


def render(path: str, context: Mapping[str, Any]) -> str:
    """Return the text of a template, named by its path below templates/."""
    return environment().get_template(path).render(context)
