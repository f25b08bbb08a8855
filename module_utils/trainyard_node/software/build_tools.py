# SPDX-License-Identifier: Apache-2.0
"""Find what a node has to compile extensions of Python with while a job runs. Nothing is started."""

from __future__ import annotations

import posixpath

from ..machine.tree import Tree
from . import package_folders

# By name of the tool: programs of which one is enough.
_PROGRAMS = {"c++": ("c++", "g++", "clang++"), "ninja": ("ninja",)}
_SYSTEM = ("/usr/local/bin", "/usr/bin", "/bin")


def build_tools(tree: Tree, venv: str | None) -> list[str]:
    """Return those of Python.h, c++ and ninja that the Python of an environment finds, or the system's own (None)."""
    folders = [*([f"{venv}/bin"] if venv else []), *_SYSTEM]
    found = [
        tool
        for tool, names in _PROGRAMS.items()
        if any(tree.exists(f"{folder}/{name}") for folder in folders for name in names)
    ]
    return ["Python.h", *found] if _has_headers(tree, venv) else found


def _has_headers(tree: Tree, venv: str | None) -> bool:
    config = package_folders.settings(tree, venv) if venv else {}
    version = package_folders.short_version(config) or "3"
    # An environment of conda has headers of its own.
    prefixes = [*([venv] if venv else []), posixpath.dirname(config.get("home", "").rstrip("/")) or "/usr"]
    return any(
        tree.exists(f"{prefix}/include/{name}/Python.h")
        for prefix in prefixes
        for name in tree.names(f"{prefix}/include")
        if name.startswith(f"python{version}")
    )
