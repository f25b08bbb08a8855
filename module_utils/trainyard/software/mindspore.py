# SPDX-License-Identifier: Apache-2.0
"""Which combinations of MindSpore release, device, Python and CUDA exist, and what each release can do.

From the installation guides of each release (branches r1.7 to r2.6 of MindSpore's documentation) and the metadata of
the wheels of 2.7 to 2.10. CPU releases 2.9 and 2.10 are tested by trainyard; the rest is what the guides say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

DEVICES = ("cpu", "gpu", "ascend")
# Before 2.0 builds for devices are distributions with names of their own.
FORMER_NAMES = ("mindspore-gpu", "mindspore-ascend")
# What the accelerator facts call the vendor, and MindSpore the device.
DEVICE_OF_VENDOR: Mapping[str, str] = {"none": "cpu", "nvidia": "gpu", "ascend": "ascend"}


@dataclass(frozen=True)
class Cuda:
    """What one CUDA release asks for: the cuDNN that MindSpore was built with, and NVIDIA's least driver."""

    cudnn: str
    driver: str


CUDAS: Mapping[str, Cuda] = {
    "10.1": Cuda("7.6", "418.39"),
    "11.1": Cuda("8.0", "450.80.02"),
    "11.6": Cuda("8.5", "510.39.01"),
}


@dataclass(frozen=True)
class Release:
    """One minor release. `pythons` are the first and the last that it has wheels for."""

    devices: tuple[str, ...]
    pythons: tuple[str, str]
    cudas: tuple[str, ...] = ()
    # The release of Open MPI that its GPU and Ascend builds are documented with; "" where the guides name none.
    openmpi: str = ""
    # One distribution for all devices, or, before 2.0, `mindspore-gpu` and `mindspore-ascend` beside `mindspore`.
    unified: bool = True
    # The wheels of 2.7 to 2.9 say so; older ones are from before numpy 2.
    numpy_below: str = "2"


_FIRST = Release(DEVICES, ("3.7", "3.9"), ("10.1", "11.1"), "4.0.3", unified=False)
_LAST_WITH_GPU = Release(DEVICES, ("3.7", "3.9"), ("10.1", "11.1", "11.6"), "4.1.4")
_WITHOUT_GPU = Release(("cpu", "ascend"), ("3.9", "3.11"), openmpi="4.1.4")

RELEASES: Mapping[str, Release] = {
    "1.7": _FIRST,
    "1.8": _FIRST,
    "1.9": _FIRST,
    "1.10": _FIRST,
    "2.0": replace(_LAST_WITH_GPU, openmpi="4.0.3"),
    "2.1": _LAST_WITH_GPU,
    "2.2": _LAST_WITH_GPU,
    # Its guide covers Ascend only.
    "2.3": Release(("ascend",), ("3.8", "3.10"), openmpi="4.1.4"),
    "2.4": _WITHOUT_GPU,
    "2.5": _WITHOUT_GPU,
    "2.6": _WITHOUT_GPU,
    # Wheels for 3.12 came with 2.7.2.
    "2.7": _WITHOUT_GPU,
    "2.8": replace(_WITHOUT_GPU, pythons=("3.9", "3.12")),
    "2.9": replace(_WITHOUT_GPU, pythons=("3.9", "3.12")),
    # Its metadata allows numpy 2.
    "2.10": replace(_WITHOUT_GPU, pythons=("3.10", "3.12")),
}


# Builds for GPUs in the Python package index and the CUDA releases that they were built for, as the libraries of 1.7.0,
# 1.10.0 and 2.0.0 say; those between the first two are taken to be alike.
_INDEXED_GPU: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("1.7.0", "1.8.0", "1.8.1", "1.9.0", "1.10.0"), ("11.1",)),
    "2.0.0": ("11.1", "11.6"),
}
_INDEXED_ASCEND = ("1.7.0", "1.8.0", "1.8.1", "1.9.0", "1.10.0")


@dataclass(frozen=True)
class Feature:
    """Something that some releases do, on some devices; `last` is the last that documents it, "" where it stayed."""

    what: str
    first: str
    last: str
    devices: tuple[str, ...]
    instead: str


FEATURES: Mapping[str, Feature] = {
    "rank_from_node_id": Feature(
        "taking the rank from an integer MS_NODE_ID", "2.1", "", DEVICES, "let the scheduler give the ranks"
    ),
    "msrun": Feature("msrun", "2.3", "", DEVICES, "use job_launcher: mindspore"),
    "mpirun": Feature("training under mpirun", "1.7", "", ("gpu", "ascend"), "use job_launcher: mindspore"),
    "recovery": Feature(
        "taking back a single worker that died (in graph mode)",
        "1.7",
        "2.5",
        ("gpu",),
        "let the whole job start again from its last checkpoint (job_max_restarts)",
    ),
}


class UnknownVersion(ValueError):
    """A text is no version of MindSpore."""


def minor(version: str) -> str:
    """Return the minor release of a version: `2.10` of `2.10.0rc1`."""
    match = re.match(r"(\d+)\.(\d+)(?!\d)", version.strip())
    if match is None:
        raise UnknownVersion(f"{version!r} is no version of MindSpore, expected one such as 2.10.0")
    return f"{int(match[1])}.{int(match[2])}"


def why_not(version: str, device: str, feature: str) -> str:
    """Return why this MindSpore on this device does not do that (a key of FEATURES), with the way out; "" if it does.

    A release after the last one that is known here is taken to do what that one does.
    """
    wanted = FEATURES[feature]
    if device not in wanted.devices:
        devices = " and ".join(wanted.devices)
        return f"MindSpore supports {wanted.what} on {devices} only, not on {device}: {wanted.instead}"
    number = _number(minor(version))
    if number < _number(wanted.first) or (wanted.last and number > _number(wanted.last)):
        range_ = f"{wanted.first} to {wanted.last}" if wanted.last else f"{wanted.first} and newer"
        return f"MindSpore {version} does not support {wanted.what} ({range_} do): {wanted.instead}"
    return ""


def supports(version: str, device: str, feature: str) -> bool:
    """Tell whether this MindSpore does that (a key of FEATURES) on this device."""
    return not why_not(version, device, feature)


def distribution(version: str, device: str) -> str:
    """Return the name under which the wheel for this device is installed."""
    known = RELEASES.get(minor(version))
    return f"mindspore-{device}" if known and not known.unified and device != "cpu" else "mindspore"


def pythons(version: str) -> tuple[str, str]:
    """Return the first and the last Python that a known release has wheels for, empty texts for others."""
    known = RELEASES.get(minor(version))
    if known is None:
        return "", ""
    if re.match(r"2\.7\.[2-9]", version):
        return known.pythons[0], "3.12"
    return known.pythons


def combinations() -> str:
    """Return all combinations in words, releases that have the same ones together."""
    groups: dict[str, list[str]] = {}
    for name, release in RELEASES.items():
        by_device = [
            f"{device} (CUDA {', '.join(release.cudas)})" if device == "gpu" else device for device in release.devices
        ]
        text = f"for {', '.join(by_device)}, Python {release.pythons[0]} to {release.pythons[1]}"
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{_names(names)} {text}" for text, names in groups.items())


@dataclass(frozen=True)
class Wanted:
    """A wanted installation, as the role's variables give it; what stands at its default there is empty here."""

    version: str
    device: str = "cpu"
    cuda: str = ""
    wheel_url: str = ""
    wheel_sha256: str = ""
    packages: Sequence[str] = ()
    python_min: str = ""
    python_max: str = ""


def problems(wanted: Wanted) -> Iterator[str]:
    """Yield what is wrong with a wanted installation."""
    version, device = wanted.version, wanted.device
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.post|\.dev)\d+)?", version):
        yield f"mindspore_version is {version!r}, expected an exact release such as 2.10.0."
        return
    if re.search(r"\d(a|b|\.dev)\d", version) and not wanted.wheel_url:
        yield (
            f"MindSpore {version} is a release before the release, which indexes give up: give the address of its "
            "wheel in mindspore_wheel_url and its sum in mindspore_wheel_sha256."
        )
        return
    if device not in DEVICES:
        yield f"mindspore_device is {device!r}, expected {', '.join(DEVICES)}."
        return
    release = RELEASES.get(minor(version))
    if release is None:
        if not (wanted.python_min and wanted.python_max):
            yield (
                f"MindSpore {version} is not known here: set mindspore_python_min and mindspore_python_max to the "
                f"Pythons that it has wheels for. Known are: {combinations()}."
            )
    elif device not in release.devices:
        yield f"There is no MindSpore {version} for {device}. There are: {combinations()}."
        return
    else:
        yield from _numpy_problems(wanted, release)
        if device == "gpu" and wanted.cuda not in release.cudas:
            yield (
                f"mindspore_cuda is {wanted.cuda!r}, but MindSpore {version} was built for {_cudas(release)}: set the "
                "one that the nodes have."
            )
    if device != "gpu" and wanted.cuda:
        yield (
            f"mindspore_cuda is {wanted.cuda!r}, but mindspore_device is {device}: leave it empty, or set the device "
            "to gpu."
        )
    yield from _wheel_problems(wanted, release)


def _numpy_problems(wanted: Wanted, release: Release) -> Iterator[str]:
    for package in wanted.packages:
        match = re.match(r"numpy\s*==\s*(\d[\d.]*)", package, re.IGNORECASE)
        if match and _number(match[1]) >= _number(release.numpy_below):
            yield (
                f"mindspore_packages has {package!r}, but MindSpore {wanted.version} needs a numpy below "
                f"{release.numpy_below}, such as numpy==1.26.4."
            )


def _wheel_problems(wanted: Wanted, release: Release | None) -> Iterator[str]:
    if wanted.wheel_url and not re.fullmatch(r"[0-9a-f]{64}", wanted.wheel_sha256):
        yield (
            f"mindspore_wheel_sha256 is {wanted.wheel_sha256!r}, expected the 64 hexadecimal digits of the wheel's sum."
        )
    if wanted.wheel_sha256 and not wanted.wheel_url:
        yield "mindspore_wheel_sha256 is set without mindspore_wheel_url: set both or none."
    # From 2.0 on those for CPU have in them what Ascend needs.
    if wanted.wheel_url or wanted.device == "cpu" or (wanted.device == "ascend" and release is not _FIRST):
        return
    there = {version: cudas for version, cudas in _INDEXED_GPU.items() if wanted.cuda in cudas}
    indexed: Sequence[str] = list(there) if wanted.device == "gpu" else _INDEXED_ASCEND
    if wanted.version not in indexed:
        instead = f" Of this build the index has {', '.join(indexed)}." if indexed else ""
        yield (
            f"No package index has MindSpore {wanted.version} for {wanted.device}: give the address of its wheel in "
            f"mindspore_wheel_url and its sum in mindspore_wheel_sha256.{instead}"
        )


def plan(wanted: Wanted) -> dict[str, Any]:
    """Return what to install, for a wanted installation without problems."""
    name = distribution(wanted.version, wanted.device)
    least, most = pythons(wanted.version)
    cuda = CUDAS.get(wanted.cuda)
    return {
        "distribution": name,
        "pin": f"{name}=={wanted.version}",
        "wheels": {name: f"{wanted.wheel_url}#sha256={wanted.wheel_sha256}"} if wanted.wheel_url else {},
        "python_min": wanted.python_min or least,
        "python_max": wanted.python_max or most,
        "target": wanted.device.capitalize() if wanted.device == "ascend" else wanted.device.upper(),
        "driver": cuda.driver if cuda else "",
        "needs": f"CUDA {wanted.cuda}, cuDNN {cuda.cudnn}, NVIDIA driver {cuda.driver} or newer" if cuda else "",
    }


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _cudas(release: Release) -> str:
    return " or ".join(f"{cuda} with cuDNN {CUDAS[cuda].cudnn}" for cuda in release.cudas)


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
