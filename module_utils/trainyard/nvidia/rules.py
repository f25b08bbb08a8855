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
from . import nccl_sources
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
                check="GPU model",
                found=f"device id {gpu['device_id']}, which is not in the table",
                expected="a GPU whose generation is known",
                action="look up yourself which driver and CUDA it needs; nothing was checked for it",
            )
            continue
        rows = [row, *(one for one in case.rules["models"] if gpu["name"].startswith(one["name"]))]
        for one in rows:
            yield from _generation(case, what, one)


def _generation(case: Case, what: str, row: Row) -> Iterator[Said]:
    flavours = row.get("flavours", [])
    if flavours and case.flavour and case.flavour not in flavours:
        yield case.say(
            row=row,
            check="GPU and module flavour",
            found=f"{case.flavour} modules for {what}",
            expected=f"{' or '.join(flavours)} modules",
            action=override("driver", flavour=flavours[0]),
        )
    if case.driver_name and not within(case.driver_number, row["drivers"], series=True):
        yield case.say(
            row=row,
            check="GPU and driver",
            found=f"driver {case.driver_name} for {what}",
            expected=f"driver branch {in_words(row['drivers'])}",
            action=override("driver", branch=next(str(end) for end in reversed(row["drivers"]) if end)),
        )
    for release, who in _cudas(case) if "cuda" in row else ():
        if not within(nvidia.number(release), row["cuda"]):
            yield case.say(
                row=row,
                check="GPU and CUDA",
                found=f"{who} for {what}",
                expected=f"CUDA {in_words(row['cuda'])}",
                action="a stack with such a CUDA, or nodes with other GPUs in a group with a stack of their own",
            )


def _cuda_and_driver(case: Case) -> Iterator[Said]:
    """Least driver of each CUDA; below the one it was made with, only some of it works."""
    if not case.driver_name:
        return
    for release, who in _cudas(case):
        row = row_of(case.rules, "cuda", version=release)
        if row is None:
            yield case.warn(
                check="CUDA and driver",
                found=f"{who}, which is not in the table",
                expected=f"a release of the table, up to {case.rules['cuda'][-1]['version']}",
                action="look up its least driver yourself; nothing was checked for it",
            )
            continue
        least = nvidia.number(row["least"])
        if case.driver_number < least:
            yield case.say(
                row=row,
                check="CUDA and driver",
                found=f"driver {case.driver_name} for {who}",
                expected=f"driver {row['least']} or newer",
                action=override("driver", branch=nvidia.branch_of(row["driver"])),
            )
        elif case.driver_number < nvidia.number(row["driver"]):
            found = f"driver {case.driver_name} for {who}: minor version compatibility, without PTX and new features"
            text = f"driver {row['driver']} or newer for all of it" + case.source(row)
            yield case.warn(check="CUDA and driver", found=found, expected=text, action="go on, or take a newer driver")


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
        yield case.stop(
            check="framework",
            found=f"pytorch {version}+{build}",
            expected=f"a build that {version} has: {known}",
            action=action,
        )
        return
    first, last = row.get(arch, row["generations"])
    for generation in dict.fromkeys(gpu["generation"] for gpu in case.facts["gpus"]):
        if generation != nvidia.UNKNOWN and not _has(row, arch, generation):
            others = ", ".join(one["build"] for one in of_release if _has(one, arch, generation))
            yield case.say(
                row=row,
                check="framework",
                found=f"pytorch {version}+{build} for {generation} on {arch}",
                expected=f"GPUs from {first} to {last}",
                action=(
                    f"a build of {version} with {generation}: {others or 'none'}; " + override("framework", build="...")
                ),
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
        yield case.say(
            row=row,
            check="framework",
            found=found,
            expected=f"CUDA {' or '.join(cudas) or 'of none: it has no GPU wheel'}",
            action=action,
        )
        return
    if case.facts["arch"] not in row["arch"]:
        yield case.say(
            row=row,
            check="framework",
            found=f"mindspore {version} for GPUs on {case.facts['arch']}",
            expected=f"{', '.join(row['arch'])}: there are no other wheels",
            action="take the host out of the group, or another framework",
        )
    least = mindspore.CUDAS[wanted].driver
    if case.driver_name and case.driver_number < nvidia.number(least):
        yield case.say(
            row=row,
            check="framework",
            found=f"driver {case.driver_name} for mindspore {version} for CUDA {wanted}",
            expected=f"driver {least} or newer",
            action=override("driver", branch=nvidia.branch_of(least)),
        )


def _sources(case: Case) -> Iterator[Said]:
    """Operating system x provider of driver, CUDA and NCCL."""
    toolkit, nccl = case.parts.get("cuda", {}), case.parts.get("nccl", {})
    distro = row_of(case.rules, "distro", os=case.os)
    repository = row_of(case.rules, "network_repo", os=case.os)

    def none(part: str, table: str) -> Said:
        listed = ", ".join(row["os"] for row in case.rules[table])
        found = f"{part} by {table} on {case.os or 'an unknown system'}"
        return case.stop(
            check="operating system", found=found, expected=f"one of {listed}", action=override(part, provider="...")
        )

    if case.provider == "distro" and not case.without:
        if distro is None:
            yield none("driver", "distro")
        elif case.branch and case.branch not in distro["drivers"]:
            yield case.say(
                row=distro,
                check="operating system",
                found=f"driver {case.branch} from {case.os} itself",
                expected=f"branch {' or '.join(distro['drivers'])}",
                action=override("driver", branch=distro["drivers"][0]),
            )
    if case.provider == "network_repo" and not case.without and repository is None:
        yield none("driver", "network_repo")
    version = toolkit.get("version", "")
    if toolkit.get("provider") == "distro":
        if distro is None:
            yield none("cuda", "distro")
        elif version and toolkits.release(version) != distro["cuda"]:
            yield case.say(
                row=distro,
                check="operating system",
                found=f"CUDA {version} from {case.os} itself",
                expected=f"CUDA {distro['cuda']}",
                action=override("cuda", version=f'"{distro["cuda"]}"'),
            )
    if toolkit.get("provider") == "network_repo":
        if repository is None:
            yield none("cuda", "network_repo")
        elif version and not within(nvidia.number(toolkits.release(version)), repository["cuda"]):
            yield case.say(
                row=repository,
                check="operating system",
                found=f"CUDA {version} from NVIDIA's repository for {case.os}",
                expected=f"CUDA {in_words(repository['cuda'])}",
                action=override("cuda", provider="runfile"),
            )
    if nccl.get("provider") == "distro":
        if distro is None:
            yield none("nccl", "distro")
        elif "nccl" not in distro:
            action = "go on: the role nccl lists what there is before it changes anything"
            yield case.warn(
                check="operating system",
                found=f"NCCL from {case.os} itself",
                expected="a version that is known here",
                action=action,
            )
        elif not distro["nccl"] or nccl.get("version", "") not in ("", distro["nccl"]):
            yield case.say(
                row=distro,
                check="operating system",
                found=f"NCCL {nccl.get('version', '')} from {case.os} itself",
                expected=f"NCCL {distro['nccl'] or 'from elsewhere, as it has none'}",
                action=nccl_sources.instead(case, nccl.get("version", ""), nccl.get("cuda", "")),
            )
    if nccl.get("provider") == "network_repo" and repository is None:
        yield none("nccl", "network_repo")


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
                row=row,
                check="NCCL and CUDA",
                found=f"NCCL {nccl.get('version', '')} built for CUDA {built} beside CUDA {version}",
                expected=f"a build for CUDA {nvidia.number(version)[0]}",
                action=override("nccl", cuda=f'"{toolkits.release(version)}"'),
            )
        elif nccl["provider"] == "network_repo" and toolkits.release(version) != built:
            found = f"NCCL built for CUDA {built} beside CUDA {version}"
            text = f"+cuda{toolkits.release(version)} where the repository has it" + case.source(row)
            yield case.warn(
                check="NCCL and CUDA", found=found, expected=text, action="go on: builds of one major release fit"
            )
    known = row_of(case.rules, "nccl", version=nccl.get("version", ""))
    if known and nccl["provider"] in ("network_repo", "archive") and toolkits.release(built) not in known["cuda"]:
        yield case.say(
            row=known,
            check="NCCL and CUDA",
            found=f"NCCL {nccl['version']}+cuda{built}, a build that was not seen",
            expected=f"+cuda{' or +cuda'.join(known['cuda'])}",
            action=override("nccl", cuda=f'"{known["cuda"][-1]}"') + ", or go on: the role nccl lists what there is",
        )
    release = row_of(case.rules, "cuda", version=toolkits.release(built))
    if release and case.driver_name and case.driver_number < nvidia.number(release["least"]):
        yield case.say(
            row=release,
            check="NCCL and driver",
            found=f"driver {case.driver_name} for NCCL built for CUDA {built}",
            expected=f"driver {release['least']} or newer",
            action=override("driver", branch=nvidia.branch_of(release["driver"])),
        )


def _cudnn(case: Case) -> Iterator[Said]:
    """CuDNN x framework x CUDA x operating system."""
    cudnn, toolkit, framework = (case.parts.get(part, {}) for part in ("cudnn", "cuda", "framework"))
    version, built = cudnn.get("version", ""), cudnn.get("cuda", "")
    has = cudnn.get("provider", "none") != "none"
    known = mindspore.CUDAS.get(framework.get("cuda", "")) if framework.get("name") == "mindspore" else None
    if known:
        name = f"mindspore {framework.get('version', '')} for CUDA {framework['cuda']}"
        major = nvidia.number(version)[:1] == nvidia.number(known.cudnn)[:1]
        expected = f"cuDNN {known.cudnn}" + case.source({"source": "mindspore"})
        if not has:
            yield case.warn(
                check="cuDNN",
                found=f"{name} and no cuDNN",
                expected=expected,
                action="go on where the hosts have it from elsewhere, or " + override("cudnn", provider="..."),
            )
        elif not major or nvidia.number(version) < nvidia.number(known.cudnn):
            yield case.stop(
                check="cuDNN",
                found=f"cuDNN {version} for {name}",
                expected=expected,
                action=override("cudnn", version="..."),
            )
        elif nvidia.number(version)[:2] != nvidia.number(known.cudnn):
            yield case.warn(
                check="cuDNN",
                found=f"cuDNN {version} for {name}",
                expected=expected,
                action="go on: a newer one of the same major release is loaded under the same name",
            )
    release = toolkit.get("version", "")
    beside = has and built and release and toolkit.get("provider", "none") != "none"
    if beside and nvidia.number(built)[:1] != nvidia.number(release)[:1]:
        yield case.stop(
            check="cuDNN and CUDA",
            found=f"cuDNN {version} built for CUDA {built} beside CUDA {release}",
            expected=f"a build for CUDA {nvidia.number(release)[0]}, whose cuBLAS it loads",
            action=override("cudnn", cuda="..."),
        )
    if cudnn.get("provider") == "network_repo":
        repository = row_of(case.rules, "network_repo", os=case.os)
        if not repository or not within(nvidia.number(version), repository.get("cudnn", ["99", ""])):
            yield case.warn(
                check="cuDNN",
                found=f"cuDNN {version} from NVIDIA's repository for {case.os or 'an unknown system'}",
                expected="a system and a version that this repository is known to have"
                + case.source({"source": "cudnn", "verified": False}),
                action=(
                    "go on (the role cudnn lists what there is before it changes anything), or "
                    + override("cudnn", provider="archive")
                ),
            )


def judge(node: Host, parts: Parts, rules: Rules) -> Iterator[Said]:
    """Yield what the rules say of one host: whether it stops, and the finding. `node` is as in nvidia_stack."""
    case = Case(node, parts, rules)
    yield from machine_rules(case)
    yield from _sources(case)
    yield from nccl_sources.sources(case)
    # Rules of GPUs and drivers say nothing of a host that is declared to have none.
    if not case.without:
        for rule in (_generations, _cuda_and_driver, _pytorch, _mindspore, _nccl, _cudnn, driver_rules):
            yield from rule(case)
