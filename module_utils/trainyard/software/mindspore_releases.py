# SPDX-License-Identifier: Apache-2.0
"""Which combinations of MindSpore release, device, Python and CUDA exist, and what each release can do.

From the installation guides of each release (branches r1.7 to r2.6 of MindSpore's documentation) and the metadata of
the wheels of 2.7 to 2.10. CPU releases 2.9 and 2.10 are tested by trainyard; the rest is what the guides say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ..base.findings import Finding
from .requirements import input_finding, too_new_findings, version_numbers, wheel_setting_findings

DEVICES = ("cpu", "gpu", "ascend")
# Before 2.0 builds for devices are distributions with names of their own.
FORMER_NAMES = ("mindspore-gpu", "mindspore-ascend")
# The vendor in the accelerator facts, and MindSpore's name of the device.
DEVICE_OF_VENDOR: Mapping[str, str] = {"none": "cpu", "nvidia": "gpu", "ascend": "ascend"}


class Cuda(NamedTuple):
    """The cuDNN that MindSpore was built with for a CUDA release, and the oldest driver that NVIDIA names for it."""

    cudnn: str
    driver: str


CUDAS: Mapping[str, Cuda] = {
    "10.1": Cuda("7.6", "418.39"),
    "11.1": Cuda("8.0", "450.80.02"),
    "11.6": Cuda("8.5", "510.39.01"),
}
# The wheels are linked with GCC's OpenMP library but do not bring it along.
_OPENMP = {
    "file": "libgomp.so.1",
    "packages": {"Debian": "libgomp1", "RedHat": "libgomp", "Suse": "libgomp1"},
    "needed_by": "MindSpore",
    "switch": "mindspore_manage_system",
}
# The wheels of 2.7 to 2.9 require it; older ones are from before numpy 2.
_NUMPY_BELOW = "2"


class Release(NamedTuple):
    """One minor release; `pythons` are the first and the last that it has wheels for."""

    devices: tuple[str, ...]
    pythons: tuple[str, str]
    cudas: tuple[str, ...] = ()
    # One distribution for all devices, or, before 2.0, `mindspore-gpu` and `mindspore-ascend` beside `mindspore`.
    unified: bool = True


_FIRST = Release(DEVICES, ("3.7", "3.9"), ("10.1", "11.1"), unified=False)
_LAST_WITH_GPU = Release(DEVICES, ("3.7", "3.9"), ("10.1", "11.1", "11.6"))
_WITHOUT_GPU = ("cpu", "ascend")

RELEASES: Mapping[str, Release] = {
    **dict.fromkeys(("1.7", "1.8", "1.9", "1.10"), _FIRST),
    **dict.fromkeys(("2.0", "2.1", "2.2"), _LAST_WITH_GPU),
    # Its guide covers Ascend only.
    "2.3": Release(("ascend",), ("3.8", "3.10")),
    # Wheels of 2.7 for 3.12 came with 2.7.2.
    **dict.fromkeys(("2.4", "2.5", "2.6", "2.7"), Release(_WITHOUT_GPU, ("3.9", "3.11"))),
    **dict.fromkeys(("2.8", "2.9"), Release(_WITHOUT_GPU, ("3.9", "3.12"))),
    "2.10": Release(_WITHOUT_GPU, ("3.10", "3.12")),
}

# Builds for GPUs in the Python package index and the CUDA releases that they were built for, as the libraries of 1.7.0,
# 1.10.0 and 2.0.0 say; those between the first two are assumed to be alike.
_INDEXED_GPU: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("1.7.0", "1.8.0", "1.8.1", "1.9.0", "1.10.0"), ("11.1",)),
    "2.0.0": ("11.1", "11.6"),
}
_INDEXED_ASCEND = ("1.7.0", "1.8.0", "1.8.1", "1.9.0", "1.10.0")
_finding = partial(input_finding, "mindspore")
_GIVE_WHEEL = "set mindspore_wheel_url to the address of its wheel and mindspore_wheel_sha256 to its sum"


class Feature(NamedTuple):
    """Something that some releases do, on some devices; `last` is the last that documents it, "" if all newer do."""

    what: str
    first: str
    last: str
    devices: tuple[str, ...]


FEATURES: Mapping[str, Feature] = {
    "rank_from_node_id": Feature("taking the rank from an integer MS_NODE_ID", "2.1", "", DEVICES),
    "msrun": Feature("msrun", "2.3", "", DEVICES),
    "mpirun": Feature("training under mpirun", "1.7", "", ("gpu", "ascend")),
    "recovery": Feature("restarting a single dead worker (in graph mode)", "1.7", "2.5", ("gpu",)),
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
    """Return why MindSpore does not support a feature (a key of FEATURES) on a device; "" if it does.

    A release that is newer than all known ones counts as the last of them.
    """
    requested = FEATURES[feature]
    if device not in requested.devices:
        devices = " and ".join(requested.devices)
        return f"MindSpore supports {requested.what} on {devices} only, not on {device}"
    number = version_numbers(minor(version))
    if number < version_numbers(requested.first) or (requested.last and number > version_numbers(requested.last)):
        range_ = f"{requested.first} to {requested.last}" if requested.last else f"{requested.first} and newer"
        return f"MindSpore {version} does not support {requested.what} ({range_} do)"
    return ""


def supports(version: str, device: str, feature: str) -> bool:
    """Return whether this MindSpore supports a feature (a key of FEATURES) on this device."""
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
    return (known.pythons[0], "3.12") if re.match(r"2\.7\.[2-9]", version) else known.pythons


def combinations() -> str:
    """Return all combinations in words, releases that have the same ones together."""
    groups: dict[str, list[str]] = {}
    for name, release in RELEASES.items():
        by_device = [
            f"{device} (CUDA {', '.join(release.cudas)})" if device == "gpu" else device for device in release.devices
        ]
        text = f"for {', '.join(by_device)}, Python {release.pythons[0]} to {release.pythons[1]}"
        groups.setdefault(text, []).append(name)
    return "; ".join(f"{' to '.join(dict.fromkeys((names[0], names[-1])))} {text}" for text, names in groups.items())


@dataclass(frozen=True)
class Settings:
    """The variables of the role mindspore that decide what is installed; empty where they have their default."""

    version: str
    device: str = "cpu"
    cuda: str = ""
    wheel_url: str = ""
    wheel_sha256: str = ""
    packages: Sequence[str] = ()
    python_min: str = ""
    python_max: str = ""


def input_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the settings."""
    version, device, cuda = settings.version, settings.device, settings.cuda
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc|\.post|\.dev)\d+)?", version):
        yield _finding(f"mindspore_version is {version!r}", "an exact release such as 2.10.0")
        return
    if re.search(r"\d(a|b|\.dev)\d", version) and not settings.wheel_url:
        expected = "the address of its wheel"
        yield _finding(f"MindSpore {version} is a prerelease, which package indexes remove", expected, _GIVE_WHEEL)
        return
    if device not in DEVICES:
        yield _finding(f"mindspore_device is {device!r}", " or ".join(DEVICES))
        return
    release = RELEASES.get(minor(version))
    if release is None:
        if not (settings.python_min and settings.python_max):
            action = "set mindspore_python_min and mindspore_python_max to the Pythons that it has wheels for"
            yield _finding(f"MindSpore {version} is not known here", f"a known release: {combinations()}", action)
    elif device not in release.devices:
        yield _finding(f"there is no MindSpore {version} for {device}", f"one of these: {combinations()}")
        return
    else:
        below = {"numpy": _NUMPY_BELOW}
        yield from too_new_findings("mindspore", f"MindSpore {version}", settings.packages, below)
        if device == "gpu" and cuda not in release.cudas:
            built = " or ".join(f"{each} with cuDNN {CUDAS[each].cudnn}" for each in release.cudas)
            expected = f"one that MindSpore {version} was built for: {built}"
            yield _finding(f"mindspore_cuda is {cuda!r}", expected, "set the one that the nodes have")
    if device != "gpu" and cuda:
        found = f"mindspore_cuda is {cuda!r}, and mindspore_device {device}"
        yield _finding(found, "a CUDA release for gpu alone", "leave it empty, or set the device to gpu")
    yield from _wheel_findings(settings)


def _wheel_findings(settings: Settings) -> Iterator[Finding]:
    yield from wheel_setting_findings("mindspore", settings.wheel_url, settings.wheel_sha256)
    # From 2.0 on the wheels for CPU also hold what Ascend needs.
    unified = distribution(settings.version, settings.device) == "mindspore"
    if settings.wheel_url or (unified and settings.device != "gpu"):
        return
    there = [version for version, cudas in _INDEXED_GPU.items() if settings.cuda in cudas]
    indexed: Sequence[str] = there if settings.device == "gpu" else _INDEXED_ASCEND
    if settings.version not in indexed:
        found = f"no package index has MindSpore {settings.version} for {settings.device}"
        expected = f"{', '.join(indexed)}, which the index has, or a wheel" if indexed else "a wheel"
        yield _finding(found, expected, _GIVE_WHEEL)


def plan(settings: Settings) -> dict[str, Any]:
    """Return what to install for settings without findings."""
    name = distribution(settings.version, settings.device)
    least, most = pythons(settings.version)
    cuda = CUDAS.get(settings.cuda)
    return {
        "pins": [f"{name}=={settings.version}"],
        "wheels": {name: f"{settings.wheel_url}#sha256={settings.wheel_sha256}"} if settings.wheel_url else {},
        "python_min": settings.python_min or least,
        "python_max": settings.python_max or most,
        "versions": {name: f"{name} %s for {settings.device}", "numpy": "numpy %s"},
        "verify_environment": {"DEVICE_TARGET": "Ascend" if settings.device == "ascend" else settings.device.upper()},
        "libraries": [_OPENMP],
        "driver": cuda.driver if cuda else "",
        "needs": f"CUDA {settings.cuda}, cuDNN {cuda.cudnn}, NVIDIA driver {cuda.driver} or newer" if cuda else "",
    }
