# SPDX-License-Identifier: Apache-2.0
"""Stacks of driver, CUDA, NCCL, cuDNN, Open MPI and framework: choose, judge on every host, show it in one table.

Pure. Catalog and rules are data of the role nvidia_stack; what a rule says of a host is in nvidia_rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..findings.findings import Finding, host_list
from . import hardware as nvidia
from .case import Host, Rules, Said
from .rules import judge

Catalog = Mapping[str, Mapping[str, Any]]
Parts = dict[str, dict[str, str]]

# What each part of a set has, and who can provide it.
FIELDS = {
    "driver": ("provider", "version", "branch", "flavour", "url", "sha256"),
    "cuda": ("provider", "version", "url", "sha256"),
    "nccl": ("provider", "version", "cuda", "url", "sha256"),
    "cudnn": ("provider", "version", "cuda", "url", "sha256"),
    "openmpi": ("provider", "version"),
    "framework": ("name", "version", "build", "cuda"),
}
PROVIDERS = {
    "driver": ("distro", "network_repo", "runfile", "none"),
    "cuda": ("distro", "network_repo", "runfile", "wheel", "none"),
    "nccl": ("distro", "network_repo", "wheel", "archive", "none"),
    "cudnn": ("network_repo", "wheel", "archive", "none"),
    "openmpi": ("distro", "source"),
}
FRAMEWORKS = ("pytorch", "mindspore", "none")
# The parts in words.
_NAMES = {"driver": "driver", "cuda": "CUDA", "nccl": "NCCL", "cudnn": "cuDNN", "openmpi": "Open MPI"}
# Checks of the machine itself, which no other stack fixes.
_OF_THE_MACHINE = (
    "GPUs",
    "nvidia_gpus",
    "container",
    "driver from elsewhere",
    "kernel headers",
    "packages",
    "Secure Boot",
    "space",
)
_VERSIONS = {
    "driver": r"\d{3}\.\d+(\.\d+)*|",
    "cuda": r"\d+\.\d+(\.\d+)?|",
    "nccl": r"\d+\.\d+\.\d+|",
    "cudnn": r"\d+\.\d+\.\d+\.\d+|",
    "openmpi": r"\d+\.\d+\.\d+|",
    "framework": r"\d+\.\d+\.\d+\S*|",
}


class Judged(NamedTuple):
    """What is chosen for each host, what stops, what is only said, and all of it as a table."""

    sets: dict[str, Parts]
    findings: list[Finding]
    warnings: list[Finding]
    table: str


def _wrong_overrides(host: str, overrides: Mapping[str, Any]) -> Iterator[Finding]:
    def wrong(found: str, expected: str) -> Finding:
        return Finding("nvidia_stack_overrides", found, expected, "correct nvidia_stack_overrides", host=host)

    for part, given in overrides.items():
        if part not in FIELDS or not isinstance(given, Mapping):
            yield wrong(f"{part}: {given}", f"parts of a stack, each with its fields: {', '.join(FIELDS)}")
            continue
        for name in given:
            if name not in FIELDS[part]:
                yield wrong(f"{part}.{name}", f"a field of {part}: {', '.join(FIELDS[part])}")


def _wrong_parts(host: str, parts: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    def wrong(where: str, found: str, expected: str) -> Finding:
        return Finding(f"nvidia_stack: {where}", repr(found), expected, "correct nvidia_stack_overrides", host=host)

    for part, choices in PROVIDERS.items():
        if parts.get(part) and parts[part].get("provider", "") not in choices:
            yield wrong(f"{part}.provider", parts[part].get("provider", ""), f"one of {', '.join(choices)}")
    if parts.get("framework") and parts["framework"].get("name", "") not in FRAMEWORKS:
        yield wrong("framework.name", parts["framework"].get("name", ""), f"one of {', '.join(FRAMEWORKS)}")
    for part, pattern in _VERSIONS.items():
        version = parts.get(part, {}).get("version", "")
        if not re.fullmatch(pattern, version):
            yield wrong(
                f"{part}.version",
                version,
                "an exact version such as 550.127.08, 12.4, 2.21.5 or 2.13.0 (of cuDNN 8.5.0.96)",
            )
    flavour = parts.get("driver", {}).get("flavour", "")
    if flavour not in ("", "open", "proprietary"):
        yield wrong("driver.flavour", flavour, "open, proprietary, or nothing: what the GPUs of the host ask for")


def names_of(catalog: Catalog) -> str:
    """Say in one line which stacks there are."""
    return ", ".join(catalog) or "none"


def choose(host: str, catalog: Catalog, name: str, overrides: Mapping[str, Any]) -> tuple[Parts, list[Finding]]:
    """Return the parts of a stack with what is overridden, or what is wrong with the choice.

    An address and a sum belong to one version: they go when the version alone is overridden. Without a name, what is
    overridden is the whole choice.
    """
    if name not in catalog and (name or not overrides):
        wrong = Finding(
            "nvidia_stack",
            repr(name),
            f"one of {names_of(catalog)}",
            (
                "set nvidia_stack to one of them (what each is for: roles/nvidia_stack/README.md), "
                "nvidia_stack_overrides to what is to differ, or to everything without a stack; own stacks go into "
                "nvidia_stack_own"
            ),
            host=host,
        )
        return {}, [wrong]
    findings = list(_wrong_overrides(host, overrides))
    if findings:
        return {}, findings
    parts: Parts = {}
    chosen = catalog[name].get("set", {}) if name else {}
    for part in FIELDS:
        base = {key: str(value) for key, value in dict(chosen.get(part, {})).items()}
        given = {key: str(value) for key, value in dict(overrides.get(part, {})).items()}
        if any(key in given and given[key] != base.get(key) for key in ("version", "branch", "provider")):
            base = {key: value for key, value in base.items() if key not in ("url", "sha256")}
        merged = {**base, **given}
        if part == "driver" and "version" in given and "branch" not in given:
            merged["branch"] = nvidia.branch_of(given["version"])
        elif part == "driver" and "branch" in given and "version" not in given:
            merged["version"] = ""
        if part == "driver" and merged.get("version") and not merged.get("branch"):
            merged["branch"] = nvidia.branch_of(merged["version"])
        if merged:
            parts[part] = merged
    return parts, list(_wrong_parts(host, parts))


def with_flavour(parts: Parts, facts: Host, rules: Rules) -> Parts:
    """Return the parts with the flavour of modules that all GPUs of a host can have, where none is said."""
    driver = parts.get("driver", {})
    if not driver or driver["provider"] == "none" or driver.get("flavour"):
        return parts
    rows = {row["name"]: row for row in rules["generations"]}
    old = any(rows.get(gpu["generation"], {}).get("flavours") == ["proprietary"] for gpu in facts["gpus"])
    before = nvidia.number(driver.get("branch", "")) < (515,) and bool(driver.get("branch"))
    distro = driver["provider"] == "distro"
    return {**parts, "driver": {**driver, "flavour": "proprietary" if old or before or distro else "open"}}


def _accepted(said: Iterable[Said], accept: Sequence[str]) -> tuple[list[Finding], list[Finding]]:
    """Return what stops and what is only said; a check that is accepted does not stop."""
    stops: list[Finding] = []
    warnings: list[Finding] = []
    for stop, finding in said:
        (stops if stop and finding.check not in accept else warnings).append(finding)
    return stops, warnings


def _alternatives(node: Mapping[str, Any], catalog: Catalog, rules: Rules, accept: Sequence[str]) -> list[str]:
    """Return the stacks of the catalog, as they are, that fit a host."""
    fitting = []
    for name in catalog:
        parts, wrong = choose(node["facts"]["host"], catalog, name, {})
        stops, _ = _accepted(judge(node, with_flavour(parts, node["facts"], rules), rules), accept)
        if not wrong and all(stop.check in _OF_THE_MACHINE for stop in stops):
            fitting.append(name)
    return fitting


def judge_all(nodes: Sequence[Mapping[str, Any]], catalog: Catalog, rules: Rules, accept: Sequence[str]) -> Judged:
    """Choose and judge for every host.

    A node has its `facts` (library/nvidia_host), its `driver` (library/nvidia_driver_state), `stack` and `overrides`,
    and `wanted`: gpus (auto or a number), and of the role nvidia_driver kernels, replace, mok, without_gpu,
    fabric_manager, and file, url and sha256 of a runfile.
    """
    sets: dict[str, Parts] = {}
    findings: list[Finding] = []
    warnings: list[Finding] = []
    rows: list[tuple[str, tuple[str, ...]]] = []
    # Hosts of one kind are judged once: alternatives are many judgements.
    known: dict[str, list[str]] = {}
    for node in nodes:
        facts, host = node["facts"], node["facts"]["host"]
        parts, wrong = choose(host, catalog, node["stack"], node["overrides"])
        stops = wrong
        said: list[Finding] = []
        if not wrong:
            parts = with_flavour(parts, facts, rules)
            stops, said = _accepted(judge(node, parts, rules), accept)
        if not wrong and any(stop.check not in _OF_THE_MACHINE for stop in stops):
            alike = repr([facts["gpus"], facts["os"], facts["arch"], facts["kernel"], node["driver"], node["wanted"]])
            if alike not in known:
                known[alike] = _alternatives(node, catalog, rules, accept)
            stops.append(
                Finding(
                    "nvidia_stack",
                    f"{node['stack'] or 'what nvidia_stack_overrides says'} does not fit, as said above",
                    f"a stack that fits this host: {', '.join(known[alike]) or 'none of the catalog does'}",
                    "set nvidia_stack, for a group or a host where they differ, or nvidia_stack_overrides",
                    host=host,
                )
            )
        sets[host] = parts
        findings += stops
        warnings += said
        rows.append((host, _row(node, parts, len(stops), len(said))))
    chosen = {node["facts"]["host"]: node["stack"] for node in nodes}
    return Judged(sets, findings, warnings, "\n".join([*_stacks(chosen, sets, catalog), _table(rows)]))


def _stacks(chosen: Mapping[str, str], sets: Mapping[str, Parts], catalog: Catalog) -> Iterator[str]:
    """Say in one line what each chosen set is, where its parts come from, and where it differs from its guide."""
    lines: dict[str, list[str]] = {}
    for host, parts in sets.items():
        if not parts:
            continue
        guide = catalog.get(chosen[host], {}).get("guide", {})
        words = [
            f"{name} {_version(parts[part])} ({_provided(parts[part], guide.get(part))})"
            for part, name in _NAMES.items()
            if parts.get(part, {}).get("provider", "none") != "none"
        ]
        framework = parts.get("framework", {})
        if framework.get("name", "none") != "none":
            build = framework.get("build") or (f"cuda{framework['cuda']}" if framework.get("cuda") else "")
            words.append(f"{framework['name']} {framework.get('version', '')}{'+' if build else ''}{build}")
        lines.setdefault(f"{chosen[host] or 'nvidia_stack_overrides'}: {', '.join(words)}", []).append(host)
    for line, hosts in lines.items():
        yield line if len(lines) == 1 else f"{line}, on {host_list(hosts)}"


def _provided(part: Mapping[str, str], guided: str | None) -> str:
    """Say who provides a part, and which version the guide of its stack has where it is another one."""
    differs = bool(guided) and guided != part.get("version")
    return part.get("provider", "") + (f"; its guide has {guided}" if differs else "")


def _number_of(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _row(node: Mapping[str, Any], parts: Parts, stops: int, warnings: int) -> tuple[str, ...]:
    facts, state = node["facts"], node["driver"]
    driver, cuda, nccl = (parts.get(part, {}) for part in ("driver", "cuda", "nccl"))
    declared = str(node["wanted"]["gpus"]) == "0" and not facts["gpus"]
    there = str(state.get("version") or state.get("loaded") or "none")
    if state.get("version") and driver.get("provider", "none") not in ("none", state["provider"]):
        there += f" ({state['provider']})"
    wanted = _version(driver)
    if not driver or (str(node["wanted"]["gpus"]) == "0" and not node["wanted"].get("without_gpu")):
        wanted = ""
    elif driver.get("provider") == "none":
        wanted = "as it is"
    result = "does not fit: " + _number_of(stops, "finding") if stops else "fits"
    result += f", {_number_of(warnings, 'warning')}" if warnings else ""
    return (
        "none, as declared" if declared else nvidia.describe_gpus(facts["gpus"]),
        f"{nvidia.described_os(facts)} {facts['arch']}",
        facts["kernel"]["running"],
        f"{there} -> {wanted}" if wanted else there,
        _version(cuda),
        _version(nccl),
        result,
    )


def _version(part: Mapping[str, str]) -> str:
    """Name a part of a set: `550.x open`, `12.4`, `2.21.5+cuda12.4`; `-` for one that is not in it."""
    if part.get("provider", "none") == "none":
        return "-"
    version = part.get("version") or (f"{part['branch']}.x" if part.get("branch") else "as packaged")
    build = f"+cuda{part['cuda']}" if part.get("cuda") else ""
    return f"{version}{build} {part.get('flavour', '')}".strip()


def _table(rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Lay out one line for each kind of host, in the order in which the first of a kind comes."""
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
