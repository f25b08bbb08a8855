# SPDX-License-Identifier: Apache-2.0
"""Programs that start ranks, found in a command: a job's launcher does that already, and two would train two worlds."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from .known_programs import COMMANDS, MODULES, PROGRAMS, Starter


@dataclass(frozen=True)
class Found:
    """A starter in a command: how it was called, its options, and the command without it where that is sure.

    `joined` is the command with the options that join the nodes, where it has none of them and may have some.
    """

    starter: Starter
    called: str
    options: Mapping[str, str]
    instead: tuple[str, ...] | None
    joined: tuple[str, ...] | None = None

    def of_several(self) -> bool:
        """Tell whether its options say that it is one of several nodes."""
        told = [name for name in self.starter.several_nodes if name in self.options]
        return bool(told) and not any(self.options[name] == "1" for name in told if name in _COUNTS)

    def per_node(self) -> str:
        """Return how many ranks it would start on a node, where its options say so in digits; else ""."""
        number = next((self.options[name] for name in self.starter.per_node if name in self.options), "")
        return number if number.isdigit() else ""


# Options with a number of nodes.
_COUNTS = ("nnodes", "num-machines", "num-nodes")
# Those by which the word behind the options is a module, or a program, and no script.
_MODULE, _PROGRAM = frozenset(("m", "module", "module-mode")), frozenset(("no-python", "c", "command-mode"))

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
    "torchrun": (
        "torch",
        "pytorch",
        "ddp",
        "elastic",
        "accelerate",
        "deepspeed",
        "torch.distributed.run",
        "fabric",
        "lightning",
        "composer",
        "colossalai",
    ),
    "mpirun": ("mpi", "openmpi", "mpiexec", "orterun", "horovod", "horovodrun"),
    "rank_table": ("ascend", "hccl", "npu", "ranktable"),
    "direct": ("ssh", "local", "none", "python", "env", "paddle", "ray"),
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
    called = _called(command, 0, (str(PurePosixPath(command[0]).parent / "python"),))
    if called:
        return called
    if _PYTHON.fullmatch(program):
        return _by_python(command)
    if program in SHELLS:
        return _in_shell(command)
    at = _behind_wrapper(program, rest)
    inner = None if at is None else find(rest[at:])
    if inner is None or at is None:
        return None
    return _with(inner, lambda words: (*command[: at + 1], *words))


def _with(found: Found, around: Callable[[tuple[str, ...]], tuple[str, ...] | None]) -> Found:
    """Return what was found as a part of a longer command."""
    instead, joined = (around(words) if words is not None else None for words in (found.instead, found.joined))
    return Found(found.starter, found.called, found.options, instead, joined)


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
    known = (*PROGRAMS, *SHELLS, *_WRAPPERS, *(names[0] for names in COMMANDS), "env")
    return name in known or bool(_PYTHON.fullmatch(name))


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
            starter = MODULES.get("".join(command[at + 1 : at + 2]))
            own = command[:at] if word == "-m" else (*command[:at], word[:-1])
            return _taken_off(starter, called, command[: at + 2], command[at + 2 :], own) if starter else None
        if re.fullmatch(r"-[A-Za-z]*c", word):
            return None
        at += 1
    return _called(command, at, command[:at])


def _called(command: Sequence[str], at: int, python: Sequence[str]) -> Found | None:
    """Look at a program and the command of its own that it may have; `python` is what it would start a script with."""
    name = PurePosixPath(command[at]).name if at < len(command) else ""
    if name in PROGRAMS:
        return _taken_off(PROGRAMS[name], name, command[: at + 1], command[at + 1 :], python)
    for names, starter in COMMANDS.items():
        end = at + len(names)
        if (name, *command[at + 1 : end]) == names:
            return _taken_off(starter, " ".join(names), command[:end], command[end:], python)
    return None


def _taken_off(starter: Starter, called: str, own: Sequence[str], words: Sequence[str], python: Sequence[str]) -> Found:
    """Take a starter's own options off what it starts.

    `own` is how it is called, `python` what it would start a script with.
    """
    options: dict[str, str] = {}
    # Words of its options, and of what it starts as far as these may be mixed.
    kept: list[str] = []
    mixed: list[str] = []
    at, sure = 0, True
    while sure and at < len(words) and words[at] != "--" and (words[at].startswith("-") or starter.anywhere):
        name, equals, value = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if name not in starter.options and re.fullmatch(r"[A-Za-z]\d+", name):
            # A letter with its value behind it: -n2.
            name, equals, value = name[0], "=", name[1:]
        after = starter.options.get(name, starter.words_after(name)) if words[at].startswith("-") else None
        known = after is not None
        follow = 0 if equals else after or 0
        if starter.anywhere and not known:
            mixed.append(words[at])
        else:
            sure = known
            options[name] = value if equals else " ".join(words[at + 1 : at + 1 + follow])
            kept += [] if _joins(starter, name) else words[at : at + 1 + follow]
        at += 1 + follow
    started = [*mixed, *(words[at + 1 :] if words[at : at + 1] == ["--"] else words[at:])]
    rest = [*mixed, *(words[at:] if sure else _not_joining(starter, words[at:]))]
    joined = (*own, *starter.joins.split(), *kept, *rest) if starter.joins else None
    instead: tuple[str, ...] | None = None
    # A colon is between the programs that one mpirun starts.
    if sure and started and ":" not in started and not starter.alone:
        if starter.takes_script and _MODULE & options.keys():
            started = [*python, "-m", *started]
        elif starter.takes_script and not _PROGRAM & options.keys() and not _PYTHON.fullmatch(started[0]):
            started = [*python, *started]
        inner = find(started)
        instead = inner.instead if inner else (*_variables(starter, options), *started)
    return Found(starter, called, options, instead, joined)


def _not_joining(starter: Starter, words: Sequence[str]) -> list[str]:
    """Return words without options that join nodes, as far as these cannot be the script's."""
    kept: list[str] = []
    at = 0
    while at < len(words) and not words[at].endswith(".py"):
        name, equals, _ = words[at].partition("=")
        name = name.lstrip("-").replace("_", "-")
        if words[at].startswith("--") and _joins(starter, name):
            at += 1 if equals else 1 + starter.options.get(name, 0)
        else:
            kept.append(words[at])
            at += 1
    return [*kept, *words[at:]]


def _joins(starter: Starter, name: str) -> bool:
    """Tell whether an option says, rightly or not, which nodes are joined and where they meet."""
    told = {word.partition("=")[0].lstrip("-").replace("_", "-") for word in starter.joins.split()}
    several = name in starter.several_nodes and name != "config-file"
    return name in told or several or name == "standalone" or name.startswith("rdzv-")


def _variables(starter: Starter, options: Mapping[str, str]) -> list[str]:
    """Return the words that set for a command what the starter would have set besides the places of its ranks."""
    given = [f"{starter.become[name]}={value or 'true'}" for name, value in options.items() if name in starter.become]
    return ["env", *starter.variables, *given] if starter.variables or given else []


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
    for _, words in simple_commands(command[at]) or []:
        begin = program_at(words)
        inner = find(words[begin:])
        if inner is not None:
            return _with(inner, lambda new: _rewritten(command, at, words, begin, new))  # noqa: B023 - called at once
    return None


def simple_commands(text: str) -> list[tuple[str, list[str]]] | None:
    """Split a line of shell into its simple commands, each with what separates it; None where quotes are left open."""
    text = text.replace("\\\n", " ").replace("\n", " ; ")
    # The output of a command in place of a word is no command here.
    for inner in (r"\$\(\([^()]*\)\)", r"\$\([^()]*\)", r"`[^`]*`"):
        text = re.sub(inner, "$_", text)
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    simple: list[tuple[str, list[str]]] = [("", [])]
    for token in tokens:
        if token in _BREAKS:
            simple.append((token, []))
        else:
            simple[-1][1].append(token)
    return simple


def program_at(words: Sequence[str]) -> int:
    """Return where the program of a simple command is, behind keywords and assignments."""
    return next((place for place, word in enumerate(words) if not _before_program(word)), len(words))


def _before_program(word: str) -> bool:
    return word in _KEYWORDS or bool(_ASSIGNMENT.fullmatch(word))


def _rewritten(
    command: Sequence[str], at: int, words: Sequence[str], begin: int, instead: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return a shell's command with other words in it; None where these cannot be found in its text for sure."""
    text, old = command[at], " ".join(words[begin:])
    # Quotes, variables and redirections are gone from words, or would be quoted.
    if re.search(r"[^\w ./=:,@%+-]", old) or text.count(old) != 1:
        return None
    if text.strip() == old:
        return instead
    return (*command[:at], text.replace(old, " ".join(instead)), *command[at + 1 :])
