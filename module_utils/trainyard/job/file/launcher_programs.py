# SPDX-License-Identifier: Apache-2.0
"""Find programs that start ranks in a command: job_launcher does that already, and two would train two worlds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Program:
    """A program that starts ranks, and the job_launcher in its place; "" where its ranks need this program.

    `nodes_options`, as the program spells them, tell one process per node about the others; without any, it starts
    ranks on other hosts itself.
    """

    launcher: str
    nodes_options: tuple[str, ...] = ()
    # Whether its own environment tells it of the other nodes.
    by_environment: bool = False


# Each program with its names (and first words), and its modules for `python -m`.
_KNOWN = (
    (Program("torchrun", ("nnodes",)), "torchrun", "torch.distributed.run, torch.distributed.launch"),
    (
        Program("torchrun", ("num_machines", "config_file")),
        "accelerate-launch, accelerate launch",
        "accelerate.commands.launch",
    ),
    (Program("torchrun", ("num-nodes",)), "fabric run, lightning run", ""),
    (
        Program("torchrun", ("node_rank",)),
        "deepspeed, deepspeed.pt, ds",
        "deepspeed.launcher.runner, deepspeed.launcher.launch",
    ),
    (Program("torchrun", ("world_size",)), "composer", "composer.cli.launcher"),
    (Program("torchrun"), "colossalai run, srun", ""),
    (Program("msrun", ("node_rank",)), "msrun", "mindspore.parallel.cluster.run"),
    (Program("oneflow", ("nnodes",)), "", "oneflow.distributed.launch"),
    (
        Program("mpirun"),
        "mpirun, mpiexec, orterun, prterun, horovodrun, mpirun.openmpi, mpiexec.openmpi, mpirun.mpich, mpiexec.mpich, "
        "mpiexec.hydra",
        "horovod.runner.launch",
    ),
    (Program("", ("nnodes", "ips")), "fleetrun", "paddle.distributed.launch, paddle.distributed.launch.main"),
    (Program(""), "ray job submit, sbatch", ""),
    # They read NNODES, NODE_RANK and MASTER_ADDR themselves.
    (Program("torchrun", ("nnodes",), by_environment=True), "llamafactory-cli train, lmf train", ""),
)
PROGRAMS: Mapping[str, Program] = {name: program for program, names, _ in _KNOWN for name in names.split(", ") if name}
MODULES: Mapping[str, Program] = {
    name: program for program, _, modules in _KNOWN for name in modules.split(", ") if name
}
# Words that users write for one of the job_launcher or job_scheduler values.
_ALSO = {
    "torchrun": "torch pytorch ddp elastic accelerate deepspeed torch.distributed.run fabric lightning composer "
    "colossalai",
    "mpirun": "mpi openmpi mpiexec orterun horovod horovodrun",
    "rank_table": "ascend hccl npu ranktable",
    "direct": "ssh local none python env paddle ray",
    "slurm": "srun sbatch",
    "kubernetes": "k8s kube kubectl kubeflow",
}
# These start the program that follows their own options.
_WRAPPERS = frozenset(
    ("nice", "ionice", "nohup", "time", "timeout", "numactl", "taskset", "stdbuf", "setsid", "chrt", "strace",
     "conda", "mamba", "micromamba", "poetry", "pipenv", "uv", "apptainer", "singularity", "nsys", "ncu")
)  # fmt: skip
# Upper bound for the words that are read of a command: any process may have thousands.
_MAX_WORDS = 400
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True)
class Found:
    """A launcher in a command: its name there, and the words behind it."""

    called: str
    program: Program
    words: tuple[str, ...]

    def joins_nodes(self) -> bool:
        """Tell whether its options name the other nodes, or may do so in a variable of unknown value."""
        for at, word in enumerate(self.words):
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if word.startswith("-") and name in (each.replace("-", "_") for each in self.program.nodes_options):
                value = value if equals else "".join(self.words[at + 1 : at + 2])
                return value != "1" or name in ("node_rank", "world_size")
        before = ("", *self.words)
        return self.program.by_environment or any(
            word.startswith("$") and (not last.startswith("-") or "=" in last) for last, word in zip(before, self.words)
        )


def meant(name: str, names: Sequence[str]) -> str:
    """Return which of the names the user probably meant, or ""."""
    import difflib

    written = name.strip().lower()
    also = [each for each, others in _ALSO.items() if written in others.split() and each in names]
    near = also or difflib.get_close_matches(written, names, n=1)
    return near[0] if near else ""


def find(command: Sequence[str]) -> Found | None:
    """Return the launcher that a command starts, also behind env, python -m and the like."""
    words = list(command[:_MAX_WORDS])
    name = PurePosixPath(words[0]).name if words else ""
    found = _program(words)
    if found or not name:
        return found
    if _PYTHON.fullmatch(name):
        return _by_python(words)
    if name == "env":
        at = 1
        while at < len(words) and (words[at].startswith("-") or _ASSIGNMENT.fullmatch(words[at])):
            at += 2 if words[at] in ("-u", "-C") else 1
        return find(words[at:])
    if name in _WRAPPERS:
        for at, word in enumerate(words[1:], start=1):
            if word.endswith((".py", ".sh")):
                return None
            if _is_known(PurePosixPath(word).name):
                return find(words[at:])
    return None


def _is_known(name: str) -> bool:
    firsts = {each.partition(" ")[0] for each in PROGRAMS}
    return name in (*firsts, *_WRAPPERS, "env") or bool(_PYTHON.fullmatch(name))


def _program(words: Sequence[str]) -> Found | None:
    for length in (1, 2, 3):
        called = " ".join([PurePosixPath(words[0]).name, *words[1:length]]) if words else ""
        if called in PROGRAMS:
            return Found(called, PROGRAMS[called], tuple(words[length:]))
    return None


def _by_python(words: Sequence[str]) -> Found | None:
    """Find `python -m MODULE`, and a launcher that is run as a script: python /usr/bin/torchrun."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if re.fullmatch(r"-[A-Za-z]*m", words[at]):
            module = "".join(words[at + 1 : at + 2])
            return Found(f"python -m {module}", MODULES[module], tuple(words[at + 2 :])) if module in MODULES else None
        if re.fullmatch(r"-[A-Za-z]*c", words[at]):
            return None
        at += 2 if words[at] in ("-W", "-X") else 1
    return _program(words[at:])
