# SPDX-License-Identifier: Apache-2.0
"""The file with what tools printed elsewhere, for the modules that take one (docs/captures.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Found = TypeVar("Found")
_MAX_BYTES = 8 << 20


def read_capture(module: Any, parse: Callable[[str], Found]) -> Found:
    """Return what `parse` makes of the file in the option `capture`; fail with what to do where it is nothing."""
    path = Path(module.params["capture"])
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be read: {error.strerror}. Expected a file with what tools printed.")
        raise
    if len(content) > _MAX_BYTES:
        module.fail_json(msg=f"{path} has more than {_MAX_BYTES >> 20} MiB. Expected what a few commands printed.")
    # What Windows' own programs write.
    wide = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    try:
        return parse(content.decode(wide, errors="replace"))
    except ValueError as error:
        module.fail_json(msg=f"{path}: {error}. See docs/captures.md.")
        raise
