# SPDX-License-Identifier: Apache-2.0
"""Build an image by Podman, verify it, and save it as an archive.

An image whose label says that it was built from the same input is not built again. It gets its name when its
verification has succeeded, so a name never leads to an image that does not work.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ...trainyard.software import image
from ...trainyard.software.lock import mismatch
from ...trainyard.software.requirements import normal
from . import pip_settings
from .podman import PodmanError, archived, inspect, last_lines, podman, run
from .python_environment import Sources

# Parent of the folder of wheels and context, which gets a name of its own: they are large, and /tmp is often memory.
TEMPORARY = "/var/tmp"  # noqa: S108
# How the names of that folder, and of the one that an archive is written into, begin (image_progress.py).
WORK, SAVING = "trainyard-image-", ".trainyard-image-"
# The user who verifies the image: it has no rights to any file (nobody).
_NOBODY = "65534:65534"


class Build:
    """The requested image, what there is of it, and the way from one to the other."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Read both; nothing is changed here."""
        self.params = params
        self.environment = params["environment"]
        self.file = Path(params["file"]) if params["file"] else None
        self.image = inspect(params["name"])
        labels = (self.image or {}).get("Labels") or {}
        self.builds = labels.get(image.RECIPE) != params["recipe"]
        self.saves = self.file is not None and (
            self.builds or self.image is None or archived(self.file)[0] != self.image["Id"]
        )
        # The changes that are to be made, in words.
        self.reasons = self._reasons()
        self.verified: dict[str, Any] = {}

    def _reasons(self) -> list[str]:
        name = self.params["name"]
        built = [f"{name} is not there" if self.image is None else f"{name} was built from other input"]
        saved = [f"{self.file} does not hold this image"]
        return [*(built if self.builds else []), *(saved if self.saves else [])]

    def do(self) -> None:
        """Build, verify and save what differs."""
        os.umask(0o022)
        if self.builds:
            with tempfile.TemporaryDirectory(prefix=WORK, dir=TEMPORARY) as folder:
                made = self._build(Path(folder))
            try:
                self._verify(made)
            except PodmanError:
                podman("rmi", made)
                raise
            _expect(podman("tag", made, self.params["name"]), "the image got no name")
            self.image = inspect(self.params["name"])
        if self.saves and self.file:
            self._save(self.file)

    def _build(self, folder: Path) -> str:
        """Bring the wheels into `folder`, build, and return the id of the image."""
        fetch, context = folder / "fetch", folder / "context"
        for place, files in ((fetch, self.params["fetch"]), (context, self.params["build"])):
            place.mkdir()
            for name, text in files.items():
                (place / name).write_text(text)
        self._fetch(fetch)
        (fetch / "wheels").rename(context / "wheels")
        made = folder / "id"
        options = ["--layers=false", "--pull=never", "--network=none", "--security-opt=label=disable", "--quiet"]
        options += ["--identity-label=false", f"--timestamp={self.params['created']}", f"--iidfile={made}"]
        options += [f"--label={image.RECIPE}={self.params['recipe']}", f"--file={context / 'Containerfile'}"]
        _expect(podman("build", *options, str(context), TMPDIR=str(folder)), "the image could not be built")
        return made.read_text().strip().removeprefix("sha256:")

    def _fetch(self, fetch: Path) -> None:
        """Bring the wheels into the folder `wheels`, in a container of the base with this machine's network."""
        (fetch / "wheels").mkdir()
        wheels = {normal(name): address for name, address in self.environment["wheels"].items()}
        sources = Sources(
            **{name: self.environment[name] for name in ("index_url", "extra_index_urls", "find_links", "no_index")}
        )
        settings = pip_settings.settings(os.environ, sources.environment())
        mounts = {folder: folder for folder in [*pip_settings.folders(settings), *_folders(wheels.values())]}
        certificates = settings.get("cert", "")
        if certificates:
            settings["cert"] = mounts[certificates] = f"{image.FETCHING}-ca.crt"
        (fetch / "pip.conf").write_text(pip_settings.text(settings))
        volumes = [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
        options = ["--network=host", "--user=0", f"--volume={fetch}:{image.FETCHING}", *volumes]
        answer = run(self.params["base"], "/bin/sh", [f"{image.FETCHING}/fetch.sh"], options)
        role = self.params["framework"]
        text = f"pip could not bring the packages ({role}_index_url, {role}_find_links)"
        _expect(answer, text, mismatch(answer.output, wheels).replace("ROLE_", f"{role}_"))

    def _verify(self, made: str) -> None:
        """Run the framework's own check in the image, as an ordinary user."""
        script = self.environment["verify_script"]
        if not script or not self.params["verify"]:
            return
        own = {
            "HOME": "/tmp",  # noqa: S108 (in the container)
            "LC_ALL": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        }
        variables = {**own, **self.environment["verify_environment"]}
        options = [f"--user={_NOBODY}", *(f"--env={name}={value}" for name, value in variables.items())]
        python = f"{self.environment['path']}/bin/python"
        answer = run(made, python, ["-"], options, self.environment["verify_timeout"], script)
        _expect(
            answer, "the check of the image failed; image_verify: false leaves it out where the host has no such device"
        )
        with contextlib.suppress(IndexError, ValueError):
            self.verified = json.loads(answer.output.strip().splitlines()[-1])

    def _save(self, file: Path) -> None:
        """Write the archive beside its place first: a job must never find half of it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=SAVING, dir=file.parent) as folder:
            part = Path(folder, "image.tar")
            argv = ["save", "--quiet", "--format=oci-archive", f"--output={part}", self.params["name"]]
            _expect(podman(*argv, TMPDIR=folder), f"{file} could not be written")
            part.chmod(0o644)
            part.replace(file)

    def result(self) -> dict[str, Any]:
        """Return what the module returns."""
        found = self.image or {}
        manifest = archived(self.file)[1] if self.file else ""
        return {
            "changed": self.builds or self.saves,
            "reasons": self.reasons,
            "name": self.params["name"],
            "id": found.get("Id", ""),
            "digest": manifest or found.get("Digest", ""),
            "bytes": found.get("Size", 0),
            "file": str(self.file or ""),
            **({"verified": self.verified} if self.verified else {}),
        }


def _folders(addresses: Iterable[str]) -> list[str]:
    """Return the folders of wheels that have an address on this machine."""
    urls = [urlsplit(address) for address in addresses]
    return [str(Path(unquote(url.path)).parent) for url in urls if url.scheme == "file"]


def _expect(answer: Any, text: str, reason: str = "") -> None:
    """Raise PodmanError with the reason, else the end of the output, for a command that failed."""
    if answer.status:
        raise PodmanError(f"{text}: {reason or last_lines(answer.output)}")
