# SPDX-License-Identifier: Apache-2.0
"""How each node runs the job's image, what is wrong with it there, and which nodes have to pull it first.

The fact `image` of a node (trainyard_node/job/plan/image_inspection.py) has the `runtimes` that it has by name, with
`version` and `program`; the one that it uses (`runtime`); the `id` of the image, "" where it is not there yet; and what
the image holds.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...base.findings import Finding, counted
from ...base.majority import usual
from ...software.containers import MIN_PODMAN
from ..file.job import Image, Job
from ..file.job_command import module_of
from ..launchers import LAUNCHERS
from ..placement.placement import Node, Placement
from . import script_imports

Facts = Mapping[str, Any]

_ASCEND_DEVICES = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
# The oldest Python with which our runtime runs inside an image.
OLDEST = (3, 7)
# By CUDA's major release: the oldest driver that runs it, with all its minor releases (CUDA's release notes).
LEAST_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
# Characters of an image's id that a finding shows.
_SHOWN = 19


def request(job: Job, source_files: Sequence[str] | None, imported: Sequence[str]) -> dict[str, Any] | None:
    """Return what the nodes are asked about the image of a job; None for a job without one.

    `source_files` are those of job_source, and `imported` what the script of the job imports.
    """
    if job.image is None:
        return None
    image, program = job.image, job.command[0]
    starter, module = LAUNCHERS[job.launcher].starter(job), module_of(job.command, source_files or ())
    sent = program.replace("./", "", 1) in (source_files or ())
    return {
        "reference": image.reference,
        "kind": image.kind,
        "runtimes": list(image.runtimes),
        "copied": bool(image.copy_from),
        "pull": image.pull,
        "mounts": [source for source, _, _ in image.mounts],
        "mpi": job.launcher == "mpirun",
        "programs": [] if sent else [program],
        "modules": [name for name in dict.fromkeys([starter, module, *imported]) if name],
    }


def record(job: Job, placement: Placement, node: Node) -> dict[str, Any]:
    """Return how a node runs the job's image, as in plan.json; {} for a job without one."""
    if job.image is None:
        return {}
    found, devices = node.image, bool(node.devices)
    path = found.get("path") or ""
    runtime = str(found.get("runtime") or job.image.runtimes[0])
    cuda = devices and node.vendor == "nvidia"
    npu = devices and node.vendor == "ascend"
    return {
        "runtime": runtime,
        "program": ((found.get("runtimes") or {}).get(runtime) or {}).get("program") or runtime,
        "image": found.get("image") or job.image.reference,
        "id": found.get("id") or "",
        "path": f"{placement.venv}/bin:{path}" if placement.venv and path else path,
        "python": placement.python if _is_new(found) else "",
        "user": found.get("user") or "",
        "gpus": cuda,
        "devices": [
            # The whole node, as without an image: CUDA_VISIBLE_DEVICES chooses, and numbers stay those of the vendor.
            *(["nvidia.com/gpu=all"] if cuda and runtime == "podman" else []),
            *([*(f"/dev/davinci{number}" for number in node.devices), *_ASCEND_DEVICES] if npu else []),
            *(["/dev/infiniband"] if node.ib_hca and runtime in ("podman", "docker") else []),
        ],
        "mounts": [list(mount) for mount in _mounts(job, placement, node)],
    }


def _is_new(found: Facts) -> bool:
    numbers = re.match(r"(\d{1,3})\.(\d{1,3})", str(found.get("python_version") or ""))
    return bool(numbers) and (int(numbers[1]), int(numbers[2])) >= OLDEST  # type: ignore[index]


def _mounts(job: Job, placement: Placement, node: Node) -> list[tuple[str, str, str]]:
    """Return the job's folder and its data under their own paths, then what the job names; the last one wins."""
    own = [(placement.job_dir, placement.job_dir, "rw"), *((path, path, "ro") for path in job.data)]
    if job.restarts.checkpoints.startswith("/"):
        folder = fixed_folder(job.restarts.checkpoints)
        own.append((folder, folder, "rw"))
    if job.launcher == "mpirun":
        # The folder of mpirun's daemon, by which ranks find it.
        own.append(("/tmp", "/tmp", "rw"))  # noqa: S108
    if node.vendor == "ascend" and node.devices:
        own += [(path, path, "ro") for path in node.image.get("files") or ()]
    mounts = job.image.mounts if job.image else ()
    return list({target: (source, target, mode) for source, target, mode in (*own, *mounts)}.values())


def fixed_folder(pattern: str) -> str:
    """Return the folder of a pattern's part without wildcards."""
    fixed = re.split(r"[*?\[{]", pattern, maxsplit=1)[0]
    return fixed.rstrip("/") if fixed == pattern else posixpath.dirname(fixed)


def findings(image: Image, facts: Mapping[str, Facts]) -> list[Finding]:
    """Find nodes that cannot run the image or not with this job, or that have another one under its name."""
    known = {host: fact.get("image") or {} for host, fact in facts.items()}
    found = [
        Finding(each["check"], each["found"], each["expected"], each["action"], host=host)
        for host, fact in known.items()
        for each in fact.get("problems") or ()
    ]
    found += _compare(image, known)
    for host, fact in known.items():
        found += _version(host, fact)
        found += _cuda(image, host, fact, facts[host]) + _missing(image, host, fact)
        found += _mpi(image, host, fact, facts[host])
        if image.pull == "never" and not fact.get("present") and not fact.get("problems"):
            expected = "the image on every node, as job_image_pull is never"
            action = "bring it there, or set job_image_pull: missing"
            found.append(Finding("image", f"no {image.reference}", expected, action, host=host))
    return found


def _compare(image: Image, known: Mapping[str, Facts]) -> list[Finding]:
    found = []
    for key, what, action in (
        ("runtime", "runs it by", "set job_container, or run site.yml with the same programs everywhere"),
        ("id", "has it as", f"pull it again there (job_image_pull: always), or replace {image.reference}"),
    ):
        if key == "id" and image.pull == "always":
            # They are compared when all nodes have pulled it (brought).
            continue
        values = {host: str(fact[key]) for host, fact in known.items() if fact.get(key)}
        most = usual(values.values(), "")
        for host, value in values.items():
            if value != most:
                expected = f"{most[:_SHOWN]}, as on {counted([*values.values()].count(most), 'other node')}"
                found.append(Finding("image", f"{host} {what} {value[:_SHOWN]}", expected, action, host=host))
    return found


def _version(host: str, fact: Facts) -> list[Finding]:
    """Find a Podman that lacks what jobs need of it."""
    runtime = str(fact.get("runtime") or "")
    version = str(((fact.get("runtimes") or {}).get(runtime) or {}).get("version") or "")
    if runtime != "podman" or not version or _numbers(version)[:2] >= list(MIN_PODMAN):
        return []
    least = ".".join(map(str, MIN_PODMAN))
    action = "install a newer one, or choose another program with job_container"
    return [Finding("container", f"podman {version}", f"podman {least} or newer", action, host=host)]


def _missing(image: Image, host: str, fact: Facts) -> list[Finding]:
    """Find programs and modules of the job that the image does not hold."""
    lacking = fact.get("missing") or {}
    action = f"take another image, or correct job_command or job_venv: {image.reference} is searched"
    return [
        *(
            Finding("program", f"no {name} in the image", "the program of job_command", action, host=host)
            for name in lacking.get("programs") or ()
        ),
        *(
            Finding(
                "imports",
                f"no module {name} for {fact.get('python') or 'a Python'} of the image",
                "what the job starts and imports",
                f"take an image with {script_imports.with_module(name)}" if "." in name else action,
                host=host,
            )
            for name in lacking.get("modules") or ()
        ),
    ]


def _cuda(image: Image, host: str, fact: Facts, node: Facts) -> list[Finding]:
    """Find an image of a newer major release of CUDA than the node's driver knows (CUDA's minor versions fit)."""
    release = re.match(r"\d{1,3}", str(fact.get("cuda") or ""))
    driver = str((node.get("accelerators") or {}).get("driver") or "")
    least = LEAST_DRIVERS.get(int(release[0]), "") if release else ""
    if not driver or not least or _numbers(driver) >= _numbers(least):
        return []
    found = f"{image.reference} with CUDA {fact['cuda']}, and driver {driver}"
    action = "take an image with an older CUDA, or upgrade the driver: docs/nvidia.md"
    return [Finding("image", found, f"driver {least} or newer", action, host=host)]


def _mpi(image: Image, host: str, fact: Facts, node: Facts) -> list[Finding]:
    """Find another major release of Open MPI in the image than on the node, whose mpirun starts the ranks."""
    has, outside = str(fact.get("mpi") or ""), str((node.get("mpi") or {}).get("version") or "")
    if not has or not outside or has.partition(".")[0] == outside.partition(".")[0]:
        return []
    action = "take an image with the node's Open MPI, or install the image's on the nodes (openmpi_version)"
    return [Finding("mpi", f"Open MPI {has} in {image.reference}", f"{outside}, as on the node", action, host=host)]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,6}", version)]


def brought(job: Job) -> Job:
    """Return a job whose image all nodes have brought for it."""
    return replace(job, image=replace(job.image, pull="missing")) if job.image else job


def to_pull(image: Image | None, facts: Mapping[str, Facts]) -> list[str]:
    """Return the hosts that lack the image, have never started it, or pull it whenever a job starts."""
    if image is None or image.kind == "sif":
        return []
    known = {host: fact.get("image") or {} for host, fact in facts.items()}
    return [host for host, fact in known.items() if not fact.get("id") or image.pull == "always"]
