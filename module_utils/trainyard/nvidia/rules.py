# SPDX-License-Identifier: Apache-2.0
"""The rules of NVIDIA's stack: whether driver, CUDA, NCCL and framework fit one host and one another.

Pure. The data, each row with its source, is in roles/nvidia_stack/vars/main/rules.yml; unverified rows only warn.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..software import mindspore
from . import cuda as toolkits
from . import hardware as nvidia
from . import nccl_sources
from .case import Case, Host, Parts, Result, Row, Rules, override, range_text, row_of, within
from .machine_rules import driver_rules, machine_rules


def _cudas(case: Case) -> list[tuple[str, str]]:
    """Return the CUDA releases that the parts need, each with the part that needs it."""
    found = []
    toolkit, framework = case.parts.get("cuda", {}), case.parts.get("framework", {})
    if toolkit.get("provider", "none") != "none" and toolkit.get("version"):
        found.append((toolkits.release(toolkit["version"]), f"CUDA {toolkit['version']}"))
    name = f"{framework.get('name')} {framework.get('version')}"
    if framework.get("cuda"):
        found.append((framework["cuda"], f"{name} for CUDA {framework['cuda']}"))
    build = row_of(case.rules, "pytorch", build=framework.get("build", ""))
    if build:
        found.append((build["cuda"], f"{name}+{build['build']}"))
    return found


def _generations(case: Case) -> Iterator[Result]:
    """Compare GPU generation and model with flavour of modules, driver and CUDA."""
    seen: set[tuple[str, str]] = set()
    for gpu in case.facts["gpus"]:
        kind = (gpu["generation"], gpu["name"])
        if kind in seen:
            continue
        seen.add(kind)
        row = row_of(case.rules, "generations", name=gpu["generation"])
        what = f"{gpu['name'] or gpu['device_id']} ({gpu['generation']})"
        if row is None:
            expected = "a GPU whose generation is known"
            action = "look up which driver and CUDA it needs; nothing was checked for it"
            yield case.warn("GPU model", f"device id {gpu['device_id']}, which is not in the table", expected, action)
            continue
        rows = [row, *(one for one in case.rules["models"] if gpu["name"].startswith(one["name"]))]
        for one in rows:
            yield from _generation(case, what, one)


def _generation(case: Case, what: str, row: Row) -> Iterator[Result]:
    flavours = row.get("flavours", [])
    if flavours and case.flavour and case.flavour not in flavours:
        found = f"{case.flavour} modules for {what}"
        expected = f"{' or '.join(flavours)} modules"
        yield case.by_row(row, "GPU and module flavour", found, expected, override("driver", flavour=flavours[0]))
    if case.driver_name and not within(case.driver_number, row["drivers"], series=True):
        found = f"driver {case.driver_name} for {what}"
        action = override("driver", branch=next(str(end) for end in reversed(row["drivers"]) if end))
        yield case.by_row(row, "GPU and driver", found, f"driver branch {range_text(row['drivers'])}", action)
    for release, who in _cudas(case) if "cuda" in row else ():
        if not within(nvidia.number(release), row["cuda"]):
            action = "choose a stack with such a CUDA, or put nodes with other GPUs into a group with their own stack"
            yield case.by_row(row, "GPU and CUDA", f"{who} for {what}", f"CUDA {range_text(row['cuda'])}", action)


def _cuda_and_driver(case: Case) -> Iterator[Result]:
    """Compare the driver with the oldest one for each CUDA; below the release's own driver only some features work."""
    if not case.driver_name:
        return
    for release, who in _cudas(case):
        row = row_of(case.rules, "cuda", version=release)
        if row is None:
            expected = f"a release of the table, up to {case.rules['cuda'][-1]['version']}"
            action = "look up its oldest driver; nothing was checked for it"
            yield case.warn("CUDA and driver", f"{who}, which is not in the table", expected, action)
            continue
        least = nvidia.number(row["least"])
        if case.driver_number < least:
            expected = f"driver {row['least']} or newer"
            action = override("driver", branch=nvidia.branch_of(row["driver"]))
            yield case.by_row(row, "CUDA and driver", f"driver {case.driver_name} for {who}", expected, action)
        elif case.driver_number < nvidia.number(row["driver"]):
            found = f"driver {case.driver_name} for {who}: minor version compatibility, without PTX and new features"
            text = f"driver {row['driver']} or newer for all of it" + case.source(row)
            yield case.warn("CUDA and driver", found, text, "go on, or take a newer driver")


def _has(row: Row, arch: str, generation: str) -> bool:
    """Return whether a build of PyTorch has code for a generation."""
    order = nvidia.GENERATIONS
    first, last = row.get(arch, row["generations"])
    return generation in order and order.index(first) <= order.index(generation) <= order.index(last)


def _pytorch(case: Case) -> Iterator[Result]:
    """Compare the build of PyTorch with its release, the GPUs and the architecture."""
    framework, arch = case.parts.get("framework", {}), case.facts["arch"]
    build, version = framework.get("build", ""), framework.get("version", "")
    if framework.get("name") != "pytorch" or not build.startswith("cu"):
        return
    of_release = [
        row for row in case.rules["pytorch"] if within(nvidia.number(toolkits.release(version)), row["releases"])
    ]
    row = row_of(case.rules, "pytorch", build=build)
    if row is None or row not in of_release:
        known = ", ".join(one["build"] for one in of_release) or "none"
        action = override("framework", build="...") + ", or another version"
        yield case.stop("framework", f"pytorch {version}+{build}", f"a build that {version} has: {known}", action)
        return
    first, last = row.get(arch, row["generations"])
    for generation in dict.fromkeys(gpu["generation"] for gpu in case.facts["gpus"]):
        if generation != nvidia.UNKNOWN and not _has(row, arch, generation):
            others = ", ".join(one["build"] for one in of_release if _has(one, arch, generation))
            yield case.by_row(
                row,
                "framework",
                f"pytorch {version}+{build} for {generation} on {arch}",
                f"GPUs from {first} to {last}",
                (f"a build of {version} with {generation}: {others or 'none'}; " + override("framework", build="...")),
            )


def _mindspore(case: Case) -> Iterator[Result]:
    """Compare the release of MindSpore with CUDA, architecture and driver."""
    framework = case.parts.get("framework", {})
    version, cuda = framework.get("version", ""), framework.get("cuda", "")
    if framework.get("name") != "mindspore" or not cuda:
        return
    row: Row = case.rules["mindspore"]
    release = mindspore.RELEASES.get(toolkits.release(version))
    cudas = release.cudas if release else tuple(mindspore.CUDAS)
    if cuda not in cudas:
        found, action = f"mindspore {version} for CUDA {cuda}", override("framework", cuda="...")
        expected = f"CUDA {' or '.join(cudas)}" if cudas else "another release: this one has no GPU wheel"
        yield case.by_row(row, "framework", found, expected, action)
        return
    if case.facts["arch"] not in row["arch"]:
        yield case.by_row(
            row,
            "framework",
            f"mindspore {version} for GPUs on {case.facts['arch']}",
            f"{', '.join(row['arch'])}: there are no other wheels",
            "take the host out of the group, or choose another framework",
        )
    least = mindspore.CUDAS[cuda].driver
    if case.driver_name and case.driver_number < nvidia.number(least):
        yield case.by_row(
            row,
            "framework",
            f"driver {case.driver_name} for mindspore {version} for CUDA {cuda}",
            f"driver {least} or newer",
            override("driver", branch=nvidia.branch_of(least)),
        )


def _unknown_system(case: Case, part: str, table: str) -> Result:
    systems = ", ".join(row["os"] for row in case.rules[table])
    found = f"{part} by {table} on {case.os or 'an unknown system'}"
    return case.stop("operating system", found, f"one of {systems}", override(part, provider="..."))


def _distro_sources(case: Case) -> Iterator[Result]:
    """Compare the parts that come from the distribution with what it has."""
    toolkit, nccl = case.parts.get("cuda", {}), case.parts.get("nccl", {})
    has_driver = case.provider == "distro" and not case.without
    has_toolkit, has_nccl = toolkit.get("provider") == "distro", nccl.get("provider") == "distro"
    row, name, here = row_of(case.rules, "distro", os=case.os), "operating system", f"from {case.os} itself"
    if row is None:
        parts = {"driver": has_driver, "cuda": has_toolkit, "nccl": has_nccl}
        yield from (_unknown_system(case, part, "distro") for part, used in parts.items() if used)
        return
    if has_driver and case.branch and case.branch not in row["drivers"]:
        expected, action = f"branch {' or '.join(row['drivers'])}", override("driver", branch=row["drivers"][0])
        yield case.by_row(row, name, f"driver {case.branch} {here}", expected, action)
    version = toolkit.get("version", "")
    if has_toolkit and version and toolkits.release(version) != row["cuda"]:
        action = override("cuda", version=f'"{row["cuda"]}"')
        yield case.by_row(row, name, f"CUDA {version} {here}", f"CUDA {row['cuda']}", action)
    if has_nccl and "nccl" not in row:
        action = "go on: the role nccl lists the offered versions before it changes anything"
        yield case.warn(name, f"NCCL {here}", "a version that is known here", action)
    elif has_nccl and (not row["nccl"] or nccl.get("version", "") not in ("", row["nccl"])):
        expected = f"NCCL {row['nccl'] or 'from elsewhere, as it has none'}"
        action = nccl_sources.alternatives(case, nccl.get("version", ""), nccl.get("cuda", ""))
        yield case.by_row(row, name, f"NCCL {nccl.get('version', '')} {here}", expected, action)


def _repository_sources(case: Case) -> Iterator[Result]:
    """Compare driver, CUDA and NCCL from NVIDIA's repository with the systems that it serves."""
    toolkit, nccl = case.parts.get("cuda", {}), case.parts.get("nccl", {})
    used = {
        "driver": case.provider == "network_repo" and not case.without,
        "cuda": toolkit.get("provider") == "network_repo",
        "nccl": nccl.get("provider") == "network_repo",
    }
    row, version = row_of(case.rules, "network_repo", os=case.os), toolkit.get("version", "")
    if row is None:
        yield from (_unknown_system(case, part, "network_repo") for part in used if used[part])
    elif used["cuda"] and version and not within(nvidia.number(toolkits.release(version)), row["cuda"]):
        found = f"CUDA {version} from NVIDIA's repository for {case.os}"
        action = override("cuda", provider="runfile")
        yield case.by_row(row, "operating system", found, f"CUDA {range_text(row['cuda'])}", action)


def _nccl(case: Case) -> Iterator[Result]:
    """Compare the build of NCCL with CUDA and driver."""
    nccl, toolkit = case.parts.get("nccl", {}), case.parts.get("cuda", {})
    built, version = nccl.get("cuda", ""), toolkit.get("version", "")
    if nccl.get("provider", "none") == "none" or not built:
        return
    row = {"source": "nccl_builds"}
    if toolkit.get("provider", "none") != "none" and version:
        if nvidia.number(built)[:1] != nvidia.number(version)[:1]:
            yield case.by_row(
                row,
                "NCCL and CUDA",
                f"NCCL {nccl.get('version', '')} built for CUDA {built} beside CUDA {version}",
                f"a build for CUDA {nvidia.number(version)[0]}",
                override("nccl", cuda=f'"{toolkits.release(version)}"'),
            )
        elif nccl["provider"] == "network_repo" and toolkits.release(version) != built:
            found = f"NCCL built for CUDA {built} beside CUDA {version}"
            text = f"+cuda{toolkits.release(version)} where the repository has it" + case.source(row)
            yield case.warn("NCCL and CUDA", found, text, "go on: builds of one major release fit")
    known = row_of(case.rules, "nccl", version=nccl.get("version", ""))
    if known and nccl["provider"] in ("network_repo", "archive") and toolkits.release(built) not in known["cuda"]:
        yield case.by_row(
            known,
            "NCCL and CUDA",
            f"NCCL {nccl['version']}+cuda{built}, an unknown build",
            f"+cuda{' or +cuda'.join(known['cuda'])}",
            override("nccl", cuda=f'"{known["cuda"][-1]}"') + ", or go on: the role nccl lists what there is",
        )
    release = row_of(case.rules, "cuda", version=toolkits.release(built))
    if release and case.driver_name and case.driver_number < nvidia.number(release["least"]):
        yield case.by_row(
            release,
            "NCCL and driver",
            f"driver {case.driver_name} for NCCL built for CUDA {built}",
            f"driver {release['least']} or newer",
            override("driver", branch=nvidia.branch_of(release["driver"])),
        )


def _cudnn(case: Case) -> Iterator[Result]:
    """Compare cuDNN with framework, CUDA and operating system."""
    cudnn, toolkit, framework = (case.parts.get(part, {}) for part in ("cudnn", "cuda", "framework"))
    version, built = cudnn.get("version", ""), cudnn.get("cuda", "")
    has = cudnn.get("provider", "none") != "none"
    known = mindspore.CUDAS.get(framework.get("cuda", "")) if framework.get("name") == "mindspore" else None
    if known:
        name = f"mindspore {framework.get('version', '')} for CUDA {framework['cuda']}"
        major = nvidia.number(version)[:1] == nvidia.number(known.cudnn)[:1]
        expected = f"cuDNN {known.cudnn}" + case.source({"source": "mindspore"})
        if not has:
            action = "go on if the hosts have it from elsewhere, or " + override("cudnn", provider="...")
            yield case.warn("cuDNN", f"{name} and no cuDNN", expected, action)
        elif not major or nvidia.number(version) < nvidia.number(known.cudnn):
            yield case.stop("cuDNN", f"cuDNN {version} for {name}", expected, override("cudnn", version="..."))
        elif nvidia.number(version)[:2] != nvidia.number(known.cudnn):
            action = "go on: a newer one of the same major release has the same file name"
            yield case.warn("cuDNN", f"cuDNN {version} for {name}", expected, action)
    release = toolkit.get("version", "")
    beside = has and built and release and toolkit.get("provider", "none") != "none"
    if beside and nvidia.number(built)[:1] != nvidia.number(release)[:1]:
        yield case.stop(
            "cuDNN and CUDA",
            f"cuDNN {version} built for CUDA {built} beside CUDA {release}",
            f"a build for CUDA {nvidia.number(release)[0]}, whose cuBLAS it loads",
            override("cudnn", cuda="..."),
        )
    if cudnn.get("provider") == "network_repo":
        repository = row_of(case.rules, "network_repo", os=case.os)
        if not repository or not within(nvidia.number(version), repository.get("cudnn", ["99", ""])):
            yield case.warn(
                "cuDNN",
                f"cuDNN {version} from NVIDIA's repository for {case.os or 'an unknown system'}",
                "a system and a version known to be in this repository"
                + case.source({"source": "cudnn", "verified": False}),
                (
                    "go on (the role cudnn lists what there is before it changes anything), or "
                    + override("cudnn", provider="archive")
                ),
            )


def check(node: Host, parts: Parts, rules: Rules) -> Iterator[Result]:
    """Yield the results of all rules for one host; `node` is as in stack.choose_all."""
    case = Case(node, parts, rules)
    yield from machine_rules(case)
    yield from _distro_sources(case)
    yield from _repository_sources(case)
    yield from nccl_sources.sources(case)
    # Rules of GPUs and drivers do not apply to a host that is declared to have no GPU.
    if not case.without:
        for rule in (_generations, _cuda_and_driver, _pytorch, _mindspore, _nccl, _cudnn, driver_rules):
            yield from rule(case)
