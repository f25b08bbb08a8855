# SPDX-License-Identifier: Apache-2.0
"""Warn of nodes that cannot compile a job's extensions. No finding: a job may not use them, or have them in a cache."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from ...base.findings import Warned
from ..file.job import Job
from ..file.job_command import scripts
from ..placement.placement import Member

# The tools that each compiling package needs.
_NEEDS = {
    "DeepSpeed": ("Python.h", "c++", "ninja"),
    "torch.utils.cpp_extension": ("Python.h", "c++", "ninja"),
    "Triton": ("Python.h", "c++"),
    "torch.compile": ("Python.h", "c++"),
}
_NAMES = {"Python.h": "the headers of the job's Python", "c++": "a compiler for C++", "ninja": "ninja"}
# A script uses one of these if it imports the package, or contains the word.
_PACKAGES = {"deepspeed": "DeepSpeed", "triton": "Triton"}
_WORDS = {"cpp_extension": "torch.utils.cpp_extension", "torch.compile(": "torch.compile"}
_IMPORT = re.compile(r"from (\.*)(\w[\w.]*|) *import \(?([\w, ]+)|import (\w[\w., ]*)")
# Upper bound for the part of a line that is read, in characters: lines of data may be long.
_MAX_LINE = 500


def warnings(job: Job, members: Sequence[Member], texts: Mapping[str, str]) -> list[Warned]:
    """Return a warning for each host without the tools that `texts` of job_source need; not with CC or CXX."""
    place_of = {} if {"CC", "CXX"} & set(job.env) else _compiling(job, texts)
    needed = {tool for package in place_of for tool in _NEEDS[package]}
    warned = []
    for member in members:
        if member.facts and "build_tools" in member.facts and not {"CC", "CXX"} & set(member.env):
            missing = sorted(needed.difference(member.facts["build_tools"]))
            warned += [_warning(member.host, missing, place_of, needed)] if missing else []
    return warned


def _warning(host: str, missing: Sequence[str], place_of: Mapping[str, str], needed: set[str]) -> Warned:
    packages = [package for package in place_of if set(missing) & set(_NEEDS[package])]
    actions = ["set python_runtime_compiler: true"] if set(missing) - {"ninja"} else []
    if "ninja" in missing:
        actions.append("add ninja to the environment's packages (pytorch_extra_packages or its like)")
    verb = "compiles" if len(packages) == 1 else "compile"
    places = " and ".join(f"{package} ({place_of[package]})" for package in packages)
    names = [name for tool, name in _NAMES.items() if tool in needed]
    found = f"no {', '.join(missing)} for {places}, which {verb} extensions while the job runs"
    expected = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return Warned("compiler", found, expected, ", ".join([*actions, "and run site.yml"]), host=host)


def _compiling(job: Job, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the compiling packages of a job with their place: its script, or what that imports of job_source."""
    found: dict[str, str] = {}
    reached = [name for name in (word.removeprefix("./") for word in scripts(job.command)) if name in texts]
    root = PurePosixPath(reached[0]).parent if reached else PurePosixPath()
    # It grows while it is gone through.
    for name in reached:
        lines = [line.strip()[:_MAX_LINE].partition("#")[0] for line in texts[name].splitlines()]
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
