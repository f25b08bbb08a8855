# SPDX-License-Identifier: Apache-2.0
"""The forms in which job_image names an image: of a registry by its digest, an archive of OCI, a file of Apptainer."""

from __future__ import annotations

import re

REGISTRY, ARCHIVE, SIF = "docker://", "oci-archive:", ".sif"
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")


def form(reference: str) -> str:
    """Return `registry`, `archive` or `sif`; "" for anything else."""
    if re.search(r"\s", reference):
        return ""
    if reference.startswith(REGISTRY):
        return "registry"
    if reference.startswith(f"{ARCHIVE}/"):
        return "archive"
    return "sif" if reference.startswith("/") and reference.endswith(SIF) else ""


def is_fixed(reference: str) -> bool:
    """Return whether an image of a registry has a digest at its end: a tag may move."""
    return _DIGEST.search(reference) is not None
