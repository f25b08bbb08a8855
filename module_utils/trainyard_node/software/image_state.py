# SPDX-License-Identifier: Apache-2.0
"""Read what an image can be built with on this machine: Podman, the base and its Python, and free space."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.software import image
from ...trainyard.software.requirements import version_numbers
from .build_prefix import free_bytes
from .image_build import TEMPORARY
from .podman import PodmanError, archived, inspect, is_installed, last_lines, podman, pull, run
from .python_environment import DESCRIBE, HEADER

# Seconds after which the Python of the base has not answered.
_LIMIT_S = 120
# Prints a second line: which of the arguments the base has not.
_PROBE = f"""{DESCRIBE}
import ctypes, shutil
def there(name):
    if name == "{HEADER}":
        return os.path.exists(os.path.join(sysconfig.get_path("include"), name))
    if ".so" not in name:
        return shutil.which(name) is not None
    try:
        return bool(ctypes.CDLL(name))
    except OSError:
        return False
print(json.dumps([name for name in sys.argv[1:] if not there(name)]))
"""


class State:
    """Findings, and the base: the arguments of image.Base, empty where it cannot be used or is not pulled yet."""

    def __init__(self, reference: str, may_pull: bool) -> None:
        """Note the base; `may_pull` is false in check mode."""
        self.reference, self.may_pull = reference, may_pull
        self.findings: list[Finding] = []
        self.base: dict[str, Any] = {}
        self.pulled = False

    def read(self, interpreter: str, libraries: Sequence[str], file: str, min_free_mb: int) -> None:
        """Read everything, or find what prevents it."""
        self.findings += _podman_findings()
        if not self.findings:
            self.findings += _space_findings(file, min_free_mb)
        found = self._image() if not any(finding.check == "Podman" for finding in self.findings) else None
        if found:
            self._read_base(found, interpreter, libraries)

    def _image(self) -> dict[str, Any] | None:
        """Return the base as the store has it, after a pull where that is needed and allowed."""
        archive = image.archive_of(self.reference)
        name = archived(Path(archive))[0] if archive else image.local_name(self.reference)
        if archive and not name:
            action = "name the archive of an image (podman save), which lies on this host"
            self._find(f"no image in {archive}", "an archive of an image", action)
            return None
        found = inspect(name)
        if found is None and name == self.reference:
            action = "pull or load it there, or name docker://NAME@sha256:... or an archive"
            self._find(f"no image {name} in the store", "an image that this host has", action)
        elif found is None:
            self.pulled = True
            if not self.may_pull:
                return None
            try:
                pull(self.reference)
            except PodmanError as error:
                action = "see how the host reaches it (name, proxy, certificate, podman login), or name another base"
                self._find(f"{self.reference} cannot be pulled: {error}", "a base that can be pulled", action)
                return None
            found = inspect(name)
        return found

    def _find(self, found: str, expected: str, action: str) -> None:
        self.findings.append(Finding("base of the image", found, expected, action))

    def _read_base(self, found: dict[str, Any], interpreter: str, libraries: Sequence[str]) -> None:
        arguments = ["-I", "-c", _PROBE, *libraries]
        answer = run(found["Id"], interpreter, arguments, ["--user=0"], _LIMIT_S)
        try:
            if answer.status:
                raise ValueError(answer.output)
            python, lacking = (json.loads(line) for line in answer.output.strip().splitlines()[-2:])
        except ValueError:
            reason = last_lines(answer.output, 3)
            action = "choose a base with a Python, or name its interpreter in FRAMEWORK_interpreter"
            self._find(f"{interpreter} does not run in {self.reference}: {reason}", "a base with a Python", action)
            return
        self.base = {
            "reference": self.reference,
            "id": found["Id"],
            "digest": found["Digest"],
            "user": found.get("User", ""),
            "created": _seconds(found["Created"]),
            "python": python,
            "lacking": lacking,
        }


def _seconds(created: str) -> int:
    """Return the time of an image in seconds since 1970: it has nanoseconds, which datetime does not read."""
    moment = datetime.strptime(created[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return int(moment.timestamp())


def _podman_findings() -> Iterator[Finding]:
    expected = f"Podman {image.PODMAN} or newer, which builds the image"
    other = "name a host that has it: -e image_host=NAME"
    if not is_installed():
        action = f"add container_runtime to trainyard_frameworks and run site.yml, or {other}"
        yield Finding("Podman", "no program podman", expected, action)
        return
    answer = podman("--version")
    version = re.search(r"\d+(?:\.\d+)+", answer.output)
    if answer.status or version is None or version_numbers(version[0]) < version_numbers(image.PODMAN):
        yield Finding("Podman", last_lines(answer.output, 1), expected, other)


def _space_findings(file: str, min_free_mb: int) -> Iterator[Finding]:
    answer = podman("info", "--format", "{{.Store.GraphRoot}}")
    if answer.status:
        action = "run `podman info` on the host, and repair what it reports"
        yield Finding("Podman", f"podman info fails: {last_lines(answer.output, 3)}", "a Podman that works", action)
        return
    # On one file system the needs add up.
    places = {"the store of images": answer.output.strip().splitlines()[-1], "the wheels": TEMPORARY}
    places |= {"image_file": file} if file else {}
    for names, place in _by_device(places).items():
        free, needed = free_bytes(place) // 10**6, min_free_mb * len(names.split(" and "))
        if free < needed:
            found = f"{free} MB are free for {names} ({place})"
            yield Finding("space", found, f"{needed} MB", "make room there, or choose another host")


def _by_device(places: dict[str, str]) -> dict[str, Path]:
    """Return a place of each file system under the names of all that lie there."""
    names: dict[int, list[str]] = {}
    found: dict[int, Path] = {}
    for name, place in places.items():
        path = Path(place)
        while not path.exists():
            path = path.parent
        device = path.stat().st_dev
        names.setdefault(device, []).append(name)
        found.setdefault(device, path)
    return {" and ".join(names[device]): path for device, path in found.items()}
