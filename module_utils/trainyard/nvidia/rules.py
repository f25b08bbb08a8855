# SPDX-License-Identifier: Apache-2.0
"""The rules of NVIDIA's stack: what one host says to one chosen set of driver, CUDA, NCCL and framework.

Pure. The rules' data, each row with its source, is in roles/nvidia_stack/vars/main/rules.yml; rows that nobody here has
verified only warn.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..software import mindspore
from . import cuda as toolkits
from . import hardware as nvidia
from .case import Case, Host, Parts, Row, Rules, Said, in_words, override, row_of, within
from .machine_rules import driver_rules, machine_rules


def _cudas(case: Case) -> list[tuple[str, str]]:
    """Return the CUDA releases that the set asks for, and who asks."""
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


def _generations(case: Case) -> Iterator[Said]:
    """GPU generation and model x flavour of modules x driver x CUDA."""
    seen: set[tuple[str, str]] = set()
    for gpu in case.facts["gpus"]:
        kind = (gpu["generation"], gpu["name"])
        if kind in seen:
            continue
        seen.add(kind)
        row = row_of(case.rules, "generations", name=gpu["generation"])
        what = f"{gpu['name'] or gpu['device_id']} ({gpu['generation']})"
        if row is None:
            yield case.warn(
                "GPU model",
                f"device id {gpu['device_id']}, which is not in the table",
                "a GPU whose generation is known",
                "look up yourself which driver and CUDA it needs; nothing was checked for it",
            )
            continue
        rows = [row, *(one for one in case.rules["models"] if gpu["name"].startswith(one["name"]))]
        for one in rows:
            yield from _generation(case, what, one)


def _generation(case: Case, what: str, row: Row) -> Iterator[Said]:
    flavours = row.get("flavours", [])
    if flavours and case.flavour and case.flavour not in flavours:
        yield case.say(
            row,
            "GPU and module flavour",
            f"{case.flavour} modules for {what}",
            f"{' or '.join(flavours)} modules",
            override("driver", flavour=flavours[0]),
        )
    if case.driver_name and not within(case.driver_number, row["drivers"], series=True):
        yield case.say(
            row,
            "GPU and driver",
            f"driver {case.driver_name} for {what}",
            f"driver branch {in_words(row['drivers'])}",
            override("driver", branch=next(str(end) for end in reversed(row["drivers"]) if end)),
        )
    for release, who in _cudas(case) if "cuda" in row else ():
        if not within(nvidia.number(release), row["cuda"]):
            yield case.say(
                row,
                "GPU and CUDA",
                f"{who} for {what}",
                f"CUDA {in_words(row['cuda'])}",
                "a stack with such a CUDA, or nodes with other GPUs in a group with a stack of their own",
            )


def _cuda_and_driver(case: Case) -> Iterator[Said]:
    """Least driver of each CUDA; below the one it was made with, only some of it works."""
    if not case.driver_name:
        return
    for release, who in _cudas(case):
        row = row_of(case.rules, "cuda", version=release)
        if row is None:
            yield case.warn(
                "CUDA and driver",
                f"{who}, which is not in the table",
                f"a release of the table, up to {case.rules['cuda'][-1]['version']}",
                "look up its least driver yourself; nothing was checked for it",
            )
            continue
        least = nvidia.number(row["least"])
        if case.driver_number < least:
            yield case.say(
                row,
                "CUDA and driver",
                f"driver {case.driver_name} for {who}",
                f"driver {row['least']} or newer",
                override("driver", branch=nvidia.branch_of(row["driver"])),
            )
        elif case.driver_number < nvidia.number(row["driver"]):
            found = f"driver {case.driver_name} for {who}: minor version compatibility, without PTX and new features"
            text = f"driver {row['driver']} or newer for all of it" + case.source(row)
            yield case.warn("CUDA and driver", found, text, "go on, or take a newer driver")


def _has(row: Row, arch: str, generation: str) -> bool:
    """Tell whether a build of PyTorch has code for a generation."""
    order = nvidia.GENERATIONS
    first, last = row.get(arch, row["generations"])
    return generation in order and order.index(first) <= order.index(generation) <= order.index(last)


def _pytorch(case: Case) -> Iterator[Said]:
    """Build of PyTorch x its release x generation x architecture."""
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
            yield case.say(
                row,
                "framework",
                f"pytorch {version}+{build} for {generation} on {arch}",
                f"GPUs from {first} to {last}",
                f"a build of {version} with {generation}: {others or 'none'}; " + override("framework", build="..."),
            )


def _mindspore(case: Case) -> Iterator[Said]:
    """Release of MindSpore x CUDA x architecture x driver."""
    framework = case.parts.get("framework", {})
    version, wanted = framework.get("version", ""), framework.get("cuda", "")
    if framework.get("name") != "mindspore" or not wanted:
        return
    row: Row = case.rules["mindspore"]
    release = mindspore.RELEASES.get(toolkits.release(version))
    cudas = release.cudas if release else tuple(mindspore.CUDAS)
    if wanted not in cudas:
        found, action = f"mindspore {version} for CUDA {wanted}", override("framework", cuda="...")
        yield case.say(row, "framework", found, f"CUDA {' or '.join(cudas) or 'of none: it has no GPU wheel'}", action)
        return
    if case.facts["arch"] not in row["arch"]:
        yield case.say(
            row,
            "framework",
            f"mindspore {version} for GPUs on {case.facts['arch']}",
            f"{', '.join(row['arch'])}: there are no other wheels",
            "take the host out of the group, or another framework",
        )
    least = mindspore.CUDAS[wanted].driver
    if case.driver_name and case.driver_number < nvidia.number(least):
        yield case.say(
            row,
            "framework",
            f"driver {case.driver_name} for mindspore {version} for CUDA {wanted}",
            f"driver {least} or newer",
            override("driver", branch=nvidia.branch_of(least)),
        )


def _sources(case: Case) -> Iterator[Said]:
    """Operating system x provider of driver, CUDA and NCCL."""
    toolkit, nccl = case.parts.get("cuda", {}), case.parts.get("nccl", {})
    distro = row_of(case.rules, "distro", os=case.os)
    repository = row_of(case.rules, "network_repo", os=case.os)

    def none(part: str, table: str) -> Said:
        listed = ", ".join(row["os"] for row in case.rules[table])
        found = f"{part} by {table} on {case.os or 'an unknown system'}"
        return case.stop("operating system", found, f"one of {listed}", override(part, provider="..."))

    if case.provider == "distro" and not case.without:
        if distro is None:
            yield none("driver", "distro")
        elif case.branch and case.branch not in distro["drivers"]:
            yield case.say(
                distro,
                "operating system",
                f"driver {case.branch} from {case.os} itself",
                f"branch {' or '.join(distro['drivers'])}",
                override("driver", branch=distro["drivers"][0]),
            )
    if case.provider == "network_repo" and not case.without and repository is None:
        yield none("driver", "network_repo")
    version = toolkit.get("version", "")
    if toolkit.get("provider") == "distro":
        if distro is None:
            yield none("cuda", "distro")
        elif version and toolkits.release(version) != distro["cuda"]:
            yield case.say(
                distro,
                "operating system",
                f"CUDA {version} from {case.os} itself",
                f"CUDA {distro['cuda']}",
                override("cuda", version=f'"{distro["cuda"]}"'),
            )
    if toolkit.get("provider") == "network_repo":
        if repository is None:
            yield none("cuda", "network_repo")
        elif version and not within(nvidia.number(toolkits.release(version)), repository["cuda"]):
            yield case.say(
                repository,
                "operating system",
                f"CUDA {version} from NVIDIA's repository for {case.os}",
                f"CUDA {in_words(repository['cuda'])}",
                override("cuda", provider="runfile"),
            )
    if nccl.get("provider") == "distro":
        if distro is None:
            yield none("nccl", "distro")
        elif "nccl" not in distro:
            action = "go on: the role nccl lists what there is before it changes anything"
            yield case.warn("operating system", f"NCCL from {case.os} itself", "a version that is known here", action)
        elif not distro["nccl"] or nccl.get("version", "") not in ("", distro["nccl"]):
            yield case.say(
                distro,
                "operating system",
                f"NCCL {nccl.get('version', '')} from {case.os} itself",
                f"NCCL {distro['nccl'] or 'from elsewhere, as it has none'}",
                override("nccl", provider="wheel"),
            )
    if nccl.get("provider") == "network_repo":
        if repository is None:
            yield none("nccl", "network_repo")
        elif not repository["nccl"]:
            yield case.say(
                repository,
                "NCCL",
                f"NCCL {nccl.get('version', '')}+cuda{nccl.get('cuda', '')} from NVIDIA's repository for {case.os}",
                "a system for which that repository is known to have NCCL",
                "go on (the role nccl lists what there is before it changes anything), or "
                + override("nccl", provider="wheel"),
            )


def _nccl(case: Case) -> Iterator[Said]:
    """Build of NCCL x CUDA x driver."""
    nccl, toolkit = case.parts.get("nccl", {}), case.parts.get("cuda", {})
    built, version = nccl.get("cuda", ""), toolkit.get("version", "")
    if nccl.get("provider", "none") == "none" or not built:
        return
    row = {"source": "nccl_builds"}
    if toolkit.get("provider", "none") != "none" and version:
        if nvidia.number(built)[:1] != nvidia.number(version)[:1]:
            yield case.say(
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
        yield case.say(
            known,
            "NCCL and CUDA",
            f"NCCL {nccl['version']}+cuda{built}, a build that was not seen",
            f"+cuda{' or +cuda'.join(known['cuda'])}",
            override("nccl", cuda=f'"{known["cuda"][-1]}"') + ", or go on: the role nccl lists what there is",
        )
    release = row_of(case.rules, "cuda", version=toolkits.release(built))
    if release and case.driver_name and case.driver_number < nvidia.number(release["least"]):
        yield case.say(
            release,
            "NCCL and driver",
            f"driver {case.driver_name} for NCCL built for CUDA {built}",
            f"driver {release['least']} or newer",
            override("driver", branch=nvidia.branch_of(release["driver"])),
        )


def judge(node: Host, parts: Parts, rules: Rules) -> Iterator[Said]:
    """Yield what the rules say of one host: whether it stops, and the finding. `node` is as in nvidia_stack."""
    case = Case(node, parts, rules)
    yield from machine_rules(case)
    yield from _sources(case)
    # Rules of GPUs and drivers say nothing of a host that is declared to have none.
    if not case.without:
        for rule in (_generations, _cuda_and_driver, _pytorch, _mindspore, _nccl, driver_rules):
            yield from rule(case)
