# SPDX-License-Identifier: Apache-2.0
"""Tell to which family of operating systems this machine belongs, for messages about its packages."""

from __future__ import annotations

from pathlib import Path

from ...trainyard.nvidia.nvidia_hardware import read_os
from ...trainyard.software import system_packages

_FILES = (Path("/etc/os-release"), Path("/usr/lib/os-release"))


def system_family() -> str:
    """Return debian, redhat, suse or the system's own name, "" for a system that has none."""
    text = next((path.read_text(encoding="utf-8", errors="replace") for path in _FILES if path.is_file()), "")
    return read_os(text)["family"]


def venv_advice(python: str) -> str:
    """Return what to do where a Python such as 3.11 has no ensurepip."""
    return system_packages.venv(system_family(), python)
