# SPDX-License-Identifier: Apache-2.0
"""Warn of nodes that cannot compile the extensions which a job compiles while it runs.

It is only a warning: scripts have such code in branches that a job does not take, and what is compiled may be cached.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ...findings.findings import Warned
from ..file.command import scripts
from ..file.job import Job
from ..placement.placement import Member

# By what compiles: what it needs.
_NEEDS = {
    "DeepSpeed": ("Python.h", "c++", "ninja"),
    "torch.utils.cpp_extension": ("Python.h", "c++", "ninja"),
    "Triton": ("Python.h", "c++"),
    "torch.compile": ("Python.h", "c++"),
}
_NAMES = {"Python.h": "the headers of the job's Python", "c++": "a compiler for C++", "ninja": "ninja"}
# What of a script's lines shows that it has it: a package that is imported, or a word.
_PACKAGES = {"deepspeed": "DeepSpeed", "triton": "Triton"}
_WORDS = {"cpp_extension": "torch.utils.cpp_extension", "torch.compile(": "torch.compile"}
_IMPORT = re.compile(r"from (\.*)(\w[\w.]*|) *import \(?([\w, ]+)|import (\w[\w., ]*)")
# Upper bound for a line that is looked at, in characters: lines of data may be long.
_MOST_LINE = 500


def warnings(job: Job, members: Sequence[Member], texts: Mapping[str, str]) -> list[Warned]:
    """Return a warning for each host that lacks what the job compiles with; `texts` are the scripts of job_source.

    Where the job names a compiler of its own (CC, CXX), nothing is known of it.
    """
    found = _compiles(job, texts)
    why = {what: place for what, place in found.items() if not {"CC", "CXX"} & set(job.env)}
    needed = {tool for what in why for tool in _NEEDS[what]}
    return [
        _warning(member.host, lacking, why, needed)
        for member in members
        if member.facts and "build_tools" in member.facts and not {"CC", "CXX"} & set(member.env)
        for lacking in [sorted(needed.difference(member.facts["build_tools"]))]
        if lacking
    ]


def _warning(host: str, lacking: Sequence[str], why: Mapping[str, str], needed: set[str]) -> Warned:
    those = [what for what in why if set(lacking) & set(_NEEDS[what])]
    actions = ["set python_runtime_compiler: true"] if set(lacking) - {"ninja"} else []
    if "ninja" in lacking:
        actions.append("add ninja to the environment's packages (pytorch_extra_packages or its like)")
    verb = "compiles" if len(those) == 1 else "compile"
    places = " and ".join(f"{what} ({why[what]})" for what in those)
    names = [name for tool, name in _NAMES.items() if tool in needed]
    return Warned(
        "compiler",
        f"no {', '.join(lacking)} for {places}, which {verb} extensions while the job runs",
        " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))),
        ", ".join([*actions, "and run site.yml"]),
        host=host,
    )


def _compiles(job: Job, texts: Mapping[str, str]) -> dict[str, str]:
    """Return what compiles in a job, and where that is seen: in its script, or what that imports of job_source."""
    found: dict[str, str] = {}
    reached = [name for name in (word.removeprefix("./") for word in scripts(job.command)) if name in texts]
    root = PurePosixPath(reached[0]).parent if reached else PurePosixPath()
    # It grows while it is gone through.
    for name in reached:
        lines = [line.strip()[:_MOST_LINE].partition("#")[0] for line in texts[name].splitlines()]
        for word, what in _WORDS.items():
            if any(word in line for line in lines):
                found.setdefault(what, name)
        for level, module in dict.fromkeys(each for line in lines for each in _imported(line)):
            if not level and module.partition(".")[0] in _PACKAGES:
                found.setdefault(_PACKAGES[module.partition(".")[0]], name)
            folder = [PurePosixPath(name), *PurePosixPath(name).parents][: level + 1][-1] if level else root
            path = folder.joinpath(*module.split("."))
            files = [file for file in (f"{path}.py", f"{path}/__init__.py") if file in texts]
            reached += [file for file in files if file not in reached]
    if any(word.startswith("--deepspeed") for word in job.command):
        found.setdefault("DeepSpeed", "job_command")
    if job.env.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        found.setdefault("DeepSpeed", "job_env")
    if job.env.get("ACCELERATE_DYNAMO_BACKEND", "NO").upper() != "NO":
        found.setdefault("torch.compile", "job_env")
    return found


def _imported(line: str) -> list[tuple[int, str]]:
    """Return what a line of a script may import: the level (dots before it), and the module or a name in it."""
    match = _IMPORT.match(line)
    if not match:
        return []
    dots, module, names, modules = match.groups("")
    words = [each.split()[0] for each in f"{names},{modules}".split(",") if each.split()]
    of = [(len(dots), f"{module}.{word}".strip(".")) for word in words] if names else [(0, word) for word in words]
    return [*of, *([(len(dots), module)] if module else [])]
