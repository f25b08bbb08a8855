# SPDX-License-Identifier: Apache-2.0
"""nccl-tests: who builds them from what, and what stops a build.

A state is what library/nccl_tests_state returns of a node, with the `gpus` that library/nvidia_host found there. One
node builds for all nodes with the same operating system, architecture and CUDA, so these must be alike in all else that
goes into the build. Sizes in MB (10^6 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from ..software.builds import Record, State, place_findings, share_out
from . import gencode
from .hardware import describe_gpus

# The fields of a record, and their names in messages.
PARTS = {"cuda": "CUDA", "nccl": "NCCL", "mpi": "Open MPI"}
_ROLES = {"cuda": "cuda_toolkit", "nccl": "nccl", "mpi": "openmpi"}
_HOMES = {"MPI_HOME": "mpi", "CUDA_HOME": "cuda", "NCCL_HOME": "nccl"}

_RESERVED = re.compile(r"(MPI|MPI_HOME|CUDA_HOME|NCCL_HOME|NAME_SUFFIX|BUILDDIR|NVCC_GENCODE)=")
_NVCC = re.compile(r"release (\d+\.\d+)(?:, V(\d+\.\d+\.\d+))?")


def input_findings(settings: Mapping[str, Any], from_git: bool) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the role nccl_tests, by their names without the role's."""
    repository, url = settings["repository"], settings["url"]
    if from_git and not re.fullmatch(r"[0-9a-f]{40}", settings["commit"]):
        yield _input(settings, "commit", "a full commit (40 hexadecimal digits), as `git ls-remote` shows it")
    if from_git and not re.match(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", repository):
        yield _input(settings, "repository", "a git address such as https://git.example.org/nccl-tests.git")
    if any(re.match(r"[a-z]+://[^/@]*:[^/@]*@", each) for each in (repository, url)):
        expected = "none, as logs would show it"
        action = "remove it, and use git's credential store or ~/.netrc on the building node"
        yield Finding("input of nccl_tests", "nccl_tests_repository or nccl_tests_url has a password", expected, action)
    if not from_git and not re.fullmatch(r"[0-9a-f]{64}", settings["sha256"]):
        yield _input(settings, "sha256", "the sha256 of the archive (64 hexadecimal digits)")
    if not from_git and not settings["local_file"] and not re.match(r"(https?|file)://", url):
        yield _input(settings, "url", "an address that begins with https://, or nccl_tests_local_file")
    flags = r"(-gencode[= ]arch=compute_\d{2,3}[af]?,code=\S+ *)+"
    if settings["gencode"] != "auto" and not re.fullmatch(flags, settings["gencode"]):
        yield _input(settings, "gencode", "auto, or flags such as -gencode=arch=compute_90,code=sm_90")
    wrong = [each for each in settings["make_options"] if _RESERVED.match(each) or not re.match(r"[A-Z_]+=", each)]
    if wrong:
        expected = "variables of make such as DEBUG=1"
        action = "use this role's variables for homes, flags of nvcc and names"
        yield Finding("input of nccl_tests", f"nccl_tests_make_options has {', '.join(wrong)}", expected, action)
    if not settings["programs"]:
        yield _input(settings, "programs", "names such as all_reduce")
    prefix = settings["prefix"]
    shared = ("/usr/local", "/usr/bin", "/usr/lib", settings["software"])
    if not re.fullmatch(r"/([^/]+/)+[^/]+", prefix) or prefix in shared:
        yield _input(settings, "prefix", "a folder of its own such as /opt/trainyard/nccl-tests")


def _input(settings: Mapping[str, Any], name: str, expected: str) -> Finding:
    return Finding("input of nccl_tests", f"nccl_tests_{name} is {settings[name]!r}", expected, "correct it")


def cuda_version(text: str) -> str:
    """Return 13.0.88 from what `nvcc --version` says; "" when that is not nvcc's answer."""
    match = _NVCC.search(text)
    return (match[2] or match[1]) if match else ""


def header_version(text: str, names: Sequence[str]) -> str:
    """Return the version that a header #defines under these names, joined by dots; "" where one is missing."""
    numbers = [re.search(rf"^\s*#\s*define\s+{name}\s+(\d+)\b", text, re.M) for name in names]
    return ".".join(match[1] for match in numbers if match) if all(numbers) else ""


def _part_findings(state: State, name: str) -> list[Finding]:
    part, called = state[name], PARTS[name]
    action = f"run the role {_ROLES[name]}, or set nccl_tests_{name}_home"
    if not part["home"]:
        found = f"no {part['marker']} in {', '.join(part['searched'])}"
    elif not part["version"]:
        found = f"{part['home']}/{part['marker']}, which does not tell its version"
    elif not part["library"]:
        found = f"no {part['library_name']} in {', '.join(part['folders']) or part['home']}"
    else:
        return []
    return [Finding(called, found, f"{called} to build with", action, host=state["host"])]


def _gencode(members: Sequence[State], given: str) -> tuple[str, list[Finding]]:
    """Return the flags for all GPUs of the nodes that one build serves, and what is wrong with them."""
    cuda = members[0]["cuda"]["version"]
    findings = []
    if given != "auto":
        refused = [text for number in gencode.architectures(given) if (text := gencode.refusal(number, cuda))]
        if refused:
            findings = [
                Finding(
                    "NVCC_GENCODE",
                    f"{given} with CUDA {cuda}",
                    "; ".join(refused),
                    "correct nccl_tests_gencode, or give these nodes another CUDA",
                    host=state["host"],
                )
                for state in members
            ]
        return given, findings
    known = set()
    for state in members:
        for generation in sorted({str(gpu["generation"]) for gpu in state["gpus"]}):
            numbers = gencode.ARCHITECTURES.get(generation)
            if numbers is None:
                found = describe_gpus([gpu for gpu in state["gpus"] if gpu["generation"] == generation])
                expected = "GPUs whose compute capability is known"
                action = "set nccl_tests_gencode, such as -gencode=arch=compute_90,code=sm_90"
            else:
                known.add(generation)
                refused = [text for number in numbers if (text := gencode.refusal(number, cuda))]
                if len(refused) < len(numbers):
                    continue
                found, expected = f"{generation.capitalize()} with CUDA {cuda}", "; ".join(refused)
                action = "give the node a CUDA for its GPUs (variables of the role cuda_toolkit)"
            findings.append(Finding("GPUs", found, expected, action, host=state["host"]))
    if not findings and not known:
        findings = [
            Finding(
                "GPUs",
                "none on any node that this build is for",
                "a GPU to compile for",
                "set nccl_tests_gencode, such as -gencode=arch=compute_90,code=sm_90",
                host=state["host"],
            )
            for state in members
        ]
    return gencode.flags(known), findings


def _record(state: State, wanted: Mapping[str, Any], flags: str) -> Record:
    homes = [f"{variable}={state[name]['home']}" for variable, name in _HOMES.items()]
    suffix = [f"NAME_SUFFIX={wanted['suffix']}"] if wanted["suffix"] else []
    return {
        "source": wanted["source"],
        "platform": state["platform"],
        **{called: state[name]["version"] for name, called in PARTS.items()},
        "make": ["MPI=1", *homes, *suffix, f"NVCC_GENCODE={flags}", *wanted["options"]],
    }


def _kept_flags(members: Sequence[State], wanted: Mapping[str, Any], flags: str) -> str:
    """Return the flags of an installed build that serves more GPUs than needed and is otherwise as requested.

    Without this, a run on some nodes of a mixed cluster (--limit) would build separate programs for them.
    """
    needed = set(gencode.architectures(flags))
    for state in members:
        for option in (state["record"] or {}).get("make", []):
            old = str(option).partition("NVCC_GENCODE=")[2]
            if needed <= set(gencode.architectures(old)) and state["record"] == _record(state, wanted, old):
                return old
    return flags


def _reason(old: Mapping[str, Any] | None, new: Record) -> str:
    """Say what a record has that the old one has not: `CUDA 13.1.1 instead of 13.0.88`."""
    if not old:
        return "new"
    changed = [
        f"{key} {new[key]} instead of {old.get(key)}" for key in new if key != "make" and new[key] != old.get(key)
    ]
    options = [option for option in new["make"] if option not in old.get("make", [])]
    return ", ".join([*changed, *options]) or "without options that it was built with"


def _alike(members: Sequence[State], kind: str) -> list[Finding]:
    """Find nodes whose NCCL or Open MPI is not that of the first node, which one build for all of them needs."""
    first = members[0]

    def has(state: State, name: str) -> tuple[str, str]:
        return str(state[name]["version"]), str(state[name]["home"])

    return [
        Finding(
            PARTS[name],
            " in ".join(has(state, name)),
            f"{' in '.join(has(first, name))}, as on {first['host']}: one node builds for all with {kind}",
            f"run the role {_ROLES[name]} on all of them, or set nccl_tests_{name}_home",
            host=state["host"],
        )
        for state in members
        for name in PARTS
        if has(state, name) != has(first, name)
    ]


def plan_builds(states: Sequence[State], wanted: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for each node `none`, `build` or `copy`, with its record and the reason; and find what stops that.

    wanted has source, prefix, suffix, options (of make), gencode (`auto` or flags), min_free_mb, and installs: whether
    missing tools may be installed.
    """
    findings = [finding for state in states for name in PARTS for finding in _part_findings(state, name)]
    if findings:
        return {}, findings
    groups: dict[str, list[State]] = {}
    for state in states:
        groups.setdefault(f"{state['platform']} and CUDA {state['cuda']['version']}", []).append(state)
    plan: dict[str, dict[str, Any]] = {}
    for kind, members in groups.items():
        findings += _alike(members, kind)
        flags, wrong = _gencode(members, wanted["gencode"])
        findings += wrong
        if wanted["gencode"] == "auto" and not wrong:
            flags = _kept_flags(members, wanted, flags)
        records = [(state, _record(state, wanted, flags)) for state in members]
        for state, mine in records:
            findings += place_findings(state, mine, wanted["prefix"], wanted["min_free_mb"], "nccl_tests")
        for host, node in share_out(records).items():
            state = next(state for state in members if state["host"] == host)
            folders = [folder for name in PARTS for folder in state[name]["folders"]]
            plan[host] = {**node, "library_path": ":".join(folders), "reason": _reason(state["record"], node["record"])}
            if node["action"] == "build" and state["missing"] and not wanted["installs"]:
                found = f"no {', '.join(state['missing'])}"
                expected = f"the node that builds for all with {kind} has them"
                action = "install them there, or let the role do it (trainyard_manage_system)"
                findings.append(Finding("tools of the build", found, expected, action, host=host))
    return plan, findings
