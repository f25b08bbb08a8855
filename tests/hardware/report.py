# SPDX-License-Identifier: Apache-2.0
"""The report of a machine's own test: report.json, captures, logs, pages, in a folder and as one file to send."""

from __future__ import annotations

import json
import platform
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

from anonymous import Anonymous
from ansible.module_utils.trainyard.base.redaction import safe

# Names of the steps, in this order.
STATES = {"passed": "passed", "failed": "FAILED", "skipped": "not run"}
# A log that is longer keeps its beginning and its end.
_MAX_LOG = 400_000


class Report:
    """What came of each step; `folder` is all that leaves this machine."""

    def __init__(self, kind: str, folder: Path, project: Path, anonymous: Anonymous) -> None:
        """Begin with nothing; kind is gpu or npu."""
        self.kind, self.folder, self.anonymous = kind, folder, anonymous
        self._project, self._began = project, time.time()
        self.machine: dict[str, Any] = {}
        self.fakes: list[str] = []
        self.steps: list[dict[str, Any]] = []
        folder.mkdir(parents=True)

    def step(
        self, name: str, about: str, state: str, reason: str, seconds: float, data: dict[str, Any]
    ) -> dict[str, Any]:
        """Note what came of a step, and return it."""
        words = {"name": name, "about": about, "state": STATES[state].lower(), "reason": reason}
        self.steps.append({**words, "elapsed_s": round(seconds, 1), "data": data})
        return self.steps[-1]

    @property
    def elapsed(self) -> str:
        """Time since the beginning."""
        minutes, seconds = divmod(int(time.time() - self._began), 60)
        return f"{minutes}:{seconds:02}"

    def keep(self, source: Path, name: str) -> None:
        """Keep a text file, such as a log or a page, as it may leave."""
        text = source.read_text(encoding="utf-8", errors="replace")
        if len(text) > _MAX_LOG and source.suffix != ".html":
            half = _MAX_LOG // 2
            text = f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
        self.keep_text(text, name)

    def keep_text(self, text: str, name: str) -> None:
        """Keep a text under a name."""
        place = self.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(self.anonymous(text), encoding="utf-8")

    @property
    def numbers(self) -> dict[str, int]:
        """How many steps had which state."""
        return {word.lower(): sum(step["state"] == word.lower() for step in self.steps) for word in STATES.values()}

    def write(self) -> Path:
        """Write report.json, pack the folder, and return the file to send."""
        commit = subprocess.run(
            ["git", "-C", str(self._project), "describe", "--always", "--dirty"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        numbers = self.numbers
        record = {
            "test": self.kind,
            "result": "failed" if numbers["failed"] else "passed" if numbers["passed"] else "not run",
            # Results with fakes say nothing of any device.
            "fakes": self.fakes,
            "numbers": numbers,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            "elapsed_s": round(time.time() - self._began, 1),
            "trainyard": commit.stdout.strip() or "unknown",
            "machine": {"kernel": platform.release(), "python": platform.python_version(), **self.machine},
            "steps": self.steps,
        }
        self.keep_text(json.dumps(safe(record), indent=1, ensure_ascii=False) + "\n", "report.json")
        packed = self.folder.with_name(f"{self.folder.name}.tar.gz")
        with tarfile.open(packed, "w:gz") as tar:
            tar.add(self.folder, self.folder.name, filter=_of_nobody)
        return packed


def _of_nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Keep from the file to send who has made it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
