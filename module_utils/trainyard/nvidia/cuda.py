# SPDX-License-Identifier: Apache-2.0
"""CUDA toolkits on the nodes: versions as their own files tell them, host compilers, who gets what, and the judgement.

Pure. A state is what library/cuda_toolkit_state returns of a node, a record one entry of cuda_toolkit_versions. A
toolkit is known by its release, `12.4` of 12.4.1: packages of two updates of one release cannot be side by side.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..record.findings import Finding, host_list

State = Mapping[str, Any]
Record = Mapping[str, Any]

PROVIDERS = ("distro", "network_repo", "runfile", "wheel", "none")
# Newest host gcc by newest CUDA release that has this limit, as spack-packages' build_systems/cuda.py lists them after
# NVIDIA's installation guides ("host compiler support policy"); 13.0's own crt/host_config.h says the same. gcc 11.2
# passes the check of 11.4 and 11.5, and then its <functional> does not compile.
NEWEST_GCC = (
    ((10, 2), (8,)),
    ((11, 0), (9,)),
    ((11, 4, 0), (10,)),
    ((11, 5), (11, 1)),
    ((11, 8), (11,)),
    ((12, 3), (12,)),
    ((12, 6), (13,)),
    ((12, 9), (14,)),
    ((13, 2), (15,)),
)
# Last number of nvcc's own version by release of the toolkit, from the labels of NVIDIA's conda channel: what tells
# 12.4.0 from 12.4.1 where no version.json is, as in wheels and Debian's packages.
NVCC_BUILDS = {
    "11.0.3": 221, "11.1.1": 105, "11.3.1": 122, "11.4.0": 48, "11.4.1": 100, "11.4.2": 120, "11.4.3": 152,
    "11.4.4": 152, "11.5.0": 50, "11.5.1": 119, "11.5.2": 119, "11.6.0": 55, "11.6.1": 112, "11.6.2": 124,
    "11.7.0": 64, "11.7.1": 99, "11.8.0": 89, "12.0.0": 76, "12.0.1": 140, "12.1.0": 66, "12.1.1": 105,
    "12.2.0": 91, "12.2.1": 128, "12.2.2": 140, "12.3.0": 52, "12.3.1": 103, "12.3.2": 107, "12.4.0": 99,
    "12.4.1": 131, "12.5.0": 40, "12.5.1": 82, "12.6.0": 20, "12.6.1": 68, "12.6.2": 77, "12.6.3": 85,
    "12.8.0": 61, "12.8.1": 93, "12.9.0": 41, "12.9.1": 86, "13.0.0": 48, "13.0.1": 88, "13.0.2": 88,
    "13.1.0": 80, "13.1.1": 115,
}  # fmt: skip
# Their dependencies hold a driver, or they move on to the next release by themselves.
_METAPACKAGES = re.compile(r"cuda((-runtime|-demo-suite)?(-\d+-\d+)?)|cuda-drivers(-.*)?|nvidia-.*")
_UNVERSIONED = re.compile(r"cuda-toolkit(-\d+)?")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NVCC = re.compile(r"release (?P<release>\d+\.\d+), V(?P<version>\d+\.\d+\.\d+)")
_HOST_CONFIG = re.compile(r"^\s*#\s*if\s+__GNUC__\s*>\s*(?P<newest>\d+)", re.MULTILINE)
_GCC = re.compile(r"(?:\d+:)?(?P<version>\d+(?:\.\d+)*)")
_COMPILER = re.compile(r"(?P<path>/.*/)?(?P<name>[A-Za-z0-9_+]+)(?P<suffix>-[0-9.]+)?")


def numbers(version: str) -> tuple[int, ...]:
    """Return `12.4.1` as numbers. Raises ValueError for anything else."""
    return tuple(int(part) for part in version.split("."))


def release(version: str) -> str:
    """Return `12.4` of 12.4 and of 12.4.1."""
    return ".".join(version.split(".")[:2])


def nvcc_version(output: str) -> str:
    """Return `13.0.88` from what `nvcc --version` prints; empty where it says none."""
    match = _NVCC.search(output)
    return match["version"] if match else ""


def toolkit_version(text: str | None) -> str:
    """Return the toolkit's version from its version.json, which the vendor's packages and runfile have."""
    try:
        found = json.loads(text or "{}")["cuda"]["version"]
    except (KeyError, TypeError, ValueError):
        return ""
    return found if isinstance(found, str) else ""


def newest_gcc_of(text: str | None) -> str:
    """Return the newest gcc that a toolkit's own crt/host_config.h accepts; empty where it does not say."""
    match = _HOST_CONFIG.search(text or "")
    return match["newest"] if match else ""


def newest_gcc(version: str) -> str:
    """Return the newest gcc for a CUDA version by the table; empty for a release that is newer than the table."""
    # A release without its update is meant with all of them.
    wanted = (*numbers(version), 99)
    for until, newest in NEWEST_GCC:
        if wanted[: len(until)] <= until:
            return ".".join(map(str, newest))
    return ""


def gcc_version(text: str) -> str:
    """Return `12.2.0` from what -dumpfullversion prints, and from the version `4:12.2.0-3` of a package."""
    match = _GCC.match(text.strip())
    return match["version"] if match else ""


def gcc_fits(version: str, newest: str) -> bool:
    """Tell whether a gcc is none too new; `newest` names a whole series, as 11 does every 11.x."""
    limit = numbers(newest)
    return numbers(version)[: len(limit)] <= limit


def compiler_package(compiler: str) -> str:
    """Return Debian's package with a host compiler, `g++-11` for /usr/bin/g++-11; empty for any other."""
    match = _COMPILER.fullmatch(compiler or "g++")
    if match is None or match["name"] not in ("g++", "gcc") or match["path"] not in (None, "/usr/bin/"):
        return ""
    return f"g++{match['suffix'] or ''}"


def home(record: Record, root: str) -> str:
    """Return where a record's toolkit is found."""
    version = str(record.get("version", ""))
    return {
        "distro": f"{root}/cuda-distro",
        "network_repo": f"/usr/local/cuda-{release(version)}",
        "runfile": f"{root}/cuda-{version}",
        "wheel": f"{root}/cuda-{version}",
        "none": str(record.get("path") or "/usr/local/cuda").rstrip("/"),
    }[str(record["provider"])]


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


def _matches(record: Record, found: Mapping[str, Any]) -> bool:
    """Tell whether a toolkit that was found is the one that a record wants."""
    wanted = str(record.get("version", ""))
    if not found.get("nvcc"):
        return False
    if not wanted:
        return True
    if release(found["nvcc"]) != release(wanted):
        return False
    if wanted.count(".") < 2:
        return True
    if found.get("cuda"):
        return bool(found["cuda"] == wanted)
    build = NVCC_BUILDS.get(wanted)
    return build is None or numbers(found["nvcc"])[2] == build


def _shown(found: Mapping[str, Any] | None, where: str) -> str:
    if not found or not found.get("nvcc"):
        return f"no nvcc that answers in {where}/bin"
    return f"CUDA {found['cuda'] or release(found['nvcc'])} (nvcc {found['nvcc']}) in {where}"


def _wrong_record(host: str, record: Record, pins: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Find what is wrong with one record by itself."""
    provider, version = str(record.get("provider", "")), str(record.get("version", ""))
    name = f"CUDA {version}".strip()

    def wrong(found: str, expected: str, action: str = "correct cuda_toolkit_versions") -> Finding:
        return Finding(host, "cuda_toolkit_versions", found, expected, action)

    if provider not in PROVIDERS:
        yield wrong(f"provider {provider!r} of {name}", f"one of {', '.join(PROVIDERS)}")
        return
    if not _VERSION.fullmatch(version) and not (version == "" and provider in ("distro", "none")):
        yield wrong(f"version {version!r} of the provider {provider}", "a version such as 12.4 or 12.4.1")
        return
    if provider == "runfile":
        if version.count(".") != 2:
            yield wrong(f"version {version!r} of the provider runfile", "the exact version of the file, as 12.4.1")
        if not _SHA256.fullmatch(str(record.get("sha256", ""))):
            yield wrong(f"sha256 {record.get('sha256', '')!r} of {name}", "64 hexadecimal digits")
        if not record.get("local_file") and not re.match(r"(https?|file)://", str(record.get("url", ""))):
            yield wrong(f"url {record.get('url', '')!r} of {name}", "an address, or local_file on the controller")
    if provider == "wheel" and not record.get("wheels") and not pins.get(release(version)):
        have = ", ".join(sorted(pins, key=numbers)) or "none"
        yield wrong(
            f"no wheels known of {name}",
            f"one of {have}, whose wheels are known to hold nvcc",
            "give the record its wheels as pins, name==version, or take provider network_repo or runfile",
        )
    for package in (one["name"] for one in packages(record)):
        if provider == "network_repo" and _METAPACKAGES.fullmatch(package):
            yield wrong(
                f"the package {package}, which brings a driver of its own",
                "packages of the toolkit only, such as cuda-toolkit-12-4",
                "take it out of packages; drivers come from the role nvidia_driver",
            )
        elif provider == "network_repo" and _UNVERSIONED.fullmatch(package):
            yield wrong(
                f"the package {package}, which moves on to each new release",
                "a package of one release, such as cuda-toolkit-12-4",
            )


def _wrong_list(host: str, records: Sequence[Record], default: str, absent: Sequence[str]) -> Iterator[Finding]:
    """Find what is wrong with the records together."""
    releases = [release(str(record.get("version", ""))) for record in records]
    for one, count in Counter(releases).items():
        if count > 1:
            yield Finding(
                host,
                "cuda_toolkit_versions",
                f"{count} toolkits of CUDA {one or 'without a version'}",
                "one for each release, X.Y",
                "correct cuda_toolkit_versions",
            )
    if default not in ("", "none") and release(default) not in releases:
        yield Finding(
            host,
            "cuda_toolkit_default",
            default,
            f"one of {', '.join(filter(None, releases)) or 'none'}",
            "name a version of cuda_toolkit_versions, or none",
        )
    for one in sorted({release(version) for version in absent} & set(releases)):
        yield Finding(
            host,
            "cuda_toolkit_absent",
            f"{one}, which cuda_toolkit_versions wants",
            "a version that is either wanted or to be removed",
            "take it out of one of the two",
        )


def compiler_finding(state: State, version: str, newest: str, asked: str) -> Finding | None:
    """Find a host compiler that is too new for a CUDA version; none where one of the two is unknown."""
    found = state["compiler"]
    if not newest or not found["version"] or gcc_fits(found["version"], newest):
        return None
    fitting = [name for name in state["compilers"] if gcc_fits(name.rpartition("-")[2], newest)]
    ways = (
        f"set cuda_toolkit_host_compiler: {fitting[-1]}, which the node's repositories have"
        if fitting
        else (f"install a gcc {newest} and name it as cuda_toolkit_host_compiler, or take a newer CUDA")
    )
    return Finding(
        state["host"],
        "host compiler",
        f"{asked or 'g++'} {found['version']}{'' if found['installed'] else ', to be installed'}",
        f"gcc {newest} or older for CUDA {version}",
        ways,
    )


def _compilers(state: State, records: Sequence[Record], asked: str) -> Iterator[Finding]:
    for record in records:
        version = str(record.get("version", ""))
        # Debian's package brings the compiler that its nvcc is set to.
        if record.get("provider") == "distro" and not asked:
            continue
        found = state["toolkits"].get(home(record, state["root"])) or {}
        version = version or release(found.get("nvcc", ""))
        newest = found.get("newest_gcc") or (newest_gcc(version) if _VERSION.fullmatch(version) else "")
        finding = compiler_finding(state, version, newest, asked)
        if finding is not None:
            yield finding
    if asked and not state["compiler"]["version"] and asked not in state["compilers"]:
        yield Finding(
            state["host"],
            "cuda_toolkit_host_compiler",
            f"no {asked}, neither on the node nor in its repositories",
            "a compiler that is there or can be installed",
            f"name one of {', '.join(state['compilers'])}" if state["compilers"] else "name the path of one",
        )


def _space(state: State, installs: Sequence[Record], least_mib: Mapping[str, int]) -> Iterator[Finding]:
    for folder, free in state["free_mib"].items():
        asking = [one for one in installs if folder in _places(one, state["root"])]
        needed = sum(int(least_mib.get(str(one["provider"]), 0)) for one in asking)
        if free < needed:
            yield Finding(
                state["host"],
                "disk",
                f"{free} MiB free in {folder}",
                f"{needed} MiB for CUDA {', '.join(str(one.get('version') or one['provider']) for one in asking)}",
                "make room, or give cuda_toolkit_min_free_mib less if you know better",
            )


def _places(record: Record, root: str) -> tuple[str, ...]:
    return {"distro": ("/usr",), "network_repo": ("/usr/local",)}.get(str(record["provider"]), (root,))


def _removals(state: State, records: Sequence[Record], default: str, absent: Sequence[str]) -> Iterator[Any]:
    """Yield what is to be removed as dictionaries, and what must not as findings."""
    wanted = {home(record, state["root"]) for record in records}
    for one in dict.fromkeys(release(version) for version in absent):
        found = [
            (where, toolkit)
            for where, toolkit in state["toolkits"].items()
            if where not in wanted
            and toolkit["kind"] != "foreign"
            and release(toolkit["nvcc"] or toolkit["named"]) == one
        ]
        for where, toolkit in found:
            if where == state["default"] and not records and default != "none":
                yield Finding(
                    state["host"],
                    "cuda_toolkit_absent",
                    f"{one} in {where}, which is the default",
                    "another default before this one goes",
                    "name another version in cuda_toolkit_versions, or set cuda_toolkit_default: none",
                )
            else:
                yield {"action": "remove", "provider": toolkit["kind"], "version": one, "home": where}


def plan_toolkits(
    nodes: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """Plan for each host what to install, what to remove and which home is the default.

    A node is its `state`, the `records` wanted there, `default` and `absent`. `wanted` has `pins` (wheels by release),
    `min_free_mib` by provider, `host_compiler` and `manage_system`.
    """
    plans: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for node in nodes:
        state, records = node["state"], node["records"]
        host = str(state["host"])
        default = "" if node["default"] is None else str(node["default"])
        absent = [str(version) for version in node["absent"]]
        wrong = [one for record in records for one in _wrong_record(host, record, wanted["pins"])]
        wrong += _wrong_list(host, records, default, absent)
        if not wrong:
            wrong += _compilers(state, records, wanted["host_compiler"])
            wrong += _cannot(state, records, bool(wanted["manage_system"]))
            removals = list(_removals(state, records, default, absent))
            wrong += [one for one in removals if isinstance(one, Finding)]
            steps = [_step(state, record, wanted["pins"]) for record in records]
            wrong += _space(state, [step for step in steps if step["install"]], wanted["min_free_mib"])
            plans[host] = {
                "toolkits": steps,
                "remove": [one for one in removals if not isinstance(one, Finding)],
                "default": _default_home(steps, default),
                "packages": [one for step in steps if step["provider"] == "network_repo" for one in step["packages"]],
            }
        findings += wrong
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
    missing = not _matches(record, found)
    if provider == "runfile":
        missing = missing or found.get("record", {}).get("sha256") != record["sha256"]
    return {
        "provider": provider,
        "version": version,
        "release": release(version),
        "home": where,
        "packages": packages(record),
        "wheels": list(record.get("wheels") or pins.get(release(version)) or []),
        "url": str(record.get("url", "")),
        "local_file": str(record.get("local_file", "")),
        "sha256": str(record.get("sha256", "")),
        "found": _shown(found, where) if found else "",
        "install": missing and provider != "none",
    }


def _cannot(state: State, records: Sequence[Record], manage_system: bool) -> Iterator[Finding]:
    """Find what a node cannot have."""
    if state["default_kind"] == "foreign":
        yield Finding(
            state["host"],
            "default CUDA toolkit",
            f"{state['root']}/cuda, which is no link",
            "a link to the default toolkit, or nothing",
            "move it away, or set cuda_toolkit_root to another folder",
        )
    for record in records:
        provider, where = str(record["provider"]), home(record, state["root"])
        found = state["toolkits"].get(where)
        if provider in ("distro", "network_repo"):
            if state["family"] != "debian":
                yield Finding(
                    state["host"],
                    "cuda_toolkit_provider",
                    f"{provider} on {state['os']}",
                    "a system with apt",
                    "take the provider runfile, wheel or none",
                )
            if not manage_system:
                yield Finding(
                    state["host"],
                    "cuda_toolkit_provider",
                    f"{provider}, whose packages only root may install",
                    "trainyard_manage_system: true",
                    "take the provider wheel, or none",
                )
        if provider in ("runfile", "wheel") and found and found["kind"] == "foreign":
            yield Finding(
                state["host"],
                "CUDA toolkit",
                f"{where}, which this role did not make",
                "a folder of this role's own, or none",
                "move it away, or verify it only: provider none, path",
            )
        if provider == "none" and not _matches(record, found or {}):
            yield Finding(
                state["host"],
                "CUDA toolkit",
                _shown(found, where),
                f"CUDA {record.get('version') or 'of any version'}, as provider none installs nothing",
                "install it there, give the record its path, or choose another provider",
            )


def judge(states: Sequence[State], plans: Mapping[str, Mapping[str, Any]], told: bool = False) -> list[Finding]:
    """Judge the toolkits of all nodes together: each as wanted, and the same everywhere.

    `told`: whether sshd must have been told of the default.
    """
    findings = []
    for state in states:
        plan = plans[state["host"]]
        for step in plan["toolkits"]:
            found = state["toolkits"].get(step["home"])
            if not _matches(step, found or {}):
                findings.append(
                    Finding(
                        state["host"],
                        "CUDA toolkit",
                        _shown(found, step["home"]),
                        f"CUDA {step['version'] or 'of any version'}",
                        "run site.yml, or the vendor's installer again",
                    )
                )
            elif found and found["newest_gcc"] and step["provider"] != "distro":
                wrong = compiler_finding(state, step["version"], found["newest_gcc"], state["compiler"]["name"])
                findings += [wrong] if wrong else []
        if plan["default"] and state["default"] != plan["default"]:
            findings.append(
                Finding(
                    state["host"],
                    "default CUDA toolkit",
                    state["default"] or "none",
                    f"{state['root']}/cuda -> {plan['default']}",
                    "run site.yml",
                )
            )
        if told and f"{state['root']}/cuda/bin" not in (state["session"] or {}).get("PATH", "").split(":"):
            shown = "sshd does not say" if state["session"] is None else f"PATH={state['session'].get('PATH', '')}"
            findings.append(
                Finding(
                    state["host"],
                    "ssh sessions",
                    shown,
                    f"{state['root']}/cuda/bin in the PATH that sshd sets",
                    "sshd takes the first SetEnv only: look for another one in /etc/ssh/sshd_config and sshd_config.d",
                )
            )
    return findings + _odd(states, plans)


def _odd(states: Sequence[State], plans: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Name nodes whose toolkits differ from those of most; a mixed cluster compiles what then does not load."""

    def has(state: State) -> str:
        plan = plans[state["host"]]
        homes = sorted({step["home"] for step in plan["toolkits"]}, key=lambda where: where != plan["default"])
        found = [state["toolkits"].get(where) or {} for where in homes]
        return ", ".join(f"nvcc {one.get('nvcc') or 'missing'}" for one in found) or "none"

    by_text: dict[str, list[str]] = {}
    for state in states:
        by_text.setdefault(has(state), []).append(str(state["host"]))
    if len(by_text) < 2:
        return []
    most = max(by_text, key=lambda text: len(by_text[text]))
    return [
        Finding(
            host,
            "CUDA toolkits",
            text,
            f"{most}, as on {host_list(by_text[most])}",
            "give all nodes the same cuda_toolkit_versions; other hardware is a cluster of its own",
        )
        for text, hosts in by_text.items()
        if text != most
        for host in hosts
    ]
