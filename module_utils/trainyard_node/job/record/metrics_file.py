# SPDX-License-Identifier: Apache-2.0
"""The metrics file of a job on this node, for node_exporter, in a folder that may be world-writable.

The file belongs to the job's user, like the monitor that writes it. Files and links of other users are neither followed
nor replaced (a sticky folder ensures the latter). The file is removed with the job.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# Seconds between two writes; Prometheus usually scrapes every 15 s or less often.
EVERY_S = 5.0


class Textfile:
    """The metrics of one job on this node."""

    def __init__(self, folder: str, job_id: str) -> None:
        """Take the folder; with "" nothing is written."""
        self.path = metrics_file(folder, job_id) if folder else ""
        self._written, self._printed = 0.0, ""

    def due(self, at_once: bool = False) -> bool:
        """Return whether it is time to write."""
        return bool(self.path) and (at_once or time.monotonic() - self._written >= EVERY_S)

    def write(self, text: str) -> None:
        """Replace the file atomically. An error is printed once, into the log."""
        self._written = time.monotonic()
        path = Path(self.path)
        # Not `.prom`, which node_exporter would read.
        new = path.with_name(f".{path.name}.{os.getpid()}")
        why = ""
        try:
            with contextlib.suppress(FileNotFoundError):
                new.unlink()
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                # Regardless of the umask, as node_exporter runs as another user.
                os.fchmod(descriptor, 0o644)
                file.write(text)
            new.replace(path)
        except OSError as error:
            why = f"metrics cannot be written to {path.parent}: {error.strerror}"
            with contextlib.suppress(OSError):
                new.unlink()
        if why and why != self._printed:
            print(why, flush=True)
        self._printed = why

    def remove(self) -> None:
        """Remove the file, as the job has ended."""
        if self.path:
            with contextlib.suppress(OSError):
                Path(self.path).unlink()


def metrics_file(folder: str, job_id: str) -> str:
    """Return the path of a job's metrics on this node, as node_exporter reads them."""
    return f"{folder}/trainyard_{job_id}.prom"
