# SPDX-License-Identifier: Apache-2.0
"""What a plan is made of, and the plan of a job that is handed to another scheduler."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...findings.findings import Finding, counted
from ..file.job import Job


@dataclass(frozen=True)
class Source:
    """The packed source folder of a job: paths in it, None where there is no such folder, and the tar.gz.

    `left_out` is what is not sent, by reason; with `findings` there is no archive.
    """

    files: Sequence[str] | None
    archive: bytes = b""
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def base64(self) -> str:
        """Return the archive as text."""
        return base64.b64encode(self.archive).decode()

    def text(self, name: str) -> str:
        """Return what a file of the folder says; "" where there is none, or it is no text."""
        if name not in (self.files or ()):
            return ""
        with contextlib.suppress(KeyError, tarfile.TarError, OSError, EOFError, zlib.error):
            file = tarfile.TarFile(fileobj=io.BytesIO(gzip.decompress(self.archive))).extractfile(name)
            return file.read(1 << 20).decode("utf-8", "replace") if file else ""
        return ""

    def texts(self, ending: str) -> dict[str, str]:
        """Return what the files say whose names end so, by name, each cut to 1 MiB; nothing of what is no archive."""
        texts = {}
        with contextlib.suppress(tarfile.TarError, OSError, EOFError, zlib.error):
            archive = tarfile.TarFile(fileobj=io.BytesIO(gzip.decompress(self.archive)))
            for member in archive.getmembers():
                file = archive.extractfile(member) if member.isfile() and member.name.endswith(ending) else None
                if file:
                    texts[member.name] = file.read(1 << 20).decode("utf-8", "replace")
        return texts

    def too_large(self, most: int, why: str, instead: str) -> list[Finding]:
        """Find an archive of more than `most` bytes; `why` there is a limit stands behind it."""
        if len(self.archive) <= most:
            return []
        shift, unit = (20, "MiB") if most >= 1 << 20 else (10, "KiB")
        found = f"{len(self.archive) >> shift} {unit}, packed"
        return [Finding("job_source", found, f"at most {most >> shift} {unit}{why}", instead)]


@dataclass(frozen=True)
class Template:
    """A text of the folder templates/, and what stands in it; the controller renders it."""

    path: str
    context: Mapping[str, Any]


class Plan(Protocol):
    """A planned job. `submitted` are files by name that stand beside plan.json in the run's folder."""

    @property
    def job(self) -> Job:
        """Return what was asked for."""

    @property
    def submitted(self) -> Mapping[str, str]:
        """Return what is handed over."""

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as it stands in plan.json."""

    def describe(self) -> str:
        """Write the plan for reading: what --check shows."""


@dataclass(frozen=True)
class SubmittedPlan:
    """A job as it is handed to a scheduler, which chooses the nodes.

    `submitted` is an sbatch script, or manifests; what is a template yet stands in `templates`, by the same names.
    `settings` are for the scheduler's modules. Records of runs know the scheduler as `engine`.
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
    # What a reader of the plan should know besides.
    notes: Sequence[str] = ()

    @property
    def world_size(self) -> int:
        """Number of ranks over all nodes."""
        return self.nodes * self.ranks_per_node

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as it stands in plan.json; the scheduler chooses the nodes, so none stand there."""
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
            "timeout_s": job.timeout_s,
            "max_restarts": job.restarts.most,
            "rejoin_s": 0,
            "job_dir": self.job_dir,
            "rank_log": self.rank_log,
            "venv": job.venv,
            "data": list(job.data),
            "min_disk_mib": job.min_disk_mib,
            "secret_env": list(job.secret_env),
            "progress_pattern": job.progress_pattern,
            "files": [],
            "nodes": [],
        }

    def describe(self) -> str:
        """Write the plan for reading: what --check shows."""
        lines = [
            f"Plan of {self.job_id}: {counted(self.world_size, 'rank')} on {counted(self.nodes, 'node')}, scheduler "
            f"{self.job.scheduler}, launcher {self.job.launcher}",
            f"  submitted from {self.submit_host}",
            *(f"  {note}" for note in self.notes),
        ]
        for name, content in self.submitted.items():
            lines += [f"  file {name}", *(f"  | {line}" for line in _shown(content))]
        return "\n".join(lines)


# The source that travels in a file is packed, and nobody reads that.
_PACKED = re.compile(r"[A-Za-z0-9+/]{60,}={0,2}")


def _shown(content: str) -> list[str]:
    lines = content.splitlines()
    kept = [line for line in lines if not _PACKED.fullmatch(line)]
    packed = len(lines) - len(kept)
    return kept if not packed else [*kept, f"... ({counted(packed, 'line')} of packed source)"]


@dataclass(frozen=True)
class Where:
    """What a plan is made for: names, and what the controller knows of the cluster."""

    job_id: str
    created: str
    submit_host: str
    # Folder on the nodes below which jobs have theirs, and the training user.
    state_dir: str
    user: str
    # Hosts of the inventory that job_hosts and job_nodes choose.
    hosts: tuple[str, ...] = ()
    # All hosts of the inventory.
    known: tuple[str, ...] = ()
    # The host variable job_node_env of those hosts that have it.
    node_env: Mapping[str, Any] = field(default_factory=dict)
    # nccl-tests' all-reduce on the nodes, which need not have it.
    all_reduce: str = ""
    # Folder of the cluster's Python environments on the nodes.
    venvs: str = ""
