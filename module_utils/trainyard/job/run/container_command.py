# SPDX-License-Identifier: Apache-2.0
"""The command that runs one process of a job in an image.

A container shares the node's network, process ids, shared memory and user, so that monitors see, signal and explain
its processes as any others, and ranks of one node reach each other's memory. Only the files are the image's. Podman
and Docker name their containers, so that none is left; Apptainer has nothing but the processes.

Sources: podman-run(1), docker-run(1), apptainer-exec(1), Apptainer's user guide (environment).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...software.container_flags import APPTAINER, PODMAN, SHARED

# In the order in which `auto` prefers them.
RUNTIMES = ("podman", "apptainer", "docker")
# Label of a job's containers, where there are any.
LABEL = "trainyard.job"
# Those whose containers have names, and stay where their processes are killed.
NAMED = ("podman", "docker")
# The container program needs its own values of these; the image's process gets those of the plan.
_LITERAL = ("HOME", "PATH")
# Only the container program gets these.
_HOST_ONLY = ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")

# By the kernel's names of processors, those of images.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x", "riscv64": "riscv64"}
# A container with NPUs needs these of its node, as far as they are there (Ascend Docker Runtime).
ASCEND_FILES = (
    *("/usr/local/Ascend/driver", "/usr/local/dcmi", "/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi"),
    *("/etc/ascend_install.info", "/usr/local/Ascend/add-ons"),
)


def container_name(job_id: str, name: str) -> str:
    """Return the name of the container of a process."""
    return f"trainyard-{job_id}-{name}"


def command(
    record: Mapping[str, Any], job_id: str, name: str, argv: Sequence[str], env: Mapping[str, str], folder: str
) -> list[str]:
    """Return the command that runs `argv` in the image of `record` (plan.json, `container`), in `folder`.

    The values of `env` come from the environment of this command: arguments are no place for secrets.
    """
    build = {"podman": _podman, "docker": _docker, "apptainer": _apptainer}[record["runtime"]]
    return [record["program"], *build(record, job_id, name, env, folder), *argv]


def environment(record: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which `command` runs.

    Apptainer by itself drops LD_LIBRARY_PATH, and lets the variables of the image win. Those with its prefix win.
    """
    if record["runtime"] != "apptainer":
        return dict(env)
    # It allows no other HOME than the user's.
    names = env.keys() - {"HOME", *_HOST_ONLY}
    return {**env, **{f"APPTAINERENV_{name}": env[name] for name in names}}


def removal(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the command that removes containers, whatever state they are in."""
    ignore = ["--ignore", "--time", "0"] if record["runtime"] == "podman" else []
    return [record["program"], "rm", "--force", *ignore, *names]


def listing(record: Mapping[str, Any], job_id: str) -> list[str]:
    """Return the command that lists the containers of a job by their names."""
    return [record["program"], "ps", "--all", "--filter", f"label={LABEL}={job_id}", "--format", "{{.Names}}"]


def _variables(env: Mapping[str, str], option: str, literal: Sequence[str] = _LITERAL) -> list[str]:
    words = []
    for name in sorted(env.keys() - set(_HOST_ONLY)):
        words += [option, f"{name}={env[name]}" if name in literal else name]
    return words


def _mounts(record: Mapping[str, Any], option: str) -> list[str]:
    words = []
    for source, target, mode in record["mounts"]:
        words += [option, f"{source}:{target}:{mode}"]
    return words


def _engine(record: Mapping[str, Any], job_id: str, name: str, env: Mapping[str, str], folder: str) -> list[str]:
    """Return the options that Podman and Docker have in common."""
    devices = [word for device in record["devices"] for word in ("--device", device)]
    return [
        *("--rm", "--name", container_name(job_id, name), "--label", f"{LABEL}={job_id}"),
        # Not the image's own program: job_command is the whole command, as without an image.
        *("--entrypoint", "", "--workdir", folder),
        *devices,
        *_mounts(record, "--volume"),
        *_variables(env, "--env"),
    ]


def _podman(record: Mapping[str, Any], job_id: str, name: str, env: Mapping[str, str], folder: str) -> list[str]:
    return [
        *("run", "--pull", "never", "--replace"),
        *PODMAN,
        # An image may name another user, whose files and processes the training user could not read.
        *("--user", record["user"]),
        *_engine(record, job_id, name, env, folder),
        record["image"],
    ]


def _docker(record: Mapping[str, Any], job_id: str, name: str, env: Mapping[str, str], folder: str) -> list[str]:
    return [
        *(
            "run",
            "--pull",
            "never",
            *SHARED,
            "--user",
            record["user"],
            "--ulimit",
            "memlock=-1",
            "--ulimit",
            "nofile=1048576",
        ),
        *(("--gpus", "all") if record["gpus"] else ()),
        *_engine(record, job_id, name, env, folder),
        record["image"],
    ]


def _apptainer(record: Mapping[str, Any], job_id: str, name: str, env: Mapping[str, str], folder: str) -> list[str]:
    del job_id, name, env
    return [
        # Otherwise its own notes (INFO) are in the log of each rank.
        *("--quiet", *APPTAINER, "--pwd", folder),
        *(("--nv",) if record["gpus"] else ()),
        *_mounts(record, "--bind"),
        record["image"],
    ]
