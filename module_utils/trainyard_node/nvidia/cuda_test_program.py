# SPDX-License-Identifier: Apache-2.0
"""Compile, link and run the test program of the role cuda_toolkit on this machine, as the training user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ...trainyard.nvidia import cuda, cuda_verify
from ..cluster.ssh_logins import as_user

# Open MPI runs two processes where no GPU says how many.
_PROCESSES_WITHOUT_GPU = 2
_GRACE_SECONDS = 10


def _run(argv: list[str], seconds: int, settings: dict[str, Any]) -> tuple[int, str]:
    """Return exit status and output; a program that takes longer is ended with all that it has started."""
    both: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        process = subprocess.Popen(argv, start_new_session=True, **both, **settings)
    except OSError as error:
        return 126, str(error)
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        return cuda_verify.TIMED_OUT, _end(process).decode("utf-8", "replace")
    return process.returncode, output.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes]) -> bytes:
    """End a program, first by SIGTERM, as mpirun then ends its ranks, which have process groups of their own."""
    process.terminate()
    try:
        return process.communicate(timeout=_GRACE_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def mpi_flags(mpirun: str, settings: dict[str, Any]) -> list[str]:
    """Return nvcc's flags for the Open MPI of an mpirun; none where its compiler wrapper or its headers are missing."""
    wrapper = Path(mpirun).with_name(Path(mpirun).name.replace("mpirun", "mpicxx"))
    shown: dict[str, list[str]] = {}
    for name in ("incdirs", "libdirs", "libs"):
        status, output = _run([str(wrapper), f"--showme:{name}"], 20, settings)
        if status != 0:
            return []
        shown[name] = output.split()
    places = [*shown["incdirs"], "/usr/include"]
    if not any(Path(place, "mpi.h").exists() for place in places):
        return []
    return [
        "-DWITH_MPI",
        *(f"-I{folder}" for folder in shown["incdirs"]),
        *(flag for folder in shown["libdirs"] for flag in (f"-L{folder}", "-Xlinker", f"-rpath,{folder}")),
        *(f"-l{name}" for name in shown["libs"]),
    ]


def nccl_flags(home: str) -> list[str]:
    """Return nvcc's flags for NCCL in a home."""
    if home == "/usr":
        return ["-DWITH_NCCL", "-lnccl"]
    folders = [f"{home}/{name}" for name in ("lib", "lib64") if Path(home, name, "libnccl.so").exists()]
    lib = folders[0] if folders else f"{home}/lib"
    return ["-DWITH_NCCL", f"-I{home}/include", f"-L{lib}", "-Xlinker", f"-rpath,{lib}", "-lnccl"]


def verify(source: str, state: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Compile and run the program; return `build`, `detail`, `with` and `run`.

    `request`: `user`, `home` of the toolkit, `root` to work below, `compiler`, `mpi` and `nccl` (whether to try them),
    `gpus`, `rpath` (where the toolkit's libraries are not in the system's search path), `build_seconds`, `run_seconds`.
    Raises KeyError for a user that is not there, PermissionError where it cannot be acted as that user.
    """
    settings = as_user(request["user"])
    folder = Path(tempfile.mkdtemp(prefix=".cuda-verify-", dir=request["root"]))
    try:
        (folder / "verify.cu").write_text(source)
        (folder / "verify.cu").chmod(0o644)
        # From here on the folder is the user's, and root does nothing in it.
        if "user" in settings:
            os.chown(folder, settings["user"], settings["group"])
        settings.update({"cwd": str(folder)})
        settings["env"]["TMPDIR"] = str(folder)
        return _verify(state, request, settings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _verify(state: dict[str, Any], request: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    home, gpus = request["home"], request["gpus"]
    mpi = mpi_flags(state["mpi"]["path"], settings) if request["mpi"] and state["mpi"] else []
    nccl = nccl_flags(state["nccl"]) if request["nccl"] and state["nccl"] else []
    nvcc = (state["toolkits"].get(home) or {}).get("nvcc", "")
    argv = [f"{home}/bin/nvcc", "-O1", "-cudart", "shared", "-o", "verify", "verify.cu"]
    if request["compiler"]:
        argv.append(f"-ccbin={request['compiler']}")
    # Before 11.6 `native` is unknown; code for an old GPU is then compiled anew by the driver when it is loaded.
    if gpus and nvcc and cuda.numbers(nvcc) >= (11, 6):
        argv.append("-arch=native")
    if request["rpath"]:
        argv += ["-Xlinker", f"-rpath,{home}/lib64"]
    result: dict[str, Any] = {
        "build": "pass",
        "detail": "",
        "with": [name for name, flags in (("mpi", mpi), ("nccl", nccl)) if flags],
        "run": {},
    }
    status, output = _run([*argv, *mpi, *nccl], request["build_seconds"], settings)
    if status != 0:
        timed_out = status == cuda_verify.TIMED_OUT
        why = (
            f"it did not finish within {request['build_seconds']} s"
            if timed_out
            else cuda_verify.compiler_error(output)
        )
        return {**result, "build": "unknown" if timed_out else "fail", "detail": f"nvcc: {why}"}
    program = ["./verify"]
    if mpi:
        size = str(gpus or _PROCESSES_WITHOUT_GPU)
        # It starts nothing by ssh, and must not fail where there is none.
        alone = ["--mca", "plm_rsh_agent", "false"]
        program = [state["mpi"]["path"], *alone, "-H", f"localhost:{size}", "-n", size, "--bind-to", "none", *program]
    status, output = _run(program, request["run_seconds"], settings)
    return {**result, "run": cuda_verify.read_run(status, output, request["run_seconds"])}
