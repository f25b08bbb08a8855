# SPDX-License-Identifier: Apache-2.0
"""Stacks of driver, CUDA, NCCL, cuDNN, Open MPI and framework: choose them, check every host, and show one table.

Catalog and rules are data of the role nvidia_stack; the rules' code is in rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import Finding, counted, host_list
from . import nvidia_hardware
from .case import Host, Part, Result, Rules
from .rules import check

Catalog = Mapping[str, Mapping[str, Any]]
Parts = dict[str, dict[str, str]]


class Kind(NamedTuple):
    """What one part of a stack may be: its title in messages, fields, providers, and the pattern of its version."""

    title: str
    fields: tuple[str, ...]
    providers: tuple[str, ...]
    version: str


_REPOSITORIES, _FILE = ("distro", "network_repo"), ("url", "sha256")
KINDS = {
    "driver": Kind("driver", ("provider", "version", "branch", "flavour", *_FILE), (*_REPOSITORIES, "runfile", "none"),
                   r"\d{3}\.\d+(\.\d+)*|"),
    "cuda": Kind("CUDA", ("provider", "version", *_FILE), (*_REPOSITORIES, "runfile", "wheel", "none"),
                 r"\d+\.\d+(\.\d+)?|"),
    "nccl": Kind("NCCL", ("provider", "version", "cuda", *_FILE), (*_REPOSITORIES, "wheel", "archive", "none"),
                 r"\d+\.\d+\.\d+|"),
    "cudnn": Kind("cuDNN", ("provider", "version", "cuda", *_FILE), ("network_repo", "wheel", "archive", "none"),
                  r"\d+\.\d+\.\d+\.\d+|"),
    "openmpi": Kind("Open MPI", ("provider", "version"), ("distro", "source"), r"\d+\.\d+\.\d+|"),
    "framework": Kind("framework", ("name", "version", "build", "cuda"), (), r"\d+\.\d+\.\d+\S*|"),
}  # fmt: skip
FRAMEWORKS = ("pytorch", "mindspore", "none")
# Checks of the machine itself, which another stack does not fix.
_MACHINE_CHECKS = ("GPUs", "nvidia_gpus", "container", "driver from elsewhere", "kernel headers", "packages",
                   "Secure Boot", "space")  # fmt: skip
# By role: the part of a stack that it installs, and which of its fields.
_ROLES = {
    "nvidia_driver": ("driver", KINDS["driver"].fields),
    "cuda_toolkit": ("cuda", KINDS["cuda"].fields),
    **{name: (name, KINDS[name].fields) for name in ("nccl", "cudnn", "openmpi")},
    "pytorch": ("framework", ("version", "build")),
    "mindspore": ("framework", ("version", "cuda")),
}


class Choice(NamedTuple):
    """The parts of each host, the findings that stop, those that only warn, and a table of all hosts."""

    parts: dict[str, Parts]
    findings: list[Finding]
    warnings: list[Finding]
    table: str


def _wrong_overrides(host: str, overrides: Mapping[str, Any]) -> Iterator[Finding]:
    def wrong(found: str, expected: str) -> Finding:
        return Finding("nvidia_stack_overrides", found, expected, "correct nvidia_stack_overrides", host=host)

    for part, given in overrides.items():
        if part not in KINDS or not isinstance(given, Mapping):
            yield wrong(f"{part}: {given}", f"parts of a stack, each with its fields: {', '.join(KINDS)}")
            continue
        fields = KINDS[part].fields
        yield from (
            wrong(f"{part}.{name}", f"a field of {part}: {', '.join(fields)}") for name in given if name not in fields
        )


def _wrong_parts(host: str, parts: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    def wrong(where: str, found: str, expected: str) -> Finding:
        return Finding(f"nvidia_stack: {where}", repr(found), expected, "correct nvidia_stack_overrides", host=host)

    for part, kind in KINDS.items():
        name, choices = ("provider", kind.providers) if kind.providers else ("name", FRAMEWORKS)
        chosen = Part(parts.get(part, {}))
        if chosen and chosen[name] not in choices:
            yield wrong(f"{part}.{name}", chosen[name], f"one of {', '.join(choices)}")
        if not re.fullmatch(kind.version, chosen["version"]):
            expected = "an exact version such as 550.127.08, 12.4, 2.21.5 or 2.13.0 (of cuDNN 8.5.0.96)"
            yield wrong(f"{part}.version", chosen["version"], expected)
    driver = parts.get("driver", {})
    if not re.fullmatch(r"(\d{3})?", driver.get("branch", "")):
        yield wrong("driver.branch", driver["branch"], "the branch of a driver such as 550")
    if driver.get("flavour", "") not in ("", "open", "proprietary"):
        yield wrong("driver.flavour", driver["flavour"], "open, proprietary, or nothing (as the GPUs of the host need)")


def choose(host: str, catalog: Catalog, name: str, overrides: Mapping[str, Any]) -> tuple[Parts, list[Finding]]:
    """Return the parts of a stack with the overrides, and the errors of the choice.

    Address and sum belong to one build: they are dropped when only its version or its CUDA is overridden. Without a
    name, the overrides are the whole choice.
    """
    if name not in catalog and (name or not overrides):
        action = (
            "set nvidia_stack to one of them (see roles/nvidia_stack/README.md), put it into nvidia_stack_own, or "
            "set nvidia_stack_overrides to a choice of your own without nvidia_stack"
        )
        wrong = Finding("nvidia_stack", repr(name), f"one of {', '.join(catalog) or 'none'}", action, host=host)
        return {}, [wrong]
    findings = list(_wrong_overrides(host, overrides))
    if findings:
        return {}, findings
    parts: Parts = {}
    chosen = catalog[name].get("set", {}) if name else {}
    for part in KINDS:
        base = {key: str(value) for key, value in dict(chosen.get(part, {})).items()}
        given = {key: str(value) for key, value in dict(overrides.get(part, {})).items()}
        if any(key in given and given[key] != base.get(key) for key in ("version", "branch", "provider", "cuda")):
            base = {key: value for key, value in base.items() if key not in ("url", "sha256")}
        merged = {**base, **given}
        if part == "driver" and "version" in given and "branch" not in given:
            merged["branch"] = nvidia_hardware.branch_of(given["version"])
        elif part == "driver" and "branch" in given and "version" not in given:
            merged["version"] = ""
        if part == "driver" and merged.get("version") and not merged.get("branch"):
            merged["branch"] = nvidia_hardware.branch_of(merged["version"])
        if merged:
            parts[part] = merged
    return parts, list(_wrong_parts(host, parts))


def with_flavour(parts: Parts, facts: Host, rules: Rules) -> Parts:
    """Return the parts with a flavour of modules that suits all GPUs of a host, unless one is set."""
    driver = parts.get("driver", {})
    if not driver or driver["provider"] == "none" or driver.get("flavour"):
        return parts
    rows = {row["name"]: row for row in rules["generations"]}
    old = any(rows.get(gpu["generation"], {}).get("flavours") == ["proprietary"] for gpu in facts["gpus"])
    before = nvidia_hardware.number(driver.get("branch", "")) < (515,) and bool(driver.get("branch"))
    distro = driver["provider"] == "distro"
    return {**parts, "driver": {**driver, "flavour": "proprietary" if old or before or distro else "open"}}


def _sort(results: Iterable[Result], accept: Sequence[str]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that stop and those that warn; an accepted check does not stop."""
    sorted_: tuple[list[Finding], list[Finding]] = ([], [])
    for stop, finding in results:
        sorted_[0 if stop and finding.check not in accept else 1].append(finding)
    return sorted_


def _alternatives(node: Mapping[str, Any], catalog: Catalog, rules: Rules, accept: Sequence[str]) -> list[str]:
    """Return the stacks of the catalog that fit a host without overrides."""
    fitting = []
    for name in catalog:
        parts, wrong = choose(node["facts"]["host"], catalog, name, {})
        stops, _ = _sort(check(node, with_flavour(parts, node["facts"], rules), rules), accept)
        if not wrong and all(stop.check in _MACHINE_CHECKS for stop in stops):
            fitting.append(name)
    return fitting


def choose_all(nodes: Sequence[Mapping[str, Any]], catalog: Catalog, rules: Rules, accept: Sequence[str]) -> Choice:
    """Choose the parts of every host, and check them.

    A node has its `facts` and its `driver` (library/nvidia_driver), `stack` and `overrides`,
    and `settings`: gpus (auto or a number), and of the role nvidia_driver provider, kernels, replace, mok, without_gpu,
    fabric_manager, and file, url and sha256 of a runfile.
    """
    chosen: dict[str, Parts] = {}
    findings: list[Finding] = []
    warnings: list[Finding] = []
    rows: list[tuple[str, tuple[str, ...]]] = []
    # Alternatives are computed once for equal hosts: each tries the whole catalog.
    cached: dict[str, list[str]] = {}
    for node in nodes:
        facts, host = node["facts"], node["facts"]["host"]
        overrides = node["overrides"]
        if node["settings"].get("provider") == "none" and not node["stack"]:
            # A driver that somebody else installs is verified without a stack.
            overrides = overrides or {"driver": {"provider": "none"}}
        parts, wrong = choose(host, catalog, node["stack"], overrides)
        if not (node["stack"] or node["overrides"] or facts["gpus"]) and str(node["settings"]["gpus"]) != "0":
            action = "leave it out of the group nvidia, or set nvidia_stack if it gets one"
            wrong = [Finding("nvidia_stack", "no NVIDIA GPU found", "a host with one", action, host=host)]
        stops = wrong
        hints: list[Finding] = []
        if not wrong:
            parts = with_flavour(parts, facts, rules)
            stops, hints = _sort(check(node, parts, rules), accept)
        if not wrong and any(stop.check not in _MACHINE_CHECKS for stop in stops):
            alike = repr([facts["gpus"], facts["os"], facts["arch"], facts["kernel"], node["driver"], node["settings"]])
            if alike not in cached:
                cached[alike] = _alternatives(node, catalog, rules, accept)
            found = f"{node['stack'] or 'the choice in nvidia_stack_overrides'} does not fit, see above"
            expected = f"a stack that fits this host: {', '.join(cached[alike]) or 'none of the catalog does'}"
            action = "set nvidia_stack, for a group or a host where they differ, or nvidia_stack_overrides"
            stops.append(Finding("nvidia_stack", found, expected, action, host=host))
        chosen[host] = parts
        findings += stops
        warnings += hints
        rows.append((host, _row(node, parts, len(stops), len(hints))))
    names = {node["facts"]["host"]: node["stack"] for node in nodes}
    return Choice(chosen, findings, warnings, "\n".join([*_stacks(names, chosen, catalog), _table(rows)]))


def _stacks(names: Mapping[str, str], chosen: Mapping[str, Parts], catalog: Catalog) -> Iterator[str]:
    """Yield one line for each chosen stack: its parts, their providers, and the versions of its guide that differ."""
    lines: dict[str, list[str]] = {}
    for host, parts in chosen.items():
        if not parts:
            continue
        guide = catalog.get(names[host], {}).get("guide", {})
        words = []
        for name, kind in KINDS.items():
            part, guided = Part(parts.get(name, {})), guide.get(name)
            note = f"; its guide has {guided}" if guided and guided != part["version"] else ""
            words += [f"{kind.title} {_version(part)} ({part['provider']}{note})"] if part.used else []
        framework = Part(parts.get("framework", {}))
        if framework["name"] not in ("", "none"):
            build = framework["build"] or (f"cuda{framework['cuda']}" if framework["cuda"] else "")
            words.append(f"{framework['name']} {framework['version']}{'+' if build else ''}{build}")
        if words:
            lines.setdefault(f"{names[host] or 'nvidia_stack_overrides'}: {', '.join(words)}", []).append(host)
    for line, hosts in lines.items():
        yield line if len(lines) == 1 else f"{line}, on {host_list(hosts)}"


def _row(node: Mapping[str, Any], parts: Parts, stops: int, warnings: int) -> tuple[str, ...]:
    facts, state, settings = node["facts"], node["driver"], node["settings"]
    driver, cuda, nccl = (Part(parts.get(part, {})) for part in ("driver", "cuda", "nccl"))
    without = str(settings["gpus"]) == "0"
    installed = str(state.get("version") or state.get("loaded") or "none")
    if state.get("version") and driver.used and driver["provider"] != state["provider"]:
        installed += f" ({state['provider']})"
    target = "as it is" if driver["provider"] == "none" else _version(driver)
    if not driver or (without and not settings.get("without_gpu")):
        target = ""
    result = f"does not fit: {counted(stops, 'finding')}" if stops else "fits"
    result += f", {counted(warnings, 'warning')}" if warnings else ""
    return (
        "none, as declared" if without and not facts["gpus"] else nvidia_hardware.describe_gpus(facts["gpus"]),
        f"{nvidia_hardware.described_os(facts)} {facts['arch']}",
        facts["kernel"]["running"],
        f"{installed} -> {target}" if target else installed,
        _version(cuda),
        _version(nccl),
        result,
    )


def _version(part: Part) -> str:
    """Return the version of a part: `550.x open`, `12.4`, `2.21.5+cuda12.4`; `-` for a part that is not used."""
    if not part.used:
        return "-"
    version = part["version"] or (f"{part['branch']}.x" if part["branch"] else "as packaged")
    build = f"+cuda{part['cuda']}" if part["cuda"] else ""
    return f"{version}{build} {part['flavour']}".strip()


def _table(rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Return the table with one line for each kind of host, in the order of their first hosts."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for host, row in rows:
        kinds.setdefault(row, []).append(host)
    head = ("hosts", "GPUs", "system", "kernel", "driver", "CUDA", "NCCL", "result")
    lines: list[tuple[str, ...]] = [head]
    for row, hosts in kinds.items():
        many = f" ({len(hosts)})" if len(hosts) > 1 else ""
        lines.append((host_list(hosts, 3) + many, *row))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def assume(catalog: Catalog, rules: Rules, name: str, overrides: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Choose the parts of a host that is not visited: `parts`, `findings`, and `missing`, what only a visit shows."""
    if not name and not overrides:
        return {"parts": {}, "findings": [], "missing": []}
    parts, wrong = choose(host, catalog, name, overrides)
    chosen = with_flavour(parts, {"gpus": []}, rules)
    missing = []
    # Old GPUs need the other flavour; the distribution's and old drivers have no choice.
    if not wrong and chosen != parts and chosen["driver"]["flavour"] == "open":
        why = "the GPUs decide it: run lock.yml without trainyard_system, or set nvidia_driver_flavour"
        missing.append({"what": "another flavour of the driver than open", "why": why})
    return {"parts": chosen, "findings": [finding.as_dict() for finding in wrong], "missing": missing}


def role_defaults(parts: Mapping[str, Any], role: str) -> dict[str, str]:
    """Return the defaults of a role from the chosen parts of its host; `parts` is empty where none were chosen."""
    name, fields = _ROLES[role]
    part = Part(parts.get(name) or {})
    if name == "framework" and part["name"] != role:
        part = Part()
    defaults = {"provider": "distro" if role == "openmpi" else "none", "flavour": "proprietary"}
    return {field: str(part[field] or defaults.get(field, "")) for field in fields}
