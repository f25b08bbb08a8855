# SPDX-License-Identifier: Apache-2.0
"""nccl-tests: which node builds them from what, and what stops a build.

A state is what library/nccl_tests returns of a node, with the `gpus` that library/nvidia_driver found there. One
node builds for all nodes with the same operating system, architecture and CUDA, so these must be alike in all else that
goes into the build. Sizes in MB (10^6 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..base.findings import Finding
from ..software.builds import Record, State, place_findings, share_out
from ..software.requirements import is_sha256, setting_finding
from . import gencode
from .nvidia_hardware import describe_gpus

# The fields of a record, and their names in messages.
PARTS = {"cuda": "CUDA", "nccl": "NCCL", "mpi": "Open MPI"}
_ROLES = {"cuda": "cuda_toolkit", "nccl": "nccl", "mpi": "openmpi"}
_HOMES = {"MPI_HOME": "mpi", "CUDA_HOME": "cuda", "NCCL_HOME": "nccl"}

_RESERVED = re.compile(r"(MPI|MPI_HOME|CUDA_HOME|NCCL_HOME|NAME_SUFFIX|BUILDDIR|NVCC_GENCODE)=")
_SET_GENCODE = "set nccl_tests_gencode, such as -gencode=arch=compute_90,code=sm_90"


def input_findings(settings: Mapping[str, Any], from_git: bool) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the role nccl_tests, by their names without the role's."""
    wrong = partial(setting_finding, "nccl_tests", settings)
    repository, url = settings["repository"], settings["url"]
    if from_git and not re.fullmatch(r"[0-9a-f]{40}", settings["commit"]):
        yield wrong("commit", "a full commit (40 hexadecimal digits), as `git ls-remote` shows it")
    if from_git and not re.match(r"(https?|ssh|git|file)://|[\w.-]+@[\w.-]+:", repository):
        yield wrong("repository", "a git address such as https://git.example.org/nccl-tests.git")
    if any(re.match(r"[a-z]+://[^/@]*:[^/@]*@", each) for each in (repository, url)):
        expected = "none, as logs would show it"
        action = "remove it, and use git's credential store or ~/.netrc on the building node"
        yield Finding("input of nccl_tests", "nccl_tests_repository or nccl_tests_url has a password", expected, action)
    if not from_git and not is_sha256(settings["sha256"]):
        yield wrong("sha256", "the sha256 of the archive (64 hexadecimal digits)")
    if not from_git and not settings["local_file"] and not re.match(r"(https?|file)://", url):
        yield wrong("url", "an address that begins with https://, or nccl_tests_local_file")
    flags = r"(-gencode[= ]arch=compute_\d{2,3}[af]?,code=\S+ *)+"
    if settings["gencode"] != "auto" and not re.fullmatch(flags, settings["gencode"]):
        yield wrong("gencode", "auto, or flags such as -gencode=arch=compute_90,code=sm_90")
    options = [each for each in settings["make_options"] if _RESERVED.match(each) or not re.match(r"[A-Z_]+=", each)]
    if options:
        expected = "variables of make such as DEBUG=1"
        action = "use this role's variables for homes, flags of nvcc and names"
        yield Finding("input of nccl_tests", f"nccl_tests_make_options has {', '.join(options)}", expected, action)
    if not settings["programs"]:
        yield wrong("programs", "names such as all_reduce")
    prefix = settings["prefix"]
    shared = ("/usr/local", "/usr/bin", "/usr/lib", settings["software"])
    if not re.fullmatch(r"/([^/]+/)+[^/]+", prefix) or prefix in shared:
        yield wrong("prefix", "a folder of its own such as /opt/trainyard/nccl-tests")


def header_version(text: str, names: Sequence[str]) -> str:
    """Return the version that a header #defines under these names, joined by dots; "" where one is missing."""
    numbers = [re.search(rf"^\s*#\s*define\s+{name}\s+(\d+)\b", text, re.M) for name in names]
    return ".".join(match[1] for match in numbers if match) if all(numbers) else ""


def _part_findings(state: State, name: str) -> list[Finding]:
    part, title = state[name], PARTS[name]
    action = f"run the role {_ROLES[name]}, or set nccl_tests_{name}_home"
    if not part["home"]:
        found = f"no {part['marker']} in {', '.join(part['searched'])}"
    elif not part["version"]:
        found = f"{part['home']}/{part['marker']}, which has no version"
    elif not part["library"]:
        found = f"no {part['library_name']} in {', '.join(part['folders']) or part['home']}"
    else:
        return []
    return [Finding(title, found, f"{title} to build with", action, host=state["host"])]


def _exchangeable(state: State) -> list[Finding]:
    """Return the finding on the CUDA of a node that builds, if others than root can exchange its compiler."""
    place = state["cuda"].get("exchangeable")
    if not place:
        return []
    expected = "a CUDA that only root can change, as root compiles with it"
    action = "give it to root (chown -R root, chmod -R go-w), or set nccl_tests_cuda_home to another one"
    return [Finding("CUDA", f"others can exchange {place}", expected, action, host=state["host"])]


def _gencode(members: Sequence[State], setting: str) -> tuple[str, list[Finding]]:
    """Return the flags for all GPUs of the nodes that one build serves, and what is wrong with them."""
    cuda, hosts = members[0]["cuda"]["version"], [state["host"] for state in members]
    if setting != "auto":
        refused = _refused(gencode.architectures(setting), cuda)
        action = "correct nccl_tests_gencode, or give these nodes another CUDA"
        finding = Finding("NVCC_GENCODE", f"{setting} with CUDA {cuda}", "; ".join(refused), action)
        return setting, [finding.on(host) for host in hosts if refused]
    findings, known = [], set()
    for state in members:
        for generation in sorted({str(gpu["generation"]) for gpu in state["gpus"]}):
            numbers = gencode.ARCHITECTURES.get(generation)
            if numbers is None:
                found = describe_gpus([gpu for gpu in state["gpus"] if gpu["generation"] == generation])
                expected, action = "GPUs whose compute capability is known", _SET_GENCODE
            else:
                known.add(generation)
                refused = _refused(numbers, cuda)
                if len(refused) < len(numbers):
                    continue
                found, expected = f"{generation.capitalize()} with CUDA {cuda}", "; ".join(refused)
                action = "give the node a CUDA for its GPUs (variables of the role cuda_toolkit)"
            findings.append(Finding("GPUs", found, expected, action, host=state["host"]))
    if not findings and not known:
        found = "none on any node that this build is for"
        findings = [Finding("GPUs", found, "a GPU to compile for", _SET_GENCODE, host=host) for host in hosts]
    return gencode.flags(known), findings


def _refused(numbers: Sequence[int], cuda: str) -> list[str]:
    return [text for number in numbers if (text := gencode.refusal(number, cuda))]


def _record(state: State, settings: Mapping[str, Any], flags: str) -> Record:
    homes = [f"{variable}={state[name]['home']}" for variable, name in _HOMES.items()]
    suffix = [f"NAME_SUFFIX={settings['suffix']}"] if settings["suffix"] else []
    return {
        "source": settings["source"],
        "platform": state["platform"],
        **{title: state[name]["version"] for name, title in PARTS.items()},
        "make": ["MPI=1", *homes, *suffix, f"NVCC_GENCODE={flags}", *settings["options"]],
    }


def _installed_flags(members: Sequence[State], settings: Mapping[str, Any], flags: str) -> str:
    """Return the flags of an installed build that serves more GPUs than needed and is otherwise as requested.

    Without this, a run on some nodes of a mixed cluster (--limit) would build separate programs for them.
    """
    needed = set(gencode.architectures(flags))
    for state in members:
        for option in (state["record"] or {}).get("make", []):
            # Only the numbers are taken over: the rest of a node's record would be run on the node that builds.
            numbers = gencode.architectures(option.partition("NVCC_GENCODE=")[2])
            old = gencode.flags_for(numbers)
            known = needed <= set(numbers) <= gencode.KNOWN and not _refused(numbers, state["cuda"]["version"])
            if known and state["record"] == _record(state, settings, old):
                return old
    return flags


def _reason(old: Mapping[str, Any] | None, new: Record) -> str:
    """Describe what a record has that the old one has not: `CUDA 13.1.1 instead of 13.0.88`."""
    if not old:
        return "new"
    changed = [key for key in new if key != "make" and new[key] != old.get(key)]
    options = [option for option in new["make"] if option not in old.get("make", [])]
    texts = [*(f"{key} {new[key]} instead of {old.get(key)}" for key in changed), *options]
    return ", ".join(texts) or "without options that it was built with"


def _unlike_first(members: Sequence[State], kind: str) -> Iterator[Finding]:
    """Find nodes whose NCCL or Open MPI is not that of the first node, which one build for all of them needs."""
    first = members[0]
    for state in members:
        for name, title in PARTS.items():
            found, expected = (f"{each[name]['version']} in {each[name]['home']}" for each in (state, first))
            if found != expected:
                expected += f", as on {first['host']}: one node builds for all with {kind}"
                action = f"run the role {_ROLES[name]} on all of them, or set nccl_tests_{name}_home"
                yield Finding(title, found, expected, action, host=state["host"])


def plan_builds(
    states: Sequence[State], settings: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for each node `none`, `build` or `copy`, with its record and the reason; and find what stops that.

    `settings`: source, prefix, suffix, options (of make), gencode (`auto` or flags), min_free_mb, and installs (whether
    missing tools may be installed).
    """
    findings = [finding for state in states for name in PARTS for finding in _part_findings(state, name)]
    if findings:
        return {}, findings
    groups: dict[str, list[State]] = {}
    for state in states:
        groups.setdefault(f"{state['platform']} and CUDA {state['cuda']['version']}", []).append(state)
    plan: dict[str, dict[str, Any]] = {}
    for kind, members in groups.items():
        findings += _unlike_first(members, kind)
        flags, wrong = _gencode(members, settings["gencode"])
        findings += wrong
        if settings["gencode"] == "auto" and not wrong:
            flags = _installed_flags(members, settings, flags)
        records = [(state, _record(state, settings, flags)) for state in members]
        for state, record in records:
            findings += place_findings(state, record, settings["prefix"], settings["min_free_mb"], "nccl_tests")
        shares = share_out(records)
        for state, record in records:
            folders = [folder for name in PARTS for folder in state[name]["folders"]]
            node = {**shares[state["host"]], "library_path": ":".join(folders)}
            plan[state["host"]] = {**node, "reason": _reason(state["record"], record)}
            findings += _exchangeable(state) if node["action"] == "build" else []
            if node["action"] == "build" and state["missing"] and not settings["installs"]:
                expected = f"the node that builds for all with {kind} has them"
                action = "install them there, or let the role do it (trainyard_manage_system)"
                found = f"no {', '.join(state['missing'])}"
                findings.append(Finding("tools of the build", found, expected, action, host=state["host"]))
    return plan, findings
