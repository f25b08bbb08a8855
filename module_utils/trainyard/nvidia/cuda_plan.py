# SPDX-License-Identifier: Apache-2.0
"""Plan the CUDA toolkits of all nodes: errors of the request, findings about nodes, and the steps.

Pure. A state is what library/cuda_toolkit_state returns of a node, a record one entry of cuda_toolkit_versions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from .cuda import NVCC_BUILDS, State, gcc_fits, newest_gcc, numbers, release

Record = Mapping[str, Any]

PROVIDERS = ("distro", "network_repo", "runfile", "wheel", "none")
# Their dependencies hold a driver, or they move on to the next release by themselves.
_METAPACKAGES = re.compile(r"cuda((-runtime|-demo-suite)?(-\d+-\d+)?)|cuda-drivers(-.*)?|nvidia-.*")
_UNVERSIONED = re.compile(r"cuda-toolkit(-\d+)?")
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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


def sources(records: Sequence[Mapping[str, Any]], root: str) -> list[dict[str, str]]:
    """Return where the installers of toolkits come from, for a look before anything is touched."""
    return [
        {
            "what": f"CUDA {record.get('version', '')}",
            "unless": f"{home(record, root)}/bin/nvcc",
            "variables": "cuda_toolkit_url or cuda_toolkit_local_file",
            "url": "" if record.get("local_file") else str(record.get("url") or ""),
            "local_file": str(record.get("local_file") or ""),
            "sha256": str(record.get("sha256") or ""),
        }
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
    return [
        {
            "names": [one["name"]],
            "version": one["version"],
            # The one package of a distribution's toolkit: a release has one version.
            "begins": str(record.get("version", "")) if provider == "distro" and not record.get("packages") else "",
        }
        for record in records
        if record.get("provider") == provider
        for one in packages(record)
    ]


def matches(record: Record, found: Mapping[str, Any]) -> bool:
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


def toolkit_text(found: Mapping[str, Any] | None, where: str) -> str:
    """Say which toolkit was found in a folder."""
    if not found or not found.get("nvcc"):
        return f"no nvcc that answers in {where}/bin"
    return f"CUDA {found['cuda'] or release(found['nvcc'])} (nvcc {found['nvcc']}) in {where}"


def _wrong_record(host: str, record: Record, pins: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Find what is wrong with one record by itself."""
    provider, version = str(record.get("provider", "")), str(record.get("version", ""))
    name = f"CUDA {version}".strip()

    def wrong(found: str, expected: str, action: str = "correct cuda_toolkit_versions") -> Finding:
        return Finding("cuda_toolkit_versions", found, expected, action, host=host)

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
            found=f"no wheels known of {name}",
            expected=f"one of {have}, whose wheels are known to hold nvcc",
            action="give the record its wheels as pins, name==version, or take provider network_repo or runfile",
        )
    for package in (one["name"] for one in packages(record)):
        if provider == "network_repo" and _METAPACKAGES.fullmatch(package):
            yield wrong(
                found=f"the package {package}, which brings a driver of its own",
                expected="packages of the toolkit only, such as cuda-toolkit-12-4",
                action="take it out of packages; drivers come from the role nvidia_driver",
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
            found = f"{count} toolkits of CUDA {one or 'without a version'}"
            expected = "one for each release, X.Y"
            yield Finding("cuda_toolkit_versions", found, expected, "correct cuda_toolkit_versions", host=host)
    if default not in ("", "none") and release(default) not in releases:
        expected = f"one of {', '.join(filter(None, releases)) or 'none'}"
        action = "name a version of cuda_toolkit_versions, or none"
        yield Finding("cuda_toolkit_default", default, expected, action, host=host)
    for one in sorted({release(version) for version in absent} & set(releases)):
        found = f"{one}, which cuda_toolkit_versions asks for"
        expected = "a version that is either wanted or to be removed"
        yield Finding("cuda_toolkit_absent", found, expected, "take it out of one of the two", host=host)


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
        "host compiler",
        f"{asked or 'g++'} {found['version']}{'' if found['installed'] else ', to be installed'}",
        f"gcc {newest} or older for CUDA {version}",
        ways,
        host=state["host"],
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
            "cuda_toolkit_host_compiler",
            f"no {asked}, neither on the node nor in its repositories",
            "a compiler that is there or can be installed",
            f"name one of {', '.join(state['compilers'])}" if state["compilers"] else "name the path of one",
            host=state["host"],
        )


def _space(state: State, installs: Sequence[Record], least_mib: Mapping[str, int]) -> Iterator[Finding]:
    for folder, free in state["free_mib"].items():
        asking = [one for one in installs if folder in _places(one, state["root"])]
        needed = sum(int(least_mib.get(str(one["provider"]), 0)) for one in asking)
        if free < needed:
            expected = (
                f"{needed} MiB for CUDA {', '.join(str(one.get('version') or one['provider']) for one in asking)}"
            )
            action = "make room, or give cuda_toolkit_min_free_mib less if you know better"
            yield Finding("disk", f"{free} MiB free in {folder}", expected, action, host=state["host"])


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
                    "cuda_toolkit_absent",
                    f"{one} in {where}, which is the default",
                    "another default before this one goes",
                    "name another version in cuda_toolkit_versions, or set cuda_toolkit_default: none",
                    host=state["host"],
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
        "url": str(record.get("url", "")),
        "local_file": str(record.get("local_file", "")),
        "sha256": str(record.get("sha256", "")),
        "found": toolkit_text(found, where) if found else "",
        "install": missing and provider != "none",
    }


def _cannot(state: State, records: Sequence[Record], manage_system: bool) -> Iterator[Finding]:
    """Find what a node cannot have."""
    if state["default_kind"] == "foreign":
        yield Finding(
            "default CUDA toolkit",
            f"{state['root']}/cuda, which is no link",
            "a link to the default toolkit, or nothing",
            "move it away, or set cuda_toolkit_root to another folder",
            host=state["host"],
        )
    for record in records:
        provider, where = str(record["provider"]), home(record, state["root"])
        found = state["toolkits"].get(where)
        if provider in ("distro", "network_repo"):
            if state["family"] != "debian":
                yield Finding(
                    "cuda_toolkit_provider",
                    f"{provider} on {state['os']}",
                    "a system with apt",
                    "take the provider runfile, wheel or none",
                    host=state["host"],
                )
            if not manage_system:
                yield Finding(
                    "cuda_toolkit_provider",
                    f"{provider}, whose packages only root may install",
                    "trainyard_manage_system: true",
                    "take the provider wheel, or none",
                    host=state["host"],
                )
        if provider in ("runfile", "wheel") and found and found["kind"] == "foreign":
            yield Finding(
                "CUDA toolkit",
                f"{where}, which this role did not make",
                "a folder of this role's own, or none",
                "move it away, or verify it only: provider none, path",
                host=state["host"],
            )
        if provider == "none" and not matches(record, found or {}):
            expected = f"CUDA {record.get('version') or 'of any version'}, as provider none installs nothing"
            action = "install it there, give the record its path, or choose another provider"
            yield Finding("CUDA toolkit", toolkit_text(found, where), expected, action, host=state["host"])
