# SPDX-License-Identifier: Apache-2.0
"""The installed nccl-tests: what the programs report on each node, and the check of all nodes.

A probe is what library/nccl_tests returns of a node. On a node without a GPU a program that is sound ends with
CUDA's message for that; bandwidths are measured elsewhere.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding, host_list
from ..base.majority import unlike_most

Probe = Mapping[str, Any]

_FLAG = re.compile(r"\[-(\w),--([a-z_]+)")
_MISSING = re.compile(r"^\s*(\S+) => not found", re.M)
# cudaErrorNoDevice, and cudaErrorInsufficientDriver where there is no driver at all.
_NO_DEVICE = re.compile(r"no CUDA-capable device|CUDA driver version is insufficient", re.I)
# One rank over as few bytes as there can be.
RUN_OPTIONS = ("-b", "8", "-e", "8", "-n", "1", "-w", "0")
_CHECK, _AGAIN = "nccl-tests", "run the role nccl_tests again"


def parse_flags(text: str) -> dict[str, str]:
    """Return the flags that a `--help` names: {"minbytes": "b", ...}."""
    return {long: short for short, long in _FLAG.findall(text)}


def missing_libraries(text: str) -> list[str]:
    """Return the libraries that `ldd` does not find."""
    return list(dict.fromkeys(_MISSING.findall(text)))


def needs_mpi(text: str) -> bool:
    """Return from the output of `ldd` whether a program has MPI: without it every rank is a world of its own."""
    return re.search(r"^\s*libmpi\.so", text, re.M) is not None


def _program_findings(probe: Probe) -> Iterator[Finding]:
    absent = [name for name, program in probe["programs"].items() if not program["exists"]]
    if absent:
        found, expected = f"no {', '.join(absent)} in {probe['bin']}", "all programs of nccl_tests_programs"
        yield Finding(_CHECK, found, expected, _AGAIN)
    there = {name: program for name, program in probe["programs"].items() if program["exists"]}
    users: dict[str, list[str]] = {}
    for name, program in there.items():
        for library in program["missing"]:
            users.setdefault(library, []).append(name)
    for library, names in users.items():
        found = f"no {library}, which {host_list(names, 2)} need"
        action = (
            "see the roles cuda_toolkit, nccl and openmpi, or remove .trainyard.json and run the role nccl_tests again"
        )
        yield Finding("libraries", found, "libraries where they were when it was built", action)
    complete = {name: program for name, program in there.items() if not program["missing"]}
    alone = [name for name, program in complete.items() if not program["mpi"]]
    if alone:
        yield Finding("MPI", f"{host_list(alone, 2)} without libmpi.so", "built with MPI=1", _AGAIN)
    for name, program in complete.items():
        if program["status"] != 0 or not program["flags"]:
            found = f"{name} --help ended with status {program['status']} and said: {program['said']}"
            yield Finding(_CHECK, found, "status 0 and its flags", f"run {_command(probe, name, '--help')} there")


def _run_findings(probe: Probe) -> Iterator[Finding]:
    run, without = probe["run"], probe["gpus"] == 0
    if run is None or run["status"] == 0 or (without and _NO_DEVICE.search(run["output"])):
        return
    ended = "did not end in time" if run["status"] == 124 else f"ended with status {run['status']}"
    expected = "the end that CUDA gives without a GPU" if without else "status 0"
    action = f"run it there: {_command(probe, run['name'], *RUN_OPTIONS)}"
    yield Finding(_CHECK, f"{run['name']} {ended} and said: {run['said']}", expected, action)


def _command(probe: Probe, name: str, *options: str) -> str:
    # Folder and name are those that the node returned.
    return shlex.join([f"{probe['bin']}/{name}", *options])


def check(probes: Sequence[Probe]) -> list[Finding]:
    """Find nodes without the programs, with programs of another build, or with programs that do not run."""
    findings, sources = [], {}
    builds: dict[tuple[Any, Any], dict[str, str]] = {}
    built = [probe for probe in probes if probe["record"]]
    for probe in probes:
        host, record = probe["host"], probe["record"]
        if record:
            sources[host] = str(record.get("source"))
            # Nodes with another system or CUDA have a build of their own.
            parts = [f"{name} {record[name]}" for name in ("CUDA", "NCCL", "Open MPI") if record.get(name)]
            build = ", ".join([sources[host], *parts])
            builds.setdefault((record.get("platform"), record.get("CUDA")), {})[host] = build
        else:
            place = "none in {prefix}" if probe["prefix_kind"] == "none" else "{prefix} of somebody else"
            found, expected = place.format_map(probe), "nccl-tests that the role nccl_tests built"
            findings.append(Finding(_CHECK, found, expected, "run the role nccl_tests", host=host))
    action = "run the role nccl_tests over all nodes"
    findings += unlike_most(sources, "source of nccl-tests", action)
    if not findings:
        findings += [each for same in builds.values() for each in unlike_most(same, "build of nccl-tests", action)]
    for probe in built:
        # A run that cannot be repeats, and less clearly, what is wrong with the program.
        mine = list(_program_findings(probe)) or _run_findings(probe)
        findings += [finding.on(probe["host"]) for finding in mine]
    return findings
