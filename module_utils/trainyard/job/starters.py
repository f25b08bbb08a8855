# SPDX-License-Identifier: Apache-2.0
"""Programs that start ranks, found in a command: a job's launcher does that already, and two would train two worlds.

Their options are listed as far as they only place ranks. With any other a command cannot be rewritten for sure, as what
it says may matter to the program.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from . import accelerate


@dataclass(frozen=True)
class Starter:
    """One of these programs.

    `options` are its own, by their names without leading hyphens and with `-` for `_`: how many words follow each.
    `several_nodes` are those by which one process on each node learns that it is one of several; without any it
    starts ranks on other hosts by itself.
    """

    name: str
    options: Mapping[str, int]
    several_nodes: tuple[str, ...] = ()
    # Its option with the number of ranks on a node.
    per_node: tuple[str, ...] = ()
    # It starts a script with Python, not a program.
    takes_script: bool = False
    # Of further options that only tell the program something: how many words follow each, None for what is none.
    words_after: Callable[[str], int | None] | None = None


@dataclass(frozen=True)
class Found:
    """A starter in a command: how it was called, its options, and the command without it where that is sure.

    `words` are the options as they were given.
    """

    starter: Starter
    called: str
    options: Mapping[str, str]
    instead: tuple[str, ...] | None
    words: tuple[str, ...] = ()


def _options(flags: str, valued: str) -> dict[str, int]:
    return {**dict.fromkeys(flags.split(), 0), **dict.fromkeys(valued.split(), 1)}


_TORCHRUN = Starter(
    "torchrun",
    _options(
        "standalone m module no-python use-env",
        "nnodes nproc-per-node node-rank rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval "
        "start-method role log-dir r redirects t tee local-ranks-filter master-addr master-port local-addr",
    ),
    ("nnodes",),
    ("nproc-per-node",),
    takes_script=True,
)
# Mixed precision, FSDP and the like are passed on to the script, by variables (accelerate.py).
_ACCELERATE = Starter(
    "accelerate",
    _options(
        "multi-gpu same-network m module no-python q quiet",
        "num-processes num-machines machine-rank main-process-ip main-process-port gpu-ids rdzv-backend rdzv-conf "
        "max-restarts monitor-interval t tee log-dir role mpirun-hostfile deepspeed-hostfile "
        "deepspeed-exclusion-filter deepspeed-inclusion-filter deepspeed-multinode-launcher config-file",
    ),
    ("num-machines", accelerate.CONFIG_FILE),
    takes_script=True,
    words_after=accelerate.words_after,
)
_DEEPSPEED = Starter(
    "deepspeed",
    _options(
        "no-ssh no-ssh-check module no-python no-local-rank force-multi",
        "H hostfile i include e exclude num-nodes num-gpus master-addr master-port node-rank launcher",
    ),
    ("node-rank",),
    ("num-gpus",),
    takes_script=True,
)
_MSRUN = Starter(
    "msrun",
    _options(
        "", "worker-num local-worker-num master-addr master-port node-rank log-dir join cluster-time-out bind-core"
    ),
    ("node-rank",),
    ("local-worker-num",),
    takes_script=True,
)
_ONEFLOW = Starter(
    "oneflow.distributed.launch",
    _options(
        "m module no-python redirect-stdout-and-stderr",
        "nnodes node-rank nproc-per-node master-addr master-port logdir",
    ),
    ("nnodes",),
    ("nproc-per-node",),
    takes_script=True,
)
_MPIRUN = Starter(
    "mpirun",
    {
        **_options(
            "allow-run-as-root oversubscribe nooversubscribe bynode byslot tag-output report-bindings v q",
            "n np c N npernode ppr H host hostfile machinefile f ppn x map-by rank-by bind-to wdir prefix output",
        ),
        "mca": 2,
        "prtemca": 2,
        "genv": 2,
    },
)
_SRUN = Starter(
    "srun",
    _options(
        "exclusive overlap l label u unbuffered v verbose Q quiet kill-on-bad-exit",
        "n ntasks N nodes ntasks-per-node c cpus-per-task p partition A account q qos t time J job-name gres G gpus "
        "gpus-per-node gpus-per-task mem mem-per-cpu o output e error w nodelist x exclude mpi export cpu-bind m "
        "distribution D chdir jobid",
    ),
    per_node=("ntasks-per-node",),
)
_HOROVODRUN = Starter(
    "horovodrun",
    _options("gloo mpi verbose", "np num-proc H hosts hostfile p ssh-port start-timeout network-interfaces log-level"),
)

_PROGRAMS: Mapping[str, Starter] = {
    "torchrun": _TORCHRUN,
    "accelerate-launch": _ACCELERATE,
    "deepspeed": _DEEPSPEED,
    "msrun": _MSRUN,
    "srun": _SRUN,
    "horovodrun": _HOROVODRUN,
    **dict.fromkeys(
        (
            *("mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"),
            *("mpirun.mpich", "mpiexec.mpich", "mpiexec.hydra"),
        ),
        _MPIRUN,
    ),
}
_MODULES: Mapping[str, Starter] = {
    "torch.distributed.run": _TORCHRUN,
    "torch.distributed.launch": _TORCHRUN,
    "accelerate.commands.launch": _ACCELERATE,
    "deepspeed.launcher.runner": _DEEPSPEED,
    "deepspeed.launcher.launch": _DEEPSPEED,
    "mindspore.parallel.cluster.run": _MSRUN,
    "oneflow.distributed.launch": _ONEFLOW,
    "horovod.runner.launch": _HOROVODRUN,
}

_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
# What starts the program that follows, somewhere behind options of its own.
_WRAPPERS = frozenset(
    (
        *("nice", "ionice", "nohup", "time", "timeout", "numactl", "taskset", "stdbuf", "setsid", "chrt", "strace"),
        *("conda", "mamba", "micromamba", "poetry", "pipenv", "uv", "apptainer", "singularity", "nsys", "ncu"),
    )
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
# What may stand before a program in a line of shell.
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "exec", "command", "time"))
_BREAKS = frozenset((";", "&&", "||", "|", "&", "(", ")", ";;", "|&"))


# What users call what a launcher does.
_ALSO = {
    "torchrun": ("torch", "pytorch", "ddp", "elastic", "accelerate", "deepspeed", "torch.distributed.run"),
    "mpirun": ("mpi", "openmpi", "mpiexec", "orterun", "horovod", "horovodrun"),
    "rank_table": ("ascend", "hccl", "npu", "ranktable"),
    "direct": ("ssh", "local", "none", "python", "env"),
    "slurm": ("srun", "sbatch"),
    "kubernetes": ("k8s", "kube", "kubectl", "kubeflow"),
}


def meant(name: str, names: Sequence[str]) -> str:
    """Return which of the names was probably meant, or ""."""
    asked = name.strip().lower()
    also = [each for each, others in _ALSO.items() if asked in others and each in names]
    near = also or difflib.get_close_matches(asked, names, n=1)
    return near[0] if near else ""


def find(command: Sequence[str]) -> Found | None:
    """Find what starts ranks in a command, also behind env, python -m, a shell's -c and the like; None: nothing."""
    if not command:
        return None
    command = list(command)
    program, rest = PurePosixPath(command[0]).name, command[1:]
    if program in _PROGRAMS:
        return _taken_off(_PROGRAMS[program], program, rest, (str(PurePosixPath(command[0]).with_name("python")),))
    if program == "accelerate" and rest[:1] == ["launch"]:
        return _taken_off(_ACCELERATE, "accelerate launch", rest[1:], ("python",))
    if _PYTHON.fullmatch(program):
        return _by_python(command)
    if program in SHELLS:
        return _in_shell(command)
    at = _behind_wrapper(program, rest)
    inner = None if at is None else find(rest[at:])
    if inner is None or at is None:
        return None
    return _with(inner, (*command[: at + 1], *inner.instead) if inner.instead is not None else None)


def _with(found: Found, instead: tuple[str, ...] | None) -> Found:
    return replace(found, instead=instead)


def _behind_wrapper(program: str, words: Sequence[str]) -> int | None:
    """Find where the program is that a wrapper starts."""
    for at, word in enumerate(words):
        if program == "env":
            own = word.startswith("-") or words[at - 1 : at] in (["-u"], ["-C"])
            if not own and not _ASSIGNMENT.fullmatch(word):
                return at
        elif program not in _WRAPPERS or word.endswith((".py", ".sh")):
            return None
        elif _known(PurePosixPath(word).name):
            return at
    return None


def _known(name: str) -> bool:
    known = name in _PROGRAMS or name in SHELLS or name in _WRAPPERS or name in ("env", "accelerate")
    return known or bool(_PYTHON.fullmatch(name))


def _by_python(command: Sequence[str]) -> Found | None:
    """Look at `python -m MODULE`, and at a starter that is run as a script: python /usr/bin/torchrun."""
    at = 1
    while at < len(command) and command[at].startswith("-"):
        word = command[at]
        if word in ("-W", "-X"):
            at += 2
            continue
        if re.fullmatch(r"-[A-Za-z]*m", word):
            called = f"python -m {' '.join(command[at + 1 : at + 2])}"
            starter = _MODULES.get("".join(command[at + 1 : at + 2]))
            own = command[:at] if word == "-m" else (*command[:at], word[:-1])
            return _taken_off(starter, called, command[at + 2 :], own) if starter else None
        if re.fullmatch(r"-[A-Za-z]*c", word):
            return None
        at += 1
    script = PurePosixPath(command[at]).name if at < len(command) else ""
    return _taken_off(_PROGRAMS[script], script, command[at + 1 :], command[:at]) if script in _PROGRAMS else None


def _taken_off(starter: Starter, called: str, words: Sequence[str], python: Sequence[str]) -> Found:
    """Take a starter's own options off what it starts. `python` is what it would start a script with."""
    options: dict[str, str] = {}
    at, sure = 0, True
    while sure and at < len(words) and words[at].startswith("-") and words[at] != "--":
        name, equals, value = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if name not in starter.options and re.fullmatch(r"[A-Za-z]\d+", name):
            # A letter with its value behind it: -n2.
            name, equals, value = name[0], "=", name[1:]
        known = starter.options.get(name, starter.words_after(name) if starter.words_after else None)
        follow = 0 if equals else known or 0
        sure = known is not None
        options[name] = value if equals else " ".join(words[at + 1 : at + 1 + follow])
        at += 1 + follow
    started = list(words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:])
    instead: tuple[str, ...] | None = None
    # A colon is between the programs that one mpirun starts.
    if sure and started and ":" not in started:
        if starter.takes_script and {"m", "module"} & options.keys():
            started = [*python, "-m", *started]
        elif starter.takes_script and "no-python" not in options and not _PYTHON.fullmatch(started[0]):
            started = [*python, *started]
        inner = find(started)
        instead = inner.instead if inner else tuple(started)
    return Found(starter, called, options, instead, tuple(words[:at]))


def shell_text(command: Sequence[str]) -> int | None:
    """Return where a shell's command has its text, behind -c; None where there is none."""
    for at, word in enumerate(command[1:], start=1):
        if re.fullmatch(r"-[A-Za-z]*c", word):
            return at + 1 if at + 1 < len(command) else None
        if not word.startswith("-") and not re.fullmatch(r"-[A-Za-z]*o", command[at - 1]):
            return None
    return None


def _in_shell(command: Sequence[str]) -> Found | None:
    """Look at each simple command of a shell's text."""
    at = shell_text(command)
    if at is None:
        return None
    text = command[at]
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    simple: list[list[str]] = [[]]
    for token in tokens:
        if token in _BREAKS:
            simple.append([])
        else:
            simple[-1].append(token)
    for words in simple:
        begin = next((place for place, word in enumerate(words) if not _before_program(word)), len(words))
        inner = find(words[begin:])
        if inner is not None:
            return _with(inner, _rewritten(command, at, words, begin, inner.instead))
    return None


def _before_program(word: str) -> bool:
    return word in _KEYWORDS or bool(_ASSIGNMENT.fullmatch(word))


def _rewritten(
    command: Sequence[str], at: int, words: Sequence[str], begin: int, instead: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return a shell's command with other words in it; None where these cannot be found in its text for sure."""
    text, old = command[at], " ".join(words[begin:])
    # Quotes, variables and redirections are gone from words, or would be quoted.
    plain = instead is not None and not re.search(r"[^\w ./=:,@%+-]", old) and text.count(old) == 1
    if not plain or instead is None:
        return None
    if text.strip() == old:
        return instead
    return (*command[:at], text.replace(old, " ".join(instead)), *command[at + 1 :])
