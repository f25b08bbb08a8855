# SPDX-License-Identifier: Apache-2.0
"""Find CUDA, NCCL and PyTorch on the machine, or where the caller of `make` has named them. Installs nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# Importing a framework with its libraries from a network folder takes its time.
_IMPORT_SECONDS = 180
_NAME_TORCH = "name a Python with a PyTorch for these devices: TORCH=/path/to/python3"
_ASK_TORCH = """
import json, sys
import torch
said = {"python": sys.executable, "version": torch.__version__, "folder": torch.__path__[0], "prefix": sys.prefix,
        "cuda": torch.version.cuda or "", "devices": [], "nccl": ""}
try:
    import torch_npu
    said["torch_npu"] = torch_npu.__version__
    said["devices"] = [{"name": torch.npu.get_device_name(i)} for i in range(torch.npu.device_count())]
except ImportError:
    pass
if torch.cuda.is_available():
    said["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        said["devices"].append({"name": device.name, "memory_mib": device.total_memory >> 20,
                                "uuid": f"GPU-{getattr(device, 'uuid', '')}",
                                "capability": [device.major, device.minor]})
print("\\nTORCH " + json.dumps(said))
"""


class Missing(pytest.skip.Exception):
    """Something is not there, so that a step is not run; the text says what, and how to give it."""


class Ran(NamedTuple):
    """How a program ended."""

    status: int
    output: str

    def end(self, lines: int = 8) -> str:
        """Return its last lines."""
        return "\n".join(self.output.strip().splitlines()[-lines:])


def ran(argv: list[str], seconds: float, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run a program to its end, with both outputs as one; 124 where it takes longer, 127 where there is none."""
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
        )
    except subprocess.TimeoutExpired as error:
        return Ran(124, f"{(error.output or b'').decode('utf-8', 'replace')}\nno end within {seconds:.0f} s")
    except OSError as error:
        return Ran(127, str(error))
    return Ran(done.returncode, done.stdout.decode("utf-8", "replace"))


def torch_of(python: str, devices: str) -> dict[str, Any]:
    """Return what a PyTorch says of itself; `devices` are what it must find, "" for none. Raises Missing."""
    if not shutil.which(python):
        raise Missing(f"no {python}; {_NAME_TORCH}")
    said = ran([python, "-c", _ASK_TORCH], _IMPORT_SECONDS)
    if said.status != 0:
        why = said.end(1) or f"status {said.status}"
        raise Missing(f"{python} has no PyTorch that can be imported ({why}); {_NAME_TORCH}")
    found: dict[str, Any] = json.loads(said.output.rpartition("\nTORCH ")[2])
    if devices and not found["devices"]:
        raise Missing(f"PyTorch {found['version']} of {found['python']} finds no {devices}; {_NAME_TORCH}")
    return found


def environment_of(torch: Mapping[str, Any], work: Path) -> str:
    """Return the folder that jobs take as their virtual environment (job_venv).

    The one that PyTorch lies in; else, as for a system's Python, one made in `work` that sees the system's packages.
    """
    prefix, folder = Path(torch["prefix"]), Path(torch["folder"])
    if (prefix / "bin/python").exists() and prefix in folder.parents and folder.parent.name == "site-packages":
        return str(prefix)
    venv = work / "venv"
    if not venv.exists():
        made = ran([torch["python"], "-m", "venv", "--system-site-packages", "--without-pip", str(venv)], 120)
        if made.status != 0:
            raise Missing(f"{torch['python']} can make no virtual environment: {made.end(1)}")
    return str(venv)


def cuda_home(given: str) -> str:
    """Return the folder of the CUDA toolkit. Raises Missing where there is none, or no compiler that nvcc needs."""
    nvcc = shutil.which("nvcc")
    newest = sorted(Path("/usr/local").glob("cuda-*"), key=_version)[::-1]
    # An nvcc in PATH may be a wrapper that lies elsewhere.
    of_path = [str(Path(nvcc).resolve().parents[1])] if nvcc else []
    places = [given] if given else [os.environ.get("CUDA_HOME", ""), *of_path, "/usr/local/cuda", *map(str, newest)]
    for place in filter(None, places):
        if Path(place, "bin/nvcc").exists() and Path(place, "include/cuda_runtime.h").exists():
            if not shutil.which("g++"):
                raise Missing(f"no g++ in the PATH, which {place}/bin/nvcc needs; have it installed")
            return place
    where = given or "PATH or /usr/local/cuda*"
    raise Missing(f"no nvcc with its headers in {where}; name the CUDA toolkit: CUDA=/usr/local/cuda-13.0")


def _version(path: Path) -> list[int]:
    return [int(part) for part in path.name.partition("-")[2].split(".") if part.isdigit()]


def nccl_prefix(given: str, torch: Mapping[str, Any] | None) -> str:
    """Return the folder with NCCL's headers and libraries, the system's or that of PyTorch. Raises Missing for none."""
    beside = [str(Path(torch["folder"]).parent / "nvidia/nccl")] if torch else []
    places = [given] if given else [os.environ.get("NCCL_HOME", ""), "/usr", "/usr/local", *beside]
    for place in filter(None, places):
        if Path(place, "include/nccl.h").exists():
            return place
    raise Missing(
        f"no include/nccl.h in {given or 'the system or beside PyTorch'}; name a folder with NCCL's headers and "
        "libraries: NCCL=/path"
    )


def source_of(given: str, marker: str, what: str, variable: str, work: Path) -> Path:
    """Return a copy of a given source tree, or a given tar file unpacked. Raises Missing where nothing was given."""
    if not given:
        raise Missing(f"no source of {what}; give one, a folder or a tar file: {variable}=/path")
    place, copy = Path(given), work / Path(given).name.partition(".tar")[0]
    if place.is_dir():
        shutil.copytree(place, copy, ignore=shutil.ignore_patterns(".git"))
    elif place.is_file():
        copy.mkdir()
        shutil.unpack_archive(place, copy, filter="data")
    else:
        raise Missing(f"no {given} ({variable})")
    found = sorted(path.parent for path in copy.rglob(marker))
    if not found:
        raise Missing(f"{given} has no {marker}, expected the source of {what} ({variable})")
    return min(found, key=lambda path: len(path.parts))
