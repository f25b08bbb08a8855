# SPDX-License-Identifier: Apache-2.0
"""Which sources have a version of NCCL: NVIDIA's repository by operating system, wheels, archives with known sums.

The tables are in roles/nvidia_stack/vars/main/rules.yml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import nvidia_hardware
from .case import Case, Result, override, range_text, row_of, within

Offer = Mapping[str, str]


def _offers(case: Case, version: str, cuda: str) -> Iterator[tuple[str, Offer]]:
    """Yield the nearest version that each source of this host has, with the fields that select it."""
    number, major = nvidia_hardware.number(version), nvidia_hardware.number(cuda)[:1]
    for row in case.rules["nccl_archives"]:
        if nvidia_hardware.number(row["cuda"])[:1] == major and row["arch"] == case.facts["arch"]:
            fields = {"version": row["version"], "cuda": f'"{row["cuda"]}"', "url": row["url"], "sha256": row["sha256"]}
            yield row["version"], {"provider": "archive", **fields}
    wheels = row_of(case.rules, "nccl_wheels", cuda=cuda.partition(".")[0])
    if wheels:
        first, last = wheels["versions"]
        near = (
            version if within(number, wheels["versions"]) else first if number < nvidia_hardware.number(first) else last
        )
        yield near, {"provider": "wheel", "version": near}
    repository = row_of(case.rules, "network_repo", os=case.os)
    for row in case.rules["nccl"] if repository and repository.get("nccl") else ():
        builds = [build for build in row["cuda"] if nvidia_hardware.number(build)[:1] == major]
        if builds and repository and within(nvidia_hardware.number(row["version"]), repository["nccl"]):
            fields = {"version": row["version"], "cuda": f'"{builds[-1]}"'}
            yield row["version"], {"provider": "network_repo", **fields}


def _distance(version: str, other: str) -> tuple[int, ...]:
    """Return how far apart two versions are, number by number."""
    return tuple(abs(one - two) for one, two in zip(nvidia_hardware.number(version), nvidia_hardware.number(other)))


def alternatives(case: Case, version: str, cuda: str) -> str:
    """Return the settings for that version of NCCL or the nearest one, the nearest first."""
    if not version or not cuda:
        return override("nccl", provider="wheel", version="...", cuda="...")
    offers = sorted(_offers(case, version, cuda), key=lambda offer: _distance(version, offer[0]))
    nearest = {fields["provider"]: (near, fields) for near, fields in reversed(offers)}
    if not nearest:
        return override("nccl", version="...", cuda="...")
    first = sorted(nearest.values(), key=lambda offer: _distance(version, offer[0]))
    return ", or ".join(
        f"take {near}{'' if near == version else f' in place of {version}'} by {override('nccl', **fields)}"
        for near, fields in first
    )


def sources(case: Case) -> Iterator[Result]:
    """Yield findings about the source of a stack's NCCL on this host."""
    version, cuda = case.nccl["version"], case.nccl["cuda"]
    if not version or not cuda:
        return
    if case.nccl["provider"] == "network_repo":
        yield from _of_repository(case, version, cuda)
    elif case.nccl["provider"] == "wheel":
        row = row_of(case.rules, "nccl_wheels", cuda=cuda.partition(".")[0])
        if row and not within(nvidia_hardware.number(version), row["versions"]):
            expected = f"NCCL {range_text(row['versions'])}"
            action = alternatives(case, version, cuda)
            yield case.by_row(row, "NCCL", f"NCCL {version} as a wheel for CUDA {row['cuda']}", expected, action)


def _of_repository(case: Case, version: str, cuda: str) -> Iterator[Result]:
    row = row_of(case.rules, "network_repo", os=case.os)
    if row is None:
        return
    found = f"NCCL {version}+cuda{cuda} from NVIDIA's repository for {case.os}"
    if not row.get("nccl"):
        expected = "a system for which that repository is known to have NCCL" + case.source({"source": "nccl"})
        action = "go on (the role nccl lists what there is before it changes anything), or "
        yield case.warn("NCCL", found, expected, action + alternatives(case, version, cuda))
    elif not within(nvidia_hardware.number(version), row["nccl"]):
        expected = f"NCCL {range_text(row['nccl'])}" + case.source({"source": "nccl_systems"})
        yield case.stop("NCCL", found, expected, alternatives(case, version, cuda))
