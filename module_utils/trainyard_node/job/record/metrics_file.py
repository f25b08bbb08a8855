# SPDX-License-Identifier: Apache-2.0
"""The file by which node_exporter hears of a job on this node, in a folder that may be everybody's.

It belongs to the job's user, like the monitor that writes it; no file or link of anybody else is followed or replaced
(a sticky folder sees to the latter). It goes with the job.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

# Between two writings, in seconds; Prometheus mostly asks every 15 s or less often.
EVERY_S = 5.0


class Textfile:
    """The metrics of one job on this node."""

    def __init__(self, folder: str, job_id: str) -> None:
        """Take the folder; "": there is none, and nothing is written."""
        self.path = metrics_file(folder, job_id) if folder else ""
        self._written, self._said = 0.0, ""

    def due(self, at_once: bool = False) -> bool:
        """Tell whether it is time to write."""
        return bool(self.path) and (at_once or time.monotonic() - self._written >= EVERY_S)

    def write(self, text: str) -> None:
        """Write the file; a reader sees the old or the new one. What is in the way is printed once, into the log."""
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
                # Whatever the umask is: node_exporter is another user.
                os.fchmod(descriptor, 0o644)
                file.write(text)
            new.replace(path)
        except OSError as error:
            why = f"metrics cannot be written to {path.parent}: {error.strerror}"
            with contextlib.suppress(OSError):
                new.unlink()
        if why and why != self._said:
            print(why, flush=True)
        self._said = why

    def remove(self) -> None:
        """Remove the file: of a job that is over nobody is to be told."""
        if self.path:
            with contextlib.suppress(OSError):
                Path(self.path).unlink()


def metrics_file(folder: str, job_id: str) -> str:
    """Return the path of a job's metrics on this node, as node_exporter reads them."""
    return f"{folder}/trainyard_{job_id}.prom"
