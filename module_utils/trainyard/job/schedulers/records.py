# SPDX-License-Identifier: Apache-2.0
"""The input of a plan, and the plan of a job for an external scheduler."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.findings import Finding, counted
from ..file.job import Job, options
from ..plan import script_imports


@dataclass(frozen=True)
class Source:
    """The packed source folder of a job: its paths, None without such a folder, and the tar.gz.

    `left_out` has the paths that are not sent, by reason. With `findings`, there is no archive.
    """

    files: Sequence[str] | None
    archive: bytes = b""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def base64(self) -> str:
        """Return the archive as text."""
        return base64.b64encode(self.archive).decode()

    def text(self, name: str) -> str:
        """Return the text of a file of the folder, or "" if it does not exist or cannot be read."""
        return self.texts(name).get(name, "") if name in (self.files or ()) else ""

    def texts(self, ending: str) -> dict[str, str]:
        """Return the texts of files with this name ending, by name, each cut to 1 MiB; {} for a bad archive."""
        texts = {}
        for archive, member in self._members():
            file = archive.extractfile(member) if member.isfile() and member.name.endswith(ending) else None
            if file:
                texts[member.name] = file.read(1 << 20).decode("utf-8", "replace")
        return texts

    def imported(self, command: Sequence[str]) -> list[str]:
        """Return the imports of a command's script, if it is in the folder."""
        return script_imports.of_script(command, self.files or (), self.text)

    def mode(self, name: str) -> int:
        """Return the permissions of a file of the folder; 0 if it does not exist or cannot be read."""
        return next((member.mode for _, member in self._members() if member.isfile() and member.name == name), 0)

    def _members(self) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        with contextlib.suppress(tarfile.TarError, OSError, EOFError, zlib.error):
            archive = tarfile.TarFile(fileobj=io.BytesIO(gzip.decompress(self.archive)))
            for member in archive.getmembers():
                yield archive, member

    def too_large(self, most: int, why: str, instead: str) -> list[Finding]:
        """Find an archive of more than `most` bytes; `why` explains the limit, and `instead` is the action."""
        if len(self.archive) <= most:
            return []
        shift, unit = (20, "MiB") if most >= 1 << 20 else (10, "KiB")
        found = f"{-(-len(self.archive) >> shift)} {unit}, packed"
        return [Finding("job_source", found, f"at most {most >> shift} {unit}{why}", instead)]


@dataclass(frozen=True)
class Template:
    """A template of the folder templates/ and its context; the controller renders it."""

    path: str
    context: Mapping[str, Any]


@dataclass(frozen=True)
class SubmittedPlan:
    """A job for an external scheduler, which chooses the nodes.

    `submitted` is an sbatch script, or manifests. `templates` has those that are not rendered yet, by the same names.
    `settings` are for the scheduler's modules. Records of runs call the scheduler `engine`.
    """

    job: Job
    job_id: str
    created: str
    submit_host: str
    nodes: int
    ranks_per_node: int
    job_dir: str
    rank_log: str
    submitted: Mapping[str, str] = field(default_factory=dict)
    templates: Mapping[str, Template] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Notes for readers of the plan.
    notes: Sequence[str] = ()

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes but spares."""
        return (self.nodes - self.job.restarts.spares) * self.ranks_per_node

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as in plan.json, without nodes, as the scheduler chooses them."""
        job = self.job
        return {
            "job_id": self.job_id,
            "job_name": job.name,
            "launcher": job.launcher,
            "engine": {
                "kind": job.scheduler,
                "starts": job.launcher,
                "submit_host": self.submit_host,
                "nodes": self.nodes,
                "ranks_per_node": self.ranks_per_node,
                "files": sorted(self.submitted),
                "settings": dict(self.settings),
            },
            "created": self.created,
            "world_size": self.world_size,
            "head": {"host": "", "address": "", "port": 0},
            **options(job),
            "job_dir": self.job_dir,
            "rank_log": self.rank_log,
            "venv": job.venv,
            "files": [],
            "nodes": [],
        }

    def describe(self) -> str:
        """Return the plan as text for --check."""
        lines = [
            f"Plan of {self.job_id}: {counted(self.world_size, 'rank')} on {counted(self.nodes, 'node')}, scheduler "
            f"{self.job.scheduler}, launcher {self.job.launcher}",
            f"  submitted from {self.submit_host}",
            *(f"  {note}" for note in self.notes),
        ]
        for name, content in self.submitted.items():
            lines += [f"  file {name}", *(f"  | {line}" for line in _shown(content))]
        return "\n".join(lines)


# Packed data in a file is not for reading: whole lines, and values of a manifest.
_PACKED = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")
_VALUE = re.compile(r"(: )[A-Za-z0-9+/]{200,}={0,2}$", re.MULTILINE)


def _shown(content: str) -> list[str]:
    lines = _VALUE.sub(r"\1...", content).splitlines()
    plain = [line for line in lines if not _PACKED.fullmatch(line)]
    packed = len(lines) - len(plain)
    return plain if not packed else [*plain, f"... ({counted(packed, 'line')}, packed)"]


@dataclass(frozen=True)
class Where:
    """The environment of a plan: names, and the controller's facts about the cluster."""

    job_id: str
    created: str
    submit_host: str
    # Folder on the nodes that holds all jobs, and the training user.
    state_dir: str
    user: str
    # Hosts of the inventory that job_hosts selects.
    hosts: tuple[str, ...] = ()
    # All hosts of the inventory.
    known: tuple[str, ...] = ()
    # The host variable job_node_env by host.
    node_env: Mapping[str, Any] = field(default_factory=dict)
    # Path of nccl-tests' all-reduce on the nodes, where it may be missing.
    all_reduce: str = ""
    # Folder of the cluster's Python environments on the nodes.
    venvs: str = ""
