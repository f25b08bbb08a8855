# SPDX-License-Identifier: Apache-2.0
"""Read versions from a package index with pip, as a later installation would; only its pages are downloaded.

The controller sends pip as a zip file, as a bare system has none. Its pip may be old where it comes with the system's
Python, so no option is used that pip 23.0 does not have.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import platform
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import lock, package_index, wheel_tags
from ...trainyard.software.pip_calls import WHEELS
from ...trainyard.software.requirements import Pin
from ...trainyard.software.wheel_tags import Machine
from ..machine import commands, programs
from .environment_work import Work

# Seconds that one index may be silent, and that one package may take.
SILENCE_S = 15
LIMIT_S = 90


@contextlib.contextmanager
def unpacked(pip: str) -> Iterator[Path]:
    """Unpack pip, a zip file in base64, into a folder for a while."""
    with tempfile.TemporaryDirectory(prefix="trainyard-pip-") as folder:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(pip))) as archive:
            archive.extractall(folder)
        yield Path(folder)


def has_all(work: Work, pip: Path, python: str) -> bool:
    """Return whether pip finds all packages of a named build for a Python such as 3.11."""
    pins = [pin for pin in work.pins if "+" in pin.version]
    return all(any(map(pin.accepts, offered(work, pin, pip, python=python).versions)) for pin in pins)


def offered(work: Work, pin: Pin, pip: Path, archives: bool = False, python: str = "") -> package_index.Offered:
    """Return what pip finds of a package for the environment's Python; with `archives` source archives, too.

    `pip` is the folder of the package pip; `python` is another Python to ask for, such as 3.11.
    """
    if programs.weak(work.interpreter.executable):
        return package_index.Offered(known=False)
    return query(*_question(work, pin, pip, archives, python))


def _question(
    work: Work, pin: Pin, pip: Path, archives: bool = False, python: str = ""
) -> tuple[list[str], str, list[str], dict[str, str]]:
    """Return the arguments of `query`."""
    sources = work.sources
    before = ["--pre"] if any(mark in pin.version for mark in ("a", "b", "rc", "dev")) else []
    call = [work.interpreter.executable, str(pip / "pip")]
    kinds = [*WHEELS, *sources.pip_args, *(["--only-binary=:none:"] if archives else [])]
    kinds += [f"--python-version={python}"] if python else []
    # Python takes three quarters of a call to compile pip, so the first call keeps the result beside it.
    return call, pin.name, [*kinds, *before], {**sources.environment(), "PYTHONDONTWRITEBYTECODE": ""}


def query(pip: Sequence[str], name: str, arguments: Sequence[str], sources: Mapping[str, str]) -> package_index.Offered:
    """Return what `pip`, as it is called, finds of a package; `sources` is the environment that names indexes."""
    done = _asked(pip, name, arguments, sources)
    return (
        package_index.read_offered(done.returncode, done.stdout, done.stderr)
        if done
        else package_index.Offered(known=False)
    )


def _asked(
    pip: Sequence[str], name: str, arguments: Sequence[str], sources: Mapping[str, str]
) -> subprocess.CompletedProcess[str] | None:
    argv = [*pip, "index", "versions", *arguments, "--", name]
    once = dict.fromkeys(("PIP_RETRIES", "PIP_DISABLE_PIP_VERSION_CHECK", "PIP_NO_INPUT"), "1")
    environment = {**os.environ, **once, "PIP_TIMEOUT": str(SILENCE_S), "LC_ALL": "C.UTF-8", **sources}
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        return subprocess.run(argv, timeout=LIMIT_S, check=False, cwd="/", env=environment, **pipes)
    except (OSError, subprocess.TimeoutExpired):
        return None


def machine(work: Work) -> Machine:
    """Return by what pip chooses wheels for an environment."""
    try:
        library = re.match(r"glibc 2\.(\d+)", os.confstr("CS_GNU_LIBC_VERSION") or "")
    except (OSError, ValueError):
        library = None
    return Machine(work.interpreter.minor, platform.machine(), int(library[1]) if library else None)


def unfit(work: Work, package: str, address: str, variables: str) -> Finding | None:
    """Return why a wheel that is named by its address cannot be installed here."""
    pin, here = next((pin for pin in work.pins if pin.name == package), None), machine(work)
    why = wheel_tags.why_not(pin, wheel_tags.read(address), here) if pin else ""
    return package_index.wrong_wheel(pin, why, here, variables) if pin and why else None


def _explained(finding: Finding, work: Work, pin: Pin, prefix: str, pip: Path) -> Finding:
    """Add why none of the wheels of a package fits this machine; with -vv pip names each that it skips."""
    call, name, arguments, sources = _question(work, pin, pip)
    done = _asked(call, name, ["-vv", *arguments], sources)
    here = machine(work)
    why = wheel_tags.why_not(pin, wheel_tags.read(done.stdout + done.stderr) if done else [], here)
    return package_index.of_wheels(finding, pin, why, here, prefix) if why else finding


def to_ask(work: Work) -> list[Pin]:
    """Return the packages that pip would have to find in an index or a folder.

    Those whose hashes are given, and that may come from folders alone, are a bundle's: the controller has checked it.
    """
    if not work.install or (work.sources.no_index and all(pin.hashes for pin in work.pins)):
        return []
    there = {} if work.remake else work.state.packages
    return [
        pin
        for pin in work.pins
        if pin.name not in work.params["wheels"] and not (pin.name in there and pin.accepts(there[pin.name]))
    ]


def findings(work: Work, prefix: str, pip: Path) -> list[Finding]:
    """Return why pip would not find what is to be installed."""
    sources = work.sources
    looked = package_index.where(sources.index_url, sources.extra_index_urls, sources.find_links, sources.no_index)
    python = str(machine(work))
    found = []
    for pin in to_ask(work):
        finding = package_index.check(pin, offered(work, pin, pip), looked, python, prefix)
        if finding and package_index.check(pin, offered(work, pin, pip, archives=True), looked, python, prefix) is None:
            finding = package_index.archive_only(pin, looked, python, prefix)
        found += [_explained(finding, work, pin, prefix, pip)] if finding else []
    return found or _of_dependencies(work, prefix, pip, looked, python)


def _of_dependencies(work: Work, prefix: str, pip: Path, looked: str, python: str) -> list[Finding]:
    """Return which dependency of packages that are not locked by hashes has no wheel; pip resolves them for that.

    pip reads metadata alone where the index offers it; else it loads the wheels, which stay in its cache.
    """
    params = work.params
    hashed = lock.by_hashes(params["lock"], work.pins, params["wheels"], params["constraints"], work.interpreter.minor)
    more = [pin for pin in to_ask(work) if pin.name not in hashed.lines and pin.name not in params["wheels"]]
    if not hashed.lines or not more or programs.weak(work.interpreter.executable):
        return []
    with tempfile.TemporaryDirectory(prefix="trainyard-pip-") as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("".join(f"{line}\n" for line in [*work.sources.constraints, *hashed.constraints]))
        argv = [work.interpreter.executable, str(pip / "pip"), "install", "--dry-run", "--quiet", "--ignore-installed"]
        argv += [f"--report={folder}/report", f"--constraint={constraints}", *WHEELS, *work.sources.pip_args]
        environment = {**os.environ, "PIP_NO_INPUT": "1", "PIP_TIMEOUT": str(SILENCE_S), "TMPDIR": folder}
        environment |= work.sources.environment()
        done = commands.run([*argv, "--", *(pin.requirement for pin in more)], LIMIT_S, cwd="/", env=environment)
    needed = package_index.without_candidate(done.output) if done.status else None
    if needed is None:
        return []
    name, requirement, by = needed
    versions = [set(offered(work, Pin(name, name, ""), pip, archives=archives).versions) for archives in (False, True)]
    return [package_index.of_dependency(name, requirement, by, looked, python, prefix, bool(versions[1] - versions[0]))]
