# SPDX-License-Identifier: Apache-2.0
"""Read how far Ansible's get_url is: it writes a file of its own beside the one that it makes. Sizes are bytes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ...trainyard.software.pip_progress import DOWNLOAD
from . import addresses

# The name that Python's tempfile gives to a file.
_TEMPORARY = "tmp*"


def read(path: str, url: str, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return how far the download of a URL into the folder `path` is (pip_progress.INSTALLING), None where none runs.

    `last` is the record before it.
    """
    folder = Path(path)
    sizes = [file.stat().st_size for file in folder.glob(_TEMPORARY) if file.is_file()]
    if not sizes:
        return None
    total = last["total"] if last else addresses.size(url)
    # The file has come into the folder last, and has not left it.
    seconds = max(0.0, time.time() - folder.stat().st_mtime)
    file = urlsplit(url).path.rpartition("/")[2][:250]
    step = {"phase": DOWNLOAD, "file": file, "number": 0, "done": max(sizes), "total": total}
    return {**step, "seconds": round(seconds, 1)}
