# SPDX-License-Identifier: Apache-2.0
"""The installed nccl-tests: what the programs report on each node, and the check of all nodes.

A probe is what library/nccl_tests_probe returns of a node. On a node without a GPU a program that is sound ends with
CUDA's word for that; bandwidths are measured elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding, host_list

Probe = Mapping[str, Any]

_FLAG = re.compile(r"\[-(\w),--([a-z_]+)")
_MISSING = re.compile(r"^\s*(\S+) => not found", re.M)
# cudaErrorNoDevice, and cudaErrorInsufficientDriver where there is no driver at all.
_NO_DEVICE = re.compile(r"no CUDA-capable device|CUDA driver version is insufficient", re.I)


def parse_flags(text: str) -> dict[str, str]:
    """Return the flags that a `--help` names: {"minbytes": "b", ...}."""
    return {long: short for short, long in _FLAG.findall(text)}


def missing_libraries(text: str) -> list[str]:
    """Return the libraries that `ldd` does not find."""
    return list(dict.fromkeys(_MISSING.findall(text)))


def needs_mpi(text: str) -> bool:
    """Tell from what `ldd` says whether a program was built with MPI: without it every rank is a world of its own."""
    return re.search(r"^\s*libmpi\.so", text, re.M) is not None


def _program_findings(probe: Probe) -> list[Finding]:
    host, findings = probe["host"], []
    again = "run the role nccl_tests again"
    absent = [name for name, program in probe["programs"].items() if not program["exists"]]
    if absent:
        found = f"no {', '.join(absent)} in {probe['bin']}"
        findings.append(Finding("nccl-tests", found, "all programs of nccl_tests_programs", again, host=host))
    there = {name: program for name, program in probe["programs"].items() if program["exists"]}
    lacking: dict[str, list[str]] = {}
    for name, program in there.items():
        for library in program["missing"]:
            lacking.setdefault(library, []).append(name)
    findings += [
        Finding(
            "libraries",
            f"no {library}, which {host_list(names, 2)} need",
            "libraries where they were when it was built",
            (
                "see the roles cuda_toolkit, nccl and openmpi, or remove .trainyard.json and run the role nccl_tests "
                "again"
            ),
            host=host,
        )
        for library, names in lacking.items()
    ]
    alone = [name for name, program in there.items() if not program["missing"] and not program["mpi"]]
    if alone:
        expected = "built with MPI=1"
        findings.append(Finding("MPI", f"{host_list(alone, 2)} without libmpi.so", expected, again, host=host))
    findings += [
        Finding(
            "nccl-tests",
            f"{name} --help ended with status {program['status']} and said: {program['said']}",
            "status 0 and its flags",
            f"run {probe['bin']}/{name} --help there",
            host=host,
        )
        for name, program in there.items()
        if not program["missing"] and (program["status"] != 0 or not program["flags"])
    ]
    return findings


def _run_findings(probe: Probe) -> list[Finding]:
    run = probe["run"]
    if run is None:
        return []
    without = probe["gpus"] == 0
    if run["status"] == 0 or (without and _NO_DEVICE.search(run["output"])):
        return []
    ended = "did not end in time" if run["status"] == 124 else f"ended with status {run['status']}"
    expected = "the end that CUDA gives without a GPU" if without else "status 0"
    action = f"run it there: {run['command']}"
    found = f"{run['name']} {ended} and said: {run['said']}"
    return [Finding("nccl-tests", found, expected, action, host=probe["host"])]


def _described(record: Mapping[str, Any]) -> str:
    parts = [str(record.get("source"))]
    parts += [f"{name} {record[name]}" for name in ("CUDA", "NCCL", "Open MPI") if record.get(name)]
    return ", ".join(parts)


def _kind(record: Mapping[str, Any]) -> str:
    return f"{record.get('platform')} with CUDA {record.get('CUDA')}"


def _odd(
    probes: Sequence[Probe],
    say: Callable[[Mapping[str, Any]], str],
    check: str,
    kind: Callable[[Mapping[str, Any]], str],
) -> list[Finding]:
    """Find nodes whose record says something else than those of most nodes of its kind."""
    kinds: dict[str, list[Probe]] = {}
    for probe in probes:
        kinds.setdefault(kind(probe["record"]), []).append(probe)
    findings = []
    for members in kinds.values():
        usual = Counter(say(probe["record"]) for probe in members).most_common(1)[0][0]
        same = [probe["host"] for probe in members if say(probe["record"]) == usual]
        findings += [
            Finding(
                check,
                say(probe["record"]),
                f"{usual}, as on {host_list(same)}",
                "run the role nccl_tests over all nodes",
                host=probe["host"],
            )
            for probe in members
            if probe["host"] not in same
        ]
    return findings


def judge(probes: Sequence[Probe]) -> list[Finding]:
    """Find nodes without the programs, with programs of another build, or with programs that do not run."""
    findings = []
    built = [probe for probe in probes if probe["record"]]
    findings += [
        Finding(
            "nccl-tests",
            (f"none in {probe['prefix']}" if probe["prefix_kind"] == "none" else f"{probe['prefix']} of somebody else"),
            "nccl-tests that the role nccl_tests built",
            "run the role nccl_tests",
            host=probe["host"],
        )
        for probe in probes
        if not probe["record"]
    ]
    findings += _odd(built, lambda record: str(record.get("source")), "source of nccl-tests", lambda _: "")
    if not findings:
        findings += _odd(built, _described, "build of nccl-tests", _kind)
    for probe in built:
        mine = _program_findings(probe)
        # A run that cannot be says again, and less clearly, what is wrong with the program.
        findings += mine or _run_findings(probe)
    return findings
