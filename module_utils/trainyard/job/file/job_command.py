# SPDX-License-Identifier: Apache-2.0
"""Check the command of a job: a list of words that one rank runs, and that no shell reads."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from ...base.findings import Finding
from ..run.measure.worlds import ONE_NODE
from . import launcher_programs

HOW = "docs/job-file.md, A launcher of your own"
TWICE = "one start of the ranks: with two, each rank is a world of its own and trains alone"
# A word that YAML reads as these very characters, and as a text (or as a whole number, which comes back as it was).
_PLAIN = re.compile(r"(?:[A-Za-z_/][\w./=+@%-]*|\./[\w./=+@%-]*|--?[A-Za-z][\w./=+@%-]*|0|[1-9]\d*)")
_NO_TEXT = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
# Expansions that only a shell makes. ${data.root} of configurations and $(NAME) of Kubernetes are not among them.
_EXPANSION = re.compile(r"\$(?:[A-Z_][A-Z0-9_]*|\{[A-Z_][A-Z0-9_]*\}|\([a-z][^)]*\)?)|`[a-z][^`]*`")
_OPERATORS = frozenset(("&&", "||", ">>", "2>&1", "&>", "2>"))
# Operators that may also be the value of an option.
_PERHAPS = frozenset((";", "|", ">", "<", "&"))


def as_list(words: Sequence[str]) -> str:
    """Write words as a list of a job file: [python, train.py, --lr=1]."""
    return f"[{', '.join(_word(word) for word in words)}]"


def _word(word: str) -> str:
    return word if _PLAIN.fullmatch(word) and word.lower() not in _NO_TEXT else _quoted_word(word)


def _quoted_word(word: str) -> str:
    if '"' in word and word.isprintable() and "'" not in word:
        return f"'{word}'"
    signs = (_ESCAPED.get(sign) or (sign if sign.isprintable() else f"\\U{ord(sign):08x}") for sign in word)
    return f'"{"".join(signs)}"'


def scripts(command: Sequence[str]) -> list[str]:
    """Return the words of a command that name a script; a line of shell may end like one."""
    return [word for word in command if word.endswith((".py", ".sh")) and not re.search(r"\s", word)]


def started(command: Sequence[str]) -> str:
    """Return the name by which messages speak of a command: its script, or its program."""
    return (scripts(command) or command)[0]


def module_of(command: Sequence[str], source_files: Sequence[str]) -> str:
    """Return the package whose module `python -m` runs, without what comes with the job's source; "" for none."""
    python, *rest = command
    named = [after for word, after in zip(rest, rest[1:]) if word == "-m"][:1]
    before = rest[: rest.index("-m")] if named else []
    if not named or not re.fullmatch(r"(?:\S*/)?python[\d.]*", python) or not all(word[:1] == "-" for word in before):
        return ""
    package = named[0].partition(".")[0]
    own = any(file == f"{package}.py" or file.startswith(f"{package}/") for file in source_files)
    return "" if own or not package.isidentifier() else package


def leaves_source(command: Sequence[str]) -> bool:
    """Tell whether a line of shell in the command goes to another folder: paths count from there then."""
    return any(before == "-c" and re.search(r"\bcd\b", code) for before, code in zip(command, command[1:]))


def findings(
    command: Sequence[str], launcher: str, ranks_per_node: int | None, nodes: object, env: Mapping[str, str]
) -> list[Finding]:
    """Find what would not run as it reads: text for a shell, and a launcher inside the job's own.

    `ranks_per_node` and `nodes` are job_ranks_per_node (None: auto) and job_nodes as given, `env` is job_env.
    """
    found, instead = _shell_in_words(command)
    nested = _launchers(instead or command, launcher, ranks_per_node, str(nodes).strip() == "1", env)
    if nested or instead is None:
        return nested
    expected = "the words of one program, each an item of its own: no shell reads job_command"
    return [Finding("job_command", found, expected, f"write {as_variables(instead)}")]


def as_variables(words: Sequence[str]) -> str:
    """Write words as lines of a job file: variables before the program go to job_env."""
    words, variables = _assigned(words)
    return f"job_command: {as_list(words)}" + (f" and job_env: {variables}" if variables else "")


def of_text(text: str) -> tuple[str, str]:
    """Write a command in one text as the list for a job file, and the variables before its program; "" for none."""
    if not text.strip():
        return "", ""
    _, instead = _shell_in_words([text])
    words, variables = _assigned(instead or [text.strip()])
    return as_list(words), variables


def _assigned(words: Sequence[str]) -> tuple[Sequence[str], str]:
    """Split variables off that a shell would set for a program: LR=0.1 python train.py."""
    first = next((at for at, word in enumerate(words) if not _ASSIGNMENT.fullmatch(word)), len(words))
    pairs = (word.partition("=") for word in words[:first])
    variables = ", ".join(f"{name}: {_quoted_word(value)}" for name, _, value in pairs)
    return words[first:] or ["PROGRAM"], f"{{{variables}}}" if variables else ""


def _lines(text: str) -> list[str]:
    """Return the commands of a text, one a line, without comments; a line that ends with a backslash goes on."""
    lines = (line.strip() for line in re.sub(r"\\\n", " ", text).splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _shell_in_words(command: Sequence[str]) -> tuple[str, Sequence[str] | None]:
    """Return what only a shell would understand, and the command as it should be; None where there is nothing."""
    words = list(command)
    lines = _lines(words[0])
    if len(lines) > 1:
        # -e ends the shell with the first command that fails.
        return f"{len(lines)} lines in one item, {words[0]!r}"[:300], ["bash", "-ec", "\n".join(lines), *words[1:]]
    if _ASSIGNMENT.fullmatch(words[0]) and not re.search(r"\s", words[0]):
        return f"{words[0]} before the program, which only a shell sets", words
    if lines and words[0] != lines[0] and re.search(r"\s", words[0]):
        words[0] = lines[0]
    if re.search(r"\s", words[0]):
        try:
            parts = shlex.split(words[0])
        except ValueError:
            parts = words[0].split()
        text = shlex.join(words[1:])
        if _needs_shell(parts):
            return f"a line of shell in one item, {words[0]!r}", ["bash", "-c", f"{words[0]} {text}".strip()]
        return f"several words in one item, {words[0]!r}", _split([*parts, *words[1:]])
    for at, word in enumerate(words):
        # An item that follows -c is code, of a shell or of Python; one that follows an option may be its value.
        before = words[at - 1] if at else ""
        if re.fullmatch(r"-[A-Za-z]*c", before):
            continue
        if word in _OPERATORS or (word in _PERHAPS and not before.startswith("-")):
            return f"{word}, which only a shell understands", ["bash", "-c", _as_text(words)]
        expansion = _EXPANSION.search(word)
        if expansion:
            return f"{word!r}, where only a shell puts a value for {expansion[0]}", ["bash", "-c", _as_text(words)]
        if _two_words(word, before):
            return f"several words in one item, {word!r}", _split(words)
    return "", None


def _two_words(word: str, before: str) -> bool:
    """Tell whether an item is an option and its value, which no program takes for that."""
    is_value = before.startswith("-") and "=" not in before
    return bool(re.match(r"--[A-Za-z][\w-]*\s+\S", word)) and not is_value


def _split(words: Sequence[str]) -> list[str]:
    split: list[str] = []
    for at, word in enumerate(words):
        split += word.split(None, 1) if _two_words(word, words[at - 1] if at else "") else [word]
    return split


def _needs_shell(words: Sequence[str]) -> bool:
    return any(word in _OPERATORS | _PERHAPS or word.endswith(";") or _EXPANSION.search(word) for word in words)


def _as_text(words: Sequence[str]) -> str:
    """Write words as a line of shell, in which operators and variables are what they were meant to be."""
    return " ".join(word if word in _OPERATORS | _PERHAPS else _quoted(word) for word in words)


def _quoted(word: str) -> str:
    return '"' + re.sub(r'([\\"])', r"\\\1", word) + '"' if _EXPANSION.search(word) else shlex.quote(word)


def _launchers(
    command: Sequence[str], launcher: str, ranks_per_node: int | None, one_node: bool, env: Mapping[str, str]
) -> list[Finding]:
    """Find a program that starts ranks beside the job's launcher; under `direct`, one per node is right, and auto."""
    inner = launcher_programs.find(command)
    if inner is None:
        return []
    called, options = inner.called, inner.program.nodes_options
    if called == "sbatch":
        found, expected = "sbatch, which puts a job into Slurm's queue and ends at once", "the program of the ranks"
        action = "write what the file of sbatch runs in job_command, with job_scheduler: slurm"
        return [Finding("job_command", found, expected, action)]
    several = ranks_per_node not in (None, 1)
    keep = ["job_ranks_per_node: node"] if several else []
    if launcher != "direct":
        found = f"{called} inside job_launcher: {launcher}, which starts the ranks itself"
        keep.insert(0, "job_launcher: direct")
        keep += [] if options else ["job_nodes: 1"]
    elif several:
        found = f"{called} in each process of job_launcher: direct, and so several on a node"
        keep += [] if options else ["job_nodes: 1"]
    elif not one_node and not options:
        found = f"{called} on each node of job_launcher: direct, and each would start ranks on all hosts"
        keep = ["job_nodes: 1"]
    elif not one_node and not inner.joins_nodes() and not {*ONE_NODE} & env.keys():
        found = f"{called} without --{options[0]} on each node of job_launcher: direct"
        alone = "or job_env: {NNODES: 1} if each node is to train alone"
        keep = [f"--{options[0]} in its options, or job_nodes: 1; {alone}"]
    else:
        return []
    return [Finding("job_command", found, TWICE, replacement(inner, f"set {', '.join(keep)}"))]


def replacement(inner: launcher_programs.Found, keep: str) -> str:
    """Return the action of a finding about a launcher: use the job's own, or keep this one in the way of `keep`."""
    instead = inner.program.launcher
    if not instead:
        return f"{keep} ({HOW})"
    return (
        f"write the script alone in job_command, such as [python, train.py], with job_launcher: {instead} and "
        f"job_ranks_per_node; to keep {inner.called}, {keep} ({HOW})"
    )
