# SPDX-License-Identifier: Apache-2.0
"""Tell to which family of operating systems this machine belongs, for messages about its packages."""

from __future__ import annotations

from pathlib import Path

from ...trainyard.software import system_packages

_FILES = (Path("/etc/os-release"), Path("/usr/lib/os-release"))


def system_family() -> str:
    """Return debian, redhat, suse or the system's own name, "" for a system that has none."""
    text = next((path.read_text(encoding="utf-8", errors="replace") for path in _FILES if path.is_file()), "")
    pairs = (line.partition("=") for line in text.splitlines())
    fields = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    return system_packages.family(fields.get("ID", ""), fields.get("ID_LIKE", ""))


def venv_advice(python: str) -> str:
    """Return what to do where a Python such as 3.11 has no ensurepip."""
    return system_packages.venv(system_family(), python)
