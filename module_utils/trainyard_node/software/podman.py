# SPDX-License-Identifier: Apache-2.0
"""Images of this machine's Podman, and image archives."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..machine.files import newest_own
from ..machine.programs import english
from ..machine.tree import Outcome, Tree

# Upper bound for a manifest in an archive, in bytes.
_MAX_BYTES = 16 << 20
# Where Podman has the layers of an image that it pulls, by an older and a newer name.
_PULLED = ("storage[0-9]*", "container_images_storage*")


class PodmanError(Exception):
    """Podman failed; the text has what it was to do, its last lines, and what to do."""


def is_installed() -> bool:
    """Return whether this machine has Podman."""
    return Tree().tool("podman") is not None


def podman(*arguments: str, text: str = "", timeout: float | None = None, **variables: str) -> Outcome:
    """Run Podman to its end; `text` is its input, `variables` are added to its environment."""
    program = Tree().tool("podman") or "podman"
    try:
        done = subprocess.run(
            [program, *arguments],
            check=False,
            input=text.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            cwd="/",
            env={**english(), **variables},
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(124, f"{(error.stdout or b'').decode('utf-8', 'replace')}\nno end within {timeout:.0f} s")
    except OSError as error:
        return Outcome(127, f"podman: {error.strerror}")
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"))


def last_lines(output: str, most: int = 8) -> str:
    """Return the end of an output on one line, without what Podman and pip add to each failure."""
    lines = [line.strip() for line in output.splitlines()]
    noise = ("WARNING:", "[notice]", "Error: building at STEP", "Trying to pull", 'time="')
    return " | ".join([line for line in lines if line and not line.startswith(noise)][-most:]) or "no output"


def inspect(image: str) -> dict[str, Any] | None:
    """Return what `podman image inspect` reports of an image of the store, None where it has none."""
    answer = podman("image", "inspect", image)
    return json.loads(answer.output)[0] if answer.status == 0 else None


def pull(reference: str) -> None:
    """Bring an image into the store, from a registry or an archive."""
    answer = podman("pull", "--quiet", reference)
    if answer.status:
        raise PodmanError(last_lines(answer.output, 3))


def being_pulled(temporary: str = "/var/tmp") -> Path | None:  # noqa: S108 (Podman's own default)
    """Return the folder that gets the layers of an image that this user's Podman pulls: the newest one."""
    return newest_own(folder for pattern in _PULLED for folder in Path(temporary).glob(pattern))


def run(
    image: str,
    program: str,
    arguments: Sequence[str],
    options: Sequence[str] = (),
    timeout: float | None = None,
    text: str = "",
) -> Outcome:
    """Run a program in a container of an image, which is removed afterwards; without network by default."""
    limit = [f"--timeout={timeout:.0f}"] if timeout else []
    confined = ("--rm", "--interactive", "--pull=never", "--security-opt=label=disable", "--workdir=/", *limit)
    network = () if any(option.startswith("--network") for option in options) else ("--network=none",)
    argv = ["run", *confined, *network, *options, f"--entrypoint={json.dumps([program])}", image, *arguments]
    # Podman itself ends the container first.
    return podman(*argv, text=text, timeout=timeout + 30 if timeout else None)


def archived(path: Path) -> tuple[str, str]:
    """Return the id of the image in an archive and the digest of its manifest; "" where there is none."""
    try:
        with tarfile.open(path) as archive:
            names = {name.removeprefix("./"): name for name in archive.getnames()}
            if "index.json" in names:
                digest = _member(archive, names["index.json"])["manifests"][0]["digest"]
                manifest = _member(archive, names[f"blobs/{digest.replace(':', '/')}"])
                return manifest["config"]["digest"].removeprefix("sha256:"), digest
            config = _member(archive, names["manifest.json"])[0]["Config"]
            return config.rpartition("/")[2].removesuffix(".json"), ""
    except (OSError, tarfile.TarError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "", ""


def _member(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return json.loads(file.read(_MAX_BYTES))
