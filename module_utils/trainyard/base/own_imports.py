# SPDX-License-Identifier: Apache-2.0
"""Find all files of this project that a program needs: for a node that has no installation of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

_IMPORT = re.compile(r"^[ \t]*from (\.+)([\w.]*) import (\([^)]*\)|.+)$", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: as \w+)?\s*(?:,|$|\))")


def files_of(entries: Iterable[str], read: Callable[[str], str | None]) -> dict[str, str]:
    """Return the texts of files by their paths: of the `entries`, all that they import anywhere, and their packages.

    A path is one below module_utils/, such as `logs/progress.py`; `read` returns None for a missing file.
    """
    required, seen = list(entries), dict[str, "str | None"]()
    while required:
        path = required.pop()
        if path in seen:
            continue
        seen[path] = text = read(path)
        folder = path.split("/")[:-1]
        for dots, dotted, names in _IMPORT.findall(text or ""):
            base = [*folder[: len(folder) + 1 - len(dots)], *filter(None, dotted.split("."))]
            listed = _NAME.findall(names.strip("() \n").replace("\n", " "))
            for module in ["/".join(base), *("/".join([*base, name]) for name in listed)]:
                required += [f"{module}.py", f"{module}/__init__.py"]
        if text is not None:
            required += ["/".join([*folder[:depth], "__init__.py"]) for depth in range(1, len(folder) + 1)]
    return {path: seen[path] or "" for path in sorted(seen) if seen[path] is not None}
