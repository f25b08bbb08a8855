# SPDX-License-Identifier: Apache-2.0
"""Plan the CUDA toolkits of all nodes: errors of the request, findings about nodes, and the steps.

A state is what library/cuda_toolkit returns of a node, a record one entry of cuda_toolkit_versions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from ..software.requirements import is_sha256, source
from .cuda import NVCC_BUILDS, State, gcc_fits, newest_gcc, numbers, release

Record = Mapping[str, Any]

PROVIDERS = ("distro", "network_repo", "runfile", "wheel", "none")
# Their dependencies hold a driver, or they move on to the next release by themselves.
_METAPACKAGES = re.compile(r"cuda((-runtime|-demo-suite)?(-\d+-\d+)?)|cuda-drivers(-.*)?|nvidia-.*")
_UNVERSIONED = re.compile(r"cuda-toolkit(-\d+)?")
# Providers for nodes without packages, with what these need.
_ELSEWHERE = "the provider wheel with its wheels as pins, or none with the path of an installed one"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


def home(record: Record, root: str) -> str:
    """Return where a record's toolkit is found."""
    version = str(record.get("version", ""))
    places = {
        "distro": f"{root}/cuda-distro",
        "network_repo": f"/usr/local/cuda-{release(version)}",
        "none": str(record.get("path") or "/usr/local/cuda").rstrip("/"),
    }
    return places.get(str(record["provider"]), f"{root}/cuda-{version}")


def sources(records: Sequence[Mapping[str, Any]], root: str) -> list[dict[str, str]]:
    """Return where the installers of toolkits come from, to check them before anything is touched."""
    variables = "cuda_toolkit_url or cuda_toolkit_local_file"
    return [
        source(f"CUDA {record.get('version', '')}", f"{home(record, root)}/bin/nvcc", variables, record)
        for record in records
        if record.get("provider") == "runfile" and (record.get("url") or record.get("local_file"))
    ]


def packages(record: Record) -> list[dict[str, str]]:
    """Return `name` and `version` of a record's packages; without a version the newest is taken, and then held."""
    provider, version = record["provider"], str(record.get("version", ""))
    exact = version if provider == "network_repo" and version.count(".") == 2 else ""
    if record.get("packages"):
        given = [one if isinstance(one, Mapping) else {"name": one} for one in record["packages"]]
        return [{"name": str(one["name"]), "version": str(one.get("version", ""))} for one in given]
    if provider == "distro":
        return [{"name": "nvidia-cuda-toolkit", "version": ""}]
    if provider != "network_repo":
        return []
    dashed = release(version).replace(".", "-")
    found = [{"name": f"cuda-toolkit-{dashed}", "version": exact}]
    # The vendor's package asks for a compiler of at least its own update, and so gets the newest one.
    if exact in NVCC_BUILDS:
        found.append({"name": f"cuda-nvcc-{dashed}", "version": f"{release(version)}.{NVCC_BUILDS[exact]}"})
    return found


def offers(records: Sequence[Record], provider: str) -> list[dict[str, Any]]:
    """Return which packages a provider is to offer, as apt_offers takes them, before anything is touched."""
    found = []
    for record in records:
        if record.get("provider") == provider:
            # The one package of a distribution's toolkit: a release has one version.
            begins = str(record.get("version", "")) if provider == "distro" and not record.get("packages") else ""
            found += [{"names": [one["name"]], "version": one["version"], "begins": begins} for one in packages(record)]
    return found


def matches(record: Record, found: Mapping[str, Any]) -> bool:
    """Return whether a toolkit that was found is the one that a record requests."""
    version = str(record.get("version", ""))
    if not found.get("nvcc"):
        return False
    if not version:
        return True
    if release(found["nvcc"]) != release(version):
        return False
    if version.count(".") < 2:
        return True
    if found.get("cuda"):
        return bool(found["cuda"] == version)
    build = NVCC_BUILDS.get(version)
    return build is None or numbers(found["nvcc"])[2] == build


def toolkit_text(found: Mapping[str, Any] | None, where: str) -> str:
    """Describe the toolkit that was found in a folder."""
    if not found or not found.get("nvcc"):
        return f"no nvcc that answers in {where}/bin"
    return f"CUDA {found['cuda'] or release(found['nvcc'])} (nvcc {found['nvcc']}) in {where}"


def _record_findings(record: Record, pins: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    provider, version = str(record.get("provider", "")), str(record.get("version", ""))
    name = f"CUDA {version}".strip()

    def wrong(found: str, expected: str, action: str = "correct cuda_toolkit_versions") -> Finding:
        return Finding("cuda_toolkit_versions", found, expected, action)

    if provider not in PROVIDERS:
        yield wrong(f"provider {provider!r} of {name}", f"one of {', '.join(PROVIDERS)}")
        return
    if not _VERSION.fullmatch(version) and not (version == "" and provider in ("distro", "none")):
        yield wrong(f"version {version!r} of the provider {provider}", "a version such as 12.4 or 12.4.1")
        return
    if provider == "runfile":
        if version.count(".") != 2:
            yield wrong(f"version {version!r} of the provider runfile", "the exact version of the file, as 12.4.1")
        if not is_sha256(str(record.get("sha256", ""))):
            yield wrong(f"sha256 {record.get('sha256', '')!r} of {name}", "64 hexadecimal digits")
        if not record.get("local_file") and not re.match(r"(https?|file)://", str(record.get("url", ""))):
            yield wrong(f"url {record.get('url', '')!r} of {name}", "an address, or local_file on the controller")
    if provider == "wheel" and not record.get("wheels") and not pins.get(release(version)):
        expected = f"one of {', '.join(sorted(pins, key=numbers)) or 'none'}, whose wheels are known to hold nvcc"
        action = (
            "give the record its wheels as pins, name==version, or take the provider network_repo, or runfile with "
            "exact version, url and sha256"
        )
        yield wrong(f"no wheels known of {name}", expected, action)
    for package in (one["name"] for one in packages(record) if provider == "network_repo"):
        if _METAPACKAGES.fullmatch(package):
            expected = "packages of the toolkit only, such as cuda-toolkit-12-4"
            action = "take it out of packages; drivers come from the role nvidia_driver"
            yield wrong(f"the package {package}, which brings a driver of its own", expected, action)
        elif _UNVERSIONED.fullmatch(package):
            expected = "a package of one release, such as cuda-toolkit-12-4"
            yield wrong(f"the package {package}, which moves on to each new release", expected)


def _list_findings(records: Sequence[Record], default: str, absent: Sequence[str]) -> Iterator[Finding]:
    releases = [release(str(record.get("version", ""))) for record in records]
    for one, count in Counter(releases).items():
        if count > 1:
            found = f"{count} toolkits of CUDA {one or 'without a version'}"
            yield Finding("cuda_toolkit_versions", found, "one for each release, X.Y", "correct cuda_toolkit_versions")
    if default not in ("", "none") and release(default) not in releases:
        expected = f"one of {', '.join(filter(None, releases)) or 'none'}"
        yield Finding("cuda_toolkit_default", default, expected, "name a version of cuda_toolkit_versions, or none")
    for one in sorted({release(version) for version in absent} & set(releases)):
        found, expected = f"{one}, which cuda_toolkit_versions has as well", "a version in one of the two"
        action = "take it out of one of the two"
        # Another one has to be the default then.
        if release(default) == one or {*releases} == {one}:
            action = (
                "take it out of cuda_toolkit_absent, or put another version into cuda_toolkit_versions in its place"
            )
            action += " (and into cuda_toolkit_default)" * (release(default) == one)
        yield Finding("cuda_toolkit_absent", found, expected, action)


def compiler_findings(
    state: State, version: str, newest: str, compiler: str, all_newest: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yield a finding for a host compiler that is too new for a CUDA version, unless one of the two is unknown.

    One compiler serves all toolkits of a node: `all_newest` are the limits of the others.
    """
    there = state["compiler"]
    if not newest or not there["version"] or gcc_fits(there["version"], newest):
        return
    found = f"{compiler or 'g++'} {there['version']}{'' if there['installed'] else ', to be installed'}"
    limits = [newest, *all_newest]
    action = f"install a gcc {min(limits, key=numbers)} and name it as cuda_toolkit_host_compiler, or take a newer CUDA"
    fitting = _fitting(state, limits)
    if fitting:
        action = f"set cuda_toolkit_host_compiler: {fitting[-1]}, which the node's repositories have"
    yield Finding("host compiler", found, f"gcc {newest} or older for CUDA {version}", action)


def _fitting(state: State, limits: Sequence[str]) -> list[str]:
    """Return the compilers of the node's repositories that are within all limits."""
    return [name for name in state["compilers"] if all(gcc_fits(name.rpartition("-")[2], newest) for newest in limits)]


def _all_compiler_findings(state: State, records: Sequence[Record], compiler: str) -> Iterator[Finding]:
    limits: dict[str, str] = {}
    for record in records:
        # Debian's package brings the compiler that its nvcc is set to.
        if record.get("provider") == "distro" and not compiler:
            continue
        found = state["toolkits"].get(home(record, state["root"])) or {}
        version = str(record.get("version", "")) or release(found.get("nvcc", ""))
        limits[version] = found.get("newest_gcc") or (newest_gcc(version) if _VERSION.fullmatch(version) else "")
    all_newest = [newest for newest in limits.values() if newest]
    for version, newest in limits.items():
        yield from compiler_findings(state, version, newest, compiler, all_newest)
    if compiler and not state["compiler"]["version"] and compiler not in state["compilers"]:
        found = f"no {compiler}, neither on the node nor in its repositories"
        names = ", ".join(_fitting(state, all_newest))
        action = f"name one of {names}" if names else "name the path of one"
        if all_newest and not names:
            action += f", gcc {min(all_newest, key=numbers)} or older"
        yield Finding("cuda_toolkit_host_compiler", found, "a compiler that is there or can be installed", action)


def _space_findings(state: State, steps: Sequence[Record], min_mib: Mapping[str, int]) -> Iterator[Finding]:
    system = {"distro": "/usr", "network_repo": "/usr/local"}
    for folder, free in state["free_mib"].items():
        here = [step for step in steps if step["install"] and folder == system.get(step["provider"], state["root"])]
        needed = sum(int(min_mib.get(step["provider"], 0)) for step in here)
        if free < needed:
            expected = f"{needed} MiB for CUDA {', '.join(step['version'] or step['provider'] for step in here)}"
            action = "make room, or give cuda_toolkit_min_free_mib less if you know better"
            yield Finding("disk", f"{free} MiB free in {folder}", expected, action)


def _removals(state: State, records: Sequence[Record], default: str, absent: Sequence[str]) -> Iterator[Any]:
    """Yield what is to be removed as dictionaries, and what must not as findings."""
    requested = {home(record, state["root"]) for record in records}
    for one in dict.fromkeys(release(version) for version in absent):
        for where, toolkit in state["toolkits"].items():
            if where in requested or toolkit["kind"] == "foreign":
                continue
            if release(toolkit["nvcc"] or toolkit["named"]) != one:
                continue
            if where == state["default"] and not records and default != "none":
                found = f"{one} in {where}, which is the default"
                action = "name another version in cuda_toolkit_versions, or set cuda_toolkit_default: none"
                yield Finding("cuda_toolkit_absent", found, "another default before this one goes", action)
            else:
                yield {"action": "remove", "provider": toolkit["kind"], "version": one, "home": where}


def plan_toolkits(
    nodes: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for each host what to install, what to remove and which home is the default.

    A node is its `state`, the `records` requested there, `default` and `absent`. `settings` has `pins` (wheels by
    release), `min_free_mib` by provider, `host_compiler` and `manage_system`.
    """
    plans: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for node in nodes:
        state, records = node["state"], node["records"]
        default = "" if node["default"] is None else str(node["default"])
        absent = [str(version) for version in node["absent"]]
        wrong = [one for record in records for one in _record_findings(record, settings["pins"])]
        wrong += _list_findings(records, default, absent)
        if not wrong:
            wrong += _all_compiler_findings(state, records, settings["host_compiler"])
            wrong += _node_findings(state, records, bool(settings["manage_system"]))
            removals = list(_removals(state, records, default, absent))
            wrong += [one for one in removals if isinstance(one, Finding)]
            steps = [_step(state, record, settings["pins"]) for record in records]
            wrong += _space_findings(state, steps, settings["min_free_mib"])
            plans[state["host"]] = {
                "toolkits": steps,
                "remove": [one for one in removals if not isinstance(one, Finding)],
                "default": _default_home(steps, default),
                "packages": [one for step in steps if step["provider"] == "network_repo" for one in step["packages"]],
            }
        findings += [finding.on(state["host"]) for finding in wrong]
    return plans, findings


def _default_home(steps: Sequence[Mapping[str, Any]], default: str) -> str:
    if default == "none" or not steps:
        return ""
    chosen = [step for step in steps if default and release(step["version"]) == release(default)]
    return str((chosen or steps)[0]["home"])


def _step(state: State, record: Record, pins: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a record with all that its installation needs; `install`: whether something is known to be missing."""
    version, provider = str(record.get("version", "")), str(record["provider"])
    where = home(record, state["root"])
    found = state["toolkits"].get(where) or {}
    missing = not matches(record, found)
    if provider == "runfile":
        missing = missing or found.get("record", {}).get("sha256") != record["sha256"]
    return {
        "provider": provider,
        "version": version,
        "release": release(version),
        "home": where,
        "packages": packages(record),
        "wheels": list(record.get("wheels") or pins.get(release(version)) or []),
        **{name: str(record.get(name, "")) for name in ("url", "local_file", "sha256")},
        "found": toolkit_text(found, where) if found else "",
        "install": missing and provider != "none",
    }


def _node_findings(state: State, records: Sequence[Record], manage_system: bool) -> Iterator[Finding]:
    if state["default_kind"] == "foreign":
        found, expected = f"{state['root']}/cuda, which is no link", "a link to the default toolkit, or nothing"
        yield Finding(
            "default CUDA toolkit", found, expected, "move it away, or set cuda_toolkit_root to another folder"
        )
    for record in records:
        provider, where = str(record["provider"]), home(record, state["root"])
        found = state["toolkits"].get(where)
        if provider in ("distro", "network_repo"):
            if state["family"] != "debian":
                action = f"take {_ELSEWHERE}, or the provider runfile with exact version, url and sha256"
                yield Finding("cuda_toolkit_provider", f"{provider} on {state['os']}", "a system with apt", action)
            if not manage_system:
                text = f"{provider}, whose packages only root may install"
                expected = "trainyard_manage_system: true"
                yield Finding("cuda_toolkit_provider", text, expected, f"take {_ELSEWHERE}")
        if provider in ("runfile", "wheel") and found and found["kind"] == "foreign":
            expected, action = "a folder of this role's own, or none", "move it away, or verify it: provider none, path"
            yield Finding("CUDA toolkit", f"{where}, which this role did not make", expected, action)
        if provider == "none" and not matches(record, found or {}):
            expected = f"CUDA {record.get('version') or 'of any version'}, as provider none installs nothing"
            action = "install it there, give the record its path, or choose another provider"
            yield Finding("CUDA toolkit", toolkit_text(found, where), expected, action)
