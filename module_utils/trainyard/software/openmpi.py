# SPDX-License-Identifier: Apache-2.0
"""Open MPI on the nodes: the output of `mpirun --version`, which node builds, and the check over all nodes.

A state is the one that library/openmpi returns. A record in the prefix names the sources of a build; with an
equal record there is nothing to do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..base.findings import Finding, counted, host_list
from ..base.majority import usual
from .builds import place_findings, share_out
from .requirements import is_sha256, setting_finding

State = Mapping[str, Any]

# The `mpirun` of MPICH and Intel MPI prints neither name.
_VERSION = re.compile(r"\((?:Open MPI|OpenRTE)\)\s+v?(?P<version>[0-9]\S*)")
# The line of each process of the check.
_ANSWER = re.compile(r"^trainyard-mpi rank (?P<rank>\d+) of (?P<size>\d+) on (?P<host>\S+) sum (?P<sum>\d+)\s*$", re.M)
# A message of a shell or ssh, such as `bash: line 1: orted: command not found`.
_SHELL = re.compile(r"[\w/.-]*sh: ")
_MAX_LINES = 6
_SHARED_FOLDERS = ("/usr/local", "/usr/bin", "/usr/lib")


def open_mpi_version(text: str) -> str | None:
    """Return the version in the output of `mpirun --version`; None when it is not Open MPI's."""
    match = _VERSION.search(text)
    return match["version"] if match else None


def input_findings(settings: Mapping[str, Any], link: str, sums: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the variables of the role openmpi, by their names without the role's.

    `link` is the path of the link to the Open MPI in use; `sums` are the known sums by version.
    """
    wrong = partial(setting_finding, "openmpi", settings)
    source, provider, prefix = settings["provider"] == "source", settings["provider"], settings["prefix"]
    if not re.fullmatch(r"\d+\.\d+\.\d+[a-z0-9]*", settings["version"]) and (settings["version"] or source):
        yield wrong("version", "an exact release such as 4.1.8")
    if provider == "distro" and not settings["manage_system"]:
        found = "openmpi_provider is 'distro', and trainyard_manage_system is false"
        action = "set openmpi_provider: source, or existing with openmpi_prefix where the nodes have one"
        yield Finding("input of openmpi", found, "root's permission to install packages", action)
    if source and not is_sha256(settings["sha256"]):
        known = f"64 hexadecimal digits; the sums of {', '.join(sums)} are built in"
        yield wrong("sha256", f"the sha256 of the archive ({known})")
    if source and not settings["local_file"] and not re.match(r"(https?|file)://", settings["url"]):
        yield wrong("url", "an address that begins with https://, or openmpi_local_file")
    if source and (not re.fullmatch(r"/([^/]+/)+[^/]+", prefix) or prefix in (*_SHARED_FOLDERS, link)):
        yield wrong("prefix", "a folder of its own such as /opt/trainyard/openmpi-4.1.8")
    if provider == "existing" and (not prefix.startswith("/") or prefix == link):
        examples = "/usr/mpi/gcc/openmpi-4.1.7a1 (MLNX_OFED) or the ompi folder of HPC-X"
        yield wrong("prefix", f"the folder that has bin/mpirun on every node, such as {examples}")
    options = [each for each in settings["configure_options"] if not re.match(r"--(?!prefix)[a-z]|[A-Z]+=", each)]
    if options:
        expected = "arguments such as --with-slurm or CFLAGS=-O2"
        action = "correct it; the prefix is openmpi_prefix"
        yield Finding("input of openmpi", f"openmpi_configure_options has {', '.join(options)}", expected, action)
    for name in ("cuda", "ucx"):
        if not re.match(r"auto$|none$|/", settings[name]):
            yield wrong(name, "auto, none, or the path of a folder")
    if settings["verify_slots"] <= 0:
        yield wrong("verify_slots", "1 or more")


def _record(state: State, settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    options, findings = [f"--prefix={settings['prefix']}"], []
    for name in ("cuda", "ucx"):
        setting, folder = settings[name], state[name]
        if setting not in ("none", "auto") and not folder:
            found, expected = f"no {name.upper()} headers in {setting}", f"{name.upper()} with its headers"
            action = f"install it, or set openmpi_{name} to auto or none"
            findings.append(Finding(f"openmpi_{name}", found, expected, action))
        elif setting == "none" or not folder:
            options.append(f"--without-{name}")
        else:
            options.append(f"--with-{name}" if folder == "/usr" else f"--with-{name}={folder}")
    sources = {name: settings[name] for name in ("version", "sha256")}
    return {**sources, "platform": state["platform"], "configure": [*options, *settings["options"]]}, findings


def plan_builds(
    states: Sequence[State], settings: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for each node: `none` (it is there), `build`, or `copy` from the node that has or builds it.

    One node of each operating system and architecture builds.
    """
    if settings.get("existing"):
        return {state["host"]: {"action": "none"} for state in states}, _existing_findings(states, settings)
    findings: list[Finding] = []
    groups: dict[str, list[tuple[State, dict[str, Any]]]] = {}
    for state in states:
        record, wrong = _record(state, settings)
        findings += [finding.on(state["host"]) for finding in wrong]
        findings += place_findings(state, record, settings["prefix"], settings["min_free_mb"], "openmpi")
        findings += _link_findings(state)
        groups.setdefault(state["platform"], []).append((state, record))
    plan: dict[str, dict[str, Any]] = {}
    for platform, members in groups.items():
        (first, usual), *others = members
        expected = f"the same on all nodes with {platform}, as one of them builds for all"
        for state, record in others:
            if record["configure"] != usual["configure"]:
                differing = [f"openmpi_{name}: none" for name in ("cuda", "ucx") if state[name] != first[name]]
                action = f"make it as on {first['host']}, or set {' and '.join(differing)}"
                found = f"CUDA in {state['cuda'] or 'no folder'}, UCX in {state['ucx'] or 'no folder'}"
                findings.append(Finding("CUDA and UCX", found, expected, action, host=state["host"]))
        plan.update(share_out(members))
    return plan, findings


def _link_findings(state: State) -> list[Finding]:
    found, expected = f"{state['link']}, which is no link", "room for the link to the Open MPI in use"
    finding = Finding("link", found, expected, "give that folder another name", host=state["host"])
    return [finding] if state["link_kind"] == "foreign" else []


def _existing_findings(states: Sequence[State], settings: Mapping[str, Any]) -> list[Finding]:
    """Find nodes on which the stated prefix has no Open MPI, or another one than the others have."""
    findings = [finding for state in states for finding in _link_findings(state)]
    found = f"no {settings['prefix']}/bin/mpirun that answers as Open MPI"
    expected = "the same Open MPI in that folder on every node"
    action = "correct openmpi_prefix (of an environment module: `module show` names it), or install it there"
    missing = Finding("openmpi_prefix", found, expected, action)
    findings += [missing.on(state["host"]) for state in states if not state["in_prefix"]]
    there = [{**state, "mpi": state["in_prefix"]} for state in states if state["in_prefix"]]
    return findings + compare_versions(there, settings["version"])


def compare_versions(states: Sequence[State], requested: str) -> list[Finding]:
    """Find nodes without Open MPI, or with another one than the others or than is requested ("": any)."""
    versions = {state["host"]: (state["mpi"] or {}).get("version", "") for state in states}
    most = requested or usual(filter(None, versions.values()), "")
    same = [host for host, version in versions.items() if most and version == most]
    expected = f"Open MPI {most}".strip() + (f", as on {host_list(same)}" if same and not requested else "")
    equal = "make the nodes equal: the same release of the operating system"
    action = f"{'correct openmpi_version' if requested else equal}, or set openmpi_provider: source"
    findings = []
    for state in states:
        if state["host"] not in same:
            mpi = state["mpi"]
            found = f"Open MPI {mpi['version']} ({mpi['path']})" if mpi else "no mpirun that answers as Open MPI"
            findings.append(Finding("Open MPI", found, expected, action, host=state["host"]))
    return findings


def _processes(number: int) -> str:
    return counted(number, "process", "processes")


def _telling(output: str) -> list[str]:
    """Return the lines that explain a failure, the most telling first, as their order is not certain.

    Messages of the nodes' shells and ssh come first, then other lines, Open MPI's own ([node:pid]), its explanations.
    """
    parts = re.split(r"^-{20,}[ \t]*$", output, flags=re.MULTILINE)
    lines = [
        (explained, line.strip())
        for explained, texts in ((False, parts[::2]), (True, parts[1::2]))
        for text in texts
        for line in text.splitlines()
        if line.strip(" -\t") and not _ANSWER.match(line)
    ]
    ranked = sorted(lines, key=lambda each: (not _SHELL.match(each[1]), each[0], each[1].startswith("[")))
    return [line for _, line in ranked]


def check_program(slots: Mapping[str, int], hosts: Mapping[str, str], status: int, output: str) -> list[Finding]:
    """Check the output of the processes: one for each slot, on the right hosts, with the right sum over all ranks.

    `slots` is by inventory name, `hosts` the host name that each of these has.
    """
    action = "check that ssh between the nodes works (role ssh_mesh) and firewalls let their ports through"
    answers = list(_ANSWER.finditer(output))
    total = sum(slots.values())
    if status != 0 or not answers:
        printed = " / ".join(_telling(output)[:_MAX_LINES]) or "nothing"
        ended = "did not end in time" if status == 124 else f"ended with status {status}"
        return [Finding("mpirun", f"it {ended} and printed: {printed}", _processes(total), action)]
    counts = Counter(answer["host"] for answer in answers)
    findings = [
        Finding("mpirun", _processes(counts[hosts[name]]), f"{number}, one for each slot", action, host=name)
        for name, number in slots.items()
        if counts[hosts[name]] != number
    ]
    findings += [
        Finding("mpirun", f"{_processes(count)} on {host}", "processes on the nodes only", action)
        for host, count in counts.items()
        if host not in hosts.values()
    ]
    ranks = sorted(int(answer["rank"]) for answer in answers)
    sums = {int(answer["sum"]) for answer in answers}
    if not findings and (ranks != list(range(total)) or sums != {total * (total - 1) // 2}):
        found = f"sum {', '.join(map(str, sorted(sums)))} of the ranks {', '.join(map(str, ranks))}"
        expected = f"{total * (total - 1) // 2} on each of {counted(total, 'rank')}"
        findings.append(Finding("MPI_Allreduce", found, expected, action))
    return findings


def ranks_findings(nodes: Sequence[Mapping[str, Any]], slots: int) -> list[Finding]:
    """Check the processes that mpirun of the first node has started, `slots` on each node.

    A node has its `name` and the results that tasks registered: `__openmpi_state`, and the first one `__openmpi_ran`.
    """
    hosts = {node["name"]: node["__openmpi_state"]["state"]["hostname"] for node in nodes}
    first, ran = nodes[0]["name"], nodes[0]["__openmpi_ran"]
    findings = check_program(dict.fromkeys(hosts, slots), hosts, ran["status"], ran["output"])
    # The processes of other nodes are what the first node says they are.
    return [
        replace(each, found=f"{each.found}, as mpirun on {first} printed") if each.host not in ("", first) else each
        for each in findings
    ]
