# SPDX-License-Identifier: Apache-2.0
"""Read how far Ansible's get_url is: it writes a file of its own beside the one that it makes. Sizes are bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...trainyard.software.pip_progress import DOWNLOAD
from . import addresses, environment_progress

# The name that Python's tempfile gives to a file.
_TEMPORARY = "tmp*"


def of_task(path: str, url: str, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the progress of an installation into the environment at `path`, or of the download of a URL into it."""
    return read(Path(path), url, last) if url else environment_progress.read(Path(path))


def read(folder: Path, url: str, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how far a download is (pip_progress.RECORD), None where none runs; `last` is the record before it."""
    sizes = [path.stat().st_size for path in folder.glob(_TEMPORARY) if path.is_file()]
    if not sizes:
        return None
    total = last["total"] if last else addresses.size(url)
    # The file has come into the folder last, and has not left it.
    seconds = max(0.0, time.time() - folder.stat().st_mtime)
    file = urlsplit(url).path.rpartition("/")[2][:250]
    step = {"phase": DOWNLOAD, "file": file, "number": 0, "done": max(sizes), "total": total}
    return {**step, "seconds": round(seconds, 1)}
