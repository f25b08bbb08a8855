# SPDX-License-Identifier: Apache-2.0
"""Find out how this node runs a job's image and what is in it.

All of it runs with the rights of the job's user, whose storage holds the images. Programs of the image itself run in a
container without any of the node's files.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....trainyard.base.visible import one_line
from ....trainyard.job.run import container_command
from ...cluster.node_identity import fingerprint
from ...machine import as_user, commands
from ...machine.tree import Outcome
from ..run.ranks.container import program_environment
from .module_search import LACKS

Request = Mapping[str, Any]
Fact = dict[str, Any]
# Time limits in seconds: of a short command, and of a program in the image, which may lie on a slow disk.
SHORT_S, INSIDE_S = 20, 60
# Upper bound of a document in an archive, and of the header of a SIF file.
MAX_DOCUMENT, _SIF_HEADER = 4 << 20, 128
_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ACTION = "put container_runtime into trainyard_frameworks and run site.yml (docs/images.md)"
# Where images lie for programs that have no store of their own, below the user's home.
_FILES = ".cache/trainyard/images"

# Prints what an image holds. It runs under any Python 3, so it uses nothing that an old one lacks.
_INSIDE = (
    LACKS
    + r"""
import json, os, shutil, subprocess
asked = json.loads(sys.argv[1])
packages = {}
for folder in sys.path:
    for entry in (os.listdir(folder) if os.path.isdir(folder) else ()):
        match = re.match(r"(.+)-([^-]+)\.dist-info$", entry)
        match = match or re.match(r"([^-]+)-([^-]+?)(-py[0-9.]+)?\.egg-info$", entry)
        if match:
            packages.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
beside = os.path.dirname(sys.executable) + ":" + os.environ.get("PATH", "")
mpi = ""
if asked["mpi"] and shutil.which("mpirun"):
    env = {**os.environ, "LC_ALL": "C"}
    said = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
    said = said.stdout.decode()
    mpi = (re.search(r"Open MPI\)?\s+v?(\S+)", said) or ["", ""])[1]
print(json.dumps({
    "python": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "packages": packages, "mpi": mpi,
    "path": os.environ.get("PATH", ""), "cuda": os.environ.get("CUDA_VERSION", ""),
    "programs": [name for name in asked["programs"] if not shutil.which(name, path=beside)],
    "modules": sorted(set(filter(None, map(lacks, asked["modules"])))),
}))
"""
)
# $0 is the program above, $1 what it is asked, $2 the virtual environment in the image or "".
_START = """
for python in ${2:+"$2/bin/python"} python3 python; do
    if command -v "$python" >/dev/null 2>&1; then exec "$python" -c "$0" "$1"; fi
done
echo "{\\"path\\": \\"$PATH\\", \\"cuda\\": \\"$CUDA_VERSION\\"}"
"""


def with_image(
    node: dict[str, Any], request: Request, venv: str, packages: Sequence[str], owner: as_user.Owner
) -> dict[str, Any]:
    """Return the facts of a node with those of the job's image, whose packages count instead of the node's."""
    fact: Fact = as_user.run(owner, read, request, venv, packages)
    # Compilers of the node are none of the image.
    found = {name: value for name, value in node.items() if name != "build_tools"}
    found.update(image=fact, packages=fact["packages"])
    return {**found, "fingerprint": fingerprint(found)}


def read(request: Request, venv: str, packages: Sequence[str]) -> Fact:
    """Return the fact `image`: how this node runs the image (plan/images.py), and what is in it."""
    runtimes = _runtimes(request["runtimes"])
    fact: Fact = {
        "runtimes": runtimes,
        "runtime": next((name for name in request["runtimes"] if name in runtimes), ""),
        "user": f"{os.getuid()}:{os.getgid()}",
        "files": [path for path in container_command.ASCEND_FILES if Path(path).exists()],
        **dict.fromkeys(("id", "image", "path", "python", "python_version", "mpi", "cuda"), ""),
        **dict.fromkeys(("present", "venv"), False),
        "packages": {},
        "missing": {},
        "problems": [],
    }
    if not fact["runtime"]:
        names = ", ".join(request["runtimes"])
        fact["problems"].append(_problem("container", f"no {names}", "a program that runs the image", _ACTION))
        return fact
    identity, fact["image"], problem = identify(request, fact)
    fact["present"] = bool(identity)
    # The first start may take minutes, in which Podman gives all files of the image to the user.
    fact["id"] = identity if has_started(identity, fact["runtime"]) else ""
    fact["problems"] += [
        _problem("job_mounts", f"no {source}", "the folder on every node", "make it there, or correct job_mounts")
        for source in request["mounts"]
        if not Path(source).exists()
    ]
    if problem:
        fact["problems"].append(problem)
    elif fact["id"]:
        _look_inside(fact, request, venv, packages)
    else:
        fact["problems"] += _cannot_run(fact)
    return fact


def _problem(check: str, found: str, expected: str, action: str) -> dict[str, str]:
    return {"check": check, "found": found, "expected": expected, "action": action}


def _runtimes(names: Sequence[str]) -> dict[str, dict[str, str]]:
    found = {}
    for name in names:
        program = shutil.which(name, path=_FOLDERS)
        if program:
            version = re.search(r"\d+\.\d[\w.]*", commands.run([program, "--version"], SHORT_S, **settings()).output)
            found[name] = {"program": program, "version": version[0] if version else ""}
    return found


def settings() -> dict[str, Any]:
    """Return how a container program is started."""
    return {"env": {**program_environment(pwd.getpwuid(os.getuid()).pw_dir), "LC_ALL": "C"}, "cwd": "/"}


def identify(request: Request, fact: Mapping[str, Any]) -> tuple[str, str, dict[str, str] | None]:
    """Return the image's identity, "" where it is not here, what the container program runs, and a problem."""
    reference, kind = request["reference"], request["kind"]
    if kind == "sif":
        return _of_sif(reference)
    if kind == "archive":
        path = reference.partition(":")[2]
        try:
            found_id = of_archive(path)
        except (OSError, ValueError, KeyError, LookupError, tarfile.TarError) as error:
            noted = note_of(request)
            if request["copied"]:
                found_id = noted.read_text() if noted.is_file() else ""
                return _in_store(request, fact, found_id)
            found = f"{path}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
            action = "bring it there (job_image_copy), or correct job_image"
            return (
                "",
                "",
                _problem("image", one_line(found, 200), "an OCI archive that the training user may read", action),
            )
    else:
        found_id = reference.rpartition("@")[2]
    return _in_store(request, fact, found_id)


def _in_store(request: Request, fact: Mapping[str, Any], identity: str) -> tuple[str, str, None]:
    if not identity:
        return "", "", None
    if fact["runtime"] in container_command.NAMED:
        name = identity if request["kind"] == "archive" else request["reference"].partition("://")[2]
        there = _program(fact, "image", "inspect", "--format", "{{.Id}}", name).status == 0
        return (identity if there else ""), name, None
    file = file_of(identity, fact["runtime"])
    return (identity if file.is_file() else ""), str(file), None


def note_of(request: Request) -> Path:
    """Return the file with the id of an image that was copied from another node's archive."""
    return file_of(re.sub(r"\W+", "-", request["reference"])[-100:], "state").with_suffix(".id")


def has_started(identity: str, runtime: str) -> bool:
    """Return whether an image has been started here once, as far as that makes a difference."""
    return bool(identity) and (runtime != "podman" or file_of(identity, "started").is_file())


def file_of(identity: str, runtime: str) -> Path:
    """Return where an image lies as a file of this container program, or what is noted of it."""
    suffix = "sif" if runtime == "apptainer" else runtime
    return Path(pwd.getpwuid(os.getuid()).pw_dir, _FILES, f"{identity.replace(':', '-')}.{suffix}")


def _of_sif(path: str) -> tuple[str, str, dict[str, str] | None]:
    """Identify a SIF file by the id that its header has from its build, and its size (SIF specification)."""
    try:
        with Path(path).open("rb") as file:
            header, size = file.read(_SIF_HEADER), os.fstat(file.fileno()).st_size
    except OSError as error:
        found, action = f"{path}: {error.strerror}", "bring it there, or correct job_image"
        return "", path, _problem("image", found, "a SIF file that the training user may read", action)
    if header[32:41] != b"SIF_MAGIC":
        return "", path, _problem("image", f"{path} is no SIF file", "a SIF file", "correct job_image")
    return f"sif:{header[48:64].hex()}-{size}", path, None


def of_archive(path: str) -> str:
    """Return the id of the image in an OCI archive: the digest of its configuration (OCI image layout).

    Raises OSError, ValueError, LookupError or TarError where it is none.
    """
    with tarfile.open(path) as archive:
        digest = _document(archive, "index.json")["manifests"][0]["digest"]
        manifest = _document(archive, _blob(digest))
        if "manifests" in manifest:
            fitting = container_command.ARCHITECTURES.get(platform.machine(), "")
            each = [m for m in manifest["manifests"] if m.get("platform", {}).get("architecture") == fitting]
            manifest = _document(archive, _blob((each or manifest["manifests"])[0]["digest"]))
        return _digest(manifest["config"]["digest"])


def _digest(text: Any) -> str:
    if not isinstance(text, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise ValueError("no sha256 digest in it")
    return text


def _blob(digest: Any) -> str:
    return f"blobs/{_digest(digest).replace(':', '/')}"


def _document(archive: tarfile.TarFile, name: str) -> dict[str, Any]:
    for written in (name, f"./{name}"):
        with contextlib.suppress(KeyError):
            file = archive.extractfile(written)
            found = json.loads(file.read(MAX_DOCUMENT)) if file else None
            if isinstance(found, dict):
                return found
    raise ValueError(f"no {name} in it")


def _program(fact: Mapping[str, Any], *argv: str, limit_s: float = SHORT_S) -> Outcome:
    return commands.run([fact["runtimes"][fact["runtime"]]["program"], *argv], limit_s, **settings())


def inside(fact: Mapping[str, Any], argv: Sequence[str], limit_s: float = INSIDE_S) -> Outcome:
    """Run a program in the image, with nothing of this node but its network."""
    runtime = fact["runtime"]
    record = {
        **{"runtime": runtime, "program": fact["runtimes"][runtime]["program"], "image": fact["image"]},
        **{"user": fact["user"], "gpus": False, "devices": [], "mounts": []},
    }
    command = container_command.command(record, "check", f"{os.getpid()}", argv, {}, "/")
    # A program's own messages, such as warnings of Podman, go elsewhere than its answer.
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        done = subprocess.run(command, check=False, timeout=limit_s, **options, **settings())
    except subprocess.TimeoutExpired:
        return Outcome(commands.TIMED_OUT, f"no end within {limit_s:g} s")
    except OSError as error:
        return Outcome(commands.NOT_STARTED, error.strerror or str(error))
    said = done.stdout if done.returncode == 0 else done.stderr
    return Outcome(done.returncode, said.decode("utf-8", "replace"))


def _look_inside(fact: Fact, request: Request, venv: str, packages: Sequence[str]) -> None:
    """Add what the image holds; a problem where it cannot be run."""
    asked = {name: list(request[name]) for name in ("programs", "modules")}
    asked["mpi"] = request["mpi"]
    outcome = inside(fact, ["sh", "-c", _START, _INSIDE, json.dumps(asked), venv])
    try:
        answer = json.loads(outcome.output.strip().splitlines()[-1]) if outcome.status == 0 else None
    except (ValueError, IndexError):
        answer = None
    if not isinstance(answer, dict):
        last = (outcome.output.strip().splitlines() or [f"it ended with {outcome.status}"])[-1]
        found = f"{fact['runtime']} cannot run {request['reference']}: {one_line(last, 200)}"
        fact["problems"].append(_problem("image", found, "a container that starts", _ACTION))
        return
    has = {str(name): str(version) for name, version in dict(answer.get("packages") or {}).items()}
    python = str(answer.get("python") or "")
    fact.update(
        path=str(answer.get("path") or ""),
        python=python,
        python_version=str(answer.get("version") or ""),
        venv=bool(venv) and python.startswith(f"{venv}/"),
        packages={name: has.get(re.sub(r"[-_.]+", "-", name).lower()) for name in packages},
        mpi=str(answer.get("mpi") or ""),
        cuda=str(answer.get("cuda") or ""),
        missing={name: [str(each) for each in answer.get(name) or ()] for name in ("programs", "modules")},
    )


def _cannot_run(fact: Mapping[str, Any]) -> list[dict[str, str]]:
    """Find that the training user has no containers here, before an image is pulled."""
    # Root needs no ids of its own, and Podman refuses the question.
    if fact["runtime"] != "podman" or os.geteuid() == 0:
        return []
    outcome = _program(fact, "unshare", "true")
    if outcome.status == 0:
        return []
    last = (outcome.output.strip().splitlines() or [f"podman unshare ended with {outcome.status}"])[-1]
    expected = "user namespaces, and a range of /etc/subuid and /etc/subgid, for the training user"
    return [_problem("container", one_line(last, 200), expected, _ACTION)]
