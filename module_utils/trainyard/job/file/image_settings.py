# SPDX-License-Identifier: Apache-2.0
"""Read in which image a job runs, by which container program, and which folders of the nodes it sees."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ...base.findings import Finding
from ...software.image_forms import REGISTRY, form, is_fixed
from ..run.container_command import RUNTIMES
from .job import Image
from .values import Values

# By the form of job_image: the programs that run it.
_RUN_BY: Mapping[str, Sequence[str]] = {
    "registry": RUNTIMES,
    "archive": ("podman", "apptainer", "docker"),
    "sif": ("apptainer",),
}
# Folders of the kernel and of the container itself.
_RESERVED = ("/proc", "/sys", "/dev", "/")
_FORMS = "docker://registry/name@sha256:..., oci-archive:/path or /path/image.sif, with paths on the nodes"
# Variables that only mean something with job_image.
_ONLY_WITH = ("job_container", "job_mounts", "job_image_pull", "job_image_copy", "job_registry_auth")


def parse(values: Values, scheduler: str) -> Image | None:
    """Read the image of a job on hosts or Slurm; the pods of Kubernetes have variables of their own."""
    reference = values.text("job_image").strip()
    given = [key for key in _ONLY_WITH if values.given.get(key) not in (None, "", "auto", "missing", [], {})]
    if scheduler == "kubernetes" or not reference:
        why = "job_scheduler: kubernetes, whose pods have job_kubernetes" if reference else "no job_image"
        for key in given:
            schedulers = "ssh" if key == "job_image_copy" else "ssh or slurm"
            expected = f"job_scheduler: {schedulers}" if reference else "a job_image"
            values.wrong(key, f"{key} with {why}", expected, f"leave {key} out")
        return None
    kind = form(reference)
    _check_reference(values, reference, kind)
    runtime, mounts = values.choice("job_container"), _mounts(values)
    fitting = _RUN_BY.get(kind, RUNTIMES)
    if runtime not in ("auto", *fitting):
        action = "choose one of these, or leave job_container out"
        values.wrong("job_container", f"{runtime} for {reference}", " or ".join(fitting), action)
    return Image(
        reference=reference,
        kind=kind,
        runtimes=tuple(fitting) if runtime == "auto" else (runtime,),
        mounts=mounts,
        pull=values.choice("job_image_pull"),
        copy_from=values.text("job_image_copy").strip(),
        has_login=_has_login(values, kind),
    )


def _check_reference(values: Values, reference: str, kind: str) -> None:
    if not kind:
        values.wrong("job_image", reference, _FORMS, "write it in one of these forms")
    elif kind == "registry" and not is_fixed(reference):
        expected = "a digest at its end (@sha256:...), as a tag may move between two nodes or two runs"
        action = f"skopeo inspect --format '{{{{.Digest}}}}' {reference} shows it"
        values.wrong("job_image", reference, expected, action)


def _mounts(values: Values) -> tuple[tuple[str, str, str], ...]:
    found: dict[str, tuple[str, str, str]] = {}
    for word in values.words("job_mounts"):
        source, target, mode = (*word.split(":"), "", "")[:3]
        problem = _mount_problem(word, source, target, mode or "rw")
        if not problem and target in found:
            problem = f"{word}: {target} has {found[target][0]} already"
        if problem:
            expected = "source:target or source:target:ro, with two absolute paths, each target once"
            values.wrong("job_mounts", problem, expected, "correct job_mounts")
        else:
            found[target] = source, target, mode or "rw"
    return tuple(found.values())


def _mount_problem(word: str, source: str, target: str, mode: str) -> str:
    if word.count(":") not in (1, 2) or mode not in ("ro", "rw"):
        return word
    for path in (source, target):
        if not path.startswith("/") or ".." in PurePosixPath(path).parts or re.search(r"[\s,]", path):
            return f"{word}: {path or 'nothing'}"
    if target.rstrip("/") in ("", *_RESERVED) or target.startswith(tuple(f"{each}/" for each in _RESERVED[:3])):
        return f"{word}: {target} is the container's own"
    return ""


def _has_login(values: Values, kind: str) -> bool:
    auth = values.given.get("job_registry_auth") or {}
    keys = {"username", "password"}
    fits = isinstance(auth, Mapping) and all(isinstance(each, str) and each for each in auth.values())
    if auth and not (fits and set(auth) == keys):
        # The value itself is a secret.
        values.wrong("job_registry_auth", "another form", "username and password", "take both from Ansible Vault")
    elif auth and kind != "registry":
        action = "leave job_registry_auth out"
        values.wrong("job_registry_auth", "a login for a file", f"job_image: {REGISTRY}...", action)
    return bool(auth)


def copy_findings(image: Image | None, hosts: Sequence[str]) -> list[Finding]:
    """Find that job_image_copy names no host of the job."""
    if image is None or not image.copy_from or image.copy_from in hosts:
        return []
    expected = "a host of the job, from which the others copy the image"
    return [Finding("job_image_copy", image.copy_from, expected, "correct job_image_copy, or leave it out")]
