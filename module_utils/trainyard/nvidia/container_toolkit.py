# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA Container Toolkit: the specification by which containers get the GPUs (CDI), and findings on it.

A state is the one that the step `cdi` of the module container_runtime returns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from ..software.containers import MARK

# The device by which Podman gives a container all GPUs.
ALL_GPUS = "nvidia.com/gpu=all"
_MAX_TEXT = 200


def toolkit_version(text: str) -> str:
    """Return the version in the output of `nvidia-ctk --version`; "" if there is none."""
    match = re.search(r"^NVIDIA Container Toolkit CLI version (\S+)", text, re.M)
    return match[1] if match else ""


def driver_version(text: str) -> str:
    """Return the version that nvidia-smi printed for the first GPU; "" if it failed."""
    lines = text.strip().splitlines() or [""]
    return lines[0].strip() if re.fullmatch(r"\d+(\.\d+)+", lines[0].strip()) else ""


def listed_devices(text: str) -> list[str]:
    """Return the devices in the output of `nvidia-ctk cdi list`, which logs as well."""
    return re.findall(r"^[\w.-]+/[\w.-]+=\S+$", text, re.M)


def header(driver: str, toolkit: str, gpus: str) -> str:
    """Return the first lines of the specification; they differ if driver, toolkit or GPUs do (`nvidia-smi -L`)."""
    digest = hashlib.sha256(gpus.strip().encode()).hexdigest()[:16]
    return f"{MARK}\n# Driver {driver}, toolkit {toolkit}, GPUs {digest}.\n"


def is_due(specification: str | None, wanted: str) -> bool:
    """Return whether the role writes the specification, which begins with `wanted`; that of somebody else stays."""
    return specification is None or (specification.startswith(MARK) and not specification.startswith(wanted))


def cdi_findings(states: Sequence[Mapping[str, Any]], version: str) -> list[Finding]:
    """Find why containers would not get the GPUs; `version` is the requested one of the package, "" for any."""
    return [finding.on(str(state["host"])) for state in states for finding in _of_state(state, version)]


def _of_state(state: Mapping[str, Any], version: str) -> Iterator[Finding]:
    run = "run the role container_runtime"
    if not state["driver"]:
        found = f"nvidia-smi: {state['driver_output'][:_MAX_TEXT] or 'not installed'}"
        action = "run the role nvidia_driver and reboot, or set container_runtime_nvidia to false for this host"
        yield Finding("driver of the GPUs", found, "a driver that answers", action)
        return
    if not state["toolkit"]:
        yield Finding("NVIDIA Container Toolkit", "no nvidia-ctk that answers", "the toolkit", run)
        return
    if version and state["toolkit"] != version.partition("-")[0]:
        found, expected = f"version {state['toolkit']}", f"version {version} (container_runtime_nvidia_toolkit_version)"
        yield Finding("NVIDIA Container Toolkit", found, expected, run)
    if state["due"]:
        found = (
            f"{state['path']} of another driver, toolkit or set of GPUs" if state["exists"] else f"no {state['path']}"
        )
        yield Finding("specification of the GPUs", found, "one of the present GPUs", run)
    elif ALL_GPUS not in state["listed"]:
        found = f"nvidia-ctk cdi list names {', '.join(state['listed'][:4]) or 'no device'}"
        action = f"remove {state['path']}, and run the role container_runtime, which writes it again"
        yield Finding("specification of the GPUs", found, ALL_GPUS, action)
