# SPDX-License-Identifier: Apache-2.0
"""Find start scripts of a job that start ranks by themselves: one copy on each node is right, and no world of its own.

A script is read, and never run: variables have the values that it assigns, or those of the rank's environment. A call
with an unknown condition is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from ...findings.findings import Finding, counted
from ..file import launcher_programs
from ..file.command import TWICE, replacement, scripts, started
from ..file.job import Job
from ..file.start_scripts import code_in
from .rank_loops import Loops

# The variables of a rank under the launcher `direct` besides job_env, whose values are not known beforehand.
_OF_RANKS = frozenset(
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "NNODES", "MASTER_ADDR",
     "MASTER_PORT", "TRAINYARD_JOB_ID", "TRAINYARD_JOB_DIR", "TRAINYARD_ATTEMPT")
)  # fmt: skip
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?^\s*\2$", re.MULTILINE | re.DOTALL)
_ARRAY = re.compile(r"\s*(?:(?:local|declare|readonly)\s+(?:-\w+\s+)?)?(\w+)(\+?)=\((.*)\)\s*", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?[-=]((?:[^{}]|\{[^{}]*\})*))?\})")
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_TESTS = ("[", "[[", "test")
# Upper bounds: lines of one command, and files that are read.
_MAX_LINES, _MAX_FILES = 200, 20


# The place of code that a command gives to a shell by itself.
_IN_COMMAND = "job_command"


@dataclass(frozen=True)
class Call:
    """A launcher that a script calls, or a loop that it `has`: in which file and line, and whether on a condition."""

    file: str
    line: int
    found: launcher_programs.Found
    conditional: bool
    verb: str = "calls"


@dataclass
class _Reader:
    """Reads a script and those of the job's source that it runs."""

    text_of: Callable[[str], str]
    environment: Mapping[str, str]
    calls: list[Call] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    def read(self, file: str, text: str, assigned: dict[str, str]) -> None:
        depth, loops = 0, Loops()
        for line, written in _lines(text):
            array = _ARRAY.fullmatch(written)
            if array:
                _assign(assigned, array[1], array[2], f"${array[1]}" if depth else self.expand(array[3], assigned))
                continue
            before: list[str] = []
            for separator, words in launcher_programs.simple_commands(self.expand(written, assigned)) or []:
                own = words[launcher_programs.program_at(words) :]
                first = next(iter(words), "")
                depth += (first in ("if", "case")) - (first in ("fi", "esac"))
                perhaps = depth > 0 or (separator in ("&&", "||") and "".join(before[:1]) in _TESTS)
                loop = loops.read(line, separator, words, written, perhaps, assigned)
                if loop:
                    self.calls.append(Call(file, loop[0], loop[2], loop[1], "has"))
                if own and own[0] not in _DECLARES:
                    self._command(file, line, own, perhaps, assigned)
                else:
                    for match in filter(None, map(_ASSIGNED.fullmatch, words)):
                        _assign(assigned, match[1], match[2], f"${match[1]}" if perhaps else match[3])
                before = own

    def _command(self, file: str, line: int, words: Sequence[str], conditional: bool, assigned: dict[str, str]) -> None:
        found = launcher_programs.find(words[1:] if words[0] == "eval" else words)
        if found:
            self.calls.append(Call(file, line, found, conditional))
            return
        program = PurePosixPath(words[0]).name
        sourced = program in ("source", ".")
        run = [*scripts(words[1:])[:1]] if sourced or program in launcher_programs.SHELLS else scripts(words[:1])
        if run and not conditional:
            self.follow(run[0], assigned if sourced else dict(assigned))

    def follow(self, name: str, assigned: dict[str, str]) -> None:
        """Read another script of the source; one that does not come with the job is not known."""
        name = name.removeprefix("./")
        if name not in self.files and len(self.files) < _MAX_FILES and not name.endswith(".py"):
            self.files.add(name)
            self.read(name, self.text_of(name), assigned)

    def expand(self, text: str, assigned: Mapping[str, str]) -> str:
        """Put values for variables whose values are known."""

        def value(match: re.Match[str]) -> str:
            name, default = match[1] or match[2], match[3]
            if name in assigned:
                return assigned[name]
            if name in self.environment:
                return self.environment[name]
            if default is None or name in _OF_RANKS or name.isdigit():
                return match[0] if default is None else f"${{{name}}}"
            return self.expand(default, assigned)

        return _VARIABLE.sub(value, text)


def _assign(assigned: dict[str, str], name: str, more: str, value: str) -> None:
    assigned[name] = f"{assigned.get(name, '')} {value}".strip() if more else value


def _lines(text: str) -> list[tuple[int, str]]:
    """Return each command's lines as one, without comments and here-documents, with the number of its first line."""
    text = _HEREDOC.sub(lambda match: "\n" * match[0].count("\n"), text)
    made: list[tuple[int, str]] = []
    waiting: list[str] = []
    begun = 1
    for number, line in enumerate(text.split("\n"), start=1):
        begun = begun if waiting else number
        bare = _COMMENT.sub("", line).rstrip()
        waiting.append(bare[:-1] if bare.endswith("\\") else bare)
        whole = " ".join(waiting)
        is_open = re.match(r"[\w\s-]*\w\+?=\(", whole) and whole.count("(") > whole.count(")")
        is_open = is_open or bare.endswith("\\") or launcher_programs.simple_commands(whole) is None
        if is_open and len(waiting) < _MAX_LINES:
            continue
        made.append((begun, whole))
        waiting = []
    return [*made, (begun, " ".join(waiting))] if waiting else made


def calls(command: Sequence[str], text_of: Callable[[str], str], environment: Mapping[str, str]) -> list[Call]:
    """Return the launchers that the scripts of a command call. `text_of` gives the text of a script of the source."""
    reader = _Reader(text_of, environment)
    for code in code_in(command):
        reader.read(_IN_COMMAND, code, {})
    for name in scripts(command):
        reader.follow(name, {})
    # Launchers in the command itself are found when the job file is read.
    return [call for call in reader.calls if call.file != _IN_COMMAND or call.verb == "has"]


def with_one_copy(job: Job, text_of: Callable[[str], str]) -> Job:
    """Return the job with one copy on each node where its command or start script clearly starts ranks by itself."""
    if job.launcher != "direct" or job.ranks_per_node not in (None, 1) or job.one_copy:
        return job
    found = calls(job.command, text_of, _environment(job))
    if launcher_programs.find(job.command) or any(not call.conditional for call in found):
        return replace(job, ranks_per_node=1, one_copy=started(job.command))
    return job


def one_copy_text(name: str) -> str:
    """Return the note of a plan with one copy of the start script `name` on each node."""
    return f"{name} starts its own ranks: one copy on each node, all devices"


def _environment(job: Job) -> dict[str, str]:
    return {**dict.fromkeys(job.secret_env, "$SECRET"), **job.env}


def findings(job: Job, text_of: Callable[[str], str], nodes: int, per_node: int) -> list[Finding]:
    """Find start scripts that start ranks beside the job's launcher, or on each node without the others."""
    # MindSpore's scheduler is one more copy.
    if nodes * per_node + (job.launcher == "mindspore") == 1:
        return []
    found: dict[tuple[str, str], Finding] = {}
    for call in calls(job.command, text_of, _environment(job)):
        finding = None if call.conditional else _finding(job, call, nodes, per_node)
        if finding:
            found.setdefault((call.file, call.found.called), finding)
    return list(found.values())


def _finding(job: Job, call: Call, nodes: int, per_node: int) -> Finding | None:
    inner, where = call.found, f"{call.file}, line {call.line}, {call.verb} {call.found.called}"
    options = inner.program.nodes_options
    alone = bool(options) and nodes > 1 and not inner.joins_nodes() and "PET_NNODES" not in job.env
    settings = [] if job.ranks_per_node in (None, 1) else ["job_ranks_per_node: node"]
    if job.launcher != "direct":
        found = f"{where} inside job_launcher: {job.launcher}, which starts the ranks itself"
        settings.insert(0, "job_launcher: direct")
    elif per_node > 1:
        found = f"{where} in each of the {counted(per_node, 'process', 'processes')} of a node"
    elif alone:
        found = f"{where} for one node, and runs on {counted(nodes, 'node')}"
        settings = []
    elif nodes > 1 and not options:
        found = f"{where}, which starts ranks on other hosts by itself, and runs on {counted(nodes, 'node')}"
    else:
        return None
    if nodes > 1 and not options:
        settings.append("job_nodes: 1")
    keep = []
    if alone:
        keep = ["count its ranks from $NODE_RANK" if call.verb == "has" else f"give it --{options[0]} there"]
    keep += [f"set {', '.join(settings)}"] if settings else []
    return Finding("job_command", found, TWICE, replacement(inner, " and ".join(keep)))
