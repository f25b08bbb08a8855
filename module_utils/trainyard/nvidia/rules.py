# SPDX-License-Identifier: Apache-2.0
"""The rules of NVIDIA's stack: whether driver, CUDA, NCCL and framework fit one host and one another.

The data, each row with its source, is in roles/nvidia_stack/vars/main/rules.yml; unverified rows only warn.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..software import mindspore_releases
from . import nccl_sources
from .case import NEWEST, Case, Host, Parts, Result, Row, Rules, fetched, override, range_text, row_of, within
from .cuda import release
from .machine_rules import DRIVER_RULES, MACHINE_RULES
from .nvidia_hardware import GENERATIONS, UNKNOWN, branch_of, number


def _cudas(case: Case) -> list[tuple[str, str]]:
    """Return the CUDA releases that the parts need, each with the part that needs it."""
    found = []
    toolkit, framework = case.toolkit, case.framework
    if toolkit.used and toolkit["version"]:
        found.append((release(toolkit["version"]), f"CUDA {toolkit['version']}"))
    name = f"{framework['name']} {framework['version']}"
    if framework["cuda"]:
        found.append((framework["cuda"], f"{name} for CUDA {framework['cuda']}"))
    build = row_of(case.rules, "pytorch", build=framework["build"])
    if build:
        found.append((build["cuda"], f"{name}+{build['build']}"))
    return found


def _generations(case: Case) -> Iterator[Result]:
    """Compare GPU generation and model with flavour of modules, driver and CUDA."""
    seen = []
    for gpu in case.facts["gpus"]:
        kind = (gpu["generation"], gpu["name"])
        if kind in seen:
            continue
        seen.append(kind)
        rows = _rows_of_gpu(case, gpu)
        if not rows:
            found = f"device id {gpu['device_id']}, which is not in the table"
            action = "look up which driver and CUDA it needs; nothing was checked for it"
            yield case.warn("GPU model", found, "a GPU whose generation is known", action)
            continue
        for one in rows:
            yield from _generation(case, f"{gpu['name'] or gpu['device_id']} ({gpu['generation']})", one)


def _rows_of_gpu(case: Case, gpu: Row) -> list[Row]:
    """Return what the tables have about a GPU's generation and its model; nothing for an unknown one."""
    row = row_of(case.rules, "generations", name=gpu["generation"])
    return [row, *(one for one in case.rules["models"] if gpu["name"].startswith(one["name"]))] if row else []


def _generation(case: Case, gpu: str, row: Row) -> Iterator[Result]:
    flavours = row.get("flavours", [])
    is_in_range = not case.driver_name or within(case.driver_number, row["drivers"], series=True)
    # Another driver comes with modules that suit the GPU: an old branch may have no others.
    if is_in_range and flavours and case.flavour and case.flavour not in flavours:
        found, expected = f"{case.flavour} modules for {gpu}", f"{' or '.join(flavours)} modules"
        action = f"install a driver with {flavours[0]} modules there"
        if case.provider != "none":
            action = override("driver", flavour=flavours[0])
        yield case.by_row(row, "GPU and module flavour", found, expected, action)
    if not is_in_range:
        found, expected = f"driver {case.driver_name} for {gpu}", f"driver branch {range_text(row['drivers'])}"
        yield case.by_row(row, "GPU and driver", found, expected, _other_driver(case))
    for cuda, user in _cudas(case) if "cuda" in row else ():
        if not within(number(cuda), row["cuda"]):
            action = "choose a stack with such a CUDA, or put nodes with other GPUs into a group with their own stack"
            yield case.by_row(row, "GPU and CUDA", f"{user} for {gpu}", f"CUDA {range_text(row['cuda'])}", action)


def _other_driver(case: Case) -> str:
    """Return the settings for a driver that fits all GPUs and all users of it, not only the one that is reported."""
    rows = [one for gpu in case.facts["gpus"] for one in _rows_of_gpu(case, gpu)]
    least, most = ([row["drivers"][end] for row in rows] for end in (0, 1))
    cudas = [cuda for cuda, _ in _cudas(case)] + [release(case.nccl["cuda"])] * case.nccl.used
    known = [row for cuda in cudas if (row := row_of(case.rules, "cuda", version=cuda))]
    least += [branch_of(row["driver"]) for row in known]
    flavours = [row["flavours"] for row in rows if case.flavour not in row.get("flavours", [case.flavour])]
    branches = [[int(branch) for branch in ends if branch] for ends in (least, most)]
    return case.other_driver(
        max([0, *branches[0]]), min([NEWEST, *branches[1]]), {"flavour": flavours[0][0]} if flavours else {}
    )


def _old_driver(case: Case, row: Row, check: str, user: str, least: str) -> Iterator[Result]:
    """Yield a finding for a driver that is older than the least one for a user of it."""
    if case.driver_name and case.driver_number < number(least):
        found, expected = f"driver {case.driver_name} for {user}", f"driver {least} or newer"
        yield case.by_row(row, check, found, expected, _other_driver(case))


def _cuda_and_driver(case: Case) -> Iterator[Result]:
    """Compare the driver with the oldest one for each CUDA; below the release's own driver only some features work."""
    check = "CUDA and driver"
    for cuda, user in _cudas(case) if case.driver_name else ():
        row = row_of(case.rules, "cuda", version=cuda)
        if row is None:
            expected = f"a release of the table, up to {case.rules['cuda'][-1]['version']}"
            action = "look up its oldest driver; nothing was checked for it"
            yield case.warn(check, f"{user}, which is not in the table", expected, action)
            continue
        yield from _old_driver(case, row, check, user, row["least"])
        if number(row["least"]) <= case.driver_number < number(row["driver"]):
            found = f"driver {case.driver_name} for {user}: minor version compatibility, without PTX and new features"
            expected = f"driver {row['driver']} or newer for all of it" + case.source(row)
            yield case.warn(check, found, expected, f"go on, or {_other_driver(case)}")


def _has(row: Row, arch: str, generation: str) -> bool:
    first, last = row.get(arch, row["generations"])
    order = GENERATIONS.index
    return generation in GENERATIONS and order(first) <= order(generation) <= order(last)


def _pytorch(case: Case) -> Iterator[Result]:
    framework, arch = case.framework, case.facts["arch"]
    build, version = framework["build"], framework["version"]
    if framework["name"] != "pytorch" or not build.startswith("cu"):
        return
    of_release = [row for row in case.rules["pytorch"] if within(number(release(version)), row["releases"])]
    row = row_of(case.rules, "pytorch", build=build)
    if row is None or row not in of_release:
        expected = f"a build that {version} has: {', '.join(one['build'] for one in of_release) or 'none'}"
        action = override("framework", version="...", build="...")
        if of_release:
            action = override("framework", build="...") + f", or another version: {action}"
        yield case.stop("framework", f"pytorch {version}+{build}", expected, action)
        return
    first, last = row.get(arch, row["generations"])
    for generation in dict.fromkeys(gpu["generation"] for gpu in case.facts["gpus"]):
        if generation != UNKNOWN and not _has(row, arch, generation):
            found = f"pytorch {version}+{build} for {generation} on {arch}"
            others = ", ".join(one["build"] for one in of_release if _has(one, arch, generation))
            fields = {} if others else {"version": "..."}
            action = f"take {others or 'another version'}: {override('framework', **fields, build='...')}"
            yield case.by_row(row, "framework", found, f"GPUs from {first} to {last}", action)


def _mindspore(case: Case) -> Iterator[Result]:
    version, cuda, check = case.framework["version"], case.framework["cuda"], "framework"
    if case.framework["name"] != "mindspore" or not cuda:
        return
    row: Row = case.rules["mindspore"]
    known = mindspore_releases.RELEASES.get(release(version))
    cudas = known.cudas if known else tuple(mindspore_releases.CUDAS)
    name = f"mindspore {version} for CUDA {cuda}"
    if cuda not in cudas:
        expected = f"CUDA {' or '.join(cudas)}" if cudas else "another release: this one has no GPU wheel"
        fields = {} if cudas else {"version": "..."}
        yield case.by_row(row, check, name, expected, override("framework", **fields, cuda="..."))
        return
    if case.facts["arch"] not in row["arch"]:
        found = f"mindspore {version} for GPUs on {case.facts['arch']}"
        action = "take the host out of the group, or choose another framework"
        yield case.by_row(row, check, found, f"{', '.join(row['arch'])}: there are no other wheels", action)
    least = mindspore_releases.CUDAS[cuda].driver
    yield from _old_driver(case, row, check, name, least)


def _unknown_system(case: Case, table: str) -> Iterator[Result]:
    """Yield a finding for each part that comes from a source without this operating system."""
    for part, used in case.parts_from(table).items():
        if used:
            found = f"{part} by {table} on {case.os or 'an unknown system'}"
            expected = f"one of {', '.join(row['os'] for row in case.rules[table])}"
            provider = "wheel" if part == "nccl" else "runfile"
            fields = {"version": "...", **({} if part == "nccl" else {"url": "...", "sha256": "..."})}
            yield case.stop("operating system", found, expected, override(part, provider=provider, **fields))


def _distro_sources(case: Case) -> Iterator[Result]:
    """Compare the parts that come from the distribution with what it has."""
    row, check, here = row_of(case.rules, "distro", os=case.os), "operating system", f"from {case.os} itself"
    if row is None:
        yield from _unknown_system(case, "distro")
        return
    used = case.parts_from("distro")
    if used["driver"] and case.branch and case.branch not in row["drivers"]:
        expected = f"branch {' or '.join(row['drivers'])}"
        yield case.by_row(row, check, f"driver {case.branch} {here}", expected, _other_driver(case))
    cuda = case.toolkit["version"]
    if used["cuda"] and cuda and release(cuda) != row["cuda"]:
        action = override("cuda", version=f'"{row["cuda"]}"')
        yield case.by_row(row, check, f"CUDA {cuda} {here}", f"CUDA {row['cuda']}", action)
    nccl = case.nccl["version"]
    if used["nccl"] and "nccl" not in row:
        action = "go on: the role nccl lists the offered versions before it changes anything"
        yield case.warn(check, f"NCCL {here}", "a version that is known here", action)
    elif used["nccl"] and (not row["nccl"] or nccl not in ("", row["nccl"])):
        expected = f"NCCL {row['nccl'] or 'from elsewhere, as it has none'}"
        action = nccl_sources.alternatives(case, nccl, case.nccl["cuda"])
        yield case.by_row(row, check, f"NCCL {nccl} {here}", expected, action)


def _repository_sources(case: Case) -> Iterator[Result]:
    """Compare driver, CUDA and NCCL from NVIDIA's repository with the systems that it serves."""
    row, cuda = row_of(case.rules, "network_repo", os=case.os), case.toolkit["version"]
    if row is None:
        yield from _unknown_system(case, "network_repo")
    elif case.parts_from("network_repo")["cuda"] and cuda and not within(number(release(cuda)), row["cuda"]):
        found = f"CUDA {cuda} from NVIDIA's repository for {case.os}"
        action = override("cuda", provider="runfile", version="...", url="...", sha256="...")
        yield case.by_row(row, "operating system", found, f"CUDA {range_text(row['cuda'])}", action)


def _nccl(case: Case) -> Iterator[Result]:
    nccl, toolkit, check = case.nccl, case.toolkit, "NCCL and CUDA"
    built, cuda, version = nccl["cuda"], toolkit["version"] if toolkit.used else "", nccl["version"]
    if not nccl.used or not built:
        return
    row = {"source": "nccl_builds"}
    if cuda and number(built)[:1] != number(cuda)[:1]:
        found, expected = (
            f"NCCL {version} built for CUDA {built} beside CUDA {cuda}",
            f"a build for CUDA {number(cuda)[0]}",
        )
        action = override("nccl", cuda=f'"{release(cuda)}"', **fetched(nccl))
        yield case.by_row(row, check, found, expected, action)
    elif cuda and nccl["provider"] == "network_repo" and release(cuda) != built:
        expected = f"+cuda{release(cuda)} where the repository has it" + case.source(row)
        action = "go on: builds of one major release fit"
        yield case.warn(check, f"NCCL built for CUDA {built} beside CUDA {cuda}", expected, action)
    known = row_of(case.rules, "nccl", version=version)
    if known and nccl["provider"] in ("network_repo", "archive") and release(built) not in known["cuda"]:
        builds = [build for build in known["cuda"] if number(build)[:1] == number(cuda or built)[:1]]
        action = override("nccl", cuda=f'"{(builds or known["cuda"])[-1]}"', **fetched(nccl))
        action += ", or go on: the role nccl lists what there is"
        found = f"NCCL {version}+cuda{built}, an unknown build"
        yield case.by_row(known, check, found, f"+cuda{' or +cuda'.join(known['cuda'])}", action)
    needs = row_of(case.rules, "cuda", version=release(built))
    if needs:
        user = f"NCCL built for CUDA {built}"
        yield from _old_driver(case, needs, "NCCL and driver", user, needs["least"])


def _cudnn(case: Case) -> Iterator[Result]:
    cudnn, toolkit, framework = case.cudnn, case.toolkit, case.framework
    version, cuda = cudnn["version"], toolkit["version"] if toolkit.used else ""
    known = mindspore_releases.CUDAS.get(framework["cuda"]) if framework["name"] == "mindspore" else None
    if known:
        name = f"mindspore {framework['version']} for CUDA {framework['cuda']}"
        found, expected = f"cuDNN {version} for {name}", f"cuDNN {known.cudnn}" + case.source({"source": "mindspore"})
        least = number(known.cudnn)
        if not cudnn.used:
            action = "go on if the hosts have it from elsewhere, or " + override(
                "cudnn", provider="...", version="...", cuda="..."
            )
            yield case.warn("cuDNN", f"{name} and no cuDNN", expected, action)
        elif number(version)[:1] != least[:1] or number(version) < least:
            yield case.stop("cuDNN", found, expected, override("cudnn", version="...", **fetched(cudnn)))
        elif number(version)[:2] != least:
            action = "go on: a newer one of the same major release has the same file name"
            yield case.warn("cuDNN", found, expected, action)
    if cudnn.used and cudnn["cuda"] and cuda and number(cudnn["cuda"])[:1] != number(cuda)[:1]:
        found = f"cuDNN {version} built for CUDA {cudnn['cuda']} beside CUDA {cuda}"
        expected = f"a build for CUDA {number(cuda)[0]}, whose cuBLAS it loads"
        action = override("cudnn", cuda=f'"{release(cuda)}"', **fetched(cudnn))
        yield case.stop("cuDNN and CUDA", found, expected, action)
    row = row_of(case.rules, "network_repo", os=case.os) or {}
    if cudnn["provider"] == "network_repo" and not within(number(version), row.get("cudnn", ["99", ""])):
        found = f"cuDNN {version} from NVIDIA's repository for {case.os or 'an unknown system'}"
        source = case.source({"source": "cudnn", "verified": False})
        expected = f"a system and a version known to be in this repository{source}"
        action = "go on (the role cudnn lists what there is before it changes anything), or "
        setting = override("cudnn", provider="archive", url="...", sha256="...")
        yield case.warn("cuDNN", found, expected, action + setting)


def check(node: Host, parts: Parts, rules: Rules) -> Iterator[Result]:
    """Yield the results of all rules for one host; `node` is as in stack.choose_all."""
    case = Case(node, parts, rules)
    machine = (*MACHINE_RULES, _distro_sources, _repository_sources, nccl_sources.sources)
    # Rules of GPUs and drivers do not apply to a host that is declared to have no GPU.
    gpus = (_generations, _cuda_and_driver, _pytorch, _mindspore, _nccl, _cudnn, *DRIVER_RULES)
    for rule in machine if case.without else (*machine, *gpus):
        yield from rule(case)
