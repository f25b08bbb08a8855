# SPDX-License-Identifier: Apache-2.0
"""The rules of NVIDIA's stack: what one host says to one chosen set of driver, CUDA, NCCL and framework.

Pure. The rules' data, each row with its source, is in roles/nvidia_stack/vars/main/rules.yml. A rule yields whether
what it found stops, and the finding; rows that nobody here has verified only warn. What the role nvidia_driver refuses
(a driver from elsewhere, broken packages, Secure Boot without a key, GPUs that are missing) is asked of that role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import cuda as toolkits
from . import nvidia, nvidia_driver, nvidia_driver_plan
from .findings import Finding, host_list

Host = Mapping[str, Any]
Rules = Mapping[str, Any]
Row = Mapping[str, Any]
Parts = Mapping[str, Mapping[str, str]]
Said = tuple[bool, Finding]

# Newer than any version of a branch.
_NEWEST = 10**6


class Case:
    """One host and the set chosen for it, as the rules look at them."""

    def __init__(self, node: Host, parts: Parts, rules: Rules) -> None:
        """Bring together what is known of the host's driver: the one that is wanted, else the one that is there."""
        self.facts, self.state, self.wanted, self.parts, self.rules = (
            node["facts"],
            node["driver"],
            node["wanted"],
            parts,
            rules,
        )
        self.host: str = self.facts["host"]
        self.driver = parts.get("driver", {})
        self.provider = self.driver.get("provider", "none")
        # A host that is declared to have no GPU gets a driver only where that is asked for.
        self.without = str(self.wanted["gpus"]) == "0" and not self.wanted.get("without_gpu")
        if self.provider == "none":
            there = str(self.state.get("version") or self.state.get("loaded") or "")
            self.version, self.branch = there, nvidia.branch_of(there)
            self.flavour = str(self.state.get("flavour") or "")
        else:
            self.version, self.branch = self.driver.get("version", ""), self.driver.get("branch", "")
            self.flavour = self.driver.get("flavour", "")
        kernels = self.wanted.get("kernels")
        self.kernels: list[str] = [self.facts["kernel"]["running"]] if kernels is None else list(kernels)
        self.os = nvidia.described_os(self.facts)

    @property
    def driver_number(self) -> tuple[int, ...]:
        """The driver's version for comparing; of a branch alone, what is newer than all of it."""
        return nvidia.number(self.version) if self.version else (int(self.branch or 0), _NEWEST)

    @property
    def driver_name(self) -> str:
        """The driver in words."""
        return self.version or (f"{self.branch}.x" if self.branch else "")

    @property
    def is_installed(self) -> bool:
        """Whether the wanted driver is there already, with its module for every kernel."""
        there = str(self.state.get("version", ""))
        right = there == self.version if self.version else nvidia.branch_of(there) == self.branch
        return bool(there and right) and all(nvidia_driver.has_module(self.state, kernel) for kernel in self.kernels)

    @property
    def installs_driver(self) -> bool:
        """Whether a run is to install a driver on this host."""
        return self.provider != "none" and not self.without and not self.is_installed

    def source(self, row: Row) -> str:
        """Where a row comes from, for a message."""
        text = str(self.rules["sources"].get(row["source"], row["source"]))
        return f" ({text}{'' if row.get('verified', True) else ', not verified here'})"

    def say(self, row: Row, check: str, found: str, expected: str, action: str) -> Said:
        """Say what a row finds: it stops, unless nobody has verified the row."""
        stop = bool(row.get("stop", row.get("verified", True)))
        return stop, Finding(self.host, check, found, expected + self.source(row), action)

    def stop(self, check: str, found: str, expected: str, action: str) -> Said:
        """Say what stops."""
        return True, Finding(self.host, check, found, expected, action)

    def warn(self, check: str, found: str, expected: str, action: str) -> Said:
        """Say what is shown and does not stop."""
        return False, Finding(self.host, check, found, expected, action)


def _within(value: tuple[int, ...], bounds: Sequence[str], series: bool = False) -> bool:
    """Tell whether a version is in a range of two texts, "" being open; of a series, 580 holds all of 580.x."""
    first, last = (nvidia.number(str(bound)) for bound in bounds)
    top = value[: len(last)] if series else value
    return (not first or value >= first) and (not last or top <= last)


def _range(bounds: Sequence[str]) -> str:
    first, last = (str(bound) for bound in bounds)
    if first and last:
        return f"{first} to {last}"
    return f"{first} or newer" if first else f"{last} or older"


def _override(part: str, **fields: str) -> str:
    inner = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"nvidia_stack_overrides: {{{part}: {{{inner}}}}}"


def _rows(rules: Rules, kind: str, **keys: str) -> Iterator[Row]:
    for row in rules[kind]:
        if all(str(row.get(name)) == value for name, value in keys.items()):
            yield row


def _row(rules: Rules, kind: str, **keys: str) -> Row | None:
    return next(_rows(rules, kind, **keys), None)


def minor(version: str) -> str:
    """Return `12.4` of 12.4.1."""
    return ".".join(version.split(".")[:2])


def _cudas(case: Case) -> list[tuple[str, str]]:
    """Return the CUDA releases that the set asks for, and who asks."""
    found = []
    toolkit, framework = case.parts.get("cuda", {}), case.parts.get("framework", {})
    if toolkit.get("provider", "none") != "none" and toolkit.get("version"):
        found.append((minor(toolkit["version"]), f"CUDA {toolkit['version']}"))
    name = f"{framework.get('name')} {framework.get('version')}"
    if framework.get("cuda"):
        found.append((framework["cuda"], f"{name} for CUDA {framework['cuda']}"))
    build = _row(case.rules, "pytorch", build=framework.get("build", ""))
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
        row = _row(case.rules, "generations", name=gpu["generation"])
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
            _override("driver", flavour=flavours[0]),
        )
    if case.driver_name and not _within(case.driver_number, row["drivers"], series=True):
        yield case.say(
            row,
            "GPU and driver",
            f"driver {case.driver_name} for {what}",
            f"driver branch {_range(row['drivers'])}",
            _override("driver", branch=next(str(end) for end in reversed(row["drivers"]) if end)),
        )
    for release, who in _cudas(case) if "cuda" in row else ():
        if not _within(nvidia.number(release), row["cuda"]):
            yield case.say(
                row,
                "GPU and CUDA",
                f"{who} for {what}",
                f"CUDA {_range(row['cuda'])}",
                "a stack with such a CUDA, or nodes with other GPUs in a group with a stack of their own",
            )


def _cuda_and_driver(case: Case) -> Iterator[Said]:
    """Least driver of each CUDA; below the one it was made with, only some of it works."""
    if not case.driver_name:
        return
    for release, who in _cudas(case):
        row = _row(case.rules, "cuda", version=release)
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
                _override("driver", branch=nvidia.branch_of(row["driver"])),
            )
        elif case.driver_number < nvidia.number(row["driver"]):
            found = f"driver {case.driver_name} for {who}: minor version compatibility, without PTX and new features"
            text = f"driver {row['driver']} or newer for all of it" + case.source(row)
            yield case.warn("CUDA and driver", found, text, "go on, or take a newer driver")


def _framework(case: Case) -> Iterator[Said]:
    """Builds of PyTorch and MindSpore x generation x architecture x driver."""
    framework = case.parts.get("framework", {})
    name, build = framework.get("name", "none"), framework.get("build", "")
    who = f"{name} {framework.get('version')}"
    if name == "pytorch" and build.startswith("cu"):
        row = _row(case.rules, "pytorch", build=build)
        if row is None:
            known = ", ".join(one["build"] for one in case.rules["pytorch"])
            yield case.stop("framework", f"{who}+{build}", f"a build of the table: {known}", "correct framework.build")
            return
        first, last = row.get(case.facts["arch"], row["generations"])
        order = nvidia.GENERATIONS
        for generation in dict.fromkeys(gpu["generation"] for gpu in case.facts["gpus"]):
            inside = generation in order and order.index(first) <= order.index(generation) <= order.index(last)
            if generation in order and not inside:
                others = [
                    one["build"]
                    for one in case.rules["pytorch"]
                    if order.index(one.get(case.facts["arch"], one["generations"])[0])
                    <= order.index(generation)
                    <= order.index(one.get(case.facts["arch"], one["generations"])[1])
                ]
                yield case.say(
                    row,
                    "framework",
                    f"{who}+{build} for {generation} on {case.facts['arch']}",
                    f"GPUs from {first} to {last}",
                    f"a build with {generation}: {', '.join(others) or 'none'}; " + _override("framework", build="..."),
                )
    if name == "mindspore" and framework.get("cuda"):
        row = _row(case.rules, "mindspore", cuda=framework["cuda"])
        if row is None:
            known = ", ".join(one["cuda"] for one in case.rules["mindspore"])
            found = f"{who} for CUDA {framework['cuda']}"
            yield case.stop("framework", found, f"CUDA {known}", "correct framework.cuda")
            return
        if case.facts["arch"] not in row["arch"]:
            yield case.say(
                row,
                "framework",
                f"{who} for GPUs on {case.facts['arch']}",
                f"{', '.join(row['arch'])}: there are no other wheels",
                "take the host out of the group, or another framework",
            )
        if case.driver_name and case.driver_number < nvidia.number(row["least"]):
            yield case.say(
                row,
                "framework",
                f"driver {case.driver_name} for {who}",
                f"driver {row['least']} or newer",
                _override("driver", branch=nvidia.branch_of(row["least"])),
            )


def _sources(case: Case) -> Iterator[Said]:
    """Operating system x provider of driver, CUDA and NCCL."""
    toolkit, nccl = case.parts.get("cuda", {}), case.parts.get("nccl", {})
    distro = _row(case.rules, "distro", os=case.os)
    repository = _row(case.rules, "network_repo", os=case.os)

    def none(part: str, table: str) -> Said:
        listed = ", ".join(row["os"] for row in case.rules[table])
        found = f"{part} by {table} on {case.os or 'an unknown system'}"
        return case.stop("operating system", found, f"one of {listed}", _override(part, provider="..."))

    if case.provider == "distro" and not case.without:
        if distro is None:
            yield none("driver", "distro")
        elif case.branch and case.branch not in distro["drivers"]:
            yield case.say(
                distro,
                "operating system",
                f"driver {case.branch} from {case.os} itself",
                f"branch {' or '.join(distro['drivers'])}",
                _override("driver", branch=distro["drivers"][0]),
            )
    if case.provider == "network_repo" and not case.without and repository is None:
        yield none("driver", "network_repo")
    version = toolkit.get("version", "")
    if toolkit.get("provider") == "distro":
        if distro is None:
            yield none("cuda", "distro")
        elif version and minor(version) != distro["cuda"]:
            yield case.say(
                distro,
                "operating system",
                f"CUDA {version} from {case.os} itself",
                f"CUDA {distro['cuda']}",
                _override("cuda", version=f'"{distro["cuda"]}"'),
            )
    if toolkit.get("provider") == "network_repo":
        if repository is None:
            yield none("cuda", "network_repo")
        elif version and not _within(nvidia.number(minor(version)), repository["cuda"]):
            yield case.say(
                repository,
                "operating system",
                f"CUDA {version} from NVIDIA's repository for {case.os}",
                f"CUDA {_range(repository['cuda'])}",
                _override("cuda", provider="runfile"),
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
                _override("nccl", provider="wheel"),
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
                + _override("nccl", provider="wheel"),
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
                _override("nccl", cuda=f'"{minor(version)}"'),
            )
        elif nccl["provider"] == "network_repo" and minor(version) != built:
            found = f"NCCL built for CUDA {built} beside CUDA {version}"
            text = f"+cuda{minor(version)} where the repository has it" + case.source(row)
            yield case.warn("NCCL and CUDA", found, text, "go on: builds of one major release fit")
    known = _row(case.rules, "nccl", version=nccl.get("version", ""))
    if known and nccl["provider"] in ("network_repo", "archive") and minor(built) not in known["cuda"]:
        yield case.say(
            known,
            "NCCL and CUDA",
            f"NCCL {nccl['version']}+cuda{built}, a build that was not seen",
            f"+cuda{' or +cuda'.join(known['cuda'])}",
            _override("nccl", cuda=f'"{known["cuda"][-1]}"') + ", or go on: the role nccl lists what there is",
        )
    release = _row(case.rules, "cuda", version=minor(built))
    if release and case.driver_name and case.driver_number < nvidia.number(release["least"]):
        yield case.say(
            release,
            "NCCL and driver",
            f"driver {case.driver_name} for NCCL built for CUDA {built}",
            f"driver {release['least']} or newer",
            _override("driver", branch=nvidia.branch_of(release["driver"])),
        )


def _kernel(case: Case) -> Iterator[Said]:
    """Kernels that a driver does not compile against, and headers to compile with."""
    if not case.installs_driver:
        return
    for kernel in case.kernels:
        for row in case.rules["kernels"] if case.facts["os"]["family"] != "redhat" else ():
            mine = case.provider in row.get("providers", [case.provider])
            mine = mine and row.get("flavour", case.flavour) == case.flavour
            new = nvidia.number(kernel) >= nvidia.number(row["fails_from"])
            # A distribution has one version of a branch, so the branch says enough there.
            packaged = case.provider == "distro" and case.branch == nvidia.branch_of(row["drivers"][1])
            if mine and new and (packaged if not case.version else _within(case.driver_number, row["drivers"])):
                yield case.say(
                    row,
                    "kernel",
                    f"driver {case.driver_name} on kernel {kernel}",
                    f"a kernel before {row['fails_from']}, or a driver after {row['drivers'][1]}",
                    "boot an older kernel of the distribution, take a newer driver of that branch, or, if you know "
                    "that it compiles, nvidia_stack_accept: [kernel]",
                )
        if kernel in case.facts["kernel"]["headers"]:
            continue
        running = kernel == case.facts["kernel"]["running"]
        available = case.facts["kernel"]["headers_available"] if running else None
        if not available:
            yield (case.warn if available is None else case.stop)(
                "kernel headers",
                f"none for kernel {kernel}" + (", and apt offers none" if available is False else ""),
                f"linux-headers-{kernel}, to build the module with",
                "install a kernel whose headers the mirrors have and boot it, or name the kernels in "
                "nvidia_driver_kernels",
            )


def _compiler(case: Case) -> Iterator[Said]:
    """Default gcc x CUDA; the role cuda_toolkit can be told another one."""
    toolkit, gcc = case.parts.get("cuda", {}), case.facts["gcc"]
    # The distribution's own toolkit brings a compiler that fits.
    if toolkit.get("provider") in (None, "none", "distro") or not toolkit.get("version") or not gcc:
        return
    newest = toolkits.newest_gcc(toolkit["version"])
    if newest and not toolkits.gcc_fits(gcc, newest):
        text = f"gcc {newest} or older for nvcc of CUDA {toolkit['version']}" + case.source({"source": "gcc"})
        found = f"gcc {gcc} is the host's default"
        yield case.warn("gcc", found, text, "install such a gcc beside it: see the role cuda_toolkit")


def _machine(case: Case) -> Iterator[Said]:
    """What the role nvidia_driver refuses, and what else the machine is."""
    gpus, wanted = str(case.wanted["gpus"]), case.wanted
    if gpus != "auto" and not gpus.isdecimal():
        text = "auto (as many as there are), 0 (none, on purpose) or their number"
        yield case.stop("nvidia_gpus", repr(gpus), text, "correct nvidia_gpus")
        return
    plan = {
        "provider": case.provider,
        "state": "present",
        "flavour": case.flavour or "proprietary",
        "gpus": gpus,
        "kernels": case.kernels if case.installs_driver else [],
        "fabric_manager": wanted.get("fabric_manager", "auto"),
        "replace": bool(wanted.get("replace")),
        "mok": bool(wanted.get("mok")),
        "without_gpu": bool(wanted.get("without_gpu")),
        "packages": [],
        "arguments": [],
        "file": "",
        **{name: case.driver.get(name, "") for name in ("version", "branch", "url", "sha256")},
    }
    _, findings = nvidia_driver_plan.plan_host({"facts": case.facts, "driver": case.state, "wanted": plan})
    yield from ((True, finding) for finding in findings)
    if gpus == "0" and case.facts["gpus"]:
        found = f"{nvidia.describe_gpus(case.facts['gpus'])}, declared as 0"
        yield case.warn("GPUs", found, "none", "go on without them, or correct nvidia_gpus")
    if case.facts["virtual"] and case.facts["gpus"] and case.installs_driver:
        yield case.stop(
            "container",
            f"the host is a {case.facts['virtual']} container",
            "a machine of its own: a container has the driver of its machine",
            "put the machine itself into the inventory, or " + _override("driver", provider="none"),
        )
    if case.provider == "none" and case.facts["gpus"] and not case.driver_name:
        found = f"none, for {nvidia.describe_gpus(case.facts['gpus'])}"
        action = _override("driver", provider="network_repo", version="...")
        yield case.stop("driver", found, "a driver, as this stack installs none", action)
    if case.facts["nouveau"] and case.installs_driver:
        text = "the kernel's own driver gives way"
        action = "go on: the role nvidia_driver takes it out, and a reboot is due then"
        yield case.warn("nouveau", "nouveau is loaded", text, action)
    kinds = {gpu["device_id"] for gpu in case.facts["gpus"]}
    if len(kinds) > 1:
        found = nvidia.describe_gpus(case.facts["gpus"])
        yield case.warn("GPUs", found, "one model in a host", "go on: a job's pace is that of the slowest")


def _held(case: Case) -> Iterator[Said]:
    """Packages that somebody else holds where they are."""
    apt = case.facts["apt"]
    foreign = [name for name in apt["held"] if name.partition(":")[0] not in apt["kept"]]
    headers = [name for name in foreign if name.startswith("linux-headers")]
    if headers and case.installs_driver:
        text = "headers that follow the kernel"
        action = f"apt-mark unhold {' '.join(headers)}, or hold the kernel as well"
        yield case.warn("packages", f"{', '.join(headers)} on hold", text, action)
    driver = [name for name in foreign if nvidia_driver.is_driver_package(name.partition(":")[0])]
    if driver and case.installs_driver:
        yield case.stop(
            "packages",
            f"{host_list(driver)} on hold, which this project has not put there",
            f"packages of the driver that may become {case.driver_name}",
            f"apt-mark unhold them, or keep what is there: {_override('driver', provider='none')}",
        )


def _space(case: Case) -> Iterator[Said]:
    row = case.rules["space_mib"]
    needs: list[Mapping[str, int]] = []
    if case.installs_driver:
        needs.append(row["driver"]["any"])
    toolkit = case.parts.get("cuda", {})
    name = "distro" if toolkit.get("provider") == "distro" else minor(toolkit.get("version", ""))
    if toolkit.get("provider") in row["cuda"] and name not in map(minor, case.facts["cuda"]):
        needs.append(row["cuda"][toolkit["provider"]])
    free: Mapping[str, int] = case.facts["free_mib"]
    together: dict[int, dict[str, int]] = {}
    for need in needs:
        for folder, size in need.items():
            if folder in free:
                # Folders of one file system show the same free space.
                folders = together.setdefault(free[folder], {})
                folders[folder] = folders.get(folder, 0) + size
    for there_is, folders in together.items():
        needed = sum(folders.values())
        if there_is < needed:
            text = f"{needed} MiB for driver and CUDA" + case.source(row)
            found = f"{there_is} MiB free in {', '.join(folders)}"
            action = "free some, or, if you know better, nvidia_stack_accept: [space]"
            yield case.stop("space", found, text, action)


def _advisories(case: Case) -> Iterator[Said]:
    for row in case.rules["advisories"]:
        if case.version and not case.without and _within(case.driver_number, row["drivers"]):
            yield case.say(
                row,
                "driver's faults",
                f"driver {case.version}, which {row['fault']}",
                f"driver {row['fixed']} or newer",
                _override("driver", version=row["fixed"]) + ", with url and sha256 for a runfile",
            )


def judge(node: Host, parts: Parts, rules: Rules) -> Iterator[Said]:
    """Yield what the rules say of one host: whether it stops, and the finding. `node` is as in nvidia_stack."""
    case = Case(node, parts, rules)
    for rule in (_machine, _sources, _held, _space):
        yield from rule(case)
    # Rules of GPUs and drivers say nothing of a host that is declared to have none.
    if not case.without:
        for rule in (_generations, _cuda_and_driver, _framework, _nccl, _kernel, _advisories):
            yield from rule(case)
    yield from _compiler(case)
